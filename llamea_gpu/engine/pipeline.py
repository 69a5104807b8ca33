"""Two stages that are busy at once: a pool of compiling processes, and one timing process a GPU.

Configurations go from the first to the second as they are compiled; without a second stage the
first does everything. A process that hangs is killed and its task counts as timed out; one that
dies (a compiler that aborts, an illegal memory access) is started again and its task is tried once
more, then counts as failed: as soon as another configuration has run, since a GPU that is gone is
no fault of a configuration. Outcomes come in the order in which they are finished.

It knows nothing of frameworks, journals and recordings: what compiling and timing mean is up to the
stages (:mod:`llamea_gpu.engine.worker`). Work goes on in the processes at any time, but it is
handed out, and outcomes are taken in, inside :meth:`Pipeline.wait` alone.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic
from typing import Any

from llamea_gpu.engine.limits import AdaptiveLimit, Limits
from llamea_gpu.engine.template import Template
from llamea_gpu.engine.worker import Stage, Worker
from llamea_gpu.errors import RecordingError

_MAX_ATTEMPTS = 2
_MAX_FAILED_STARTS = 3  # in a row
_MAX_CRASHES = 20  # configurations in a row
_ANSWERS = ("ok", "incorrect", "runtime_error")  # of a device that works
_LEAVE_S = 5.0
_FINISH_S = 1.0  # for what is being timed when something is to be done alone
# Configurations that are timed before a spare is started, unless the device is lost before: opening
# it takes it from the others for most of a second, and what is known first helps a search most.
_SPARES_AFTER = 16
_ALONE = -1  # the point of what is no configuration
_AHEAD = 4  # compiled configurations that may wait, for each compiling process


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
        details: all that the stages said beyond that. ``same_as`` is the point whose equal code was
            timed in this one's stead.
        phase_s: seconds by the phases that the last stage named.
    """

    point: int
    status: str
    compile_s: float
    benchmark_s: float
    details: Mapping[str, Any]
    phase_s: Mapping[str, float]


@dataclass(slots=True)
class _Item:
    task: Task
    attempts: float = 0
    compiled: Mapping[str, Any] | None = None


class _Pool:
    """The workers of one kind, with what replaces one of them.

    Workers of one group share a device: one of them is at work, the others stand by. Those are
    started later, so that they do not hold it up.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        folder: Path,
        name: str,
        start_s: float,
        template: Template,
        spares: int = 0,
        opening: int | None = None,
    ) -> None:
        self._start_s = start_s
        self._template = template
        self._stages = [*stages] * (1 + spares)
        self.groups = [*range(len(stages))] * (1 + spares)
        self._logs = [folder / f"{name}-{i}.log" for i in range(len(self._stages))]
        self.failed_starts = 0
        self.facts: dict[int, Mapping[str, Any]] = {}  # by group
        self.workers = [self._started(i) for i in range(len(stages))[:opening]]

    def replace(self, worker: Worker) -> None:
        """A new process in the place of one that is of no more use."""
        i = self.workers.index(worker)
        worker.abandon()  # one that stands by need not wait for its end
        self.workers[i] = self._started(i)

    def ready(self) -> list[Worker]:
        """Workers that may be handed a task."""
        pairs = list(zip(self.groups, self.workers, strict=False))
        busy = {group for group, worker in pairs if worker.task is not None}
        free = {group: worker for group, worker in pairs if group not in busy and worker.idle}
        return list(free.values())

    def note_facts(self, worker: Worker, facts: Mapping[str, Any]) -> None:
        """Keep what a worker reported, the first of its group."""
        self.failed_starts = 0
        self.facts.setdefault(self.groups[self.workers.index(worker)], facts)

    def can_spare(self, worker: Worker) -> bool:
        """Whether another process of its device is open."""
        pairs = list(zip(self.groups, self.workers, strict=False))
        group = next(group for group, other in pairs if other is worker)
        return any(
            own == group and other is not worker and other.facts is not None for own, other in pairs
        )

    def do_without(self, worker: Worker) -> None:
        """End one for good."""
        i = self.workers.index(worker)
        worker.stop()
        for of_each in (self.workers, self.groups, self._stages, self._logs):
            del of_each[i]

    def start_spares(self) -> None:
        """Start those that stand by, where they are not yet and all others are."""
        if len(self.workers) >= len(set(self.groups)):
            self.workers += [self._started(i) for i in range(len(self.workers), len(self._stages))]

    def start_next(self) -> None:
        """Start one that has waited for another to open, if there is one."""
        if (i := len(self.workers)) < len(set(self.groups)):
            self.workers.append(self._started(i))

    def dismiss(self) -> None:
        """Let those end that are idle; :meth:`stop` is still to be called."""
        for worker in self.workers:
            worker.dismiss()

    def stop(self) -> None:
        """End all of them."""
        for worker in self.workers:
            worker.stop(0.0 if worker.task is not None or worker.facts is None else _LEAVE_S)
        self.workers = []

    def _started(self, i: int) -> Worker:
        return Worker(self._stages[i], self._logs[i], self._start_s, self._template)


class Pipeline:
    """Both stages' processes. A context manager: leaving it ends them.

    Args:
        compiling: one stage for each compiling process; none where :meth:`start_compiling` is to
            be called later.
        timing: one stage for each device; none where the first stage does everything.
        folder: for the processes' logs.
        limits: after which they are killed.
        template: what the processes are forked from. Default: one that has imported nothing, of the
            pipeline's own.
        timing_template: that of the timing processes, if it is another one.
        spares: timing processes a device that stand by, so that one is there when another is lost;
            they are started after the first few configurations, and those that do not open are
            done without.
        deduplicate: time equal code once: compiled results with the same ``source`` share an
            outcome.
        hopeless: timing is told the best time so far as ``best_ms`` and may end early for what
            takes more than this many times as long; None: it is not told.
    """

    def __init__(
        self,
        compiling: Sequence[Stage],
        timing: Sequence[Stage],
        folder: Path,
        limits: Limits,
        template: Template | None = None,
        *,
        timing_template: Template | None = None,
        spares: int = 0,
        deduplicate: bool = False,
        hopeless: float | None = None,
        opening: int | None = None,
    ) -> None:
        self._limits, self._folder = limits, folder
        self._compile_limit = AdaptiveLimit(limits.compile_s, limits.least_compile_s)
        self._timing_limit = AdaptiveLimit(limits.timing_s, limits.least_timing_s)
        self._hopeless = hopeless
        self._own = Template((), folder / "template.log") if template is None else None
        template = template or self._own
        assert template is not None
        start_s = limits.start_s
        try:
            self._timing = _Pool(
                timing, folder, "timing", start_s, timing_template or template, spares
            )
            self._compiling = _Pool(
                compiling, folder, "compiling", start_s, template, opening=opening
            )
        except BaseException:
            self._end_own()
            raise
        # Whose processes use a device, and may find it gone.
        self._device_pool = self._timing if timing else self._compiling
        self._pending: deque[_Item] = deque()
        self._compiled: deque[_Item] = deque()
        self._finished: deque[Outcome] = deque()
        self._crashed: list[Outcome] = []  # not believed yet
        self._crashes = 0  # in a row
        self._restarted = False  # a process that uses the device, since the last crash
        self._timed = 0  # configurations
        self._lost = False  # a device, at least once
        self._best_ms = math.inf
        self._sources: dict[str, Outcome | list[_Item]] | None = {} if deduplicate else None

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools():
            pool.dismiss()
        for pool in self._pools():
            pool.stop()
        self._end_own()

    @property
    def pending(self) -> int:
        """Tasks that are on their way."""
        waiting = 0
        if self._sources is not None:
            waiting = sum(len(s) for s in self._sources.values() if isinstance(s, list))
        queued = len(self._pending) + len(self._compiled) + len(self._crashed)
        busy = sum(worker.task is not None for _, worker in self._workers())
        return queued + len(self._finished) + waiting + busy

    def facts(self) -> list[Mapping[str, Any]]:
        """What the stage at each device reported, once all are open; waits for that.

        Raises:
            RecordingError: one refuses, or does not start.
        """
        pool = self._device_pool
        while len(pool.facts) < len(set(pool.groups)):
            self._step(None)
        return [facts for _, facts in sorted(pool.facts.items())]

    def start_compiling(self, stages: Sequence[Stage], template: Template) -> None:
        """Start compiling processes, one for each stage, where there are none."""
        assert not self._compiling.workers
        assert self._device_pool is self._timing
        start_s = self._limits.start_s
        self._compiling = _Pool(stages, self._folder, "compiling", start_s, template)

    def end_compiling(self) -> None:
        """End the compiling processes, and forget all tasks that are not at a device."""
        self.forget()
        self._compiling.dismiss()
        self._compiling.stop()

    @property
    def compiles(self) -> bool:
        """Whether there are compiling processes."""
        return bool(self._compiling.workers)

    @property
    def opened(self) -> Mapping[str, Any]:
        """What the stage at the first device reported; empty until it is open."""
        return self._device_pool.facts.get(0, {})

    def submit(self, tasks: Iterable[Task]) -> None:
        """Queue tasks, after those that are queued already."""
        self._pending.extend(_Item(task) for task in tasks)

    def poll(self) -> None:
        """Hear what there is to hear and hand out work, without waiting."""
        self._step(monotonic())

    def alone(self, payload: Any, limit_s: float) -> Mapping[str, Any] | None:
        """What a timing process answers to ``payload`` while nothing compiles.

        Compiling ends (:meth:`end_compiling`), what is being timed is finished first, if that
        takes no longer than a second.

        Returns:
            The result; None where it is not there in time, or the process died.

        Raises:
            RecordingError: as of :meth:`wait`.
        """
        self.end_compiling()
        deadline, last_turn = monotonic() + limit_s, monotonic() + _FINISH_S
        item = _Item(Task(_ALONE, None), attempts=_MAX_ATTEMPTS)
        handed_out = False
        while monotonic() < deadline:
            if outcome := self._taken_out(_ALONE):
                return outcome.details if outcome.status == "ok" else None
            busy = [worker for worker in self._timing.workers if worker.task is not None]
            if not handed_out:
                for worker in busy:
                    worker.deadline = min(worker.deadline, last_turn)
            if not handed_out and not busy and (ready := self._timing.ready()):
                ready[0].assign(item, payload, deadline - monotonic())
                handed_out = True
            self._step(deadline)
        for worker in self._timing.workers:
            if worker.task is item:
                self._timing.replace(worker)
        return None

    def _taken_out(self, point: int) -> Outcome | None:
        """The outcome of that point, if it is there, and no longer among the finished ones."""
        for queue in (self._finished, self._crashed):
            for outcome in queue:
                if outcome.point == point:
                    queue.remove(outcome)
                    return outcome
        return None

    def wait(self, deadline: float | None = None) -> list[Outcome]:
        """Outcomes as tasks are finished: at least one, unless none is left or time is up.

        Args:
            deadline: of ``time.monotonic``, after which it returns with what there is.

        Raises:
            RecordingError: a stage refuses, does not start, or the device crashes again and again.
        """
        while not self._finished and self.pending:
            if deadline is not None and monotonic() >= deadline:
                break
            self._step(deadline)
        if self.pending:  # what has just become idle goes on while the caller thinks
            self._hand_out()
        finished = list(self._finished)
        self._finished.clear()
        return finished

    def run(self, tasks: Iterable[Task], deadline: float | None = None) -> Iterator[Outcome]:
        """Yield an outcome for each task as it is finished; see :meth:`wait`.

        After ``deadline`` it returns: what was under way is dropped.
        """
        self.submit(tasks)
        while outcomes := self.wait(deadline):
            yield from outcomes

    def drop(self) -> list[int]:
        """Forget all tasks that are not finished, and end what is at them; returns their points."""
        dropped = self.forget()
        for pool, worker in self._workers():
            if worker.task is not None:
                dropped.append(worker.task.task.point)
                pool.replace(worker)
        return dropped

    def forget(self) -> list[int]:
        """Forget all tasks that no process is at; returns their points."""
        items = [*self._pending, *self._compiled]
        for source, waiting in (self._sources or {}).copy().items():
            if isinstance(waiting, list):
                items += waiting
                del self._sources[source]  # type: ignore[union-attr]
        forgotten = [item.task.point for item in items] + [o.point for o in self._crashed]
        for queue in (self._pending, self._compiled, self._crashed):
            queue.clear()
        return forgotten

    def _step(self, deadline: float | None) -> None:
        """Hand out work, wait until something happens, and see to it."""
        self._hand_out()
        workers = self._workers()
        until = min([worker.deadline for _, worker in workers] + [deadline or math.inf])
        left_s = None if until == math.inf else max(0.0, until - monotonic())
        readable = wait([worker.connection for _, worker in workers], left_s)
        for pool, worker in workers:
            if worker.connection in readable:
                self._hear(pool, worker)
            elif monotonic() >= worker.deadline:
                self._end_overdue(pool, worker)
        # Where nothing is left that could run, a process that has started anew has to do.
        if self._crashed and self._restarted and not self._at_work():
            self._believe_crashes()

    def _at_work(self) -> bool:
        """Whether anything may yet come to the device."""
        busy = any(worker.task is not None for _, worker in self._workers())
        return busy or bool(self._pending or self._compiled)

    def _believe_crashes(self) -> None:
        crashed, self._crashed = self._crashed, []
        for outcome in crashed:
            self._finish(outcome)

    def _hold_back(self, outcome: Outcome) -> None:
        """A crash, until it is known whose fault it is."""
        self._crashed.append(outcome)
        self._restarted = False
        self._crashes += 1
        if self._crashes >= _MAX_CRASHES:
            raise RecordingError(
                f"a kernel must run for some configurations, but the last {self._crashes} "
                f"crashed: {outcome.details['message']}"
            )

    def _hand_out(self) -> None:
        if self._device_pool is self._compiling:
            limit_s, room = self._timing_limit.seconds, math.inf
        else:
            limit_s = self._compile_limit.seconds
            room = _AHEAD * len(self._compiling.workers) - len(self._compiled)
        for worker in self._compiling.ready():
            if self._pending and room > 0:
                item = self._pending.popleft()
                worker.assign(item, item.task.payload, limit_s)
                room -= 1
        for worker in self._timing.ready():
            if self._compiled:
                item = self._compiled.popleft()
                worker.assign(item, self._for_timing(item), self._timing_limit.seconds)

    def _for_timing(self, item: _Item) -> Mapping[str, Any]:
        assert item.compiled is not None
        if self._hopeless is None:
            return item.compiled
        return {**item.compiled, "give_up_ms": self._hopeless * self._best_ms}

    def _hear(self, pool: _Pool, worker: Worker) -> None:
        kind, content = worker.receive()
        if kind == "refused":
            raise RecordingError(content)
        if kind == "ready":
            pool.note_facts(worker, content)
            if pool is self._compiling:
                pool.start_next()
            self._restarted |= pool is self._device_pool
        elif kind == "died":
            self._bury(pool, worker, content)
        elif kind == "done":
            item, worker.task = worker.task, None
            if pool is self._device_pool:
                self._note_timed(pool, worker, item, content)
            elif content["status"] == "ok":
                self._note_worked(pool, self._compile_limit, content["compile_s"])
                item.compiled, item.attempts = content, 0
                self._queue_compiled(item)
            else:
                self._finished.append(_outcome(item, content, None, worker))

    def _note_worked(self, pool: _Pool, limit: AdaptiveLimit, seconds: float) -> None:
        """Let the limit adapt, also for those that are at work: some began when it was higher."""
        limit.worked(seconds)
        for worker in pool.workers:
            if worker.task is not None and worker.task.task.point != _ALONE:
                worker.tighten(limit.seconds)

    def _queue_compiled(self, item: _Item) -> None:
        """Queue for timing, unless equal code has been timed or is on its way."""
        source = str((item.compiled or {}).get("source", ""))
        if self._sources is None or not source:
            self._compiled.append(item)
            return
        known = self._sources.get(source)
        if known is None:
            self._sources[source] = []
            self._compiled.append(item)
        elif isinstance(known, list):
            known.append(item)
        else:
            self._finished.append(_alike(item, known))

    def _note_timed(
        self, pool: _Pool, worker: Worker, item: _Item, content: Mapping[str, Any]
    ) -> None:
        outcome = _outcome(item, item.compiled, content, worker)
        self._timed += 1
        if not content.get("broken") and (self._timed >= _SPARES_AFTER or self._lost):
            pool.start_spares()
        if outcome.status == "ok":
            self._best_ms = min(self._best_ms, outcome.details.get("time_ms", math.inf))
            self._note_worked(pool, self._timing_limit, outcome.benchmark_s)
        if content.get("broken"):
            self._lost = True
            pool.replace(worker)
            self._hold_back(outcome)
            return
        if outcome.status in _ANSWERS:
            self._crashes = 0
            self._believe_crashes()
        self._finish(outcome)

    def _finish(self, outcome: Outcome) -> None:
        """An outcome of timing, and of all that are of equal code."""
        self._finished.append(outcome)
        source = str(outcome.details.get("source", ""))
        if self._sources is None or not source:
            return
        waiting = self._sources.get(source)
        self._sources[source] = outcome
        if isinstance(waiting, list):
            self._finished.extend(_alike(item, outcome) for item in waiting)

    def _bury(self, pool: _Pool, worker: Worker, message: str) -> None:
        item = worker.task
        if worker.facts is None:
            if pool.can_spare(worker):  # there may be no memory for one more
                pool.do_without(worker)
                return
            pool.failed_starts += 1
            if pool.failed_starts >= _MAX_FAILED_STARTS:
                raise RecordingError(f"measuring must start, but {message}")
        phase_s = worker.phase_s
        pool.replace(worker)
        if item is None:
            return
        # A template takes all its workers along: another may have been given this one's task.
        item.attempts += 1 / 2 if worker.orphaned else 1
        if item.attempts < _MAX_ATTEMPTS:
            (self._compiled if pool is self._timing else self._pending).appendleft(item)
        elif pool is self._device_pool:
            self._hold_back(self._failed(pool, item, message, phase_s=phase_s))
        else:
            self._finished.append(self._failed(pool, item, message))

    def _end_overdue(self, pool: _Pool, worker: Worker) -> None:
        item = worker.task
        if worker.facts is None:
            if pool.can_spare(worker):
                pool.do_without(worker)
                return
            raise RecordingError(
                f"measuring must start within {self._limits.start_s:g} s, but did not: make the "
                f"script's arguments and reference faster"
            )
        worker.interrupt()
        phase_s, limit_s = worker.phase_s, worker.limit_s
        pool.replace(worker)
        failed = self._failed(pool, item, f"over {limit_s:g} s", "timeout", limit_s, phase_s)
        if pool is self._timing:
            self._finish(failed)
        else:
            self._finished.append(failed)

    def _failed(
        self,
        pool: _Pool,
        item: _Item,
        message: str,
        status: str = "",
        seconds: float = 0.0,
        phase_s: Mapping[str, float] | None = None,
    ) -> Outcome:
        """An outcome that a process could not report itself."""
        if pool is self._device_pool:
            timed = {
                "status": status or "runtime_error",
                "message": message,
                "benchmark_s": seconds,
            }
            return replace(_outcome(item, item.compiled, timed), phase_s=phase_s or {})
        compiled = {"status": status or "compile_error", "message": message, "compile_s": seconds}
        return _outcome(item, compiled, None)

    def _end_own(self) -> None:
        if self._own is not None:
            self._own.stop()

    def _pools(self) -> tuple[_Pool, _Pool]:
        return self._timing, self._compiling

    def _workers(self) -> list[tuple[_Pool, Worker]]:
        return [(pool, worker) for pool in self._pools() for worker in pool.workers]


def _outcome(
    item: _Item,
    compiled: Mapping[str, Any] | None,
    timed: Mapping[str, Any] | None,
    worker: Worker | None = None,
) -> Outcome:
    details = {**(compiled or {}), **(timed or {})}
    details.pop("broken", None)
    return Outcome(
        item.task.point,
        details.pop("status"),
        float(details.pop("compile_s", 0.0)),
        float(details.pop("benchmark_s", 0.0)),
        details,
        dict(worker.phase_s) if worker else {},
    )


def _alike(item: _Item, timed: Outcome) -> Outcome:
    """The outcome of a configuration whose code equals that of one that was timed."""
    seconds = float((item.compiled or {}).get("compile_s", 0.0))
    details = {**timed.details, "same_as": timed.point}
    return replace(
        timed, point=item.task.point, compile_s=seconds, benchmark_s=0.0, details=details
    )
