"""Is a model good enough to breed and compare optimizers on? Held-out measurements decide.

Points are held out in two ways, always in whole groups (equal configurations and equal code, so
that no fit has seen what it is asked for): in five random folds; and all points that one optimizer
has brought, anywhere, or all of them in one run, where that leaves half of what works. Random
points and those that everybody starts with are no optimizer's: without them nobody knows the rest
of the space. For either, the agreement of predicted
and measured times of what works:

- **overall**: Spearman's rank correlation over all held-out points, wanted >= .9 of what the true
  times would be expected to reach with readings as noisy as these (`ceiling`, mostly 1);
- **near the best**: the same over the best tenth of them by measured time, wanted >= .6. Optimizers
  crowd on plateaus: where the best tenth lies within the noise of its readings, not even the truth
  would agree with them. So the part is widened, in steps of a twentieth, until its ceiling is .9.
  The figures of the plain tenth are given beside it (``docs/adr/0006-gate-of-models.md``).

Status and seconds are reported and decide nothing. Readings with quartiles more than 10 % apart and
single launches are left out of agreements: they say little about the kernel.

Not here: what only a GPU can answer (:mod:`llamea_gpu.models.card`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

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
NO_OPTIMIZERS = ("start", "random", "again", "")  # what brought points that are never left out
LEAST_HELD_OUT = 50  # working points, below which nothing is said of an optimizer
_TENTH = 0.1
_STEP = 0.05
_DISTURBED = 20  # simulated second readings
_NEAR = math.log(1.1)


@dataclass(frozen=True, slots=True)
class Part:
    """Agreement on the best points.

    Attributes:
        share: of the held-out points; points: how many they are.
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
    """Of predicted and measured times of held-out points that work.

    ``tenth`` is the best tenth, ``near`` the part near the best that the gate looks at.
    """

    points: int
    spearman: float
    ceiling: float
    tenth: Part
    near: Part

    def faults(self, where: str) -> list[str]:
        """What falls short of the gate, as sentences."""
        found = []
        wanted = OVERALL * self.ceiling
        if not self.spearman >= wanted:
            found.append(f"{where}: {self.spearman:.3f} overall, wanted >= {wanted:.3f}")
        if not self.near.spearman >= NEAR_BEST:
            found.append(
                f"{where}: {self.near.spearman:.3f} in the best {self.near.share:.0%}, "
                f"wanted >= {NEAR_BEST:.3f}"
            )
        return found


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

    ``left_out`` is by optimizer, ``NAME`` or ``all in run NUMBER``; ``median_error`` and
    ``error_near_best`` (within 10 % of the best) are medians of relative errors of times in the
    folds.
    """

    folds: Agreement
    left_out: Mapping[str, Agreement]
    median_error: float
    error_near_best: float
    status: StatusFigures
    seconds: SecondsFigures

    def faults(self) -> list[str]:
        """What falls short of the gate, as sentences; empty where nothing does."""
        found = self.folds.faults("held-out points")
        for name, agreement in self.left_out.items():
            found += agreement.faults(f"points of {name}, fitted without them")
        return found


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

    fold = _folds(readings.group)
    predicted = _joined(
        [
            (part, Fit(grow(features, readings, unseen(part))).many(features[part]))
            for part in (fold == i for i in range(FOLDS))
        ]
    )
    comparable = readings.ok & readings.steady
    left_out = {}
    for name, rows in _optimizers(cloud).items():
        seen, asked = unseen(rows), rows & comparable
        if LEAST_HELD_OUT <= asked.sum() <= (seen & comparable).sum():
            log_ms = times(features, readings, seen, features[asked])
            left_out[name] = _agreement(log_ms, readings, asked)
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
    again = [
        spearman(log_ms, log_ms + noise * rng.standard_normal(len(log_ms)))
        for _ in range(_DISTURBED)
    ]
    mean = float(np.mean(again))
    return math.sqrt(max(0.0, 2 - 1 / mean**2)) if mean > 0 else 0.0


def _agreement(predicted: Floats, readings: Readings, rows: Bools) -> Agreement:
    measured = readings.log_ms[rows]
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
    """Rows by the optimizer that proposed them; all of one run's, where there are several runs."""
    proposed = ~np.isin(cloud.how, NO_OPTIMIZERS)
    found = {how: cloud.how == how for how in sorted(set(cloud.how[proposed].tolist()))}
    if len(cloud.runs) > 1:
        for run in range(len(cloud.runs)):
            rows = proposed & (cloud.run == run)
            if not any(np.array_equal(rows, known) for known in found.values()):
                found[f"all in run {run}"] = rows  # that of one optimizer alone is there already
    return found


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
    with np.errstate(divide="ignore"):  # equal code took over a time, in no seconds of its own
        error = np.median(np.abs(answers[works] / measured[works] - 1), axis=0)
    total = answers.sum(axis=0) / measured.sum(axis=0)
    return SecondsFigures(*error.tolist(), *total.tolist())
