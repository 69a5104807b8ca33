"""Which trees, fitted to which readings, predict held-out times best: behind the models' recipe.

    python scripts/compare_model_recipes.py [CLOUD ...] [--recipes NAME ...] [--trees N]

For each cloud and recipe, over everything that the gate holds out (folds, each optimizer's points,
each run's): the mean rank correlation of all points, relative to what the true times would reach,
the mean near the best, and how many of those rows fall short of the gate; at the end means over
clouds. All clouds that ship unless some are named: a recipe is chosen by all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from sklearn import ensemble

from llamea_gpu.models import gate
from llamea_gpu.models.features import FeatureTable
from llamea_gpu.models.readings import Bools, Readings
from llamea_gpu.models.recipe import _DEPTH, _NEAR, _believed
from llamea_gpu.spaces.catalogue import list_clouds, load_cloud
from llamea_gpu.spaces.cloud import Cloud


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


def main() -> None:
    """Print as it goes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clouds", nargs="*")
    parser.add_argument("--recipes", nargs="*", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--trees", type=int, default=100)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, ...]]] = {recipe: [] for recipe in options.recipes}
    for name in options.clouds or [entry.name for entry in list_clouds()]:
        cloud = load_cloud(name)
        for recipe, lines in found.items():
            lines.append(judged(cloud, recipe, options.trees))
            print(f"{cloud.info.name:34} {recipe:22} {told(lines[-1])}", flush=True)
    for recipe, lines in found.items():
        passed = sum(short == 0 for _, _, short, _ in lines)
        print(f"{'mean':34} {recipe:22} {told(tuple(np.mean(lines, axis=0)))}, {passed} pass")


def told(line: tuple[float, ...]) -> str:
    """Of a cloud, or of the mean."""
    overall, near, short, rows = line
    return f"overall {overall:.3f}, near the best {near:.3f}, {short:.2f} of {rows:.2f} fall short"


def judged(cloud: Cloud, recipe: str, trees: int) -> tuple[float, float, int, int]:
    """Mean agreement, mean agreement near the best, rows that fall short, rows."""
    readings = Readings.of(cloud)
    features = FeatureTable(cloud.names, cloud.values, cloud.ordinal).many(cloud.configurations)
    found = []
    for name, rows, parts in held_out(cloud, readings):
        predicted = np.full(len(cloud), np.nan)
        for asked, fitted in parts:
            predicted[asked] = answers(recipe, trees, features, readings, fitted, asked)
        found.append((name, gate._agreement(predicted[rows], readings, rows)))
    overall = [a.spearman / max(a.ceiling, 0.5) for _, a in found]
    short = sum(bool(a.faults(name)) for name, a in found)
    return (
        float(np.mean(overall)),
        float(np.mean([a.near.spearman for _, a in found])),
        short,
        len(found),
    )


def held_out(
    cloud: Cloud, readings: Readings
) -> Iterator[tuple[str, Bools, list[tuple[Bools, Bools]]]]:
    """What the gate holds out: name, rows to judge by, and pairs of rows to ask and to fit."""
    comparable = readings.ok & readings.steady
    fold = gate._folds(readings.group)
    folds = [(comparable & (fold == i), fold != i) for i in range(gate.FOLDS)]
    yield "folds", comparable, folds
    for name, rows in gate._optimizers(cloud).items():
        unseen = ~np.isin(readings.group, readings.group[rows])
        asked = rows & comparable
        if gate.LEAST_HELD_OUT <= asked.sum() <= (unseen & comparable).sum():
            yield name, asked, [(asked, unseen)]


def answers(
    recipe: str, trees: int, features, readings: Readings, fitted: Bools, asked: Bools
) -> np.ndarray:
    """Predicted targets of the asked rows: their order is that of times."""
    models, which, weighted = RECIPES[recipe]
    works = fitted & np.isfinite(readings.log_ms)
    steady = works & readings.steady
    target = np.log(np.maximum(readings.log_ms - readings.log_ms[steady].min(), 0) + _NEAR)
    if which == "all":
        chosen = works
    elif which == "steady":
        chosen = steady
    else:
        chosen = steady | _believed(features, target, works & readings.single, steady)
    weight = readings.weight[chosen] if weighted else None
    return np.mean(
        [
            make(trees)
            .fit(features[chosen], target[chosen], sample_weight=weight)
            .predict(features[asked])
            for make in models
        ],
        axis=0,
    )


if __name__ == "__main__":
    main()
