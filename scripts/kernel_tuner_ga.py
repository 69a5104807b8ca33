"""Kernel Tuner's genetic algorithm under the optimizer contract, for `bench_engine.py`.

The same parameters as `kernel_tuner.strategies.genetic_algorithm` with ``method="uniform"``, the
same selection (beta-distributed over the ranking) and the same number of calls a generation, so
that both engines are asked for the same amount of work. It is not a good optimizer.
"""

import numpy as np


class KernelTunerGeneticAlgorithm:
    """Replace the whole population by children of its better members, generation by generation."""

    def __init__(self, popsize=20, maxiter=100, mutation_chance=10):
        self.popsize = popsize
        self.maxiter = maxiter
        self.mutation_chance = mutation_chance

    def __call__(self, evaluate, space, rng):
        population = space.sample(self.popsize)
        for _ in range(self.maxiter):
            ranked = np.array(population)[np.argsort(evaluate(population), kind="stable")]
            population = self._children(ranked, space, rng)

    def _children(self, ranked, space, rng):
        """As many distinct, valid children as there are parents."""
        children = {}
        while len(children) < len(ranked):
            crossed = self._crossed(ranked, rng)
            mutates = (rng.random(len(crossed)) * self.mutation_chance < 1).tolist()
            for child, mutate in zip(map(tuple, crossed.tolist()), mutates, strict=True):
                valid = child if space.contains(child) else space.repair(child)
                children[self._mutated(valid, space, rng) if mutate else valid] = None
                if len(children) == len(ranked):
                    break
        return list(children)

    def _crossed(self, ranked, rng):
        """Uniform crossover of pairs drawn by Beta(1, 2.5) over the ranking; (2 pairs, d)."""
        places = (1 - (1 - rng.random((2, len(ranked)))) ** 0.4) * len(ranked)
        first, second = ranked[places.astype(int)]
        swap = rng.random(first.shape) < 0.5
        return np.concatenate([np.where(swap, second, first), np.where(swap, first, second)])

    def _mutated(self, config, space, rng):
        neighbors = space.neighbors(config)
        return neighbors[rng.integers(len(neighbors))] if neighbors else config
