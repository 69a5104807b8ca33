"""The numbers behind an analysis: every searcher scored on every space, and the spread of that.

What it does: P and its curve, P of resampled runs, P of each run alone; when a run came near the
optimum, and what failed in it.

What it does not do: compare searchers (`llamea_gpu.bench.analysis`).

Runs are resampled within a space, the same repeats for every searcher, because repeats are paired;
spaces are independent. A bootstrap of n runs underestimates variances by (n - 1) / n, which is
made up for here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.baseline import AXIS_POINTS
from llamea_gpu.bench.findings import CURVE_POINTS
from llamea_gpu.bench.plan import Plan, RunKey, SpaceInfo
from llamea_gpu.modelled import AnyTask
from llamea_gpu.scoring import SpaceScore, resampled_curves, score_space
from llamea_gpu.statistics import bootstrap_counts
from llamea_gpu.tasks import Trace

FloatArray = NDArray[np.float64]

MIN_REPEATS = 5
RESAMPLES = 1000
_SHOWN = np.rint(np.linspace(0, AXIS_POINTS - 1, CURVE_POINTS)).astype(np.int64)


TARGETS_PERCENT = (10, 5, 1)  # above the optimum


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One searcher on one space.

    ``curve`` is P_t at the points shown, (CURVE_POINTS,), ``curve_variance`` the variance of each.
    ``replicates`` are P of resampled runs around ``score.p``, spread as wide as P itself would be
    over repetitions of the whole bench, (resamples,). ``run_p`` is P of each run alone, (repeats,).
    With fewer than `MIN_REPEATS` repeats, what is resampled is None.
    """

    score: SpaceScore
    traces: Sequence[Trace]
    run_p: FloatArray
    curve: FloatArray
    curve_variance: FloatArray | None
    replicates: FloatArray | None


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """All cells, by searcher, in the order of the plan's spaces."""

    plan: Plan
    tasks: tuple[AnyTask, ...]
    cells: Mapping[str, tuple[Cell, ...]]

    @classmethod
    def of(
        cls,
        plan: Plan,
        tasks: Mapping[str, AnyTask],
        runs: Mapping[RunKey, Trace],
        resamples: int = RESAMPLES,
    ) -> Samples:
        """Score everything."""
        ordered = tuple(tasks[space.name] for space in plan.spaces)
        cells = {
            searcher.name: tuple(
                _cell(
                    task,
                    [runs[RunKey(searcher.name, task.name, r)] for r in range(plan.repeats)],
                    resamples,
                )
                for task in ordered
            )
            for searcher in plan.searchers
        }
        return cls(plan, ordered, cells)

    @property
    def degrees(self) -> int:
        """Degrees of freedom of the spread over repeats on one space."""
        return self.plan.repeats - 1

    def p(self, searcher: str) -> FloatArray:
        """P on each space, (spaces,)."""
        return np.array([cell.score.p for cell in self.cells[searcher]])

    def replicates(self, searcher: str) -> FloatArray | None:
        """P of resampled runs on each space, (spaces, resamples); None with too few repeats."""
        by_space = [cell.replicates for cell in self.cells[searcher]]
        return None if any(r is None for r in by_space) else np.array(by_space)


def _cell(task: AnyTask, traces: Sequence[Trace], resamples: int) -> Cell:
    score = score_space(task, traces, bootstrap=0)
    run_p = np.array([score_space(task, [trace], bootstrap=0).p for trace in traces])
    curve = score.curve[_SHOWN]
    if len(traces) < MIN_REPEATS:
        return Cell(score, traces, run_p, curve, None, None)
    counts = bootstrap_counts(len(traces), resamples, stream=task.name)
    curves = resampled_curves(task, traces, counts)
    widen = math.sqrt(len(traces) / (len(traces) - 1))
    replicates = score.p + widen * (curves.mean(axis=1) - score.p)
    variance = widen**2 * curves[:, _SHOWN].var(axis=0, ddof=1)
    return Cell(score, traces, run_p, curve, variance, replicates)


@dataclass(frozen=True, slots=True)
class Hit:
    """The first configuration within a target: the how many-th evaluation, and when it was done."""

    evaluations: int
    elapsed_s: float


def first_hit(space: SpaceInfo, trace: Trace, percent: float) -> Hit | None:
    """When ``trace`` first came within ``percent`` % of the optimum; None if it never did."""
    near = trace.cost_ms <= space.optimum_ms * (1 + percent / 100)
    if not near.any():
        return None
    first = int(np.argmax(near))
    return Hit(first + 1, float(trace.elapsed_s[first]))
