"""The host's handle on one zygote process: start it, give it spaces, have it fork children.

Thread-safe. It does not serve a child (`serving`) and does not decide on a level (`levels`).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from llamea_gpu.errors import SandboxError
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.sandbox.launch import environment
from llamea_gpu.sandbox.zygote import Settings
from llamea_gpu.spaces.space import SearchSpace

_START_TIMEOUT_S = 120.0  # a cold disk and 1,700 modules
_REPORT_TIMEOUT_S = 60.0  # the zygote's answer, when it is alive
_CLOSE_TIMEOUT_S = 5.0
# Rows of all the spaces that one zygote keeps (about 300 bytes each, and they slow down its forks);
# spaces not used for longest are dropped, and sent again when they are wanted.
_MAX_ROWS = 1_000_000
_MAX_REPORT_BYTES = 4096


class ZygoteDied(Exception):  # noqa: N818 - handled by the pool, never seen by a caller
    """The zygote is gone, and with it the run. The pool starts another and repeats the run."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended, from the kernel through the zygote. ``status`` is as of ``os.wait``."""

    status: int
    cpu_s: float


class Child:
    """One forked child: its channel, and the means to watch and kill it. A context manager."""

    def __init__(self, channel: socket.socket, report: socket.socket) -> None:
        self.channel = channel
        self._report = report
        self._pidfd = -1
        report.settimeout(_REPORT_TIMEOUT_S)
        message, descriptors = self._receive()
        if len(descriptors) != 1:
            raise ZygoteDied(f"no pidfd came with {message}")
        self._pidfd = descriptors[0]
        self._cpu_clock = _cpu_clock(self._pidfd)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self._pidfd)
        self.channel.close()
        self._report.close()

    def cpu_s(self) -> float | None:
        """CPU seconds used so far, by the kernel's count; None once the child has been reaped."""
        try:
            return time.clock_gettime(self._cpu_clock)
        except OSError:
            return None

    def kill(self) -> None:
        """SIGKILL, through the pidfd: never to a process that has taken over the number."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def ended(self, within_s: float) -> bool:
        """Whether the process ends by itself within that time."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(1e3 * within_s))

    def wait(self) -> Ending:
        """How the child ended. It must have been killed, or be ending.

        Raises:
            ZygoteDied: the zygote does not say.
        """
        message, _ = self._receive()
        return Ending(**message)

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._report, _MAX_REPORT_BYTES, 1)
        except OSError as error:
            raise ZygoteDied(f"no report of the run: {error}") from error
        if not data:
            raise ZygoteDied("the zygote closed the run's report")
        return json.loads(data), list(descriptors)


class ZygoteProcess:
    """A running zygote."""

    def __init__(self, command: Callable[[int], list[str]], settings: Settings) -> None:
        """Start it; ``command`` makes the command line from the control socket's number.

        Raises:
            SandboxError: it did not come up; the message has the end of its standard error.
        """
        started = time.perf_counter()
        self._lock = threading.Lock()
        self._spaces: OrderedDict[str, int] = OrderedDict()  # fingerprint -> rows
        self._control, zygote_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with zygote_end, tempfile.TemporaryFile() as errors:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    command(zygote_end.fileno()),
                    env=environment(),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=[zygote_end.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                self._control.close()
                raise SandboxError(f"the zygote cannot be started: {error}") from error
            zygote_end.close()
            self.identity = self._greet(settings, errors)
        self.start_s = time.perf_counter() - started

    @property
    def pid(self) -> int:
        """Of the process that was started: the zygote, or bubblewrap around it."""
        return self._process.pid

    def fork(self, space: SearchSpace | None, limits: Limits) -> Child:
        """A new child that has ``space``, if any, and is hardening itself.

        Raises:
            ZygoteDied: there is no zygote to ask.
        """
        ours, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        report, their_report = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"do": "run", "cpu_s": limits.cpu_s, "memory_bytes": limits.memory_bytes}
        try:
            with child_end, their_report, self._lock:
                if space is not None:
                    self._provide(space)
                self._send(request, [child_end.fileno(), their_report.fileno()])
            return Child(ours, report)
        except BaseException:
            ours.close()
            report.close()
            raise

    def close(self) -> None:
        """End the zygote and every child of it. Children are gone when it returns."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)  # wakes a thread that is sending
        with self._lock:
            self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _greet(self, settings: Settings, errors: Any) -> str:
        self._control.settimeout(_START_TIMEOUT_S)
        answer = b""
        with contextlib.suppress(OSError, ZygoteDied):
            proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
            try:
                self._send({"do": "start", "settings": asdict(settings)}, [proc])
            finally:
                os.close(proc)
            answer = self._control.recv(_MAX_REPORT_BYTES)
        if not answer:
            self.close()
            errors.seek(0)
            stderr = errors.read()[-1500:].decode(errors="replace").strip()
            raise SandboxError(
                f"the zygote did not start (exit status {self._process.returncode}): "
                f"{stderr or 'it said nothing'}"
            )
        identity: str = json.loads(answer)["identity"]
        return identity

    def _provide(self, space: SearchSpace) -> None:
        """Make sure that the zygote has ``space``, and not too many others."""
        fingerprint = space.fingerprint
        if fingerprint in self._spaces:
            self._spaces.move_to_end(fingerprint)
            return
        while self._spaces and sum(self._spaces.values()) + space.size > _MAX_ROWS:
            oldest, _ = self._spaces.popitem(last=False)
            self._send({"do": "forget", "space": oldest}, [])
        with open(os.memfd_create("space"), "w+b") as file:
            file.write(space.to_bytes())
            file.flush()
            self._send({"do": "space", "space": fingerprint}, [file.fileno()])
        self._spaces[fingerprint] = space.size

    def _send(self, message: dict[str, Any], descriptors: list[int]) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)
        except OSError as error:
            raise ZygoteDied(f"the zygote does not listen: {error}") from error


def _cpu_clock(pidfd: int) -> int:
    """The clock id of a process's CPU time (see clock_getcpuclockid(3))."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        pid = next(int(line.split()[1]) for line in file if line.startswith("Pid:"))
    return (~pid << 3) | 2
