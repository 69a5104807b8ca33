"""A process that does one stage of measuring, and its owner's handle on it.

The process is forked from a template (:mod:`llamea_gpu.engine.template`). It runs its stage, which
reports facts once and then answers one task after another over a pipe. It dies with its owner, and
is ended with all that it started (``ptxas``). What compilers print goes to a log file of which the
end is kept.

A stage is any picklable object that follows :class:`Stage`; this module knows no framework.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from llamea_gpu.engine.template import Template
from llamea_gpu.errors import LlameaGpuError

WAITING = "waiting"  # a phase: for a device that another process has; no limit holds meanwhile

_LAST_WORDS = 600
_LEAVE_S = 5.0

Result = Mapping[str, Any]
Handler = Callable[[Any], Result]


class Stage(Protocol):
    """What a worker does; picklable."""

    def run(self, channel: Channel) -> None:
        """Prepare, then call :meth:`Channel.serve`, which returns when the owner has gone.

        ``LlameaGpuError`` before that, or from a task, says that this process cannot serve: it is
        passed on to the owner as its message. Called in the worker.
        """


class Channel:
    """A stage's side of the pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def serve(self, facts: Mapping[str, Any], handle: Handler) -> None:
        """Report facts, then answer tasks until the owner closes the pipe.

        ``handle`` returns data also for a task that fails; what it raises ends the worker, and
        ``LlameaGpuError`` the measuring. A result with a true ``broken`` says that this process is
        of no more use.
        """
        with contextlib.suppress(EOFError, OSError):  # the owner is gone
            self._send("ready", dict(facts))
            while True:
                task = self._connection.recv()
                os.ftruncate(sys.stderr.fileno(), 0)  # of the log, what belongs to this task
                self._send("done", dict(handle(task)))

    def phase(self, name: str) -> None:
        """Tell the owner what the present task has come to; its seconds are kept by name."""
        with contextlib.suppress(OSError):
            self._send("phase", name)

    def refuse(self, message: str) -> None:
        """Tell the owner why this process cannot serve."""
        self._send("refused", message)

    def _send(self, kind: str, content: Any) -> None:
        """With the time: the owner may be busy with something else and read it much later."""
        self._connection.send((kind, content, monotonic()))


class Worker:
    """The owner's end of one worker process.

    Attributes:
        connection: for ``multiprocessing.connection.wait``.
        facts: what its stage reported; None until it is open.
        task: what it is at; None when idle.
        deadline: of ``time.monotonic``, when it has taken too long; limit_s: so many seconds.
        phase_s: seconds of the present task by phase, those that are over.
        orphaned: whether it died because its template did.
    """

    def __init__(self, stage: Stage, log: Path, start_s: float, template: Template) -> None:
        self.connection, child_end = Pipe()
        self._log, self._template = log, template
        self.facts: Mapping[str, Any] | None = None
        self.task: Any = None
        self.orphaned = False
        self.phase_s: dict[str, float] = {}
        self._phase, self._phase_since = "", monotonic()
        self.limit_s = self._left_s = start_s
        self.deadline = monotonic() + start_s
        log.write_bytes(b"")
        with child_end:
            self._number = template.fork(child_end, log)
        with contextlib.suppress(OSError):  # it has died, which reading from it will show
            self.connection.send(stage)

    @property
    def idle(self) -> bool:
        """Open, and without a task."""
        return self.facts is not None and self.task is None

    def assign(self, task: Any, payload: Any, limit_s: float) -> None:
        """Hand it a task: ``payload`` is what its stage gets."""
        self.task = task
        self.phase_s, self._phase, self._phase_since = {}, "", monotonic()
        self.limit_s = self._left_s = limit_s
        self.deadline = self._phase_since + limit_s
        with contextlib.suppress(OSError):
            self.connection.send(payload)

    def tighten(self, limit_s: float) -> None:
        """Let its present task take no longer than ``limit_s`` in all."""
        saved_s = self.limit_s - limit_s
        if saved_s > 0:
            self.limit_s = limit_s
            self._left_s -= saved_s
            self.deadline -= saved_s

    def receive(self) -> tuple[str, Any]:
        """What it has to say, when its connection is readable.

        ("ready", facts), ("phase", name), ("done", result), ("refused", message) when its stage
        gave up on purpose, or ("died", message).
        """
        try:
            kind, content, at = self.connection.recv()
        except (EOFError, OSError):
            self._enter("", monotonic())
            return "died", self._last_words()
        if kind == "phase":
            self._enter(content, at)
            return kind, content
        self._enter("", at)
        self.deadline = math.inf
        if kind == "ready":
            self.facts = content
        return kind, content

    def interrupt(self) -> None:
        """End the present phase: the process will not report the rest of its task."""
        self._enter("", monotonic())

    def dismiss(self) -> None:
        """Let it end by itself once it is idle; :meth:`stop` is still to be called."""
        self.connection.close()

    def stop(self, wait_s: float = 0.0) -> None:
        """End it, with all that it started, at the latest after ``wait_s``."""
        self._template.end(self._number, wait_s)
        self.connection.close()

    def abandon(self) -> None:
        """Kill it, with all that it started, without waiting until it is gone."""
        self._template.abandon(self._number)
        self.connection.close()

    def _enter(self, phase: str, now: float) -> None:
        """Note how long the last phase took; waiting does not count towards the limit."""
        seconds = now - self._phase_since
        if self._phase == WAITING:
            self.deadline = now + self._left_s
        else:
            self.phase_s[self._phase] = self.phase_s.get(self._phase, 0.0) + seconds
            self._left_s -= seconds
        if phase == WAITING:
            self.deadline = math.inf
        self._phase, self._phase_since = phase, now

    def _last_words(self) -> str:
        code = self._template.end(self._number, _LEAVE_S)
        self.orphaned = code is None
        ending = "with its template" if code is None else f"exit status {code}"
        ending = f"signal {-code}" if code is not None and code < 0 else ending
        text = self._log.read_text(errors="replace")[-_LAST_WORDS:]
        return f"the process ended ({ending}): {' '.join(text.split())}"


def work(connection: Connection) -> None:
    """The worker's half: run the stage that comes over the connection."""
    with contextlib.suppress(EOFError, OSError):  # the owner is gone
        stage: Stage = connection.recv()
        channel = Channel(connection)
        try:
            stage.run(channel)
        except LlameaGpuError as error:
            channel.refuse(str(error))
