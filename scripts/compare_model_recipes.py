"""Which trees, fitted to which readings, predict held-out times best: behind the models' recipe.

    python scripts/compare_model_recipes.py [CLOUD ...] [--recipes NAME ...] [--trees N]

For each cloud and recipe, of the points of each optimizer, fitted without them, what the gate
judges (docs/adr/0006-gate-of-models.md): the mean rank correlation, relative to what the true times
would reach, the mean near the best, and the curve that is furthest from 1; at the end means over
clouds. All clouds that ship unless some are named: a recipe is chosen by all of them.

``gaussian process`` has the exponential of the city-block distance of parameters (an order by index
or logarithm, others equal or not), weighted by what trees make of each, its length by likelihood;
``trees corrected`` adds one that is fitted to what trees leave of rows that they have not seen.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from sklearn import ensemble

from llamea_gpu.models import gate
from llamea_gpu.models.features import FeatureTable, _logarithms
from llamea_gpu.models.readings import Bools, Readings
from llamea_gpu.models.recipe import _DEPTH, _NEAR, _believed, _log_ms
from llamea_gpu.spaces.catalogue import list_clouds, load_cloud
from llamea_gpu.spaces.cloud import Cloud

LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
MOST = 2_500  # rows of a Gaussian process


def extra(**options):
    """Extremely randomised trees."""
    return lambda n: ensemble.ExtraTreesRegressor(n, max_depth=_DEPTH, random_state=0, **options)


def boosted(_trees: int):
    """Histogram gradient boosting; takes the number of rounds from nobody."""
    return ensemble.HistGradientBoostingRegressor(
        max_iter=250, learning_rate=0.06, min_samples_leaf=4, max_features=0.3, random_state=0
    )


# By name: models whose answers are averaged, readings that they are fitted to, weighted or not.
RECIPES: dict[str, tuple[tuple[Callable, ...], str, bool]] = {
    "all readings": ((extra(),), "all", True),
    "steady alone": ((extra(),), "steady", True),
    "believed": ((extra(),), "believed", True),  # the recipe in use
    "believed, unweighted": ((extra(),), "believed", False),
    "two a leaf": ((extra(min_samples_leaf=2),), "believed", True),
    "half the features": ((extra(max_features=0.5),), "believed", True),
    "boosting": ((boosted,), "believed", True),
    "trees and boosting": ((extra(), boosted), "believed", True),
}


# With a Gaussian process: trees' share of the mean, and what it is fitted to.
GAUSSIAN = {
    "gaussian process": (0.0, "times"),
    "trees and gaussian process": (0.5, "times"),
    "trees corrected": (1.0, "what trees leave"),
}


def main() -> None:
    """Print as it goes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clouds", nargs="*")
    known = [*RECIPES, *GAUSSIAN]
    parser.add_argument("--recipes", nargs="*", choices=known, default=known)
    parser.add_argument("--trees", type=int, default=100)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, ...]]] = {recipe: [] for recipe in options.recipes}
    for name in options.clouds or [entry.name for entry in list_clouds()]:
        cloud = load_cloud(name)
        for recipe, lines in found.items():
            line = judged(cloud, recipe, options.trees)
            if line is not None:
                lines.append(line)
                print(f"{cloud.info.name:34} {recipe:26} {told(line)}", flush=True)
    for recipe, lines in found.items():
        print(f"{'mean':34} {recipe:26} {told(tuple(np.mean(lines, axis=0)))}")


def told(line: tuple[float, ...]) -> str:
    """Of a cloud, or of the mean."""
    overall, near, curve = line
    return f"overall {overall:.3f}, near the best {near:.3f}, a curve off by {curve:.3f}"


def judged(cloud: Cloud, recipe: str, trees: int) -> tuple[float, float, float] | None:
    """Mean agreement, the same near the best, and the factor of the worst curve; None of nobody."""
    readings = Readings.of(cloud)
    table = FeatureTable(cloud.names, cloud.values, cloud.ordinal)
    features = table.many(cloud.configurations)
    comparable = readings.ok & readings.steady
    found = []
    for rows in gate._optimizers(cloud).values():
        unseen = ~np.isin(readings.group, readings.group[rows])
        asked = rows & comparable
        codes = gate._codes(readings, asked)
        if gate.LEAST_HELD_OUT <= codes <= gate._codes(readings, unseen & comparable):
            timed, target, best = fitted(recipe, features, readings, unseen)
            given = (features, target, timed, asked, trees)
            if recipe in GAUSSIAN:
                answers = with_gaussian(recipe, cloud, table.labels, *given)
            else:
                answers = of_trees(recipe, readings, *given)
            log_ms = _log_ms(answers[:, None], best)
            curve = gate._curve(cloud, log_ms, readings, asked)
            # Ranks of the answers themselves: below the best known all times are the same.
            found.append(replace(gate._agreement(answers, readings, asked), curve=curve))
    if not found:
        return None
    return (*gate.pooled(found), max(math.exp(abs(math.log(each.curve or 1.0))) for each in found))


def fitted(
    recipe: str, features, readings: Readings, unseen: Bools
) -> tuple[Bools, np.ndarray, float]:
    """Rows to fit to, targets of all rows, and the logarithm of the best time among them."""
    which = RECIPES[recipe][1] if recipe in RECIPES else "believed"
    works = unseen & np.isfinite(readings.log_ms)
    steady = works & readings.steady
    best = float(readings.log_ms[steady].min())
    target = np.log(np.maximum(readings.log_ms - best, 0) + _NEAR)
    if which == "all":
        return works, target, best
    if which == "steady":
        return steady, target, best
    believed = _believed(features, target, works & readings.single & ~steady, steady)
    return steady | believed, target, best


def of_trees(
    recipe: str, readings: Readings, features, target, timed: Bools, asked: Bools, trees: int
) -> np.ndarray:
    """Predicted targets of the asked rows."""
    models, _, weighted = RECIPES[recipe]
    weight = readings.weight[timed] if weighted else None
    fits = [
        make(trees).fit(features[timed], target[timed], sample_weight=weight) for make in models
    ]
    return np.mean([fit.predict(features[asked]) for fit in fits], axis=0)


def with_gaussian(
    recipe: str, cloud: Cloud, labels, features, target, timed: Bools, asked: Bools, trees: int
) -> np.ndarray:
    """Predicted targets of the asked rows."""
    share, of_what = GAUSSIAN[recipe]
    bagged = of_what != "times"
    forest = ensemble.ExtraTreesRegressor(
        trees, max_depth=_DEPTH, random_state=0, bootstrap=bagged, oob_score=bagged
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows that are in every tree's bag
        forest.fit(features[timed], target[timed])
    places, owner = coordinates(cloud)
    weight = np.sqrt(importance(cloud, labels, forest.feature_importances_))[owner] + 0.05
    _, first = np.unique(cloud.configurations[timed], axis=0, return_index=True)
    if len(first) > MOST:
        first = np.random.default_rng(0).choice(first, MOST, replace=False)
    rows = np.flatnonzero(timed)[first]
    wanted = target[rows] - forest.oob_prediction_[first] if bagged else target[rows]
    known = np.isfinite(wanted)
    noise = 0.1 if bagged else 0.01  # share of the variance
    answers = gaussian(places[rows][known] * weight, wanted[known], places[asked] * weight, noise)
    of_forest = forest.predict(features[asked])
    return of_forest + answers if bagged else share * of_forest + (1 - share) * answers


def coordinates(cloud: Cloud) -> tuple[np.ndarray, np.ndarray]:
    """(N, C) coordinates between 0 and 1, and each one's parameter."""
    columns, owner = [], []
    for j, values in enumerate(cloud.values):
        index, logs = cloud.configurations[:, j], _logarithms(values)
        if cloud.ordinal[j] or logs is not None or len(values) <= 2:
            places = np.array(range(len(values)) if logs is None else logs, dtype=float)
            columns.append(((places - places.min()) / max(np.ptp(places), 1e-9))[index])
            owner.append(j)
        else:
            columns += [(index == i) * 0.5 for i in range(len(values))]
            owner += [j] * len(values)
    return np.stack(columns, axis=1), np.array(owner)


def importance(cloud: Cloud, labels, of_features) -> np.ndarray:
    """Of each parameter: the sum over the features that it is in, relative to the greatest."""
    total = np.zeros(len(cloud.names))
    for label, share in zip(labels, of_features, strict=True):
        for j, name in enumerate(cloud.names):
            if label == name or label.startswith(f"{name} ") or f" {name}" in label:
                total[j] += share
    return total / total.max()


def gaussian(places, wanted, asked, noise: float) -> np.ndarray:
    """Mean of the process at ``asked``."""
    mean, variance = wanted.mean(), max(wanted.var(), 1e-12)
    apart, away = city_block(places, places), city_block(asked, places)
    best = (-math.inf, None, 1.0)
    for length in LENGTHS:
        kernel = variance * np.exp(-apart / length)
        kernel[np.diag_indices(len(kernel))] += noise * variance
        root = np.linalg.cholesky(kernel)
        white = solve_triangular(root, wanted - mean, lower=True)
        likelihood = -0.5 * white @ white - np.log(np.diag(root)).sum()
        best = max(best, (likelihood, root, length), key=lambda each: each[0])
    _, root, length = best
    return mean + variance * np.exp(-away / length) @ cho_solve((root, True), wanted - mean)


def city_block(a, b) -> np.ndarray:
    """(n, m) distances."""
    total = np.zeros((len(a), len(b)))
    for x, y in zip(a.T, b.T, strict=True):
        total += np.abs(x[:, None] - y)
    return total


if __name__ == "__main__":
    main()
