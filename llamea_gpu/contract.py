"""The optimizer contract: what a searcher is given, and what it must be.

What it does: writes the contract down as protocols, for type checkers and readers.

What it does not do: enforce it. The sandbox hands out the objects, admission reads the source.

A searcher is a class whose numeric hyperparameters all have defaults. Calling an instance runs it::

    class AdaptiveSomething:
        def __init__(self, pool_size=16, restart_after=40): ...
        def __call__(self, evaluate, space, rng):
            costs = evaluate(space.sample(16))

or, where compiling and timing go on side by side, without ever waiting for a whole batch::

            evaluate.submit(space.sample(evaluate.parallel))
            while done := evaluate.wait():
                for config, cost in done: ...
                evaluate.submit(...)  # as many as were done

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
    """The measurement. First visits spend budget; revisits are free, from the host's memory.

    A call measures and waits. `submit` queues and `wait` hands out what is done, so that compiling
    goes on while the searcher thinks. Where measurements cannot overlap, they are made during a
    wait: one (sequential), or all that is queued as one batch (parallel).

    The run ends with the budget, or when the optimizer returns. What is still on its way is then
    dropped: it neither counts nor spends. What was done before counts, waited for or not. One call
    or submission after another is measured in order: what was submitted before goes first.
    """

    @property
    def spent(self) -> float:
        """Share of the budget used, 0 to 1."""

    @property
    def parallel(self) -> int:
        """How many configurations are worth having on their way: the size of a good batch."""

    @property
    def pending(self) -> int:
        """How many submitted configurations no `wait` has handed out yet, repeated ones counted."""

    def __call__(self, configs: Configurations) -> list[float]:
        """Costs to minimise, in the order of ``configs``; inf for one that does not work.

        What is submitted and done meanwhile is left to later waits.

        Raises:
            ValueError: a configuration is not valid.
            BudgetExhausted: the run is over.
            Stalled: too many asks in a row brought nothing new: the optimizer has ended.
        """

    def submit(self, configs: Configurations) -> None:
        """Queue ``configs``, each to be handed out once by `wait`.

        One that is known is handed out by the next wait, free; one that is on its way already, or
        comes twice, is measured once and handed out as often as it was submitted, together.

        Raises:
            ValueError: a configuration is not valid, or too many are on their way (in the sandbox
                65,536). Nothing is queued.
            BudgetExhausted: the run is over.
            Stalled: as for a call.
        """

    def wait(self) -> list[tuple[Configuration, float]]:
        """Submitted configurations with their costs, at least one, in the order of completion.

        Those that are done by now, if any are; else it waits for the next. Empty when nothing is
        pending.

        Raises:
            BudgetExhausted: the run is over before anything more is done.
            Stalled: nothing was pending, too often in a row.
        """


class Optimizer(Protocol):
    """An instance of a searcher's class."""

    def __call__(self, evaluate: Evaluate, space: Space, rng: np.random.Generator) -> Any:
        """Runs until the budget ends, or until there is nothing left to try."""
