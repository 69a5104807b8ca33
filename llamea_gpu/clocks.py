"""The virtual clocks: when each measurement counts and is done, in simulated seconds.

What it does: charges recorded compile and benchmark seconds as Kernel Tuner (`SequentialClock`),
Helion (`ParallelClock`) and the project's own engine (`PipelinedClock`) spend them.

What it does not do: read a real clock. A run depends on its seed alone, never on the host.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.errors import TaskError

if TYPE_CHECKING:
    from llamea_gpu.spaces.recording import Recording

FloatArray = NDArray[np.float64]


# What a measurement is: a row, seconds to compile, seconds to time, whether it is timed at all.
Measurement = tuple[int, float, float, bool]
# One that was made: its row, the moment that must lie before the budget's end for it to count, and
# the moment from which on its cost is known.
Visit = tuple[int, float, float]


class Timeline(Protocol):
    """The simulated time of one run, and its measurements that are on their way."""

    @property
    def now_s(self) -> float:
        """The time."""

    def submit(self, measurements: Iterable[Measurement]) -> None:
        """Queue measurements."""

    def wait(self, least: int = 1) -> list[Visit]:
        """Let time pass until ``least`` are done, or all: what is, in the order in which it is.

        Empty, and without time passing, when nothing is queued.
        """

    def advance(self, moment_s: float) -> list[Visit]:
        """Let time pass until ``moment_s``, never back: what is done meanwhile, in that order."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A rule by which measurements take simulated time.

    ``workers`` is how many configurations compile side by side.

    Raises:
        TaskError: there is no worker.
    """

    workers: int
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise TaskError(
                f"a {self.kind} clock must have at least 1 worker, but got {self.workers}"
            )

    @property
    def name(self) -> str:
        """The spec that `make_clock` turns back into this clock."""
        return f"{self.kind}({self.workers})"

    @property
    def parallel(self) -> int:
        """How many are worth asking for at a time: a searcher's ``evaluate.parallel``."""
        return self.workers

    @property
    def serial(self) -> bool:
        """Whether one configuration follows another, so that the published formulas hold."""
        return self.workers == 1

    def timeline(self) -> Timeline:
        """A run's time, at 0."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SequentialClock(Clock):
    """Kernel Tuner's rule: one configuration after another, each charged compile + benchmark.

    One that begins before the budget's end counts whole. Waiting measures the next in the queue.
    """

    workers: int = field(default=1, init=False)

    @property
    def name(self) -> str:
        """``"sequential"``."""
        return "sequential"

    def timeline(self) -> Timeline:
        """Nothing happens but during a wait."""
        return _Sequence()


@dataclass(frozen=True, slots=True)
class ParallelClock(Clock):
    """Helion's rule: a batch compiles on ``workers`` cores, then each item is timed on the GPU.

    A compilation goes, in the order of the batch, to the worker that is free first; the benchmarks
    begin when the last compilation is done and run one after another, in the same order. One whose
    benchmark begins before the budget's end counts whole. Waiting measures the queue as one batch.
    """

    kind = "parallel"

    def timeline(self) -> Timeline:
        """Nothing happens but during a wait."""
        return _Batches(self)

    def makespan_s(self, compile_s: Sequence[float]) -> float:
        """How long compilations that are asked for together take, until the last is done."""
        if len(compile_s) <= self.workers:
            return max(compile_s, default=0.0)
        free_at = list(compile_s[: self.workers])
        heapify(free_at)
        for duration in compile_s[self.workers :]:
            heapreplace(free_at, free_at[0] + duration)
        return max(free_at)


@dataclass(frozen=True, slots=True)
class PipelinedClock(Clock):
    """The engine's rule: ``workers`` compilers and one timer, all busy at once, without batches.

    A compilation goes, in the order of submission, to the compiler that is free first. The timer
    takes what is compiled in the order in which that was done; ties go by submission. What fails
    to compile is done then, and never reaches the timer. A measurement counts when it is done
    before the budget's end: what is under way then is lost, as when a live run ends.

    Any number of compiled configurations may wait for the timer (the engine lets its compilers
    rest when too many do). With one worker and one configuration at a time nothing overlaps:
    measurements end when the sequential clock says, but for rounding and for the last one.
    """

    kind = "pipelined"

    @property
    def parallel(self) -> int:
        """Two more than compile: one is timed, and one waits so that the timer need not.

        On our recordings that many, always on their way, reach 93 to 100 % of the throughput of
        four for each worker; as many as there are workers reach 88 to 100 %.
        """
        return self.workers + 2

    @property
    def serial(self) -> bool:
        """False: compiling and timing overlap even with one worker."""
        return False

    def timeline(self) -> Timeline:
        """Time passes for whatever is on its way."""
        return _Pipeline(self.workers)


class _Queue:
    """The timeline of a clock under which nothing is under way between waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._queue: deque[Measurement] = deque()

    def submit(self, measurements: Iterable[Measurement]) -> None:
        """What fails is charged as it was recorded, timed or not."""
        self._queue.extend(measurements)

    def advance(self, moment_s: float) -> list[Visit]:
        """Nothing is done."""
        self.now_s = max(self.now_s, moment_s)
        return []

    def _one_after_another(self, jobs: Iterable[tuple[int, float]]) -> list[Visit]:
        """Rows that take so many seconds each; a visit's decisive moment is its beginning."""
        visits = []
        for row, seconds in jobs:
            begin_s = self.now_s
            self.now_s = begin_s + seconds
            visits.append((row, begin_s, self.now_s))
        return visits


class _Sequence(_Queue):
    """One after another."""

    def wait(self, least: int = 1) -> list[Visit]:
        """The next ``least``."""
        following = [self._queue.popleft() for _ in range(min(least, len(self._queue)))]
        return self._one_after_another(
            (row, compile_s + benchmark_s) for row, compile_s, benchmark_s, _ in following
        )


class _Batches(_Queue):
    """All that is queued is one batch."""

    def __init__(self, clock: ParallelClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, least: int = 1) -> list[Visit]:  # noqa: ARG002 - a batch is done as a whole
        """The batch."""
        self.now_s += self._clock.makespan_s([item[1] for item in self._queue])
        visits = self._one_after_another((item[0], item[2]) for item in self._queue)
        self._queue.clear()
        return visits


class _Pipeline:
    """An event simulation. The place of a submission, its order, decides ties."""

    def __init__(self, workers: int) -> None:
        self.now_s = 0.0
        self._orders = count()
        self._compilers_free_s = [0.0] * workers  # a heap; so are the next two
        self._failed: list[tuple[float, int, int]] = []  # done at, order, row
        self._compiled: list[tuple[float, int, int, float]] = []  # at, order, row, benchmark_s
        self._timing: tuple[float, int, int] | None = None  # done at, order, row
        self._timer_free_s = 0.0

    def submit(self, measurements: Iterable[Measurement]) -> None:
        """Compilers take in order of submission, so that when each compiles is settled now."""
        free_s = self._compilers_free_s
        for row, compile_s, benchmark_s, timed in measurements:
            compiled_s = max(self.now_s, free_s[0]) + compile_s
            heapreplace(free_s, compiled_s)
            if timed:
                heappush(self._compiled, (compiled_s, next(self._orders), row, benchmark_s))
            else:
                heappush(self._failed, (compiled_s, next(self._orders), row))

    def wait(self, least: int = 1) -> list[Visit]:
        """What is done at a moment is done together: there may be more than ``least``."""
        visits: list[Visit] = []
        while len(visits) < least and (moment_s := self._next_s()) < math.inf:
            visits += self.advance(moment_s)
        return visits

    def advance(self, moment_s: float) -> list[Visit]:
        """The timer takes nothing after ``moment_s``: what is submitted then may be there first."""
        completed: list[tuple[float, int, int]] = []
        while self._failed and self._failed[0][0] <= moment_s:
            completed.append(heappop(self._failed))
        while True:
            if self._timing is None and self._timer_takes_s() <= moment_s:
                self._time_next()
            if self._timing is None or self._timing[0] > moment_s:
                break
            self._timer_free_s = self._timing[0]
            completed.append(self._timing)
            self._timing = None
        if moment_s > self.now_s:
            self.now_s = moment_s
        completed.sort()
        return [(row, done_s, done_s) for done_s, _, row in completed]

    def _next_s(self) -> float:
        """When something is done next, if nothing more is submitted; inf of nothing."""
        failed_s = self._failed[0][0] if self._failed else math.inf
        if self._timing is None and self._compiled and self._timer_takes_s() <= failed_s:
            self._time_next()
        return failed_s if self._timing is None else min(failed_s, self._timing[0])

    def _timer_takes_s(self) -> float:
        """When the timer, which is idle, takes the first of what waits for it; inf of nothing."""
        if not self._compiled:
            return math.inf
        compiled_s = self._compiled[0][0]
        return compiled_s if compiled_s > self._timer_free_s else self._timer_free_s

    def _time_next(self) -> None:
        begin_s = self._timer_takes_s()
        _, order, row, benchmark_s = heappop(self._compiled)
        self._timing = (begin_s + benchmark_s, order, row)


def make_clock(spec: str) -> Clock:
    """The clock that ``spec`` names: ``sequential``, ``parallel(16)`` or ``pipelined(16)``.

    Raises:
        TaskError: it names none.
    """
    if spec == "sequential":
        return SequentialClock()
    match = re.fullmatch(r"(parallel|pipelined)\((\d{1,6})\)", spec)
    if match is None:
        raise TaskError(
            f"a clock must be 'sequential', 'parallel(WORKERS)' or 'pipelined(WORKERS)', such as "
            f"'parallel(16)', but got {spec!r}"
        )
    workers = int(match[2])
    return ParallelClock(workers) if match[1] == "parallel" else PipelinedClock(workers)


def default_clock(recording: Recording) -> Clock:
    """The clock that fits how the recording's tuner works (``info.parallel_workers``)."""
    workers = recording.info.parallel_workers
    return ParallelClock(workers) if workers > 1 else SequentialClock()
