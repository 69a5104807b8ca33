"""The recipe of every model: what is fitted to what. One recipe for all spaces.

Extremely randomised trees (Geurts et al. 2006), chosen by cross-validation beside forests, boosting
(``scripts/compare_model_recipes.py``), on the features of :mod:`llamea_gpu.models.features`:

- **status**: a classifier over works and all kinds of failure;
- **time** of what works: the target is log(log(t / best) + .03), which spends the trees' splits on
  differences near the best as well as on factors of a hundred far from it. A mean of leaves is
  never below the best time that was measured, so that no search can exploit an error there. It is
  fitted to steady readings, and to single launches that trees grown without them do not contradict
  by a factor of two or more: others were slow because the host was;
- **seconds** to compile and to time, of what works and of what fails apart: their mean, or that of
  their logarithms (:mod:`llamea_gpu.models.versions`).

A fit is a function of the cloud alone: the seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from llamea_gpu.errors import SpaceError
from llamea_gpu.models.forest import Ensemble, Features, Floats, Forest
from llamea_gpu.models.readings import Bools, Readings
from llamea_gpu.models.versions import Version
from llamea_gpu.spaces.recording import STATUSES

LEAST_WORKING = 20  # rows that work, below which nothing is fitted

_NEAR = 0.03  # added to log(t / best) before its logarithm
_CONTRADICTED = math.log(2.0)  # by out-of-bag trees, from which a single launch is not believed
_LEAST_S = 1e-3  # added to seconds before their logarithm
_PARTS = ("status", "time", "works", "fails")
_DEPTH = 24
_TREES = {"status": 60, "time": 100, "works": 40, "fails": 40, "single": 40}

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """What is predicted for n configurations.

    Attributes:
        probability: (n, len(STATUSES)) of each status.
        log_ms: (n,) logarithm of the time if it works.
        works_s: (n, 2) seconds to compile and to time if it works; fails_s: if it fails.
    """

    probability: Floats
    log_ms: Floats
    works_s: Floats
    fails_s: Floats

    @property
    def status(self) -> npt.NDArray[np.intp]:
        """(n,) the most probable status; of equally probable ones the first by number."""
        status: npt.NDArray[np.intp] = self.probability.argmax(axis=1)
        return status

    @property
    def seconds(self) -> Floats:
        """(n, 2) seconds to compile and to time, by the status that is predicted."""
        return np.where((self.status == 0)[:, None], self.works_s, self.fails_s)


class Fit:
    """What `grow` has grown, ready to answer."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]], version: Version) -> None:
        self._version = version
        self._forest = Forest(
            [
                Ensemble.of_arrays(
                    {
                        name.removeprefix(f"{part}_"): array
                        for name, array in arrays.items()
                        if name.startswith(f"{part}_")
                    }
                )
                for part in _PARTS
            ]
        )
        self._best = float(arrays["best"])

    def one(self, features: Features) -> Predictions:
        """Predictions for one row of features, (F,): n is 1."""
        return self._read([output[None] for output in self._forest.one(features)])

    def many(self, features: Features) -> Predictions:
        """Predictions for (n, F) features."""
        return self._read(self._forest.many(features))

    def _read(self, outputs: list[Floats]) -> Predictions:
        probability, time, works, fails = outputs
        if self._version.log_seconds:
            works, fails = (np.maximum(np.exp(s) - _LEAST_S, 0) for s in (works, fails))
        return Predictions(probability, _log_ms(time, self._best), works, fails)


def grow(features: Features, readings: Readings, rows: Bools) -> Arrays:
    """Grow trees on some rows; ``features`` has all of them, (N, F).

    Returns:
        Plain arrays from which a `Fit` is made.

    Raises:
        SpaceError: fewer than 20 of the rows work.
    """
    from sklearn.ensemble import ExtraTreesClassifier

    time, best = _time(features, readings, rows)
    works = rows & np.isfinite(readings.log_ms)
    fails = rows & (readings.status != 0)
    seconds = np.stack([readings.compile_s, readings.benchmark_s], axis=1)
    known = np.isfinite(seconds).all(axis=1)
    classifier = ExtraTreesClassifier(
        _TREES["status"], max_features=0.5, max_depth=_DEPTH, random_state=0
    )
    classifier.fit(features[rows], readings.status[rows])
    status = Ensemble.of_trees([tree.tree_ for tree in classifier.estimators_])
    ensembles = {"status": _spread(status, classifier.classes_), "time": time}
    for name, chosen in (("works", works & known), ("fails", fails & known)):
        # Where nothing fails, no failure is predicted, and its seconds are never asked for.
        chosen = chosen if chosen.any() else works & known
        ensembles[name] = _seconds(name, features[chosen], seconds[chosen], readings.version)
    arrays = {
        f"{part}_{name}": array
        for part in _PARTS
        for name, array in ensembles[part].arrays().items()
    }
    return {**arrays, "best": np.array(best)}


def times(features: Features, readings: Readings, rows: Bools, queries: Features) -> Floats:
    """(n,) logarithms of the times of ``queries``, (n, F), by a fit to some rows: see `grow`."""
    time, best = _time(features, readings, rows)
    return _log_ms(Forest([time]).many(queries)[0], best)


def _log_ms(answers: Floats, best: float) -> Floats:
    log_ms: Floats = best + np.maximum(np.exp(answers[:, 0]) - _NEAR, 0)
    return log_ms


def _time(features: Features, readings: Readings, rows: Bools) -> tuple[Ensemble, float]:
    """The trees for times, and the logarithm of the best one that they were grown on."""
    works = rows & np.isfinite(readings.log_ms)
    if works.sum() < LEAST_WORKING:
        raise SpaceError(
            f"a model needs at least {LEAST_WORKING} measurements that work, but there are "
            f"{works.sum()}: measure more configurations"
        )
    steady = works & readings.steady
    if steady.sum() < LEAST_WORKING:
        steady = works
    best = float(readings.log_ms[steady].min())
    target = np.log(np.maximum(readings.log_ms - best, 0) + _NEAR)
    timed = steady | _believed(features, target, works & readings.single & ~steady, steady)
    weight = readings.weight[timed]
    return _regression("time", features[timed], target[timed], weight, max_features=1.0), best


def _seconds(part: str, features: Features, seconds: Floats, version: Version) -> Ensemble:
    """The trees for (n, 2) seconds; their leaves hold what `Fit` reads by the same version."""
    small = {"max_features": 0.5, "min_samples_leaf": 3}
    if version.log_seconds:
        return _regression(part, features, np.log(seconds + _LEAST_S), None, **small)
    # Both columns count alike for splits. By powers of two, which leave sums of leaves exact.
    mean = seconds.mean(axis=0)
    scale = np.exp2(np.rint(np.log2(np.where(mean > 0, mean, 1.0))))
    grown = _regression(part, features, seconds / scale, None, **small)
    return replace(grown, value=grown.value * scale)


def _regression(
    part: str, features: Features, target: Floats, weight: Floats | None, **options: Any
) -> Ensemble:
    from sklearn.ensemble import ExtraTreesRegressor

    model = ExtraTreesRegressor(_TREES[part], max_depth=_DEPTH, random_state=0, **options)
    model.fit(features, target, sample_weight=weight)
    return Ensemble.of_trees([tree.tree_ for tree in model.estimators_])


def _believed(features: Features, target: Floats, single: Bools, steady: Bools) -> Bools:
    """Those of the ``single`` rows that trees do not contradict which have not seen them."""
    from sklearn.ensemble import ExtraTreesRegressor

    if not single.any():
        return single
    rows = single | steady
    model = ExtraTreesRegressor(
        _TREES["single"], min_samples_leaf=2, max_depth=_DEPTH, bootstrap=True, random_state=0
    )
    model.fit(features[rows], target[rows])
    bags = model.estimators_samples_
    unseen = np.ones((len(bags), int(rows.sum())), dtype=np.bool_)
    for tree, bag in enumerate(bags):
        unseen[tree, bag] = False
    answers = np.stack([tree.predict(features[rows]) for tree in model.estimators_])
    mean = (answers * unseen).sum(axis=0) / np.maximum(unseen.sum(axis=0), 1)
    apart = np.abs(np.exp(mean) - np.exp(target[rows])) * unseen.any(axis=0)
    believed: Bools = single.copy()
    believed[rows] &= apart < _CONTRADICTED
    return believed


def _spread(ensemble: Ensemble, classes: npt.NDArray[Any]) -> Ensemble:
    """A classifier's leaves as probabilities of all statuses, of which it knows some."""
    value = np.zeros((len(ensemble.value), len(STATUSES)))
    value[:, classes.astype(np.intp)] = ensemble.value
    return Ensemble(ensemble.roots, ensemble.feature, ensemble.threshold, ensemble.left, value)
