"""A process that does one stage of recording, and its owner's handle on it.

The process is a new interpreter (never a fork: CUDA does not survive one). It opens its stage once
and then answers one task after another over a pipe. It dies with its owner, and is ended with all
that it started (``ptxas``). What compilers print goes to a log file of which the end is kept.

It knows nothing of Helion: a stage is any picklable object that follows :class:`Stage`.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from llamea_gpu.errors import LlameaGpuError

_PR_SET_PDEATHSIG = 1
_LAST_WORDS = 600
_LEAVE_S = 5.0

Result = Mapping[str, Any]
Handler = Callable[[Any], Result]


class Stage(Protocol):
    """What a worker does; picklable."""

    def opened(self) -> AbstractContextManager[tuple[Mapping[str, Any], Handler]]:
        """Facts to report once, and the function that answers tasks. Called in the worker.

        The function returns data also for a task that fails; what it raises ends the worker.
        ``LlameaGpuError`` from opening is passed on to the owner as its message.
        """


class Worker:
    """The owner's end of one worker process.

    Attributes:
        connection: for ``multiprocessing.connection.wait``.
        facts: what its stage reported; None until it is open.
        task: what it is at; None when idle.
        deadline: of ``time.monotonic``, when it has taken too long.
        pid: of the process; also of its group.
    """

    def __init__(self, stage: Stage, log: Path, start_s: float) -> None:
        self.connection, theirs = Pipe()
        self._log = log
        self.facts: Mapping[str, Any] | None = None
        self.task: Any = None
        self.deadline = monotonic() + start_s
        log.unlink(missing_ok=True)
        with theirs, log.open("ab") as output:  # appending: it is cut to nothing now and then
            self._process = subprocess.Popen(  # noqa: S603 - this module
                [sys.executable, "-m", __name__, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C is for the owner, which ends in order
            )
        self.pid = self._process.pid
        with contextlib.suppress(OSError):  # it has died, which reading from it will show
            self.connection.send(sys.path)
            self.connection.send(stage)

    @property
    def idle(self) -> bool:
        """Open, and without a task."""
        return self.facts is not None and self.task is None

    def assign(self, task: Any, payload: Any, limit_s: float) -> None:
        """Hand it a task: ``payload`` is what its stage gets."""
        self.task = task
        self.deadline = monotonic() + limit_s
        with contextlib.suppress(OSError):
            self.connection.send(payload)

    def receive(self) -> tuple[str, Any]:
        """What it has to say, when its connection is readable.

        ("ready", facts), ("done", result), ("refused", message) when its stage did not open on
        purpose, or ("died", message).
        """
        try:
            kind, content = self.connection.recv()
        except (EOFError, OSError):
            return "died", self._last_words()
        self.deadline = math.inf
        if kind == "ready":
            self.facts = content
        return kind, content

    def dismiss(self) -> None:
        """Let it end by itself once it is idle; :meth:`stop` is still to be called."""
        self.connection.close()

    def stop(self, wait_s: float = 0.0) -> None:
        """End it, with all that it started, at the latest after ``wait_s``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self.connection.close()

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LEAVE_S)
        code = self._process.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        text = self._log.read_text(errors="replace")[-_LAST_WORDS:]
        return f"the process ended ({how}): {' '.join(text.split())}"


def serve(connection: Connection) -> None:
    """The worker's half: open the stage that comes over the connection, answer until it closes."""
    with contextlib.suppress(EOFError, OSError):  # the owner is gone
        sys.path[:] = connection.recv()
        stage: Stage = connection.recv()
        try:
            with stage.opened() as (facts, handle):
                connection.send(("ready", dict(facts)))
                while True:
                    task = connection.recv()
                    os.ftruncate(sys.stderr.fileno(), 0)  # of the log, what belongs to this task
                    connection.send(("done", dict(handle(task))))
        except LlameaGpuError as error:
            connection.send(("refused", str(error)))


def _die_with(owner: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != owner:  # it died before this process could ask to be told
        os._exit(1)


if __name__ == "__main__":
    _die_with(int(sys.argv[2]))
    serve(Connection(int(sys.argv[1])))
