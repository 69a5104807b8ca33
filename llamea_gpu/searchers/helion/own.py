"""Helion's own searches on a bound kernel: a live one, or one of a modelled whole space.

What it does: runs a search of Helion's registry on the kernel's real configuration spec, answers
its measurements from the contract's ``evaluate``, and begins with what was measured before, as
Helion's own two-stage searches do. So a hybrid can end with it, and it can be compared.

What it does not do: read again what comes close to the best, or verify at the end: ``evaluate`` and
what is around it do both.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from helion import exc
from helion.autotuner import search_algorithms
from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult
from helion.autotuner.effort_profile import get_effort_profile
from helion.autotuner.pattern_search import InitialPopulationStrategy

from llamea_gpu.contract import Configuration, Evaluate, Space, measured_in
from llamea_gpu.errors import SearcherError
from llamea_gpu.frameworks.helion.space import HelionSpace

_LEAST_POPULATION = 8  # that differential evolution can recombine
_OF_RECORDINGS = ("search", "effort", "start", "initial_population_strategy", "roles", "model")


class OwnSearch:
    """A search of Helion's as an optimizer for ``kernel``, bound to ``arguments``.

    ``settings`` are those of a ``helion:`` spec. ``start`` and ``roles`` mean nothing here: Helion
    knows both of its own kernel.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        kernel: Any,
        arguments: Sequence[object],
        space: HelionSpace,
    ) -> None:
        self._settings = settings
        self._kernel = kernel
        self._tensors = arguments
        self._space = space
        if settings["search"] not in search_algorithms:
            raise SearcherError(f"the installed Helion has no {settings['search']}")

    def __call__(self, evaluate: Evaluate, space: Space, rng: np.random.Generator) -> None:
        """Run until the search ends by itself.

        Raises:
            BudgetExhausted: the budget has ended.
        """
        del rng  # Helion draws from its settings' seed
        measured = measured_in(space)
        algorithm = search_algorithms[self._settings["search"]]
        settings = self._settings
        keywords: dict[str, Any] = {"finishing_rounds": 0}
        if settings.get("model"):
            keywords |= {"model": settings["model"], "llm_model": settings["model"]}
        keywords |= {k: v for k, v in settings.items() if k not in _OF_RECORDINGS}
        arguments = arguments_of(
            algorithm, self._kernel, settings["effort"], len(measured), **keywords
        )
        search = algorithm(self._kernel, self._tensors, **arguments)
        search._benchmark_provider_cls = functools.partial(
            AnsweringProvider, evaluate=evaluate, place=self._space.place
        )
        search.rebenchmark = lambda *_, **__: None
        search._finalize = lambda: search.best.config
        search.final_selection = None  # of Helion 1.5.1, which keeps a share of the seconds for it
        begin_with(search, [*map(self._space.config, measured)])
        try:
            search.autotune(skip_cache=True)
        except exc.NoConfigFound:  # what was measured before may have worked
            return


def arguments_of(
    search: Any, kernel: Any, effort: Any, measured: int, **more: Any
) -> dict[str, Any]:
    """What the effort says, then ``more``, as far as the class ``search`` takes it.

    With so many ``measured`` it begins with these, as Helion's own second stages do.
    """
    profile = get_effort_profile(effort)
    keywords = {**search.get_kwargs_from_profile(profile, kernel.settings), **more}
    if measured:
        keywords |= {
            "initial_population_strategy": InitialPopulationStrategy.FROM_BEST_AVAILABLE,
            "best_available_pad_random": measured < _LEAST_POPULATION,
        }
    parameters = inspect.signature(search).parameters
    return {name: value for name, value in keywords.items() if name in parameters}


def begin_with(search: Any, measured: list[Any]) -> None:
    """Let ``search`` begin with these configurations of Helion's, if it can."""
    if measured and hasattr(search, "set_best_available_seed_configs"):
        search.set_best_available_seed_configs(measured)


class AnsweringProvider(BenchmarkProvider):  # type: ignore[misc]
    """Answers Helion's measurements from ``evaluate``: it compiles and runs nothing.

    Each batch that a search asks for is one call of ``evaluate``, so a parallel clock charges it as
    Helion spends it. ``place`` gives what a Helion configuration is in the space, None where it is
    not valid: that gets an error result and costs nothing, since there is no measurement to charge.
    """

    mutated_arg_indices: Sequence[int] = ()

    def __init__(
        self, *, evaluate: Evaluate, place: Callable[[Any], Configuration | None], **_: Any
    ) -> None:
        """The other arguments are what Helion hands to every provider."""
        self._evaluate = evaluate
        self._place = place

    def setup(self) -> None:
        """Nothing to prepare."""

    def cleanup(self) -> None:
        """Nothing to release."""

    def benchmark(self, configs: list[Any], **_: Any) -> list[Any]:
        """One result a configuration, in their order.

        Raises:
            BudgetExhausted: the run is over.
        """
        places = [self._place(config) for config in configs]
        valid = [place for place in places if place is not None]
        costs_ms = iter(self._evaluate(valid) if valid else ())
        times_ms = [math.inf if place is None else next(costs_ms) for place in places]
        return [
            BenchmarkResult(
                config=config,
                fn=functools.partial(_known_ms, time_ms),
                perf=time_ms,
                status="ok" if math.isfinite(time_ms) else "error",
                compile_time=None,
            )
            for config, time_ms in zip(configs, times_ms, strict=True)
        ]


def timed_again(compiled: Sequence[Callable[[], float]], **_: Any) -> list[float]:
    """Helion's ``autotune_benchmark_fn``: for nothing, the times that were given out before."""
    return [function() for function in compiled]


def _known_ms(time_ms: float, *_: object) -> float:
    """In place of a compiled kernel: what a run of it would take."""
    return time_ms
