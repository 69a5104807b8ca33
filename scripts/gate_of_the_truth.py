"""Would the true times pass the gate near the best, with readings as noisy as these?

    python scripts/gate_of_the_truth.py [CLOUD ...] [--steps N]

For each optimizer whose points the gate leaves out, its part near the best, by codes: true times
are drawn from the mixture of highest likelihood for its readings (nonparametric, by expectation
maximisation on a grid of a quarter of the noise), readings from them, and both are ranked. Prints
the mean rank correlation and the share of draws below what the gate wants, and at the end of a
cloud the same of the mean over optimizers, which the gate judges (docs/adr/0006-gate-of-models.md).
All clouds that ship unless some are named. After few steps the mixture is smooth, after many it is
a few values: where the two disagree, nobody knows.
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
        drawn, weights = [], []
        for optimizer, rows in gate._optimizers(cloud).items():
            asked = rows & comparable
            unseen = comparable & ~np.isin(readings.group, readings.group[rows])
            few = gate._codes(readings, asked) < gate.LEAST_HELD_OUT
            if few or gate._codes(readings, asked) > gate._codes(readings, unseen):
                continue
            _, first = np.unique(readings.group[asked], return_index=True)
            log_ms = readings.log_ms[asked][first]
            # Of predictions that are true, all but the part itself is of no interest here.
            near = gate._agreement(readings.log_ms[asked], readings, asked).near
            part = log_ms[log_ms <= np.quantile(log_ms, near.share)]
            drawn.append(draws(part, readings.noise, options.steps))
            weights.append(len(part))
            told(f"{cloud.info.name:34} {optimizer:32}", drawn[-1], len(part), near.ceiling)
        if drawn:
            mean = np.average(drawn, axis=0, weights=weights)
            told(f"{cloud.info.name:34} {'mean':32}", mean, sum(weights), None)


def draws(part: np.ndarray, noise: float, steps: int) -> np.ndarray:
    """(DRAWS,) rank correlations of true times and readings."""
    grid, weight = mixture(part, noise, steps)
    rng = np.random.default_rng(0)
    truths = [rng.choice(grid, len(part), p=weight) for _ in range(DRAWS)]
    return np.array([gate.spearman(t, t + noise * rng.standard_normal(len(part))) for t in truths])


def told(label: str, found: np.ndarray, points: int, ceiling: float | None) -> None:
    """One line."""
    print(
        f"{label} {points:5} points: {found.mean():.3f}, below {gate.NEAR_BEST}: "
        f"{np.mean(found < gate.NEAR_BEST):.3f}"
        + ("" if ceiling is None else f"; ceiling {ceiling:.2f}"),
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
