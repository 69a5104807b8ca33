"""Turns a recording into a tuning task, and a sequence of visits into a trace.

What it does: the budget, time axis and random-search baseline of the published
methodology; the `Evaluator`, which answers a searcher from the recording (or from any other
`CostSource`: see `llamea_gpu.modelled`) and owns costs, memory, budget and clock; the paired seeds
of repeats.

What it does not do: keep time (`llamea_gpu.clocks`), say how long a task
lasts and what chance reaches (`llamea_gpu.baseline`), run a searcher (`llamea_gpu.sandbox`), or
score a trace (`llamea_gpu.scoring`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.baseline import sequential_yardstick, simulated_yardstick
from llamea_gpu.clocks import Clock, Measurement, Visit, default_clock, make_clock
from llamea_gpu.curves import Frame
from llamea_gpu.errors import BudgetExhausted, Stalled, TaskError
from llamea_gpu.spaces.recording import STATUSES

if TYPE_CHECKING:
    from llamea_gpu.spaces.recording import Recording
    from llamea_gpu.spaces.space import Value

FloatArray = NDArray[np.float64]

# Configurations that may be on their way at a time, each repetition counted.
MAX_PENDING = 1 << 16

# A fault of the searcher: it raised, its process died or meddled, or it passed a limit.
FAULTS = ("timeout", "memory", "error", "crashed", "protocol")
OUTCOMES = ("budget", "finished", "stalled", *FAULTS)


def run_seed(seed: int, space: str, repeat: int) -> int:
    """Seed of one run, 32 bits, the same on every machine.

    It does not depend on the searcher: two searchers' runs with the same ``repeat`` are paired.
    """
    text = f"{seed}/{repeat}/{space}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


class TimedTask(Protocol):
    """What an `Evaluator` needs of a task."""

    @property
    def clock(self) -> Clock:
        """How measurements take time."""

    @property
    def budget_s(self) -> float:
        """When it ends."""

    def costs(self) -> CostSource:
        """What it answers from."""


@dataclass(frozen=True, slots=True, eq=False)
class Task(Frame):
    """A recording, a clock, and all that the score needs of both. Build it with `Task.build`.

    ``baseline_ms`` (1000,) is what random search has reached along the axis, and
    ``budget_evaluations`` how many evaluations the budget holds: see `llamea_gpu.baseline`.
    """

    recording: Recording
    clock: Clock
    optimum_ms: float
    budget_evaluations: float
    baseline_ms: FloatArray

    @property
    def name(self) -> str:
        """The recording's name."""
        name: str = self.recording.info.name
        return name

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """How many values each parameter has."""
        return self.recording.space.cardinalities

    @property
    def fingerprint(self) -> str:
        """SHA-256 of parameters, configurations and measurements, in hexadecimal."""
        recording = self.recording
        digest = hashlib.sha256(recording.space.fingerprint.encode())
        for column in (recording.time_ms, recording.compile_s, recording.benchmark_s):
            digest.update(np.ascontiguousarray(column, dtype="<f8").tobytes())
        return digest.hexdigest()

    def visited(self, trace: Trace) -> NDArray[np.int64]:
        """(n, d) value indices of a trace's visits."""
        visited: NDArray[np.int64] = self.recording.space.configurations[trace.rows].astype(
            np.int64
        )
        return visited

    def value_dict(self, configuration: Sequence[int]) -> dict[str, Value]:
        """A configuration as parameter name to value."""
        return self.recording.space.value_dict(configuration)

    def costs(self) -> CostSource:
        """What an `Evaluator` answers from."""
        return RecordedCosts(self.recording)

    @classmethod
    def build(cls, recording: Recording, clock: Clock | None = None) -> Task:
        """The task of tuning on ``recording``, with its own clock unless one is given.

        Raises:
            TaskError: the method is not defined for the recording (too few distinct costs, no
                evaluation times, or a baseline that already starts at the optimum).
        """
        clock = default_clock(recording) if clock is None else clock
        name = recording.info.name
        costs_ms = np.sort(recording.time_ms[recording.ok])
        if costs_ms.size < 2:
            raise TaskError(f"{name}: a task needs at least 2 valid costs, but got {costs_ms.size}")
        try:
            if clock.serial:
                yardstick = sequential_yardstick(costs_ms, recording.evaluation_s, recording.ok)
            else:
                yardstick = simulated_yardstick(recording, clock)
        except TaskError as error:
            raise TaskError(f"{name}: {error}") from error
        return cls(
            recording=recording,
            clock=clock,
            costs_ms=_read_only(costs_ms),
            optimum_ms=float(costs_ms[0]),
            median_ms=float(np.median(costs_ms)),
            evaluation_s=yardstick.evaluation_s,
            budget_s=yardstick.budget_s,
            budget_evaluations=yardstick.budget_evaluations,
            axis_s=_read_only(yardstick.axis_s),
            baseline_ms=_read_only(yardstick.baseline_ms),
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

    ``rows`` (n,) int32 are rows of the space; of a whole space, which has none, they count the
    visits, and ``configurations`` (n, d) int32 says what each was. ``elapsed_s`` (n,) is when each
    was done by the clock, ``cost_ms`` (n,) with inf for a failed one. ``outcome`` is one of
    `OUTCOMES`. ``asks`` counts the configurations that were answered, ``revisits`` those of them
    that were known or already on their way.
    ``ended_s`` is the clock's time at the end, which may lie after the last visit; it is not
    stored, and 0 where it is not known. ``batch`` (n,) int32 numbers the answers: visits with the
    same number, such as those of one call, were done before the searcher heard of any of them. It
    is None in traces that were stored without it.
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
    configurations: NDArray[np.int32] | None = None

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


class CostSource(Protocol):
    """What measuring a run's configurations gives, by the number (row) that each of them has."""

    def __len__(self) -> int:
        """How many rows there are by now."""

    def times_ms(self, rows: Sequence[int] | NDArray[Any]) -> FloatArray:
        """(n,) kernel times, inf where one fails."""

    def measurements(self, rows: Sequence[int]) -> list[Measurement]:
        """What measuring each of them takes, for a clock."""

    def status(self, row: int) -> int:
        """Index into `llamea_gpu.spaces.recording.STATUSES`."""

    def visited(self, row: int) -> None:
        """Told of each first visit, when it is done."""

    def configurations(self, rows: Sequence[int]) -> NDArray[np.int32] | None:
        """(n, d) value indices; None where rows by themselves tell everybody what they are."""

    def rows_of(self, trace: Trace) -> list[int]:
        """The rows that the visits of another run of the same task have here, -1 for none."""


class RecordedCosts:
    """The costs of a recording, whose rows are those of its space."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._timed = recording.timed

    def __len__(self) -> int:
        return len(self._recording.time_ms)

    def times_ms(self, rows: Sequence[int] | NDArray[Any]) -> FloatArray:
        """As of every `CostSource`."""
        times_ms: FloatArray = self._recording.time_ms[rows]
        return times_ms

    def measurements(self, rows: Sequence[int]) -> list[Measurement]:
        """Recorded seconds."""
        compile_s, benchmark_s = self._recording.compile_s, self._recording.benchmark_s
        return [
            (row, compile_s.item(row), benchmark_s.item(row), self._timed.item(row)) for row in rows
        ]

    def status(self, row: int) -> int:
        """As of every `CostSource`."""
        return self._recording.status.item(row)

    def visited(self, row: int) -> None:
        """Nothing depends on it."""

    def configurations(self, rows: Sequence[int]) -> None:
        """None: the space has them."""

    def rows_of(self, trace: Trace) -> list[int]:
        """The same."""
        inside = (trace.rows >= 0) & (trace.rows < len(self))
        rows: list[int] = np.where(inside, trace.rows, -1).tolist()
        return rows


class Evaluator:
    """The host's side of one run: answers costs, and owns memory, budget, clock and trace.

    A first visit that lies within the budget by the clock's rule is charged and recorded whole;
    revisits are free and answered from memory, and a duplicate in a batch, or of what is on its
    way, is one. What is done before the budget's end is recorded whether or not it was waited for;
    what is on its way when the run ends, however it ends, is dropped.

    ``costs`` are those of the task's recording, unless given. With ``start``, a trace of the same
    task, it goes on where and when that one ended.
    """

    def __init__(
        self,
        task: TimedTask,
        max_idle_asks: int = 10_000,
        charge_cpu: bool = False,
        start: Trace | None = None,
        costs: CostSource | None = None,
    ) -> None:
        self._clock = task.clock
        self._timeline = task.clock.timeline()
        self._budget_s = task.budget_s
        self._costs = task.costs() if costs is None else costs
        self._max_idle_asks = max_idle_asks
        self._charge_cpu = charge_cpu
        self._seen: set[int] = set()
        self._rows: list[int] = []
        self._batch: list[int] = []
        self._next_batch = 0
        self._finished_s: list[float] = []
        self._underway: dict[int, int] = {}  # submitted rows, and how often each
        self._answers: list[int] = []  # rows for the next wait
        self._pending = 0
        self._revisits = 0
        self._idle_asks = 0
        if start is not None:
            self._go_on_from(start)

    @property
    def now_s(self) -> float:
        """The time by the clock."""
        return self._timeline.now_s

    @property
    def parallel(self) -> int:
        """How many configurations are worth having on their way."""
        return self._clock.parallel

    @property
    def pending(self) -> int:
        """How many answers waits still owe."""
        return self._pending

    @property
    def spent(self) -> float:
        """Share of the budget used, 0 to 1."""
        return min(self._timeline.now_s / self._budget_s, 1.0)

    @property
    def exhausted(self) -> bool:
        """Whether a first visit would end the run."""
        return self._timeline.now_s >= self._budget_s

    def ask(self, rows: NDArray[Any]) -> FloatArray:
        """Costs in ms of ``rows``, (n,) rows of the space; inf where the configuration fails.

        What was submitted before goes first, and is answered by later waits.

        Raises:
            BudgetExhausted: a first visit was asked for and the budget is, or came to be, used up.
            Stalled: too many asks in a row brought nothing new.
            ValueError: a row lies outside the space.
        """
        row_numbers = self._checked(rows)
        missing, repeats = self._begin(row_numbers)
        least = 1 if self._underway else len(missing)
        while not self._seen.issuperset(missing):
            self._advance(least)
        self._revisits += repeats
        self._next_batch = self._batch[-1] + 1 if self._batch else 0
        return self._costs.times_ms(rows)

    def submit(self, rows: NDArray[Any]) -> None:
        """Queue ``rows``, (n,) rows of the space. Each is answered once, by `wait`.

        Raises:
            BudgetExhausted: one of them is not known yet, and the budget is used up.
            Stalled: as for `ask`.
            ValueError: a row lies outside the space, or more than `MAX_PENDING` would be on their
                way. Nothing is queued.
        """
        row_numbers = self._checked(rows)
        if self._pending + len(row_numbers) > MAX_PENDING:
            raise ValueError(
                f"at most {MAX_PENDING} configurations may be on their way, but got "
                f"{len(row_numbers)} more to {self._pending}"
            )
        _, repeats = self._begin(row_numbers)
        self._revisits += repeats
        self._pending += len(row_numbers)
        for row in row_numbers:
            if row in self._seen:
                self._answers.append(row)
            else:
                self._underway[row] = self._underway.get(row, 0) + 1

    def wait(self) -> tuple[NDArray[np.int32], FloatArray]:
        """Rows that were submitted, in the order in which they were done, and their costs in ms.

        What is known by now, if anything is; else time passes until something is. Empty when
        nothing is pending.

        Raises:
            BudgetExhausted: the budget ends before anything more is done.
            Stalled: nothing was pending, too often.
        """
        if not self._pending:
            self._idle(1)
        while self._pending and not self._answers:
            self._advance()
        rows = np.array(self._answers, dtype=np.int32)
        self._answers.clear()
        self._pending -= rows.size
        self._next_batch = self._batch[-1] + 1 if self._batch else 0
        return rows, self._costs.times_ms(rows)

    def failure(self, row: int) -> str | None:
        """The status of a visited row that failed, such as ``"compile_error"``; else None."""
        status = self._costs.status(row) if row in self._seen else 0
        return STATUSES[status] if status else None

    def charge(self, cpu_s: float) -> None:
        """Adds the searcher's own CPU seconds to the clock, when the run charges them."""
        if self._charge_cpu:
            self.wait_until(self._timeline.now_s + cpu_s)

    def wait_until(self, moment_s: float) -> None:
        """Lets the clock run to ``moment_s``, never back; what is done meanwhile is recorded."""
        self._record(self._timeline.advance(moment_s))

    def trace(
        self, *, outcome: str, seed: int, cpu_s: float | None = None, error: str | None = None
    ) -> Trace:
        """The run so far."""
        rows = np.array(self._rows, dtype=np.int32)
        configurations = self._costs.configurations(self._rows)
        return Trace(
            rows=rows if configurations is None else np.arange(rows.size, dtype=np.int32),
            elapsed_s=np.array(self._finished_s, dtype=np.float64),
            cost_ms=self._costs.times_ms(rows),
            outcome=outcome,
            asks=len(self._rows) + self._revisits,
            revisits=self._revisits,
            seed=seed,
            cpu_s=cpu_s,
            error=error,
            ended_s=self._timeline.now_s,
            batch=np.array(self._batch, dtype=np.int32),
            configurations=configurations,
        )

    def _go_on_from(self, start: Trace) -> None:
        rows = self._costs.rows_of(start)
        inside = min(rows, default=0) >= 0
        if not inside or not np.array_equal(start.cost_ms, self._costs.times_ms(rows)):
            raise TaskError("a run must go on from a trace of its own task, but got another task's")
        if start.batch is None:
            raise TaskError("a run must go on from a trace that has its batches, but got none")
        self._rows = rows
        self._batch = start.batch.tolist()
        self._next_batch = max(self._batch, default=-1) + 1
        self._finished_s = start.elapsed_s.tolist()
        self._timeline.advance(max([*self._finished_s, start.ended_s]))
        self._revisits = start.revisits
        for row in self._rows:
            self._seen.add(row)
            self._costs.visited(row)

    def _checked(self, rows: NDArray[Any]) -> list[int]:
        row_numbers: list[int] = rows.tolist()
        if row_numbers and not (min(row_numbers) >= 0 and max(row_numbers) < len(self._costs)):
            raise ValueError(
                f"rows must lie in 0..{len(self._costs) - 1}, but got "
                f"{min(row_numbers)}..{max(row_numbers)}"
            )
        return row_numbers

    def _begin(self, row_numbers: list[int]) -> tuple[list[int], int]:
        """Send first visits on their way: the rows not known yet, and how many were no such."""
        missing = [row for row in dict.fromkeys(row_numbers) if row not in self._seen]
        fresh = [row for row in missing if row not in self._underway] if self._underway else missing
        if not missing:
            self._idle(max(len(row_numbers), 1))
        elif self.exhausted:
            raise BudgetExhausted
        self._timeline.submit(self._costs.measurements(fresh))
        return missing, len(row_numbers) - len(fresh)

    def _idle(self, asks: int) -> None:
        self._idle_asks += asks
        if self._idle_asks > self._max_idle_asks:
            self._idle_asks = 0  # of a hybrid, the next searcher begins with revisits
            raise Stalled(f"no new visit in {self._max_idle_asks} asks")

    def _advance(self, least: int = 1) -> None:
        """Let time pass until ``least`` more visits are done."""
        if self.exhausted:
            raise BudgetExhausted
        self._record(self._timeline.wait(least))

    def _record(self, visits: list[Visit]) -> None:
        if visits:
            self._idle_asks = 0
        for row, decisive_s, done_s in visits:
            if decisive_s >= self._budget_s:  # the rest of what is on its way is lost
                self._timeline = self._clock.timeline()
                self._timeline.advance(decisive_s)
                return
            self._seen.add(row)
            self._costs.visited(row)
            self._rows.append(row)
            self._batch.append(self._next_batch)
            self._finished_s.append(done_s)
            if row in self._underway:
                self._answers += [row] * self._underway.pop(row)
