"""The greedy genetic algorithm with which whole spaces were first searched, under the contract."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class NaiveGeneticAlgorithm:
    """Rounds: samples around the best, uniform crossover of the best, one-step neighbours."""

    def __init__(self, round_size: int = 48, elite: int = 40, stepped: int = 4) -> None:
        self.round_size = round_size
        self.elite = elite
        self.stepped = stepped

    def __call__(self, evaluate: Any, space: Any, rng: np.random.Generator) -> None:
        """Until the budget ends."""
        known: dict[tuple[int, ...], float] = {}
        while True:
            batch = self._round(space, rng, known)
            for config, cost in zip(batch, evaluate(batch), strict=True):
                known[config] = cost

    def _round(
        self, space: Any, rng: np.random.Generator, known: dict[tuple[int, ...], float]
    ) -> list[tuple[int, ...]]:
        ranked = sorted((cost, config) for config, cost in known.items() if math.isfinite(cost))
        top = [config for _, config in ranked[: max(6, min(self.elite, len(ranked) // 4))]]
        sampled = space.sample(self.round_size // 2)
        found = dict.fromkeys(config for config in sampled if config not in known)
        for _ in range(4000 if top else 0):
            if len(found) >= self.round_size * 3 // 4:
                break
            a, b = (top[int(rng.random() ** 2 * len(top))] for _ in range(2))
            child = np.where(rng.random(len(a)) < 0.5, a, b)
            for place in rng.integers(len(child), size=rng.integers(0, 3)):
                child[place] = rng.integers(space.cardinalities[place])
            config = space.repair(child)
            if config not in known:
                found[config] = None
        for config in top[: self.stepped]:
            near = [c for c in space.neighbors(config) if c not in known and c not in found]
            for place in rng.permutation(len(near))[: self.round_size // 12]:
                found[near[place]] = None
        return list(found) or sampled
