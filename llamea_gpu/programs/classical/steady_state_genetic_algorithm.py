"""A genetic algorithm without generations: a child for each result, while the others are measured.

G. Syswerda: A Study of Reproduction in Generational and Steady-State Genetic Algorithms (1991).
Parents are the few best so far; a child is bred as soon as there is room for it, so that compilers
and timer never wait for the slowest of a batch. It begins with a sample, which holds the default
and the compiler's seeds where a space knows them.
"""

MAX_TRIES = (
    20  # children that turn out to be known, before a random configuration takes their place
)
MAX_STRANGERS = 100_000  # such configurations: all of them in most spaces


class SteadyStateGeneticAlgorithm:
    """Breed near the best few configurations, one child for each result, never awaiting a batch."""

    def __init__(self, parents=8, start_samples=16, crossover_chance=0.3, step_chance=0.3):
        self.parents = parents
        self.start_samples = start_samples
        self.crossover_chance = crossover_chance
        self.step_chance = step_chance  # otherwise a child has several parameters changed

    def __call__(self, evaluate, space, rng):
        """Run until the budget ends or everything has been measured."""
        self.space, self.rng = space, rng
        self.asked = set()  # whatever was submitted
        self.best = []  # (cost, configuration) of what works, best first
        self.start = space.sample(max(self.start_samples, evaluate.parallel))[::-1]
        self.strangers = None
        while True:
            children = self._children(evaluate.parallel - evaluate.pending)
            if children:
                evaluate.submit(children)
            elif not evaluate.pending:
                return
            for config, cost in evaluate.wait():
                if cost < float("inf"):
                    self.best = sorted([*self.best, (cost, config)])[: self.parents]

    def _children(self, count):
        """``count`` new configurations; fewer when all have been submitted."""
        children = []
        while len(children) < count:
            child = self._new_child()
            if child is None:
                break
            self.asked.add(child)
            children.append(child)
        return children

    def _new_child(self):
        """The next of the start, then a child of the best, else a stranger, else None."""
        while self.start:
            config = self.start.pop()
            if config not in self.asked:
                return config
        for _ in range(MAX_TRIES if self.best else 0):
            child = self._child()
            if child not in self.asked:
                return child
        if self.strangers is None:
            self.strangers = iter(self.space.sample(MAX_STRANGERS))
        return next((config for config in self.strangers if config not in self.asked), None)

    def _child(self):
        mother, chance = self._parent(), self.rng.random()
        if chance < self.crossover_chance:
            father = self._parent()
            from_mother = self.rng.random(len(mother)) < 0.5
            genes = zip(mother, father, from_mother, strict=True)
            return self.space.repair([m if take else f for m, f, take in genes])
        if chance < self.crossover_chance + self.step_chance:
            neighbors = self.space.neighbors(mother)
            return neighbors[self.rng.integers(len(neighbors))] if neighbors else mother
        return self._mutated(mother)

    def _parent(self):
        """One of the best, the better the likelier."""
        return self.best[int(self.rng.random() ** 2 * len(self.best))][1]

    def _mutated(self, config):
        """Other values for some parameters: mostly for few, at most for half of them."""
        changed = list(config)
        most = (len(changed) + 1) // 2
        count = int(most ** self.rng.random())
        for j in self.rng.permutation(len(changed))[:count]:
            changed[j] = int(self.rng.integers(self.space.cardinalities[j]))
        return self.space.repair(changed)
