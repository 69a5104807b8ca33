"""A process that has imported what workers need, and forks them.

Importing PyTorch, Triton and Helion takes seconds, and sixteen processes that do it at once disturb
one another: here it is done once. There are two kinds:

* :class:`Template` is started afresh and imports modules. Its forks may use the GPU: CUDA does not
  survive a fork, and the template touches none.
* :class:`ForkedTemplate` is a fork of this process with all that is in its memory, there within
  milliseconds. Where CUDA is in use here, its forks may not use the GPU, but they may compile.

A template dies with its owner, and its forks die with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from time import monotonic, sleep

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.005


class Template:
    """The owner's handle. A context manager: leaving it ends the process and its forks.

    Args:
        modules: to import; one that is not there is left to the workers to complain of.
        log: for what they print as they are imported.
    """

    def __init__(self, modules: Sequence[str], log: Path) -> None:
        self._modules, self._log = list(modules), log
        self._last = 0
        self._control, child_end = Pipe()
        with child_end:
            self.pid = self._start(child_end)

    def __enter__(self) -> Template:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def fork(self, connection: Connection, log: Path) -> int:
        """Have a worker serve ``connection``, with its output in ``log``; returns its number.

        Does not wait for it. If the template is gone, a new one is started.
        """
        if not self.is_alive():
            self._control.close()
            self._control, child_end = Pipe()
            with child_end:
                self.pid = self._start(child_end)
        self._last += 1
        with contextlib.suppress(OSError):  # it has just died: so has the connection
            self._control.send(("fork", self._last, str(log)))
            send_handle(self._control, connection.fileno(), self.pid)
        return self._last

    def end(self, number: int, wait_s: float) -> int | None:
        """End a worker, with all that it started, at the latest after ``wait_s``.

        Returns:
            Its exit status (negative: the signal), or None when it went with its template.
        """
        try:
            self._control.send(("end", number, wait_s))
            status: int | None = self._control.recv()
        except (EOFError, OSError):
            return None
        return status

    def abandon(self, number: int) -> None:
        """Kill a worker, with all that it started, and do not wait until it is gone.

        A process that uses a GPU takes a good part of a second for that.
        """
        with contextlib.suppress(OSError):
            self._control.send(("abandon", number, None))

    def stop(self) -> None:
        """End it, and every worker that is left."""
        self._control.close()
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def is_alive(self) -> bool:
        """Whether it runs."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.pid = 0
        return bool(self.pid)

    def _start(self, control: Connection) -> int:
        """Start the process that serves the other end of ``control``; returns its pid."""
        with self._log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - this module
                [sys.executable, "-m", __name__, str(control.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[control.fileno()],
                start_new_session=True,  # a Ctrl-C is for the owner, which ends in order
            )
        process.returncode = 0  # it is reaped here, by its pid
        with contextlib.suppress(OSError):
            self._control.send((sys.path, self._modules))
        return process.pid


class ForkedTemplate(Template):
    """A template that is a fork of this process; see the module's docstring.

    A stage need not be picklable for it: see :func:`llamea_gpu.engine.early.inherited`.
    """

    def __init__(self, log: Path) -> None:
        super().__init__((), log)

    def _start(self, control: Connection) -> int:
        owner = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            gc.disable()  # what this process owns is not to be finalised in a copy of it
            gc.freeze()
            os.setsid()
            _die_with(owner)
            self._control.close()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _redirect(os.devnull, self._log)
            serve(control)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)


def main(control: Connection) -> None:
    """A fresh template: import, then serve."""
    with contextlib.suppress(EOFError, OSError):
        sys.path[:], modules = control.recv()
        gc.disable()  # to look for garbage among what stays is a third of importing Helion
        _import(modules)
        gc.freeze()  # nor in the workers
        gc.enable()
        serve(control)


def serve(control: Connection) -> None:
    """Fork and end workers until the owner is gone."""
    pids: dict[int, int] = {}
    abandoned: set[int] = set()
    with contextlib.suppress(EOFError, OSError):
        while True:
            command, number, detail = control.recv()
            abandoned -= {pid for pid in abandoned if os.waitpid(pid, os.WNOHANG)[0]}
            if command == "fork":
                pids[number] = _fork(control, detail)
            elif command == "abandon":
                if (pid := pids.pop(number, 0)) and not os.waitpid(pid, os.WNOHANG)[0]:
                    abandoned.add(pid)
                    _kill(pid)
                elif pid:
                    _kill_group(pid)
            else:
                control.send(_end(pids.pop(number), detail) if number in pids else None)


def _import(modules: Sequence[str]) -> None:
    # torch.cuda.is_available() must not initialise CUDA: NVML answers instead.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    for name in modules:
        with contextlib.suppress(Exception):  # the worker that needs it fails with its own words
            importlib.import_module(name)
    del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]


def _fork(control: Connection, log: str) -> int:
    descriptor = recv_handle(control)
    template = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return pid
    status = 1
    try:
        os.setsid()
        _die_with(template)
        control.close()
        _redirect(None, Path(log))
        own_locks()
        tempfile.tempdir = None  # to be looked up again: a stage may set TMPDIR
        from llamea_gpu.engine.worker import work  # which needs this module

        work(Connection(descriptor))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def own_locks() -> None:
    """Let go of locks that this process shares with those that it was forked with.

    One that is killed while it holds such a lock would stop all the others. tqdm has a semaphore of
    that kind and takes it even where it shows nothing: PyTorch calls it for each graph.
    """
    if bars := sys.modules.get("tqdm.std"):
        bars.tqdm.set_lock(threading.RLock())


def _redirect(source: str | None, log: Path) -> None:
    """Standard output and error of this process to the end of ``log``."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # Whatever stands in sys.stdout and sys.stderr here (a notebook's, a test's) is not a file.
    sys.stdout = os.fdopen(os.dup2(output, 1), "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(os.dup2(output, 2), "w", buffering=1, closefd=False)
    os.close(output)
    if source is not None:
        nothing = os.open(source, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)


def _end(pid: int, wait_s: float) -> int:
    until = monotonic() + wait_s
    ended, status = os.waitpid(pid, os.WNOHANG)
    while not ended and monotonic() < until:
        sleep(_POLL_S)
        ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        _kill_group(pid)
    else:
        _kill(pid)
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _kill(pid: int) -> None:
    """A process that has not been waited for, with all that it started."""
    _kill_group(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # it may not have had its group yet


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what it started outlives it otherwise


def _die_with(owner: int) -> None:
    """Have this process killed when ``owner``, its parent, ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != owner:  # it died before this process could ask to be told
        os._exit(1)


if __name__ == "__main__":
    _die_with(int(sys.argv[2]))
    main(Connection(int(sys.argv[1])))
