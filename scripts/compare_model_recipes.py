"""Which trees, and which target, predict held-out times of a cloud best: behind the models' recipe.

    python scripts/compare_model_recipes.py clouds/helion/rope-4x32x4096x128-h200 ...

Five folds in groups of equal code, as the gate has them; rank correlations over all points that
work and over the part near the best.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn import ensemble

from llamea_gpu.models import gate
from llamea_gpu.models.features import FeatureTable
from llamea_gpu.models.readings import Readings
from llamea_gpu.models.recipe import _NEAR
from llamea_gpu.spaces.catalogue import load_cloud

TREES = {
    "extra trees": lambda: ensemble.ExtraTreesRegressor(100, max_depth=24, random_state=0),
    "random forest": lambda: ensemble.RandomForestRegressor(100, max_features=0.5, random_state=0),
    "boosting": lambda: ensemble.GradientBoostingRegressor(
        n_estimators=300,
        learning_rate=0.05,
        max_depth=7,
        min_samples_leaf=3,
        subsample=0.6,
        max_features=0.2,
        random_state=0,
    ),
    "histogram boosting": lambda: ensemble.HistGradientBoostingRegressor(
        max_iter=400, learning_rate=0.05, min_samples_leaf=5, max_features=0.3, random_state=0
    ),
}


def held_out(make, features, readings, fold, near: bool):
    """Out-of-fold predictions, nan where nothing works."""
    predicted = np.full(len(fold), np.nan)
    works = np.isfinite(readings.log_ms)
    for i in range(gate.FOLDS):
        fit, ask = works & (fold != i), works & (fold == i)
        above = np.maximum(readings.log_ms[fit] - readings.log_ms[fit & readings.steady].min(), 0)
        target = np.log(above + _NEAR) if near else above
        model = make().fit(features[fit], target, sample_weight=readings.weight[fit])
        predicted[ask] = model.predict(features[ask])
    return predicted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clouds", nargs="+")
    for name in parser.parse_args().clouds:
        cloud = load_cloud(name)
        readings = Readings.of(cloud)
        table = FeatureTable(cloud.names, cloud.values, cloud.ordinal)
        features = table.many(cloud.configurations)
        rows = readings.ok & readings.steady
        fold = gate._folds(readings.group)
        for trees, make in TREES.items():
            for near in (False, True):
                predicted = held_out(make, features, readings, fold, near)[rows]
                found = gate._agreement(predicted, readings, rows)
                print(
                    f"{cloud.info.name:32} {trees:18} {'log log' if near else 'log':7} overall "
                    f"{found.spearman:.3f}, best {found.near.share:.0%} {found.near.spearman:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
