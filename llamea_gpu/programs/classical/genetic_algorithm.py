"""A genetic algorithm that measures nothing twice.

J. H. Holland: Adaptation in Natural and Artificial Systems (1975), with tournament selection,
uniform crossover, and survival of the best of parents and children ("mu + lambda"), which suits
small budgets. A child that is known already mutates on until it is new.
"""

from itertools import islice

MAX_MUTATIONS = 10  # of a known child, before a random configuration takes its place
MAX_STRANGERS = 100_000  # such configurations: all of them in most spaces


class GeneticAlgorithm:
    """Recombine good configurations, mutate a little, keep the best of parents and children."""

    def __init__(self, population_size=20, offspring=5, tournament_size=3, mutation_chance=0.5):
        self.population_size = population_size
        self.offspring = offspring
        self.tournament_size = tournament_size
        self.mutation_chance = mutation_chance

    def __call__(self, evaluate, space, rng):
        """Run until the budget ends or everything has been measured."""
        self.space, self.rng = space, rng
        self.cost = {}  # of every configuration measured
        self.strangers = iter(space.sample(MAX_STRANGERS))
        children = list(islice(self.strangers, self.population_size))
        population = []
        while children:
            self.cost.update(zip(children, evaluate(children), strict=True))
            population = sorted(population + children, key=self.cost.get)[: self.population_size]
            children = self._children(population, max(self.offspring, evaluate.parallel))

    def _children(self, population, count):
        """``count`` new configurations; fewer when all have been measured."""
        children = []
        while len(children) < count:
            child = self._cross(self._parent(population), self._parent(population))
            if self.rng.random() < self.mutation_chance:
                child = self._mutate(child)
            child = self._renewed(child, children)
            if child is None:
                break
            children.append(child)
        return children

    def _parent(self, population):
        """Tournament selection: the population is sorted, so the lowest place wins."""
        return population[self.rng.integers(len(population), size=self.tournament_size).min()]

    def _cross(self, mother, father):
        from_mother = self.rng.random(len(mother)) < 0.5
        genes = zip(mother, father, from_mother, strict=True)
        return self.space.repair(tuple(m if take else f for m, f, take in genes))

    def _mutate(self, config):
        """Another value for one parameter."""
        neighbors = self.space.neighbors(config)
        return neighbors[self.rng.integers(len(neighbors))] if neighbors else config

    def _renewed(self, child, siblings):
        """The child mutated until it is new, else a stranger, else None."""
        for _ in range(MAX_MUTATIONS):
            if child not in self.cost and child not in siblings:
                return child
            child = self._mutate(child)
        unknown = (c for c in self.strangers if c not in self.cost and c not in siblings)
        return next(unknown, None)
