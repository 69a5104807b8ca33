"""Answers and programs of known behaviour, written by hand for tests."""

from __future__ import annotations

RANDOM = '''\
class Drawer:
    """Draw {batch} configurations at a time."""

    def __init__(self, batch={batch}):
        self.batch = batch

    def __call__(self, evaluate, space, rng):
        while True:
            evaluate(space.sample(self.batch))
'''

CLIMBER = '''\
class Climber:
    """Climb from {start} random configurations to better neighbours."""

    def __init__(self, start={start}):
        self.start = start

    def __call__(self, evaluate, space, rng):
        configs = space.sample(self.start)
        costs = evaluate(configs)
        best = min(range(len(costs)), key=costs.__getitem__)
        current, cost = configs[best], costs[best]
        while True:
            around = space.neighbors(current)
            found = evaluate(around)
            step = min(range(len(found)), key=found.__getitem__)
            if found[step] < cost:
                current, cost = around[step], found[step]
            else:
                current = space.sample(1)[0]
                cost = evaluate([current])[0]
'''

BROKEN = '''\
class Faller:
    """Fails while it runs."""

    def __init__(self, divisor=0):
        self.divisor = divisor

    def __call__(self, evaluate, space, rng):
        evaluate(space.sample(1))
        return 1 / self.divisor
'''


def random_program(batch: int) -> str:
    """Random search in batches; a different program for each batch size."""
    return RANDOM.format(batch=batch)


def climber_program(start: int) -> str:
    """Steepest descent with restarts; a different program for each start size."""
    return CLIMBER.format(start=start)


def answer(source: str) -> str:
    """A model's answer around a program."""
    return f"An idea in one line.\n\n```python\n{source}```\n"
