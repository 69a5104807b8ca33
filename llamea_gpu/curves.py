"""The curve of a searcher's runs: which rank its best configuration has, over time.

What it does: pools the best-so-far points of several runs and fits them by isotonic regression, as
the published method does. Scores and, for clocks that work in batches, the random baseline are made
of it, so that both treat a run alike: cut at the budget, held to its end, failures counted.

What it does not do: compare a curve with anything (`llamea_gpu.scoring`), or say where the budget
and the time axis end (`llamea_gpu.baseline`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """What a curve needs of a task.

    ``costs_ms`` are the valid costs, best first, (N,), ``median_ms`` their median; ``axis_s`` is
    the time axis, (1000,), ``budget_s`` when the budget ends, ``evaluation_s`` what an evaluation
    takes, failed ones included.
    """

    costs_ms: FloatArray
    median_ms: float
    axis_s: FloatArray
    budget_s: float
    evaluation_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Times (n,) in s, not decreasing, and costs (n,) in ms of one run; inf where one failed.

    ``complete`` says that the run is to be taken as it is, though it ends before the axis does,
    unless it has no point in the window.
    """

    elapsed_s: FloatArray
    cost_ms: FloatArray
    complete: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The points of all runs within the window, in order of time.

    ``time_s`` (u,) are the distinct times and ``starts`` (u,) where each begins in ``rank`` (n,)
    and ``run`` (n,); ``ends_s`` (R,) is the last point of each run, in the window or not.
    """

    time_s: FloatArray
    starts: NDArray[np.intp]
    rank: FloatArray
    run: NDArray[np.int64]
    ends_s: FloatArray

    def ranks(self, axis_s: FloatArray, counts: NDArray[np.int64]) -> FloatArray:
        """Isotonic rank (0 = best) along the axis, with run r taken ``counts[r]`` times."""
        from scipy.optimize import isotonic_regression

        weight = counts[self.run].astype(np.float64)
        weights = np.add.reduceat(weight, self.starts)
        sums = np.add.reduceat(weight * self.rank, self.starts)
        drawn = weights > 0
        means = sums[drawn] / weights[drawn]
        fit = isotonic_regression(means, weights=weights[drawn], increasing=False).x
        ranks: FloatArray = np.interp(axis_s, self.time_s[drawn], fit)
        ends_s = np.sort(np.repeat(self.ends_s, counts))
        # Not np.median, which takes a third of the time of it all.
        median_s = (ends_s[(ends_s.size - 1) // 2] + ends_s[ends_s.size // 2]) / 2
        beyond_median = ends_s[ends_s > median_s]
        if beyond_median.size and beyond_median[0] < axis_s[-1]:
            frozen = int(np.searchsorted(axis_s, beyond_median[0], side="right"))
            ranks[frozen:] = ranks[frozen]
        return ranks

    def merged(self, times: int) -> Pool:
        """The pool with at most about ``times`` distinct times."""
        step = math.ceil(self.time_s.size / times)
        return replace(self, time_s=self.time_s[::step], starts=self.starts[::step])


def pool_runs(frame: Frame, runs: Sequence[Run]) -> Pool:
    """The points of ``runs``, at least one, that lie within the axis and its margin."""
    points = [_best_so_far(frame, run, hold=_gives_up(frame, run)) for run in runs]
    low_s, high_s = _window(frame, points)
    for index, run in enumerate(runs):
        if run.complete and not _inside(points[index][0], low_s, high_s).any():
            points[index] = _best_so_far(frame, run, hold=True)
        if not _inside(points[index][0], low_s, high_s).any():
            points[index] = _without_result(frame)
    low_s, high_s = _window(frame, points)
    time_s = np.concatenate([times for times, _, _ in points])
    best_ms = np.concatenate([best for _, best, _ in points])
    of_run = np.repeat(np.arange(len(points)), [times.size for times, _, _ in points])
    inside = _inside(time_s, low_s, high_s)
    order = np.argsort(time_s[inside], kind="stable")
    time_s = time_s[inside][order]
    starts = np.flatnonzero(np.concatenate(([True], np.diff(time_s) > 0)))
    rank = np.searchsorted(frame.costs_ms, best_ms[inside][order], side="left")
    return Pool(
        time_s=time_s[starts],
        starts=starts,
        rank=np.minimum(rank, frame.costs_ms.size - 1).astype(np.float64),
        run=of_run[inside][order],
        ends_s=np.array([times[-1] for times, _, _ in points]),
    )


_Points = tuple[FloatArray, FloatArray, int]  # times, best so far, failures before the first


def _inside(time_s: FloatArray, low_s: float, high_s: float) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = (low_s <= time_s) & (time_s <= high_s)
    return mask


def _without_result(frame: Frame) -> _Points:
    """A run that has nothing to show for all the time that counts: one random draw's worth."""
    count = max(1, math.ceil(frame.budget_s / frame.evaluation_s))
    times_s = frame.evaluation_s * np.arange(1, count + 1, dtype=np.float64)
    return times_s, np.full(count, frame.median_ms, dtype=np.float64), 0


def _gives_up(frame: Frame, run: Run) -> bool:
    reaches_end = run.elapsed_s.size and run.elapsed_s[-1] >= frame.axis_s[-1]
    return not (run.complete or reaches_end)


def _best_so_far(frame: Frame, run: Run, hold: bool) -> _Points:
    """From the first success on."""
    time_s, cost_ms = run.elapsed_s, run.cost_ms
    if hold:
        time_s, cost_ms = _held(frame, time_s, cost_ms)
    best_ms = np.minimum.accumulate(cost_ms)
    worked = np.isfinite(best_ms)
    if not worked.any():
        return time_s, np.full(time_s.size, frame.median_ms), 0
    first = int(np.argmax(worked))
    return time_s[first:], best_ms[first:], first


def _held(frame: Frame, time_s: FloatArray, cost_ms: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The run, going on with evaluations that fail until the budget's end."""
    end_s = time_s[-1] if time_s.size else 0.0
    more = max(1, math.ceil((frame.budget_s - end_s) / frame.evaluation_s))
    later_s = end_s + frame.evaluation_s * np.arange(1, more + 1)
    return np.concatenate((time_s, later_s)), np.concatenate((cost_ms, np.full(more, np.inf)))


def _window(frame: Frame, runs: Sequence[_Points]) -> tuple[float, float]:
    """Where points count: the axis, widened by 0.1 + 0.25 / (evaluation indices with a point)."""
    longest = max(first + times.size for times, _, first in runs)
    has_point = np.zeros(longest, dtype=np.bool_)
    for times, _, first in runs:
        has_point[first : first + times.size] = True
    margin = 0.1 + 0.25 / np.count_nonzero(has_point)
    return float(frame.axis_s[0] * (1 - margin)), float(frame.axis_s[-1] * (1 + margin))
