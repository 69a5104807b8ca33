"""Iterated local search over Hamming neighbourhoods.

H. R. Lourenço, O. C. Martin, T. Stützle: Iterated Local Search, in: Handbook of Metaheuristics
(2003), accepting what is better, with restarts. A descent takes the first improvement in random
order, because a whole neighbourhood costs more than many a budget.
"""

from itertools import islice

MAX_STARTS = 100_000  # random configurations to start from: all of them in most spaces


class IteratedLocalSearch:
    """Descend to a local optimum, kick it, descend again, keep the better; restart when stuck."""

    def __init__(self, start_samples=16, kick_size=2, max_kicks=3):
        self.start_samples = start_samples
        self.kick_size = kick_size
        self.max_kicks = max_kicks

    def __call__(self, evaluate, space, rng):
        """Run until the budget ends or everything has been measured."""
        self.evaluate, self.space, self.rng = evaluate, space, rng
        self.cost = {}  # of every configuration measured
        new = (config for config in space.sample(MAX_STARTS) if config not in self.cost)
        while start := list(islice(new, max(self.start_samples, evaluate.parallel))):
            self._search_around(self._descend(self._best_of(start)))

    def _search_around(self, home):
        kicks = 0
        while kicks < self.max_kicks:
            kicked = [self._kick(home) for _ in range(self.evaluate.parallel)]
            local = self._descend(self._best_of(kicked))
            kicks += 1
            if self.cost[local] < self.cost[home]:
                home, kicks = local, 0

    def _kick(self, config):
        """A few random steps away."""
        for _ in range(self.kick_size):
            neighbors = self.space.neighbors(config)
            if neighbors:
                config = neighbors[self.rng.integers(len(neighbors))]
        return config

    def _descend(self, current):
        while better := self._better_neighbor(current):
            current = better
        return current

    def _better_neighbor(self, current):
        """The best of the first batch of new neighbours that improves on ``current``, or None."""
        neighbors = [n for n in self.space.neighbors(current) if n not in self.cost]
        order = self.rng.permutation(len(neighbors)).tolist()
        for start in range(0, len(order), self.evaluate.parallel):
            batch = [neighbors[i] for i in order[start : start + self.evaluate.parallel]]
            best = self._best_of(batch)
            if self.cost[best] < self.cost[current]:
                return best
        return None

    def _best_of(self, configs):
        """The best, after measuring those that are new."""
        new = [config for config in dict.fromkeys(configs) if config not in self.cost]
        if new:
            self.cost.update(zip(new, self.evaluate(new), strict=True))
        return min(configs, key=self.cost.get)
