"""Which configurations of a whole space a cloud measures next: a mixture of ways to propose.

Random configurations throughout are useless near the best, and the best alone say nothing of what
fails: each way has a share, and the one that lags most behind its own is asked next. It chooses
from whatever is known at that moment, so that nothing waits for a round to end.

==========  ======================================================================================
given       first of all, where somebody wants particular ones, under his own words
`start`     the default and the compiler's seeds
`random`    throughout the space: what fails, and how bad the bad ones are
`near`      a start, or one of the best, with some parameters changed
`cross`     two of the best, crossed, with up to two parameters changed
`step`      one parameter of one of the best changed
`again`     one of the best, or the default, once more: what is noise
searchers   what searchers ask for under the optimizer contract, each on its own
==========  ======================================================================================
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from llamea_gpu.contract import Configuration
from llamea_gpu.modelled import WholeSpace
from llamea_gpu.recording.trajectory import Trajectories

SHARES = {"random": 0.1, "near": 0.2, "cross": 0.15, "step": 0.15, "again": 0.03}
SEARCHERS_SHARE = 1.0 - sum(SHARES.values())  # together
_LEADERS = 16  # around which `near` draws
_STEPPED = 6  # of the best, whose neighbours are taken
_CROSSED = 60
_REPEATED = 12
_TRIES = 60  # of one way, before another one is asked
_MOST_STEPS = 3  # of a way's tries that list neighbours, which takes long


class Mixture:
    """Proposes configurations and learns what became of them.

    Args:
        space: of the kernel; its ``leaders`` are kept up to date.
        draw: a random configuration, None where one is hard to find.
        searchers: whose trajectories are part of it.
        rng: all of its own randomness.
        points: configurations that come before all others, each with its ``how``.
    """

    def __init__(
        self,
        space: WholeSpace,
        draw: Callable[[], Configuration | None],
        searchers: Sequence[Trajectories],
        rng: np.random.Generator,
        points: Sequence[tuple[Configuration, str]] = (),
    ) -> None:
        self._space, self._draw, self._rng = space, draw, rng
        self._searchers = {searcher.spec: searcher for searcher in searchers}
        starts = ((start, "start") for start in space.starts)
        self._first = [*points, *starts][::-1]
        self.known: dict[Configuration, float] = {}
        self._flying: Counter[Configuration] = Counter()
        self._ranked: list[tuple[float, Configuration]] = []  # what works, best first
        self._counts: Counter[str] = Counter()
        self._shares = dict(SHARES)
        for spec in self._searchers:
            self._shares[spec] = SEARCHERS_SHARE / len(self._searchers)
        self._ways = {
            "random": self._draw,
            "near": self._near,
            "cross": self._crossed,
            "step": self._step,
        }

    def propose(self) -> tuple[Configuration, str] | None:
        """A configuration to measure, and how it came about; None: nothing new is to be found."""
        while self._first:
            config, origin = self._first.pop()
            if self._is_new(config):
                return self._proposed(config, origin)
        total = sum(self._counts.values()) + 1
        lag = {way: share * total - self._counts[way] for way, share in self._shares.items()}
        for way in sorted(lag, key=lag.__getitem__, reverse=True):
            candidate = self._asked(way)
            if candidate is not None:
                return self._proposed(candidate, way)
        return None

    def learn(self, config: Configuration, cost: float, origin: str) -> None:
        """A measurement: a time, inf for what does not work. One of an earlier call counts, too."""
        if self._flying[config]:
            self._flying[config] -= 1
        else:
            self._counts[origin] += 1
        if config in self.known:
            return  # again: the first time stays
        self.known[config] = cost
        if math.isfinite(cost):
            insort(self._ranked, (cost, config))
            self._space.leaders = [c for _, c in self._ranked[:_LEADERS]]
        for searcher in self._searchers.values():
            searcher.tell(config, cost)

    def stop(self) -> None:
        """End the searchers."""
        for searcher in self._searchers.values():
            searcher.stop()

    def troubles(self) -> dict[str, str]:
        """Why searchers were given up, by their specs."""
        return {s.spec: s.trouble for s in self._searchers.values() if s.trouble}

    # -- ways -------------------------------------------------------------------------------

    def _asked(self, way: str) -> Configuration | None:
        if way == "again":
            return self._repeated()
        if way in self._searchers:
            return self._of_searcher(self._searchers[way])
        for _ in range(_MOST_STEPS if way == "step" else _TRIES):
            config = self._ways[way]()
            if config is not None and self._is_new(config):
                return config
        return None

    def _of_searcher(self, searcher: Trajectories) -> Configuration | None:
        while (config := searcher.ask(self.known)) is not None:
            if self._is_new(config):
                return config
            if config in self.known:  # what is on its way will be told
                searcher.tell(config, self.known[config])
        return None

    def _near(self) -> Configuration | None:
        return next(iter(self._space.sample(1)), None)

    def _crossed(self) -> Configuration | None:
        top = self._top(_CROSSED)
        if len(top) < 2:
            return None
        mother, father = (top[int(self._rng.random() ** 2 * len(top))] for _ in range(2))
        from_mother = self._rng.random(len(mother)) < 0.5
        genes = zip(mother, father, from_mother, strict=True)
        child = [m if take else f for m, f, take in genes]
        for j in self._rng.integers(len(child), size=self._rng.integers(0, 3)):
            child[j] = int(self._rng.integers(self._space.cardinalities[j]))
        return self._space.canonical(child)

    def _step(self) -> Configuration | None:
        top = self._top(_STEPPED)
        if not top:
            return None
        leader = top[int(self._rng.integers(len(top)))]
        new = [c for c in self._space.neighbors(leader) if self._is_new(c)]
        return new[int(self._rng.integers(len(new)))] if new else None

    def _repeated(self) -> Configuration | None:
        """One that works: of the best, or the first that was known beforehand."""
        known = [*self._top(_REPEATED), *self._space.starts[:1]]
        working = [c for c in known if math.isfinite(self.known.get(c, math.inf))]
        if len(working) < _REPEATED:
            return None
        return working[int(self._rng.integers(len(working)))]

    def _top(self, most: int) -> list[Configuration]:
        """The best, at most a quarter of what works once there is much."""
        count = max(_STEPPED, min(most, len(self._ranked) // 4))
        return [config for _, config in self._ranked[:count]]

    def _is_new(self, config: Configuration) -> bool:
        return config not in self.known and not self._flying[config]

    def _proposed(self, config: Configuration, origin: str) -> tuple[Configuration, str]:
        self._flying[config] += 1
        self._counts[origin] += 1
        return config, origin
