"""A space that is sampled and never listed, as a live kernel's is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

Config = tuple[int, ...]


class ToySpace:
    """Six parameters of five values; where the first is 0, the second means nothing and is 0.

    Configurations whose last two are both 4 are not valid.
    """

    size = None
    names = tuple("abcdef")
    values = ((0, 1, 2, 3, 4),) * 6
    cardinalities = (5,) * 6
    ordinal = (True,) * 6

    def __init__(self, rng: np.random.Generator, starts: Sequence[Config] = ()) -> None:
        self.rng = rng
        self.starts: list[Config] = list(starts) or [(2, 2, 2, 2, 2, 2), (4, 0, 0, 0, 0, 0)]
        self.leaders: list[Config] = []

    def canonical(self, config: Sequence[int]) -> Config | None:
        found = tuple(map(int, config))
        if len(found) != 6 or not all(0 <= i < 5 for i in found) or found[4:] == (4, 4):
            return None
        return (0, 0, *found[2:]) if found[0] == 0 else found

    def contains(self, config: Sequence[int]) -> bool:
        return self.canonical(config) is not None

    def repair(self, config: Sequence[float]) -> Config:
        clipped = np.clip(np.rint(config), 0, 4).astype(int)
        return self.canonical(clipped) or (*map(int, clipped[:5]), 0)

    def draw(self, rng: np.random.Generator) -> Config | None:
        return self.canonical(rng.integers(5, size=6))

    def sample(self, n: int) -> list[Config]:
        n = min(n, 64)
        found: dict[Config, None] = {}
        for _ in range(20 * n):
            if len(found) == n:
                break
            known = [*self.leaders, *self.starts]
            near = list(known[int(self.rng.integers(len(known)))])
            for j in self.rng.integers(6, size=3):
                near[j] = int(self.rng.integers(5))
            config = self.canonical(near)
            if config is not None:
                found[config] = None
        return list(found)

    def pool(self, n: int) -> np.ndarray:
        return np.array(self.sample(n))

    def neighbors(self, config: Config, kind: str = "hamming") -> list[Config]:
        found: dict[Config, None] = {}
        for j, i in itertools.product(range(6), range(5)):
            changed = self.canonical((*config[:j], i, *config[j + 1 :]))
            if changed is not None and changed != config:
                found[changed] = None
        return list(found)

    def encode(self, configs: object) -> np.ndarray:
        return np.asarray(configs, dtype=float) / 4


def toy_cost(config: Config) -> float:
    """Best at (3, 1, 4, 1, 0, 3); a twentieth fails."""
    if sum(config) % 20 == 7:
        return float("inf")
    return 1.0 + float(np.abs(np.array(config) - (3, 1, 4, 1, 0, 3)).sum())
