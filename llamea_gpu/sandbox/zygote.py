"""The zygote: a clean process that holds libraries and spaces, and forks a hardened child a run.

It is started by `exec` (never forked from the host, whose memory has the measurements), with an
empty environment. It obeys the host's control socket only, handles no candidate source, and ends
when the host does. It neither serves a run (`serving` does, on the host) nor judges one.

Control packets, host to zygote, JSON with descriptors attached:

    {"do": "start", ...Settings} [/proc]             once; answered on the socket by {"ready": ...}
    {"do": "space", "space": fingerprint} [memfd]    keep a SearchSpace
    {"do": "forget", "space": fingerprint}
    {"do": "run", "cpu_s", "memory_bytes"} [channel, report]

The report socket of a run carries its pidfd (a JSON packet ``{"pid": ...}`` with the descriptor)
and, when the child has ended, ``{"status", "cpu_s"}``; then it is closed.
"""

from __future__ import annotations

import array
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any

from llamea_gpu.sandbox import child, concealment, hardening, preload, protocol
from llamea_gpu.spaces.space import SearchSpace

_MAX_CONTROL_BYTES = 65536
_MAX_DESCRIPTORS = 2
_STATUS_UNHARDENED = 70
_STATUS_BROKEN = 71


@dataclass(frozen=True, slots=True)
class Settings:
    """What the zygote and its children are to do; the host's choice of level.

    ``seccomp`` is the compiled filter in hexadecimal, empty for none. ``isolated`` (children change
    their identity, and no data is executable) is False only where no isolation is claimed.
    """

    library: str
    landlock: bool
    seccomp: str
    isolated: bool


@dataclass(slots=True)
class _Run:
    pid: int
    pidfd: int
    report: socket.socket


def main(control_fd: int) -> None:
    """Serve the control socket until the host closes it; never returns to the caller's code."""
    control = socket.socket(fileno=control_fd)
    request, (proc,) = _receive(control)
    settings = Settings(**request["settings"])
    preload.load(settings.library)
    identity = _choose_identity() if settings.isolated else "unchanged"
    concealment.conceal(sys.argv[2:])
    if settings.isolated:
        hardening.forbid_executable_data(proc)
    os.close(proc)
    zygote = Zygote(control, settings, identity)
    hardening.forbid_tracing()
    gc.collect()
    gc.freeze()  # so that a child's collector does not copy every page
    control.send(json.dumps({"ready": True, "identity": identity}).encode())
    zygote.serve()
    os._exit(0)


def _receive(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """One control packet; an empty request when the host has closed the socket."""
    data, descriptors, _, _ = socket.recv_fds(control, _MAX_CONTROL_BYTES, _MAX_DESCRIPTORS)
    return (json.loads(data) if data else {}), list(descriptors)


def _choose_identity() -> str:
    """How children give up root: ``nobody``, ``stripped`` (same uid, no capabilities), ``own``."""
    if os.getuid() != 0:
        return "own"
    pid = os.fork()
    if pid == 0:
        try:
            hardening.become_nobody()
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return "nobody" if status == 0 else "stripped"


class Zygote:
    """The loop: control packets in, children out."""

    def __init__(self, control: socket.socket, settings: Settings, identity: str) -> None:
        self._control = control
        self._settings = settings
        self._identity = identity
        self._seccomp = bytes.fromhex(settings.seccomp)
        self._landlock = _high_ruleset() if settings.landlock else -1
        self._pid = os.getpid()
        self._spaces: dict[str, SearchSpace] = {}
        self._runs: dict[int, _Run] = {}  # by pidfd
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> None:
        """Until the control socket is closed; then every child is killed."""
        control_fd = self._control.fileno()
        while True:
            for ready, _ in self._poll.poll():
                if ready != control_fd:
                    self._reap(self._runs.pop(ready))
                elif not self._obey():
                    self._end_all()
                    return

    def _end_all(self) -> None:
        for run in self._runs.values():
            os.kill(run.pid, signal.SIGKILL)
        for run in self._runs.values():
            os.waitpid(run.pid, 0)

    def _obey(self) -> bool:
        request, descriptors = _receive(self._control)
        match request.get("do"):
            case "run":
                self._fork(request, *descriptors)
            case "space":
                self._keep_space(request["space"], *descriptors)
            case "forget":
                self._spaces.pop(request["space"], None)
            case _:
                return False
        return True

    def _keep_space(self, fingerprint: str, memfd: int) -> None:
        with open(memfd, "rb") as file:
            file.seek(0)
            data = file.read()
        space = SearchSpace.from_bytes(data)
        space.prepare()
        self._spaces[fingerprint] = space
        gc.freeze()

    def _fork(self, request: dict[str, Any], channel: int, report_fd: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._be_child(channel, request["cpu_s"], request["memory_bytes"])
        os.close(channel)
        pidfd = os.pidfd_open(pid)
        report = socket.socket(fileno=report_fd)
        self._runs[pidfd] = _Run(pid, pidfd, report)
        self._poll.register(pidfd, select.POLLIN)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [pidfd]))]
        _send(report, {"pid": pid}, ancillary)

    def _reap(self, run: _Run) -> None:
        self._poll.unregister(run.pidfd)
        _, status, usage = os.wait4(run.pid, 0)
        cpu_s = usage.ru_utime + usage.ru_stime
        _send(run.report, {"status": status, "cpu_s": cpu_s})
        run.report.close()
        os.close(run.pidfd)

    def _be_child(self, channel: int, cpu_s: float, memory_bytes: int) -> None:
        """Never returns. Nothing of a candidate is read before the last line of `_harden`."""
        try:
            self._harden(channel, cpu_s, memory_bytes)
        except hardening.ParentEndedError:
            os._exit(_STATUS_BROKEN)  # as if it had died with it: the host repeats the run
        except BaseException as error:
            text = protocol.KIND.pack(protocol.UNHARDENED) + f"{error!r}".encode()
            os.write(hardening.CHANNEL_FD, text[: protocol.MAX_REQUEST_BYTES])
            os._exit(_STATUS_UNHARDENED)
        try:
            child.run(self._spaces)
        except BaseException:
            os._exit(_STATUS_BROKEN)
        os._exit(0)

    def _harden(self, channel: int, cpu_s: float, memory_bytes: int) -> None:
        os.setsid()
        landlock = hardening.isolate_descriptors(channel, self._landlock)
        hardening.limit_resources(cpu_s, memory_bytes)
        if self._identity == "nobody":
            hardening.become_nobody()
        elif self._identity == "stripped":
            hardening.drop_capabilities()
        hardening.die_with_parent(self._pid)
        hardening.forbid_tracing()
        hardening.forbid_new_privileges()
        if landlock >= 0:
            hardening.enter_landlock(landlock)
        if self._seccomp:
            hardening.enter_seccomp(self._seccomp)


def _high_ruleset() -> int:
    """The Landlock ruleset on a descriptor that `isolate_descriptors` does not overwrite."""
    low = hardening.create_landlock_ruleset()
    high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 16)
    os.close(low)
    return high


def _send(
    report: socket.socket,
    message: dict[str, Any],
    ancillary: list[tuple[int, int, array.array[int]]] | None = None,
) -> None:
    try:
        report.sendmsg([json.dumps(message).encode()], ancillary or [])
    except OSError:  # the host gave the run up and closed its end
        return
