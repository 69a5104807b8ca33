"""Would the true times pass the gate near the best, with readings as noisy as these?

    python scripts/gate_of_the_truth.py [CLOUD ...] [--steps N]

For each set of points that the gate leaves out, its part near the best: true times are drawn from
the mixture of highest likelihood for its readings (nonparametric, by expectation maximisation on a
grid of a quarter of the noise), readings from them, and both are ranked. Prints the mean rank
correlation, the share of draws below what the gate wants, and the ceiling that the gate reckons
with (docs/adr/0006-gate-of-models.md). All clouds that ship unless some are named. After few steps
the mixture is smooth, after many it is a few values: where the two disagree, nobody knows.
"""

from __future__ import annotations

import argparse

import numpy as np

from llamea_gpu.models import gate
from llamea_gpu.models.readings import Readings
from llamea_gpu.spaces.catalogue import list_clouds, load_cloud

DRAWS = 1000


def main() -> None:
    """Print a line for each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clouds", nargs="*")
    parser.add_argument("--steps", type=int, default=300, help="of expectation maximisation")
    options = parser.parse_args()
    for name in options.clouds or [entry.name for entry in list_clouds()]:
        cloud = load_cloud(name)
        readings = Readings.of(cloud)
        comparable = readings.ok & readings.steady
        for left_out, rows in gate._optimizers(cloud).items():
            asked = rows & comparable
            unseen = comparable & ~np.isin(readings.group, readings.group[rows])
            if gate.LEAST_HELD_OUT <= asked.sum() <= unseen.sum():
                log_ms = readings.log_ms[asked]
                # Of predictions that are true, all but the part itself is of no interest here.
                near = gate._agreement(log_ms, readings, asked).near
                told(
                    f"{cloud.info.name:34} {left_out:32}",
                    near,
                    log_ms,
                    readings.noise,
                    options.steps,
                )


def told(label: str, near: gate.Part, log_ms: np.ndarray, noise: float, steps: int) -> None:
    """One line."""
    part = log_ms[log_ms <= np.quantile(log_ms, near.share)]
    grid, weight = mixture(part, noise, steps)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        truth = rng.choice(grid, len(part), p=weight)
        found.append(gate.spearman(truth, truth + noise * rng.standard_normal(len(part))))
    print(
        f"{label} {len(part):5} points: {np.mean(found):.3f}, below "
        f"{gate.NEAR_BEST}: {np.mean(np.array(found) < gate.NEAR_BEST):.3f}; ceiling "
        f"{near.ceiling:.2f}",
        flush=True,
    )


def mixture(log_ms: np.ndarray, noise: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Places and weights of true times; far from the bulk, where noise is nothing, the readings."""
    bulk = np.arange(log_ms.min() - 2 * noise, np.quantile(log_ms, 0.9) + 2 * noise, noise / 4)
    step = max(1, len(bulk) // 800)
    grid = np.unique(np.concatenate([bulk[::step], log_ms]))
    likelihood = np.exp(-0.5 * ((log_ms[:, None] - grid) / noise) ** 2)
    weight = np.full(len(grid), 1 / len(grid))
    for _ in range(steps):
        share = likelihood * weight
        weight = (share / share.sum(axis=1, keepdims=True)).mean(axis=0)
    return grid, weight / weight.sum()


if __name__ == "__main__":
    main()
