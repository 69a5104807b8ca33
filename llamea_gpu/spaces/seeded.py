"""A space whose samples begin with what has been measured before.

What it does: stands in for another ``space`` of the contract, and lets `sample` hand out given
configurations first, best first, each once. Optimizers begin with a sample: they then begin where
another search ended, and pay nothing for it, since revisits are free.

What it does not do: hold costs. It needs the standard library only, because the sandboxed child
imports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llamea_gpu.spaces.space import Configuration


class SeededSpace:
    """``space`` with ``measured`` configurations, best first, at the beginning of its samples.

    Everything but `sample` is the other space's.
    """

    def __init__(self, space: Any, measured: Sequence[Configuration]) -> None:
        self.names, self.values = space.names, space.values
        self.cardinalities, self.ordinal, self.size = space.cardinalities, space.ordinal, space.size
        self.pool, self.neighbors, self.encode = space.pool, space.neighbors, space.encode
        self.contains, self.repair = space.contains, space.repair
        self.measured = tuple(measured)
        self._sample = space.sample
        self._unserved = list(measured)

    def sample(self, n: int) -> list[Configuration]:
        """``n`` distinct configurations: measured ones that were not served yet, then random."""
        if not self._unserved or n <= 0:
            return list(self._sample(n))
        served = self._unserved[:n]
        del self._unserved[:n]
        if len(served) < n:
            known = set(served)
            others = [config for config in self._sample(n) if config not in known]
            served += others[: n - len(served)]
        return served
