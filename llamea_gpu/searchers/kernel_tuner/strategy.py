"""A strategy of Kernel Tuner under the optimizer contract, without the caps that only cut it off.

Kernel Tuner's defaults end some strategies long before a budget does: local searches after 100
evaluations, random sampling after a tenth of the space. An option that does nothing but stop is
lifted here, unless the spec sets it; one that shapes the search (a cooling schedule, a population)
keeps its default.

What it does not do: seed. The runner has seeded the global generators, from which strategies draw.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

# Kernel Tuner imports it in the middle of a run; it then takes seeded entropy that is the run's.
import scipy.stats.qmc  # noqa: F401

from llamea_gpu.contract import Evaluate, Space, measured_in
from llamea_gpu.searchers.kernel_tuner.bridge import search
from llamea_gpu.searchers.kernel_tuner.searchspace import fresh_searchspace
from llamea_gpu.searchers.library import Setting

_ENDLESS = 10**9


# Strategy -> option -> what it is for a space of that many configurations.
_LIFTED: Mapping[str, Mapping[str, Callable[[int], int]]] = {
    "random_sample": {"fraction": lambda _: 1},
    "greedy_ils": {"max_fevals": lambda size: size},
    "greedy_mls": {"max_fevals": lambda size: size},
    "ordered_greedy_mls": {"max_fevals": lambda size: size},
    "mls": {"max_fevals": lambda size: size},
    "bayes_opt": {"max_fevals": lambda size: size},
    # It gives up by itself after as many calls as there are configurations, two a generation.
    "genetic_algorithm": {"maxiter": lambda size: max(size // 2, 1)},
    "pso": {"maxiter": lambda size: size},
    # Not endless: fireflies that are all alike never ask again.
    "firefly_algorithm": {"maxiter": lambda size: size},
    "dual_annealing": {"max_fevals": lambda _: _ENDLESS},
    "hybrid_vndx": {"budget": lambda _: _ENDLESS},
}


class AdaptedStrategy:
    """Runs one strategy, in that module of Kernel Tuner; an optimizer under the contract."""

    def __init__(self, strategy: str, module: str, **options: Setting) -> None:
        self.strategy = strategy
        self.options = options
        self._module = importlib.import_module(module)

    def __call__(self, evaluate: Evaluate, space: Space, rng: np.random.Generator) -> None:
        """Search until the strategy ends by itself.

        Raises:
            BudgetExhausted: the budget has ended.
        """
        searchspace = fresh_searchspace(space)
        searchspace.begin_with(measured_in(space))
        with _without_clock(self._module):
            search(
                self._module.tune,
                evaluate,
                searchspace,
                strategy=self.strategy,
                options={**lifted(self.strategy, searchspace.size), **self.options},
                seed=int(rng.integers(2**32)),
            )


def lifted(strategy: str, size: int) -> dict[str, Any]:
    """Options that keep a strategy going on a space of ``size`` configurations."""
    return {option: value(size) for option, value in _LIFTED.get(strategy, {}).items()}


@contextmanager
def _without_clock(module: ModuleType) -> Iterator[None]:
    """Let a strategy that times itself (bayes_opt) find that everything takes as long.

    It fits its model again when an evaluation took five times as long as a prediction, or after
    five others. So it does here what it does in Kernel Tuner's simulation mode, where evaluations
    take no time, but on every host alike.
    """
    clock = vars(module).get("time")
    if not isinstance(clock, ModuleType):
        yield
        return
    ticks = iter(range(_ENDLESS))
    module.time = SimpleNamespace(  # type: ignore[attr-defined]
        perf_counter=lambda: float(next(ticks)), perf_counter_ns=lambda: next(ticks)
    )
    try:
        yield
    finally:
        module.time = clock  # type: ignore[attr-defined]
