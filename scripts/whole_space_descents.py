"""Where greedy descents end on a model of a whole space: its plateaus and cliffs, without a GPU.

    python scripts/whole_space_descents.py clouds/helion/chunk_scan-4x16x1x256x256-h200

From each start of the cloud (the kernel's default and the compiler's seeds) and from each run's
best measured configuration, the best neighbour (one parameter changed) is taken until none is
better by more than --least. All times are modelled but for measured configurations.
"""

from __future__ import annotations

import argparse

import numpy as np

from llamea_gpu.frameworks.helion.whole import bind
from llamea_gpu.models.model import SpaceModel
from llamea_gpu.spaces.catalogue import load_cloud


def descent(model, space, config, least: float):
    """The path of a greedy descent: configurations and ms."""
    path = [(config, model.outcome(config).time_ms)]
    while True:
        near = space.neighbors(path[-1][0])
        times = [outcome.time_ms for outcome in model.outcomes(near)]
        best = int(np.argmin(times))
        if not times[best] < path[-1][1] * (1 - least):
            return path
        path.append((near[best], times[best]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cloud")
    parser.add_argument("--least", type=float, default=0.002, help="gain that counts, relative")
    arguments = parser.parse_args()
    cloud = load_cloud(arguments.cloud)
    model = SpaceModel(cloud)
    bound = bind(cloud)
    with bound.pretended():
        space = bound.space(np.random.default_rng(0), cloud.starts, cloud.default)
        begins = {f"start {i}": start for i, start in enumerate(cloud.starts)}
        for run in range(len(cloud.runs)):
            rows = np.flatnonzero((cloud.run == run) & cloud.ok)
            row = rows[np.argmin(model.readings.log_ms[rows])]
            begins[f"best of run {run}"] = cloud.configuration(int(row))
        print(f"{cloud.info.name}: best measured {model.best_ms:.5g} ms")
        for name, begin in begins.items():
            path = descent(model, space, begin, arguments.least)
            first, last = path[0][1] / model.best_ms, path[-1][1] / model.best_ms
            outcome = model.outcome(path[-1][0])
            print(
                f"{name:14} {first:8.3f} -> {last:.3f} of the best in {len(path) - 1} steps, "
                f"{'measured' if outcome.measured else 'modelled'}"
            )


if __name__ == "__main__":
    main()
