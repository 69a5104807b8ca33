"""The optimizer contract: what a searcher is given, and what it must be.

What it does: writes the contract down as protocols, for type checkers and readers.

What it does not do: enforce it. The sandbox hands out the objects, admission reads the source.

A searcher is a class whose numeric hyperparameters all have defaults. Calling an instance runs it::

    class AdaptiveSomething:
        def __init__(self, pool_size=16, restart_after=40): ...
        def __call__(self, evaluate, space, rng):
            costs = evaluate(space.sample(16))

The best configuration the host has seen is the answer; a return value is ignored. The end of the
budget raises `llamea_gpu.errors.BudgetExhausted`, a BaseException, out of ``evaluate``; so does
`llamea_gpu.errors.Stalled` where an optimizer keeps asking for what it has seen. After that one
another optimizer may go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Value = int | float | str | bool | None
Configuration = tuple[int, ...]  # value indices, one for each parameter
Configurations = Sequence[Configuration] | NDArray[np.int64]


class Space(Protocol):
    """The valid configurations. All randomness comes from the run's generator."""

    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    cardinalities: tuple[int, ...]
    ordinal: tuple[bool, ...]

    @property
    def size(self) -> int | None:
        """Number of valid configurations, None when they cannot be counted."""

    def sample(self, n: int) -> list[Configuration]:
        """``n`` distinct random configurations, or all of them when there are fewer."""

    def pool(self, n: int) -> NDArray[np.int64]:
        """(m, d) value indices: every configuration if there are at most ``n``, else n random."""

    def neighbors(self, config: Configuration, kind: str = "hamming") -> list[Configuration]:
        """Configurations that differ in one parameter.

        ``hamming``: in any value; ``adjacent``: the nearest valid values up and down of an ordinal
        parameter, any other value of a categorical one.

        Raises:
            ValueError: ``config`` is not valid.
        """

    def contains(self, config: Configuration) -> bool:
        """Whether ``config`` is valid."""

    def repair(self, config: Sequence[float]) -> Configuration:
        """The nearest valid configuration."""

    def encode(self, configs: Configurations) -> NDArray[np.float64]:
        """(n, d) coordinates in [0, 1]."""


class Evaluate(Protocol):
    """The measurement. First visits spend budget; revisits are free, from the host's memory."""

    @property
    def spent(self) -> float:
        """Share of the budget used, 0 to 1."""

    @property
    def parallel(self) -> int:
        """How many configurations compile side by side: batches of this size are worth making."""

    def __call__(self, configs: Configurations) -> list[float]:
        """Costs to minimise, in the order of ``configs``; inf for one that does not work.

        Raises:
            ValueError: a configuration is not valid.
            BudgetExhausted: the run is over.
            Stalled: too many asks in a row brought nothing new: the optimizer has ended.
        """


class Optimizer(Protocol):
    """An instance of a searcher's class."""

    def __call__(self, evaluate: Evaluate, space: Space, rng: np.random.Generator) -> Any:
        """Runs until the budget ends, or until there is nothing left to try."""
