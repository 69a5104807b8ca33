"""Differential evolution on value indices.

R. Storn, K. Price: Differential Evolution, Journal of Global Optimization 11 (1997), in the variant
"current-to-best/1/bin". Differences are taken of value indices; a trial is repaired to the nearest
valid configuration, and measured only when it is new.
"""

from itertools import islice

MAX_TRIALS = 5  # that turn out to be known, before a neighbour takes their place
MAX_STRANGERS = 100_000  # random configurations when neighbours are used up


class DifferentialEvolution:
    """Pull members towards the best plus a difference of two others; keep what is no worse."""

    def __init__(self, population_size=20, weight=0.7, crossover_chance=0.7):
        self.population_size = population_size
        self.weight = weight
        self.crossover_chance = crossover_chance

    def __call__(self, evaluate, space, rng):
        """Run until the budget ends or everything has been measured."""
        self.space, self.rng = space, rng
        self.cost = {}  # of every configuration measured
        self.strangers = iter(space.sample(MAX_STRANGERS))
        population = list(islice(self.strangers, self.population_size))
        self.cost.update(zip(population, evaluate(population), strict=True))
        width = min(evaluate.parallel, len(population))
        first = 0
        while True:
            targets = [(first + i) % len(population) for i in range(width)]
            trials = self._trials(population, targets)
            if not trials:
                return
            self.cost.update(zip(trials, evaluate(trials), strict=True))
            for target, trial in zip(targets, trials, strict=False):
                if self.cost[trial] <= self.cost[population[target]]:
                    population[target] = trial
            first = (first + width) % len(population)

    def _trials(self, population, targets):
        """A new configuration for each target; fewer when all have been measured."""
        best = min(population, key=self.cost.get)
        trials = []
        for target in targets:
            trial = self._new_trial(population, population[target], best, trials)
            if trial is None:
                break
            trials.append(trial)
        return trials

    def _new_trial(self, population, target, best, batch):
        for _ in range(MAX_TRIALS):
            trial = self._combine(population, target, best)
            if trial not in self.cost and trial not in batch:
                return trial
        near = [n for n in self.space.neighbors(best) if n not in self.cost and n not in batch]
        if near:
            return near[self.rng.integers(len(near))]
        far = (c for c in self.strangers if c not in self.cost and c not in batch)
        return next(far, None)

    def _combine(self, population, target, best):
        """target + weight (best - target) + weight (a - b), in some coordinates."""
        a, b = self.rng.integers(len(population), size=2)
        crossed = (self.rng.random(len(target)) < self.crossover_chance).tolist()
        crossed[self.rng.integers(len(target))] = True
        genes = zip(target, best, population[a], population[b], crossed, strict=True)
        return self.space.repair(
            [
                round(x + self.weight * (top - x) + self.weight * (p - q)) if cross else x
                for x, top, p, q, cross in genes
            ]
        )
