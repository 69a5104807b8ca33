"""Two stages that are busy at once: a pool of compiling processes, and a timing process a GPU.

Configurations go from the first to the second as they are compiled. A process that hangs is killed
and its task counts as timed out; one that dies (a compiler that aborts, an illegal memory access)
is started again and its task is tried once more, then counts as failed: as soon as the GPU answers
a new process, since one that is gone is no fault of a configuration. Results come in the order in
which they are finished.

It knows nothing of Helion, journals and recordings: what compiling and timing mean is up to the
stages (:mod:`llamea_gpu.engine.worker`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic
from typing import Any

from llamea_gpu.engine.template import Template
from llamea_gpu.engine.worker import Stage, Worker
from llamea_gpu.errors import RecordingError

_MAX_ATTEMPTS = 2
_MAX_FAILED_STARTS = 3  # in a row
_MAX_CRASHES = 20  # of timing, in a row
_LEAVE_S = 5.0
_AHEAD = 4  # compiled configurations that may wait, for each compiling process


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds after which a process is killed."""

    compile_s: float = 30.0
    timing_s: float = 30.0
    start_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Task:
    """One configuration on its way: ``point`` names it, ``payload`` is for the first stage."""

    point: int
    payload: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a configuration ended.

    Attributes:
        point: which.
        status: of :data:`llamea_gpu.spaces.recording.STATUSES`.
        compile_s: seconds in the first stage; benchmark_s: in the second.
        details: all that the stages said beyond that.
    """

    point: int
    status: str
    compile_s: float
    benchmark_s: float
    details: Mapping[str, Any]


@dataclass(slots=True)
class _Item:
    task: Task
    attempts: int = 0
    compiled: Mapping[str, Any] | None = None


class _Pool:
    """The workers of one kind, with what replaces one of them."""

    def __init__(
        self, stages: Sequence[Stage], folder: Path, name: str, start_s: float, template: Template
    ) -> None:
        self._stages = stages
        self._start_s = start_s
        self._template = template
        self._logs = [folder / f"{name}-{i}.log" for i in range(len(stages))]
        self.failed_starts = 0
        self.facts: dict[int, Mapping[str, Any]] = {}  # by the worker's place
        self.workers = [
            Worker(stage, log, start_s, template)
            for stage, log in zip(stages, self._logs, strict=True)
        ]

    def replace(self, worker: Worker) -> None:
        """A new process in the place of one that is of no more use."""
        i = self.workers.index(worker)
        worker.stop()
        self.workers[i] = Worker(self._stages[i], self._logs[i], self._start_s, self._template)

    def dismiss(self) -> None:
        for worker in self.workers:
            worker.dismiss()

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop(0.0 if worker.task is not None or worker.facts is None else _LEAVE_S)


class Pipeline:
    """Both stages' processes. A context manager: leaving it ends them.

    Args:
        compiling: one stage for each compiling process.
        timing: one stage for each timing process.
        folder: for the processes' logs.
        limits: after which they are killed.
        template: what the processes are forked from; it is ended with them. Default: one that has
            imported nothing.
    """

    def __init__(
        self,
        compiling: Sequence[Stage],
        timing: Sequence[Stage],
        folder: Path,
        limits: Limits,
        template: Template | None = None,
    ) -> None:
        self._limits = limits
        self._template = template or Template((), folder / "template.log")
        try:
            self._timing = _Pool(timing, folder, "timing", limits.start_s, self._template)
            self._compiling = _Pool(compiling, folder, "compiling", limits.start_s, self._template)
        except BaseException:
            self._template.stop()
            raise
        self._pending: deque[_Item] = deque()
        self._compiled: deque[_Item] = deque()
        self._crashed: list[Outcome] = []  # in timing, since one of its processes started
        self._crashes = 0

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools():
            pool.dismiss()
        for pool in self._pools():
            pool.stop()
        self._template.stop()

    def facts(self) -> list[Mapping[str, Any]]:
        """What each timing stage reported, once all are open; waits for that.

        Raises:
            RecordingError: one refuses, or does not start.
        """
        while len(self._timing.facts) < len(self._timing.workers):
            list(self._step(None))  # no task is under way, and none has an outcome
        return [facts for _, facts in sorted(self._timing.facts.items())]

    def run(self, tasks: Iterable[Task], deadline: float | None = None) -> Iterator[Outcome]:
        """Yield an outcome for each task as it is finished.

        After ``deadline`` (of ``time.monotonic``) it returns: what was under way is dropped.

        Raises:
            RecordingError: a stage refuses, does not start, or timing crashes again and again.
        """
        self._pending.extend(_Item(task) for task in tasks)
        while self._pending or self._compiled or self._crashed or self._busy():
            if deadline is not None and monotonic() >= deadline:
                return
            yield from self._step(deadline)

    def _step(self, deadline: float | None) -> Iterator[Outcome]:
        """Hand out work, wait until something happens, and see to it."""
        self._hand_out()
        pools = [(pool, worker) for pool in self._pools() for worker in pool.workers]
        until = min([worker.deadline for _, worker in pools] + [deadline or math.inf])
        left_s = None if until == math.inf else max(0.0, until - monotonic())
        readable = wait([worker.connection for _, worker in pools], left_s)
        for pool, worker in pools:
            if worker.connection in readable:
                yield from self._heard(pool, worker)
            elif monotonic() >= worker.deadline:
                yield from self._overdue(pool, worker)

    def _hand_out(self) -> None:
        room = _AHEAD * len(self._compiling.workers) - len(self._compiled)
        for worker in self._compiling.workers:
            if self._pending and worker.idle and room > 0:
                item = self._pending.popleft()
                worker.assign(item, item.task.payload, self._limits.compile_s)
                room -= 1
        for worker in self._timing.workers:
            if self._compiled and worker.idle:
                item = self._compiled.popleft()
                worker.assign(item, item.compiled, self._limits.timing_s)

    def _heard(self, pool: _Pool, worker: Worker) -> Iterator[Outcome]:
        kind, content = worker.receive()
        if kind == "refused":
            raise RecordingError(content)
        if kind == "ready":
            pool.failed_starts = 0
            pool.facts.setdefault(pool.workers.index(worker), content)
            if pool is self._timing:
                crashed, self._crashed = self._crashed, []
                yield from crashed
        elif kind == "died":
            yield from self._died(pool, worker, content)
        else:
            item, worker.task = worker.task, None
            if pool is self._timing:
                self._count(broken=bool(content.get("broken")), message=content.get("message", ""))
                outcome = _outcome(item, item.compiled, content)
                if content.get("broken"):
                    self._crashed.append(outcome)
                    pool.replace(worker)
                else:
                    yield outcome
            elif content["status"] == "ok":
                item.compiled, item.attempts = content, 0
                self._compiled.append(item)
            else:
                yield _outcome(item, content, None)

    def _died(self, pool: _Pool, worker: Worker, message: str) -> Iterator[Outcome]:
        item = worker.task
        if worker.facts is None:
            pool.failed_starts += 1
            if pool.failed_starts >= _MAX_FAILED_STARTS:
                raise RecordingError(f"recording must start, but {message}")
        pool.replace(worker)
        if item is None:
            return
        item.attempts += 1
        if pool is self._timing:
            self._count(broken=True, message=message)
        if item.attempts < _MAX_ATTEMPTS:
            (self._compiled if pool is self._timing else self._pending).appendleft(item)
        elif pool is self._timing:
            self._crashed.append(self._failed(pool, item, message))
        else:
            yield self._failed(pool, item, message)

    def _overdue(self, pool: _Pool, worker: Worker) -> Iterator[Outcome]:
        item = worker.task
        if worker.facts is None:
            raise RecordingError(
                f"recording must start within {self._limits.start_s:g} s, but did not: make the "
                f"script's arguments and reference faster"
            )
        pool.replace(worker)
        limit_s = self._limits.timing_s if pool is self._timing else self._limits.compile_s
        yield self._failed(pool, item, f"over {limit_s:g} s", "timeout", limit_s)

    def _failed(
        self, pool: _Pool, item: _Item, message: str, status: str = "", seconds: float = 0.0
    ) -> Outcome:
        """An outcome that a process could not report itself."""
        if pool is self._timing:
            said = {"status": status or "runtime_error", "message": message, "benchmark_s": seconds}
            return _outcome(item, item.compiled, said)
        said = {"status": status or "compile_error", "message": message, "compile_s": seconds}
        return _outcome(item, said, None)

    def _count(self, *, broken: bool, message: str) -> None:
        self._crashes = self._crashes + 1 if broken else 0
        if self._crashes >= _MAX_CRASHES:
            raise RecordingError(
                f"a kernel must run for some configurations, but the last {self._crashes} "
                f"crashed: {message}"
            )

    def _pools(self) -> tuple[_Pool, _Pool]:
        return self._timing, self._compiling

    def _busy(self) -> bool:
        return any(worker.task is not None for pool in self._pools() for worker in pool.workers)


def _outcome(
    item: _Item, compiled: Mapping[str, Any] | None, timed: Mapping[str, Any] | None
) -> Outcome:
    details = {**(compiled or {}), **(timed or {})}
    details.pop("broken", None)
    return Outcome(
        item.task.point,
        details.pop("status"),
        float(details.pop("compile_s", 0.0)),
        float(details.pop("benchmark_s", 0.0)),
        details,
    )
