"""Answers Helion's measurements from ``evaluate`` instead of from a GPU.

Each batch that a search asks for is one call of ``evaluate``, so a parallel clock charges it as
Helion spends it: the makespan of its compilations, then its benchmarks. A grid point that is not
valid in the space gets an error result and costs nothing: there is no measurement to charge.
Helion times its best configurations again; that is answered with the same time, for nothing.

Not here: what a configuration means (`tunables`), or the search (`search`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult

from llamea_gpu.contract import Evaluate
from llamea_gpu.searchers.helion.tunables import Tunables


class RecordedProvider(BenchmarkProvider):  # type: ignore[misc]
    """A `BenchmarkProvider` that compiles and runs nothing."""

    mutated_arg_indices: Sequence[int] = ()

    def __init__(self, *, evaluate: Evaluate, tunables: Tunables, **_: Any) -> None:
        """The other arguments are what Helion hands to every provider."""
        self._evaluate = evaluate
        self._tunables = tunables

    def setup(self) -> None:
        """Nothing to prepare."""

    def cleanup(self) -> None:
        """Nothing to release."""

    def benchmark(self, configs: list[Any], **_: Any) -> list[Any]:
        """One result a Helion configuration, in their order.

        Raises:
            BudgetExhausted: the run is over.
        """
        found = [self._tunables.configuration(config) for config in configs]
        valid = [configuration for configuration in found if configuration is not None]
        costs = iter(self._evaluate(valid) if valid else ())
        times_ms = [math.inf if point is None else next(costs) for point in found]
        return [
            BenchmarkResult(
                config=config,
                fn=functools.partial(_time_ms, time_ms),
                perf=time_ms,
                status="ok" if math.isfinite(time_ms) else "error",
                compile_time=None,
            )
            for config, time_ms in zip(configs, times_ms, strict=True)
        ]


def timed_again(compiled: Sequence[Callable[[], float]], **_: Any) -> list[float]:
    """Helion's ``autotune_benchmark_fn``: the times of what `RecordedProvider` gave out."""
    return [function() for function in compiled]


def _time_ms(time_ms: float, *_: object) -> float:
    """In place of a compiled kernel: what a run of it would take."""
    return time_ms
