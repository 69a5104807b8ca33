"""Random search as the yardstick: how long a task lasts, and what chance reaches along the way.

What it does: the published time axis and baseline for a clock that measures one configuration at a
time (`sequential_yardstick`), and the same two ideas for a clock that works in batches
(`batch_yardstick`), where the published formula has no meaning.

What it does not do: keep time (`llamea_gpu.clocks`) or score (`llamea_gpu.scoring`).

Published: F.-J. Willemsen et al., "A methodology for comparing optimization algorithms for
auto-tuning", Future Generation Computer Systems 159 (2024), as autotuning_methodology 1.1.0
computes it. One formula differs: where start and end of the axis lie less than two evaluations
apart, the end may move up to the evaluations that reach the optimum. The package compares that
number with the optimum's *cost* (``cutoff_point(1.0)[0]``), which depends on the unit of the
costs; here it is the number of evaluations.

Batches: dividing a compilation by the number of workers, as if batches had no slowest member, gives
a yardstick that no searcher can keep up with: random search itself scores below -10 on recordings
in which one compilation in twenty takes sixty times the median (docs/adr/0003-batch-baseline.md).
So random search in batches is simulated under the task's own clock, with fixed seeds, and its curve
is estimated as a searcher's is. The published relations are applied to that curve: the axis starts
and ends when its rank is the one expected of the published number of draws, and the baseline is the
cost of its rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.clocks import Clock
from llamea_gpu.errors import TaskError

FloatArray = NDArray[np.float64]

AXIS_POINTS = 1000
START_SHARE = 0.01  # of the way from the median to the optimum: where the axis starts
CUTOFF_SHARE = 0.95  # where it ends
BUDGET_MARGIN = 0.1  # the budget goes on this share beyond the axis
RANDOM_RUNS = 400


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


def batch_yardstick(
    costs_ms: FloatArray,
    compile_s: FloatArray,
    benchmark_s: FloatArray,
    valid: NDArray[np.bool_],
    clock: Clock,
) -> Yardstick:
    """Random search in full batches of ``clock.workers`` distinct configurations.

    Raises:
        TaskError: the method is not defined for these numbers.
    """
    start, end = _axis_evaluations(costs_ms)
    count = costs_ms.size
    draws = min(valid.size, 4 * (end + clock.workers) * valid.size // count)
    runs = [_random_run(seed, clock, compile_s, benchmark_s, draws) for seed in range(RANDOM_RUNS)]
    curve = _RandomCurve.fitted(runs, valid, count)
    start_s, end_s = (curve.reaches_s(_expected_rank(k, count)) for k in (start, end))
    if not end_s > start_s:
        raise TaskError(
            f"the axis must end after it starts, but random search in batches of {clock.workers} "
            f"is at both after {start_s} s: the costs are too alike to compare searchers on"
        )
    axis_s = np.linspace(start_s, end_s, AXIS_POINTS, dtype=np.float64)
    ranks = np.minimum(np.rint(curve.rank_at(axis_s)), count - 1).astype(np.int64)
    budget_s = end_s * (1 + BUDGET_MARGIN)
    evaluations = float(np.mean([np.searchsorted(run.done_s, budget_s, "right") for run in runs]))
    return Yardstick(
        axis_s=axis_s,
        baseline_ms=_above_optimum(costs_ms, costs_ms[::-1][ranks]),
        evaluation_s=budget_s / evaluations,
        budget_s=budget_s,
        budget_evaluations=evaluations,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _RandomRun:
    """The rows that a random search visits, in order, and when each is done."""

    rows: NDArray[np.intp]
    done_s: FloatArray


def _random_run(
    seed: int, clock: Clock, compile_s: FloatArray, benchmark_s: FloatArray, draws: int
) -> _RandomRun:
    rows = np.argsort(np.random.default_rng(seed).random(compile_s.size))[:draws]
    now_s, done_s = 0.0, []
    for first in range(0, draws, clock.workers):
        batch = rows[first : first + clock.workers]
        times = clock.schedule(now_s, compile_s[batch].tolist(), benchmark_s[batch].tolist())
        done_s += [done for _, done in times]
        now_s = done_s[-1]
    return _RandomRun(rows, np.array(done_s))


@dataclass(frozen=True, slots=True, eq=False)
class _RandomCurve:
    """Rank of random search over time, estimated as scoring estimates a searcher's curve.

    The points of all runs are pooled and fitted by isotonic regression; the value of a run's k-th
    valid evaluation is not what it happened to find but its expectation.
    """

    time_s: FloatArray
    rank: FloatArray

    @classmethod
    def fitted(cls, runs: list[_RandomRun], valid: NDArray[np.bool_], count: int) -> _RandomCurve:
        from scipy.optimize import isotonic_regression

        done_s = [run.done_s[valid[run.rows]] for run in runs]
        time_s = np.concatenate(done_s)
        rank = np.concatenate([_expected_ranks(times.size, count) for times in done_s])
        order = np.lexsort((rank, time_s))
        return cls(time_s[order], isotonic_regression(rank[order]).x)

    def rank_at(self, time_s: FloatArray) -> FloatArray:
        """Expected rank, 0 = worst, at each time."""
        return np.interp(time_s, self.time_s, self.rank)

    def reaches_s(self, rank: float) -> float:
        """When the expected rank first is at least ``rank``."""
        first = int(np.searchsorted(self.rank, rank, "left"))
        return float(self.time_s[min(first, self.time_s.size - 1)])


def _expected_ranks(draws: int, count: int) -> FloatArray:
    """Expected rank, 0 = worst of ``count``, of the best of 1, 2, ... draws."""
    return np.array([_expected_rank(k, count) for k in range(1, draws + 1)])


def _expected_rank(draws: int, count: int) -> float:
    return draws * (count + 1) / (draws + 1)


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
