"""Simulated annealing with a schedule tied to the budget.

S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi: Optimization by Simulated Annealing, Science 220 (1983).
Costs are compared as ratios, so that one temperature fits every kernel: a step that is slower by
the factor r is accepted with probability r ** (-1 / temperature).
"""

import math
from itertools import islice

MAX_STRANGERS = 100_000  # random configurations to jump to: all of them in most spaces


class SimulatedAnnealing:
    """Step to random new neighbours, accepting worse ones less often as the budget is spent."""

    def __init__(self, start_samples=8, start_temperature=0.3, end_temperature=0.005):
        self.start_samples = start_samples
        self.start_temperature = start_temperature
        self.end_temperature = end_temperature

    def __call__(self, evaluate, space, rng):
        """Run until the budget ends or everything has been measured."""
        cost = {}  # of every configuration measured
        strangers = (config for config in space.sample(MAX_STRANGERS) if config not in cost)
        batch = list(islice(strangers, max(self.start_samples, evaluate.parallel)))
        current = batch[0]
        while batch:
            cost.update(zip(batch, evaluate(batch), strict=True))
            best = min(batch, key=cost.get)
            if self._accepts(cost[best], cost[current], evaluate.spent, rng):
                current = best
            new = [config for config in space.neighbors(current) if config not in cost]
            batch = [new[i] for i in rng.permutation(len(new))[: evaluate.parallel]]
            if not batch:  # nothing new next to it: jump
                batch = list(islice(strangers, evaluate.parallel))
                current = batch[0] if batch else None

    def _accepts(self, candidate, current, spent, rng):
        if candidate <= current:
            return True
        if math.isinf(candidate):
            return False
        ratio = self.end_temperature / self.start_temperature
        temperature = self.start_temperature * ratio**spent
        return rng.random() < math.exp(-math.log(candidate / current) / temperature)
