"""Is a model good enough to breed and compare optimizers on? Held-out measurements decide.

Points are held out in two ways, always in whole groups (equal configurations and equal code, so
that no fit has seen what it is asked for): in five random folds; and all points that one optimizer
has brought, in whichever runs, where that leaves half of what works. Random points and those that
everybody starts with are no optimizer's: without them nobody knows the rest of the space; nor are
a model's own best predictions, which `llamea_gpu.models.card.Confirmation` judges.

A code counts once, by its time and the median of what is predicted of its spellings: a search may
ask for one code hundreds of times, and the order of its spellings is nobody's.

The agreement of predicted and measured times of the codes that work:

- **overall**: Spearman's rank correlation over all held-out codes, wanted >= .9 of what the true
  times would be expected to reach with readings as noisy as these (`ceiling`, mostly 1);
- **near the best**: the same over the best tenth of them by measured time, wanted >= .6. Optimizers
  crowd on plateaus: where the best tenth lies within the noise of its readings, not even the truth
  would agree with them. So the part is widened, in steps of a twentieth, until its ceiling is .9.
  The figures of the plain tenth are given beside it.
- **curve** (of an optimizer): the best so far along its runs, as predicted without any of its
  points over as measured, from the best start on; wanted within `CURVE` of 1.

The folds are judged by themselves. Of the optimizers, ranks are judged in the mean, weighted by
codes, since the part near the best of one may be ten codes; curves are judged one by one
(``docs/adr/0006-gate-of-models.md``).

Status and seconds are reported and decide nothing. Readings with quartiles more than 10 % apart and
single launches are left out of agreements: they say little about the kernel.

Not here: what only a GPU can answer (:mod:`llamea_gpu.models.card`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from llamea_gpu.models.features import FeatureTable
from llamea_gpu.models.forest import Floats
from llamea_gpu.models.readings import Bools, Ints, Readings
from llamea_gpu.models.recipe import Fit, Predictions, grow, times
from llamea_gpu.spaces.cloud import Cloud

FOLDS = 5
OVERALL = 0.9
NEAR_BEST = 0.6
CEILING = 0.9  # what the truth must be able to reach in the part that is called near the best
CURVE = 1.1  # by which factor an optimizer's best so far may be predicted wrong, in the mean
# What brought points that are never left out; the last two are of a closing round.
NO_OPTIMIZERS = ("start", "random", "again", "", "proposed", "control")
LEAST_HELD_OUT = 30  # codes that work, below which nothing is said of an optimizer
_TENTH = 0.1
_STEP = 0.05
_DISTURBED = 20  # simulated second readings
_NEAR = math.log(1.1)
_LEAST_IN_RUN = 10  # points of an optimizer in a run that has a curve
_MOMENTS = 100  # of a curve


@dataclass(frozen=True, slots=True)
class Part:
    """Agreement on the best points.

    Attributes:
        share: of the held-out codes; points: how many they are.
        within: their worst measured time relative to the best.
        spearman: of predicted and measured times; ceiling: what the true times would be expected
            to reach.
    """

    share: float
    points: int
    within: float
    spearman: float
    ceiling: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of predicted and measured times of held-out codes that work; ``points`` counts them.

    ``tenth`` is the best tenth, ``near`` the part near the best that the gate looks at. ``curve``
    is the best so far in the order of measurement, predicted over measured, in the geometric mean
    over time and runs; None of folds, and where no run has enough.
    """

    points: int
    spearman: float
    ceiling: float
    tenth: Part
    near: Part
    curve: float | None = None

    def faults(self, subject: str) -> list[str]:
        """What falls short of the gate in the ranks, as sentences."""
        return _rank_faults([self], subject, f"in the best {self.near.share:.0%}")


@dataclass(frozen=True, slots=True)
class StatusFigures:
    """How well failures are foreseen in the folds.

    ``failing`` and ``predicted`` are shares of all points; ``auc`` and ``balanced_accuracy`` are of
    working against failing, None where one of the two hardly occurs (fewer than 5); ``kind`` is the
    share of failures, foreseen as such, whose kind is right.
    """

    failing: float
    predicted: float
    auc: float | None
    balanced_accuracy: float | None
    kind: float | None


@dataclass(frozen=True, slots=True)
class SecondsFigures:
    """Calibration of seconds in the folds: median relative errors, and predicted over measured sum.

    Compile seconds are those of first compilations.
    """

    compile_error: float
    benchmark_error: float
    compile_total: float
    benchmark_total: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What held-out points say of a model.

    ``left_out`` is by optimizer; ``median_error`` and ``error_near_best`` (within 10 % of the
    best) are medians of relative errors of times in the folds.
    """

    folds: Agreement
    left_out: Mapping[str, Agreement]
    median_error: float
    error_near_best: float
    status: StatusFigures
    seconds: SecondsFigures

    def faults(self) -> list[str]:
        """What falls short of the gate, as sentences; empty where nothing does."""
        faults = self.folds.faults("held-out points")
        if self.left_out:
            each = list(self.left_out.values())
            faults += _rank_faults(
                each, "points of an optimizer, fitted without them", "near the best"
            )
        for name, agreement in self.left_out.items():
            curve = agreement.curve
            if curve is not None and not 1 / CURVE <= curve <= CURVE:
                faults.append(
                    f"runs of {name}, fitted without its points: the best so far is predicted at "
                    f"{curve:.3f} of the measured, wanted within a factor of {CURVE}"
                )
        return faults


def _rank_faults(agreements: Sequence[Agreement], subject: str, part: str) -> list[str]:
    """What falls short in the means of rank correlations, weighted by codes."""
    faults = []
    overall, near = pooled(agreements)
    if not overall >= OVERALL:
        faults.append(f"{subject}: {overall:.3f} of what is possible overall, wanted >= {OVERALL}")
    if not near >= NEAR_BEST:
        faults.append(f"{subject}: {near:.3f} {part}, wanted >= {NEAR_BEST}")
    return faults


def pooled(agreements: Sequence[Agreement]) -> tuple[float, float]:
    """Rank correlation over its ceiling, and near the best: means weighted by codes."""
    reachable = sum(each.points * each.ceiling for each in agreements)
    overall = sum(each.points * each.spearman for each in agreements)
    near = sum(each.near.points * each.near.spearman for each in agreements)
    return (
        overall / reachable if reachable > 0 else 0.0,
        near / sum(each.near.points for each in agreements),
    )


def examine(cloud: Cloud) -> Figures:
    """Fit without some of the points, again and again, and compare.

    Raises:
        SpaceError: too few measurements work.
    """
    readings = Readings.of(cloud)
    features = FeatureTable(cloud.names, cloud.values, cloud.ordinal).many(cloud.configurations)

    def unseen(held_out: Bools) -> Bools:
        rows: Bools = ~np.isin(readings.group, readings.group[held_out])
        return rows

    def fitted(rows: Bools) -> Fit:
        return Fit(grow(features, readings, rows), readings.version)

    fold = _folds(readings.group)
    predicted = _joined(
        [
            (part, fitted(unseen(part)).many(features[part]))
            for part in (fold == i for i in range(FOLDS))
        ]
    )
    comparable = readings.ok & readings.steady
    left_out = {}
    for name, rows in _optimizers(cloud).items():
        seen, held_out = unseen(rows), rows & comparable
        if LEAST_HELD_OUT <= _codes(readings, held_out) <= _codes(readings, seen & comparable):
            log_ms = times(features, readings, seen, features[held_out])
            left_out[name] = replace(
                _agreement(log_ms, readings, held_out),
                curve=_curve(cloud, log_ms, readings, held_out),
            )
    error = np.abs(np.expm1(predicted.log_ms - readings.log_ms))
    near = comparable & (readings.log_ms <= readings.log_ms[comparable].min() + _NEAR)
    return Figures(
        folds=_agreement(predicted.log_ms[comparable], readings, comparable),
        left_out=left_out,
        median_error=float(np.median(error[comparable])),
        error_near_best=float(np.median(error[near])),
        status=_status_figures(predicted, readings),
        seconds=_seconds_figures(predicted, readings),
    )


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; 0 where one of the two does not vary."""
    from scipy.stats import rankdata

    x, y = (ranks - ranks.mean() for ranks in (rankdata(a), rankdata(b)))
    norm = math.sqrt(float((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm > 0 else 0.0


def ceiling(log_ms: Floats, noise: float) -> float:
    """The rank correlation that the true times would be expected to have with readings.

    A second reading is simulated, r = y + noise. For normal variables of variance V and noise s²,
    corr(y, r)² = V / (V + s²), and the true values, of variance V - s², correlate with y as
    sqrt(1 - s²/V) = sqrt(2 - 1 / corr(y, r)²); here with rank correlations.

    Args:
        log_ms: (n,) readings; noise: their standard deviation; nan counts as 0.
    """
    if not noise > 0:
        return 1.0
    rng = np.random.default_rng(0)
    correlations = [
        spearman(log_ms, log_ms + noise * rng.standard_normal(len(log_ms)))
        for _ in range(_DISTURBED)
    ]
    mean = float(np.mean(correlations))
    return math.sqrt(max(0.0, 2 - 1 / mean**2)) if mean > 0 else 0.0


def _codes(readings: Readings, rows: Bools) -> int:
    return len(np.unique(readings.group[rows]))


def _agreement(predicted: Floats, readings: Readings, rows: Bools) -> Agreement:
    """Of what is predicted of ``rows``, one number for each of them."""
    _, first, code = np.unique(readings.group[rows], return_index=True, return_inverse=True)
    measured = readings.log_ms[rows][first]
    predicted = np.array([np.median(predicted[code == i]) for i in range(len(first))])
    best = float(readings.log_ms[readings.ok & readings.steady].min())

    def part(share: float) -> Part:
        chosen = measured <= np.quantile(measured, share)
        return Part(
            share=round(share, 2),
            points=int(chosen.sum()),
            within=math.exp(float(measured[chosen].max()) - best),
            spearman=spearman(predicted[chosen], measured[chosen]),
            ceiling=ceiling(measured[chosen], readings.noise),
        )

    tenth = near = part(_TENTH)
    share = _TENTH
    while near.ceiling < CEILING and share < 1:
        share = min(1.0, share + _STEP)
        near = part(share)
    reachable = ceiling(measured, readings.noise)
    return Agreement(len(measured), spearman(predicted, measured), reachable, tenth, near)


def _curve(cloud: Cloud, predicted: Floats, readings: Readings, rows: Bools) -> float | None:
    """Predicted over measured best so far, as in `Agreement`; never worse than the best start."""
    starts = readings.log_ms[(cloud.how == "start") & readings.ok & readings.steady]
    first = starts.min(initial=math.inf)
    run, at_s, measured = cloud.run[rows], cloud.at_s[rows], readings.log_ms[rows]
    apart: list[float] = []
    weights: list[int] = []
    for number in np.unique(run):
        order = np.flatnonzero(run == number)
        if len(order) < _LEAST_IN_RUN:
            continue
        order = order[np.argsort(at_s[order], kind="stable")]
        moments = np.linspace(at_s[order[0]], at_s[order[-1]], _MOMENTS)
        last = np.searchsorted(at_s[order], moments, side="right") - 1
        bests = [
            np.minimum(np.minimum.accumulate(log_ms[order])[last], first)
            for log_ms in (predicted, measured)
        ]
        apart.append(float(np.mean(bests[0] - bests[1])))
        weights.append(len(order))
    return math.exp(float(np.average(apart, weights=weights))) if apart else None


def _folds(group: Ints) -> Ints:
    folds: Ints = np.random.default_rng(0).integers(FOLDS, size=int(group.max()) + 1)[group]
    return folds


def _joined(parts: list[tuple[Bools, Predictions]]) -> Predictions:
    """Predictions of disjoint rows, at their places."""
    columns = []
    for name in ("probability", "log_ms", "works_s", "fails_s"):
        first = getattr(parts[0][1], name)
        column = np.empty((len(parts[0][0]), *first.shape[1:]))
        for rows, predicted in parts:
            column[rows] = getattr(predicted, name)
        columns.append(column)
    return Predictions(*columns)


def _optimizers(cloud: Cloud) -> dict[str, Bools]:
    """Rows by the optimizer that proposed them."""
    names = sorted(set(cloud.how.tolist()) - set(NO_OPTIMIZERS))
    return {name: cloud.how == name for name in names}


def _status_figures(predicted: Predictions, readings: Readings) -> StatusFigures:
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    fails, foreseen = readings.status != 0, predicted.status != 0
    auc = balanced = kind = None
    if 5 <= fails.sum() <= len(fails) - 5:
        auc = float(roc_auc_score(fails, 1 - predicted.probability[:, 0]))
        balanced = float(balanced_accuracy_score(fails, foreseen))
    if (both := fails & foreseen).any():
        kind = float((predicted.status == readings.status)[both].mean())
    return StatusFigures(float(fails.mean()), float(foreseen.mean()), auc, balanced, kind)


def _seconds_figures(predicted: Predictions, readings: Readings) -> SecondsFigures:
    measured = np.stack([readings.compile_s, readings.benchmark_s], axis=1)
    known = np.isfinite(measured).all(axis=1)
    measured, answers = measured[known], predicted.seconds[known]
    works = readings.ok[known]
    error = [
        _median_error(*columns) for columns in zip(answers[works].T, measured[works].T, strict=True)
    ]
    total = answers.sum(axis=0) / measured.sum(axis=0)
    return SecondsFigures(*error, *total.tolist())


def _median_error(predicted: Floats, measured: Floats) -> float:
    """Relative; of what took any time: equal code took over another's, in no seconds of its own."""
    took = measured > 0
    return float(np.median(np.abs(predicted[took] / measured[took] - 1))) if took.any() else 0.0
