"""Turns a recording into a tuning task, and a sequence of visits into a trace.

What it does: the budget, time axis and random-search baseline of the published
methodology; the `Evaluator`, which answers a searcher from the recording and owns costs, memory,
budget and clock; the paired seeds of repeats.

What it does not do: keep time (`llamea_gpu.clocks`, whose names it passes on), say how long a task
lasts and what chance reaches (`llamea_gpu.baseline`), run a searcher (`llamea_gpu.sandbox`), or
score a trace (`llamea_gpu.scoring`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.baseline import (
    AXIS_POINTS,
    batch_yardstick,
    cutoff_evaluations,
    sequential_yardstick,
)
from llamea_gpu.clocks import (
    Clock,
    ParallelClock,
    SequentialClock,
    default_clock,
    make_clock,
)
from llamea_gpu.errors import BudgetExhausted, Stalled, TaskError
from llamea_gpu.spaces.recording import STATUSES

if TYPE_CHECKING:
    from llamea_gpu.spaces.recording import Recording

__all__ = [
    "AXIS_POINTS",
    "OUTCOMES",
    "Clock",
    "Evaluator",
    "ParallelClock",
    "SequentialClock",
    "Task",
    "Trace",
    "build_tasks",
    "cutoff_evaluations",
    "default_clock",
    "make_clock",
    "run_seed",
]

FloatArray = NDArray[np.float64]

# A fault of the searcher: it raised, its process died or meddled, or it passed a limit.
FAULTS = ("timeout", "memory", "error", "crashed", "protocol")
OUTCOMES = ("budget", "finished", "stalled", *FAULTS)


def run_seed(seed: int, space: str, repeat: int) -> int:
    """Seed of one run, 32 bits, the same on every machine.

    It does not depend on the searcher: two searchers' runs with the same ``repeat`` are paired.
    """
    text = f"{seed}/{repeat}/{space}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A recording, a clock, and all that the score needs of both. Build it with `Task.build`.

    ``costs_ms`` are the valid costs, best first, (N,); ``axis_s`` and ``baseline_ms`` are the
    time axis of the score and what random search has reached along it, (1000,) each.
    ``evaluation_s`` is what an evaluation takes, failed ones included, and ``budget_evaluations``
    how many the budget holds: see `llamea_gpu.baseline`.
    """

    recording: Recording
    clock: Clock
    costs_ms: FloatArray
    optimum_ms: float
    median_ms: float
    evaluation_s: float
    budget_s: float
    budget_evaluations: float
    axis_s: FloatArray
    baseline_ms: FloatArray

    @property
    def name(self) -> str:
        """The recording's name."""
        name: str = self.recording.info.name
        return name

    @classmethod
    def build(cls, recording: Recording, clock: Clock | None = None) -> Task:
        """The task of tuning on ``recording``, with its own clock unless one is given.

        Raises:
            TaskError: the method is not defined for the recording (too few distinct costs, no
                evaluation times, or a baseline that already starts at the optimum).
        """
        clock = default_clock(recording) if clock is None else clock
        name = recording.info.name
        valid = np.isfinite(recording.time_ms)
        costs_ms = np.sort(recording.time_ms[valid])
        if costs_ms.size < 2:
            raise TaskError(f"{name}: a task needs at least 2 valid costs, but got {costs_ms.size}")
        compile_s, benchmark_s = recording.compile_s, recording.benchmark_s
        try:
            if clock.workers == 1:
                found = sequential_yardstick(costs_ms, compile_s + benchmark_s, valid)
            else:
                found = batch_yardstick(recording.time_ms, compile_s, benchmark_s, clock)
        except TaskError as error:
            raise TaskError(f"{name}: {error}") from error
        return cls(
            recording=recording,
            clock=clock,
            costs_ms=_read_only(costs_ms),
            optimum_ms=float(costs_ms[0]),
            median_ms=float(np.median(costs_ms)),
            evaluation_s=found.evaluation_s,
            budget_s=found.budget_s,
            budget_evaluations=found.budget_evaluations,
            axis_s=_read_only(found.axis_s),
            baseline_ms=_read_only(found.baseline_ms),
        )


def build_tasks(recordings: Sequence[Recording], clock: str = "") -> tuple[Task, ...]:
    """One task a recording, with the clock that a spec names or, without one, each its own."""
    chosen = make_clock(clock) if clock else None
    return tuple(Task.build(recording, chosen) for recording in recordings)


def _read_only(array: FloatArray) -> FloatArray:
    array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One run: its first visits in order, and how it ended.

    ``rows`` (n,) int32 are rows of the space, ``elapsed_s`` (n,) when each was done by the clock,
    ``cost_ms`` (n,) with inf for a failed one. ``outcome`` is one of `OUTCOMES`. ``asks`` counts
    the configurations that were answered, ``revisits`` those of them answered from memory.
    ``ended_s`` is the clock's time at the end, which may lie after the last visit; it is not
    stored, and 0 where it is not known. ``batch`` (n,) int32 numbers the requests: visits with the
    same number were asked for together. It is None in traces that were stored without it.
    """

    rows: NDArray[np.int32]
    elapsed_s: FloatArray
    cost_ms: FloatArray
    outcome: str
    asks: int
    revisits: int
    seed: int
    cpu_s: float | None = None
    error: str | None = None
    ended_s: float = 0.0
    batch: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise TaskError(f"an outcome must be one of {OUTCOMES}, but got {self.outcome!r}")
        if self.batch is not None and (
            self.batch.shape != self.rows.shape
            or not ((self.batch >= 0) & (self.batch < self.rows.size)).all()
        ):
            raise TaskError(
                f"each of {self.rows.size} visits must have the number of its batch, from 0 and "
                f"below that of the visits, but got {self.batch!r:.200}"
            )

    @property
    def is_faulty(self) -> bool:
        """Whether a fault of the searcher ended the run."""
        return self.outcome in FAULTS

    @property
    def is_failed(self) -> bool:
        """Whether the run did not end in order (a fault, or stalled), or measured nothing."""
        return self.is_faulty or self.outcome == "stalled" or not self.rows.size

    @property
    def best_ms(self) -> float:
        """The lowest cost seen, inf when nothing worked."""
        return float(np.min(self.cost_ms, initial=math.inf))

    @property
    def rows_best_first(self) -> list[int]:
        """The visited rows by cost; failed ones last, equal ones in order of their visits."""
        rows: list[int] = self.rows[np.argsort(self.cost_ms, kind="stable")].tolist()
        return rows


class Evaluator:
    """The host's side of one run: answers costs, and owns memory, budget, clock and trace.

    A first visit that begins before the budget's end is charged and recorded whole (Kernel Tuner's
    rule); revisits are free and answered from memory, and a duplicate in a batch is one.

    With ``start``, a trace of the same task, it goes on where and when that one ended.
    """

    def __init__(
        self,
        task: Task,
        max_idle_asks: int = 10_000,
        charge_cpu: bool = False,
        start: Trace | None = None,
    ) -> None:
        recording = task.recording
        self._clock = task.clock
        self._budget_s = task.budget_s
        self._time_ms = recording.time_ms
        self._status = recording.status
        self._compile_s = recording.compile_s
        self._benchmark_s = recording.benchmark_s
        self._max_idle_asks = max_idle_asks
        self._charge_cpu = charge_cpu
        self._seen = bytearray(len(recording.time_ms))
        self._rows: list[int] = []
        self._batch: list[int] = []
        self._finished_s: list[float] = []
        self._now_s = 0.0
        self._revisits = 0
        self._idle_asks = 0
        if start is not None:
            self._go_on_from(start)

    @property
    def now_s(self) -> float:
        """The time by the clock."""
        return self._now_s

    @property
    def parallel(self) -> int:
        """How many configurations compile side by side."""
        return self._clock.workers

    @property
    def spent(self) -> float:
        """Share of the budget used, 0 to 1."""
        return min(self._now_s / self._budget_s, 1.0)

    @property
    def exhausted(self) -> bool:
        """Whether a first visit would end the run."""
        return self._now_s >= self._budget_s

    def ask(self, rows: NDArray[Any]) -> FloatArray:
        """Costs in ms of ``rows``, (n,) rows of the space; inf where the configuration fails.

        Raises:
            BudgetExhausted: a first visit was asked for and the budget is, or came to be, used up.
            Stalled: too many asks in a row brought nothing new.
            ValueError: a row lies outside the space.
        """
        wanted: list[int] = rows.tolist()
        seen = self._seen
        if wanted and not (min(wanted) >= 0 and max(wanted) < len(seen)):
            raise ValueError(
                f"rows must lie in 0..{len(seen) - 1}, but got {min(wanted)}..{max(wanted)}"
            )
        fresh = [row for row in dict.fromkeys(wanted) if not seen[row]]
        if fresh:
            self._measure(fresh)
            self._idle_asks = 0
        else:
            self._idle_asks += max(len(wanted), 1)
            if self._idle_asks > self._max_idle_asks:
                self._idle_asks = 0  # of a hybrid, the next searcher begins with revisits
                raise Stalled(f"no new visit in {self._max_idle_asks} asks")
        self._revisits += len(wanted) - len(fresh)
        costs_ms: FloatArray = self._time_ms[rows]
        return costs_ms

    def failure(self, row: int) -> str | None:
        """The status of a visited row that failed, such as ``"compile_error"``; else None."""
        if not self._seen[row] or not self._status[row]:
            return None
        status: str = STATUSES[self._status[row]]
        return status

    def charge(self, cpu_s: float) -> None:
        """Adds the searcher's own CPU seconds to the clock, when the run charges them."""
        if self._charge_cpu:
            self._now_s += cpu_s

    def wait_until(self, moment_s: float) -> None:
        """Lets the clock run to ``moment_s`` with nothing measured; never back."""
        self._now_s = max(self._now_s, moment_s)

    def trace(
        self, *, outcome: str, seed: int, cpu_s: float | None = None, error: str | None = None
    ) -> Trace:
        """The run so far."""
        rows = np.array(self._rows, dtype=np.int32)
        return Trace(
            rows=rows,
            elapsed_s=np.array(self._finished_s, dtype=np.float64),
            cost_ms=self._time_ms[rows],
            outcome=outcome,
            asks=len(self._rows) + self._revisits,
            revisits=self._revisits,
            seed=seed,
            cpu_s=cpu_s,
            error=error,
            ended_s=self._now_s,
            batch=np.array(self._batch, dtype=np.int32),
        )

    def _go_on_from(self, start: Trace) -> None:
        rows = start.rows
        inside = bool(((rows >= 0) & (rows < len(self._seen))).all())
        if not inside or not np.array_equal(start.cost_ms, self._time_ms[rows]):
            raise TaskError("a run must go on from a trace of its own task, but got another task's")
        if start.batch is None:
            raise TaskError("a run must go on from a trace that has its batches, but got none")
        self._rows = rows.tolist()
        self._batch = start.batch.tolist()
        self._finished_s = start.elapsed_s.tolist()
        self._now_s = max([*self._finished_s, start.ended_s])
        self._revisits = start.revisits
        for row in self._rows:
            self._seen[row] = True

    def _measure(self, fresh: list[int]) -> None:
        if self._now_s >= self._budget_s:
            raise BudgetExhausted
        compile_s = [self._compile_s.item(row) for row in fresh]
        benchmark_s = [self._benchmark_s.item(row) for row in fresh]
        schedule = self._clock.schedule(self._now_s, compile_s, benchmark_s)
        batch = self._batch[-1] + 1 if self._batch else 0
        for row, (begin_s, finish_s) in zip(fresh, schedule, strict=True):
            if begin_s >= self._budget_s:
                self._now_s = begin_s
                raise BudgetExhausted
            self._now_s = finish_s
            self._seen[row] = True
            self._rows.append(row)
            self._batch.append(batch)
            self._finished_s.append(finish_s)
