"""Random search as the yardstick: how long a task lasts, and what chance reaches along the way.

What it does: the published time axis and baseline for a clock that measures one configuration at a
time (`sequential_yardstick`), and the same two ideas for a clock that compiles side by side
(`simulated_yardstick`), where the published formula has no meaning.

What it does not do: keep time (`llamea_gpu.clocks`) or score (`llamea_gpu.scoring`).

Published: F.-J. Willemsen et al., "A methodology for comparing optimization algorithms for
auto-tuning", Future Generation Computer Systems 159 (2024), as autotuning_methodology 1.1.0
computes it. One formula differs: where start and end of the axis lie less than two evaluations
apart, the end may move up to the evaluations that reach the optimum. The package compares that
number with the optimum's *cost* (``cutoff_point(1.0)[0]``), which depends on the unit of the
costs; here it is the number of evaluations.

Side by side: dividing a compilation by the number of workers, as if batches had no slowest member,
gives a yardstick that no searcher can keep up with: random search itself scores below -10 on
recordings in which one compilation in twenty takes sixty times the median
(docs/adr/0003-batch-baseline.md). So random search is simulated under the task's own clock, with
fixed seeds: in full batches, or, where there are none, with ``clock.parallel`` always on their way.
The axis starts and ends when half of the runs have the published number of working configurations,
but not before twelve batches' worth: shorter ones measure the luck of the first two. The baseline
is the runs' own curve, made as a searcher's is (`llamea_gpu.curves`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.clocks import Clock, PipelinedClock
from llamea_gpu.curves import Frame, Run, pool_runs
from llamea_gpu.errors import TaskError

if TYPE_CHECKING:
    from llamea_gpu.spaces.recording import Recording

FloatArray = NDArray[np.float64]

AXIS_POINTS = 1000
START_SHARE = 0.01  # of the way from the median to the optimum: where the axis starts
CUTOFF_SHARE = 0.95  # where it ends
BUDGET_MARGIN = 0.1  # the budget goes on this share beyond the axis
LEAST_BATCHES = 12  # of random search along an axis, unless they are over a quarter of the space
RANDOM_RUNS = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Yardstick:
    """What random search says about a task.

    ``axis_s`` and ``baseline_ms`` are (1000,); ``evaluation_s`` is what one evaluation takes,
    failures included; ``budget_evaluations`` is how many the budget holds, about.
    """

    axis_s: FloatArray
    baseline_ms: FloatArray
    evaluation_s: float
    budget_s: float
    budget_evaluations: float


def sequential_yardstick(
    costs_ms: FloatArray, evaluation_s: FloatArray, valid: NDArray[np.bool_]
) -> Yardstick:
    """The published one. ``costs_ms`` (N,) ascend; the others cover all configurations.

    Raises:
        TaskError: the method is not defined for these numbers.
    """
    median_s = float(np.median(evaluation_s))
    if not median_s > 0:
        raise TaskError(
            f"the median evaluation time must be positive, but is {median_s} s: "
            f"record compile_s and benchmark_s with the costs"
        )
    start, end = _axis_evaluations(costs_ms)
    axis_s = np.linspace(start * median_s, end * median_s, AXIS_POINTS, dtype=np.float64)
    baseline_ms = _random_baseline_ms(costs_ms, axis_s, _seconds_per_valid(evaluation_s, valid))
    return Yardstick(
        axis_s=axis_s,
        baseline_ms=_above_optimum(costs_ms, baseline_ms),
        evaluation_s=median_s,
        budget_s=end * median_s * (1 + BUDGET_MARGIN),
        budget_evaluations=end * (1 + BUDGET_MARGIN),
    )


def simulated_yardstick(recording: Recording, clock: Clock) -> Yardstick:
    """Random search without replacement, run under a clock that is not serial.

    Raises:
        TaskError: the method is not defined for the recording.
    """
    costs_ms = np.sort(recording.time_ms[recording.ok])
    start, end = _axis_evaluations(costs_ms)
    end = max(end, min(LEAST_BATCHES * clock.workers, costs_ms.size // 4))
    simulated = _PipelinedRuns if isinstance(clock, PipelinedClock) else _BatchRuns
    runs = simulated(RANDOM_RUNS, clock.workers, recording)
    start_s, end_s = (float(np.median(runs.when_worked_s(count))) for count in (start, end))
    if not end_s > start_s:
        raise TaskError(
            f"the axis must end after it starts, but random search under the clock {clock.name} "
            f"has measured {start} and {end} configurations after the same {start_s} s: record "
            f"compile_s and benchmark_s with the costs"
        )
    budget_s = end_s * (1 + BUDGET_MARGIN)
    cut = runs.until(budget_s)
    evaluations = float(np.mean([run.elapsed_s.size for run in cut]))
    frame = Frame(
        costs_ms=costs_ms,
        median_ms=float(np.median(costs_ms)),
        axis_s=np.linspace(start_s, end_s, AXIS_POINTS, dtype=np.float64),
        budget_s=budget_s,
        evaluation_s=budget_s / evaluations,
    )
    ranks = pool_runs(frame, cut).ranks(frame.axis_s, np.ones(RANDOM_RUNS, dtype=np.int64))
    return Yardstick(
        axis_s=frame.axis_s,
        baseline_ms=_above_optimum(costs_ms, costs_ms[np.rint(ranks).astype(np.int64)]),
        evaluation_s=frame.evaluation_s,
        budget_s=budget_s,
        budget_evaluations=evaluations,
    )


class _RandomRuns:
    """Random searches, seeds 0, 1, ...: as many at once as far as is asked about.

    What is measured is kept in blocks of (configurations, runs). Times are those of the clock, to
    the last bit, at a hundredth of the price.
    """

    def __init__(self, runs: int, workers: int, recording: Recording) -> None:
        self._orders = _random_orders(runs, recording)
        self._recording = recording
        self._workers = workers
        self._works = recording.ok
        self._runs = np.arange(runs)
        self._now_s = np.zeros(runs)
        self._measured = 0  # by each run
        self._worked = np.zeros(runs, np.int64)  # of them
        self._rows: list[NDArray[np.int32]] = []
        self._decisive_s: list[FloatArray] = []  # must lie before the budget's end to count
        self._done_s: list[FloatArray] = []

    def when_worked_s(self, count: int) -> FloatArray:
        """When ``count`` configurations that work have been measured, (runs,); 0 of none."""
        if not count:
            return np.zeros(self._runs.size)
        while np.min(self._worked) < count:
            self._measure()
        worked = np.cumsum(self._works[np.concatenate(self._rows)], axis=0, dtype=np.int32)
        when_s: FloatArray = np.concatenate(self._done_s)[
            np.argmax(worked == count, axis=0), self._runs
        ]
        return when_s

    def until(self, budget_s: float) -> list[Run]:
        """What counts within ``budget_s``, as `llamea_gpu.tasks.Evaluator` records it."""
        while self._measured < self._orders.shape[1] and np.any(self._now_s < budget_s):
            self._measure()
        counts = np.count_nonzero(np.concatenate(self._decisive_s) < budget_s, axis=0)
        done_s, rows = np.concatenate(self._done_s).T, np.concatenate(self._rows).T
        return [
            Run(done_s[run, :count], self._recording.time_ms[rows[run, :count]])
            for run, count in enumerate(counts)
        ]

    def _measure(self) -> None:
        """In every run, time passes until more is done."""
        raise NotImplementedError

    def _note(self, rows: NDArray[np.int32], decisive_s: FloatArray, done_s: FloatArray) -> None:
        """A block that is done: each (configurations, runs)."""
        self._rows.append(rows)
        self._decisive_s.append(decisive_s)
        self._done_s.append(done_s)
        self._now_s = done_s[-1]
        self._measured += len(rows)
        self._worked += np.count_nonzero(self._works[rows], axis=0)


class _BatchRuns(_RandomRuns):
    """Under `ParallelClock`, in full batches."""

    def _measure(self) -> None:
        recording = self._recording
        batch = self._orders[:, self._measured : self._measured + self._workers]
        # No more than there are workers: the slowest compilation is the batch's.
        compiled_s = self._now_s + np.max(recording.compile_s[batch], axis=1)
        edges_s = np.cumsum(np.column_stack([compiled_s, recording.benchmark_s[batch]]), axis=1).T
        self._note(batch.T, edges_s[:-1], edges_s[1:])


class _PipelinedRuns(_RandomRuns):
    """Under `PipelinedClock`, with what a pipeline is fed with always on its way.

    A run's configurations on their way have a place each, which the next one takes over; arrays of
    their state are (runs, places). The timer's next, or the one it is busy with, is always the
    first one compiled: what is submitted later is compiled later.
    """

    def __init__(self, runs: int, workers: int, recording: Recording) -> None:
        super().__init__(runs, workers, recording)
        self._timed = recording.timed
        self._compiler_free_s = np.zeros((runs, workers))
        self._timer_free_s = np.zeros(runs)
        self._submitted = 0
        places = min(PipelinedClock(workers).parallel, recording.time_ms.size)
        self._row = np.zeros((runs, places), np.int32)
        self._order = np.zeros((runs, places), np.int32)
        self._compiled_s = np.zeros((runs, places))
        for place in range(places):
            self._submit(np.full(runs, place))

    def _measure(self) -> None:
        """One more is done in every run, and the next takes its place."""
        timed = self._timed[self._row]
        failing, failed_s = self._first(~timed)
        timing, compiled_s = self._first(timed)
        timed_s = (
            np.maximum(compiled_s, self._timer_free_s)
            + self._recording.benchmark_s[self._row[self._runs, timing]]
        )
        fails = failed_s < timed_s
        fails |= (failed_s == timed_s) & (
            self._order[self._runs, failing] < self._order[self._runs, timing]
        )
        done_s = np.where(fails, failed_s, timed_s)[None]
        self._timer_free_s = np.where(fails, self._timer_free_s, timed_s)
        place = np.where(fails, failing, timing)
        self._note(self._row[self._runs, place][None], done_s, done_s)
        self._submit(place)

    def _first(self, among: NDArray[np.bool_]) -> tuple[NDArray[np.intp], FloatArray]:
        """Of each run the place compiled first, and when; inf where there is none ``among``."""
        compiled_s = np.where(among, self._compiled_s, np.inf)
        first_s = np.min(compiled_s, axis=1)
        ties = np.where(compiled_s == first_s[:, None], self._order, np.iinfo(np.int32).max)
        return np.argmin(ties, axis=1), first_s

    def _submit(self, place: NDArray[np.intp]) -> None:
        """The next of each run's order, in that place; never done when there is none."""
        if self._submitted == self._orders.shape[1]:
            self._compiled_s[self._runs, place] = np.inf
            return
        rows = self._orders[:, self._submitted]
        compiler = np.argmin(self._compiler_free_s, axis=1)
        begin_s = np.maximum(self._now_s, self._compiler_free_s[self._runs, compiler])
        compiled_s = begin_s + self._recording.compile_s[rows]
        self._compiler_free_s[self._runs, compiler] = compiled_s
        self._row[self._runs, place] = rows
        self._order[self._runs, place] = self._submitted
        self._compiled_s[self._runs, place] = compiled_s
        self._submitted += 1


def _random_orders(runs: int, recording: Recording) -> NDArray[np.int32]:
    """Rows in the order in which each run measures them, (runs, N): seeds 0, 1, ..."""
    size = recording.time_ms.size
    generators = map(np.random.default_rng, range(runs))
    return np.array([rng.permutation(size) for rng in generators], np.int32)


def cutoff_evaluations(costs_ms: FloatArray, share: float) -> int:
    """Evaluations after which random search is expected ``share`` of the way to the optimum.

    ``costs_ms`` ascend. The way leads from the median (0) to the optimum (1). With i the number of
    costs above the cut value (less one when the first cost below is the optimum itself), that is
    ceil(i / (N + 1 - i)): the number of draws whose expected rank is i.
    """
    count = costs_ms.size
    optimum = float(costs_ms[0])
    cut = optimum + (float(np.median(costs_ms)) - optimum) * (1 - share)
    at_or_below = int(np.searchsorted(costs_ms, cut, side="right"))
    worse = count - at_or_below
    if share != 1.0 and costs_ms[at_or_below - 1] == optimum:
        worse -= 1
        if worse < 0:
            raise TaskError(
                f"the valid costs must not all be equal, but all {count} are {optimum} ms"
            )
    return math.ceil(worse / (count + 1 - worse))


def _axis_evaluations(costs_ms: FloatArray) -> tuple[int, int]:
    """Start and end of the time axis, in evaluations."""
    start = cutoff_evaluations(costs_ms, START_SHARE)
    end = cutoff_evaluations(costs_ms, CUTOFF_SHARE)
    if end - start < 2:
        reaches_optimum = cutoff_evaluations(costs_ms, 1.0)
        if start == 0:
            end = min(reaches_optimum, end + 2)
        else:
            end = min(reaches_optimum, end + 1)
            start -= 1
    if end <= start:
        raise TaskError(
            f"the axis must end after it starts, but random search is expected at its end after "
            f"{end} evaluations: the {costs_ms.size} valid costs are too few or too alike to "
            f"compare searchers on"
        )
    return start, end


def _seconds_per_valid(times_s: FloatArray, valid: NDArray[np.bool_]) -> float:
    """Mean time of a valid evaluation plus the share of failures times their mean time."""
    if valid.all():
        return float(np.mean(times_s))
    failed_share = np.count_nonzero(~valid) / valid.size
    return float(np.mean(times_s[valid]) + failed_share * np.mean(times_s[~valid]))


def _random_baseline_ms(
    costs_ms: FloatArray, axis_s: FloatArray, seconds_per_valid: float
) -> FloatArray:
    """What random search without replacement is expected to have reached along the axis."""
    if not seconds_per_valid > 0:
        raise TaskError(
            f"the mean evaluation time of valid configurations must be positive, but is "
            f"{seconds_per_valid} s"
        )
    count = costs_ms.size
    draws = np.rint(np.maximum(axis_s / seconds_per_valid, 1.0))
    ranks = np.minimum(count - 1, np.rint(draws * (count + 1) / (draws + 1))).astype(np.int64)
    expected = costs_ms[::-1][ranks]
    grows = np.concatenate(([True], np.diff(draws) > 0))
    if np.count_nonzero(grows) >= 2:
        from scipy.interpolate import PchipInterpolator

        smooth = PchipInterpolator(draws[grows], expected[grows])
        expected = smooth(np.linspace(draws[0], draws[-1], axis_s.size))
    return np.asarray(expected, dtype=np.float64)


def _above_optimum(costs_ms: FloatArray, baseline_ms: FloatArray) -> FloatArray:
    """The baseline itself, when P is defined along it."""
    if not np.all(baseline_ms > costs_ms[0]):
        raise TaskError(
            f"random search must be expected above the optimum all along the axis, but it reaches "
            f"{costs_ms[0]} ms: the {costs_ms.size} valid costs are too few or too alike to "
            f"compare searchers on"
        )
    return baseline_ms
