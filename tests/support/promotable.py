"""Programs for a run to promote from: one that deserves it, one that is spoilt, a weak one."""

from __future__ import annotations

from support.programs import random_program

# The costs of `small_recording` are nearly separable.
LADDER = '''\
class Ladder:
    """Set one parameter after the other to its best value, then begin elsewhere."""

    def __init__(self, start={start}):
        self.start = start

    def __call__(self, evaluate, space, rng):
        best = None
        while True:
            configs = space.sample(self.start)
            costs = evaluate(configs)
            cost, current = min(zip(costs, configs))
            for axis in range(len(space.names)):
                line = [c for c in space.neighbors(current) if c[axis] != current[axis]]
                found = zip(evaluate(line), line)
                cost, current = min([(cost, current), *found])
'''
# As good on what it was trained on, and gives up on anything else.
SPOILT = (
    LADDER.format(start=3)
    .replace("Ladder", "Spoilt")
    .replace(
        "        best = None\n",
        "        if max(space.values[0]) > 256:\n"
        "            raise ValueError('never seen such a block')\n",
    )
)
STRONG, SPOILT_SLOT, WEAK_SLOT = 0, 1, 2
PROGRAMS = (
    LADDER.format(start=2).replace("best = None", "evaluate(space.sample(3))"),  # not quite as good
    SPOILT,
    random_program(7),
)
