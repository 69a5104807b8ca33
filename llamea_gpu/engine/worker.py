"""A process that does one stage of recording, and its owner's handle on it.

The process is forked from a template that has imported what it needs
(:mod:`llamea_gpu.engine.template`). It opens its stage once and then answers one task
after another over a pipe. It dies with its owner, and is ended with all that it started
(``ptxas``). What compilers print goes to a log file of which the end is kept.

It knows nothing of Helion: a stage is any picklable object that follows :class:`Stage`.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from llamea_gpu.engine.template import Template
from llamea_gpu.errors import LlameaGpuError

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
    """

    def __init__(self, stage: Stage, log: Path, start_s: float, template: Template) -> None:
        self.connection, theirs = Pipe()
        self._log, self._template = log, template
        self.facts: Mapping[str, Any] | None = None
        self.task: Any = None
        self.deadline = monotonic() + start_s
        log.write_bytes(b"")
        with theirs:
            self._number = template.fork(theirs, log)
        with contextlib.suppress(OSError):  # it has died, which reading from it will show
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
        self._template.end(self._number, wait_s)
        self.connection.close()

    def _last_words(self) -> str:
        code = self._template.end(self._number, _LEAVE_S)
        how = "with its template" if code is None else f"exit status {code}"
        how = f"signal {-code}" if code is not None and code < 0 else how
        text = self._log.read_text(errors="replace")[-_LAST_WORDS:]
        return f"the process ended ({how}): {' '.join(text.split())}"


def serve(connection: Connection) -> None:
    """The worker's half: open the stage that comes over the connection, answer until it closes."""
    with contextlib.suppress(EOFError, OSError):  # the owner is gone
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
