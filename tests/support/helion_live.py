"""Helion's real search code on real configuration spaces without a GPU: times by a formula."""

from __future__ import annotations

import contextlib
import math
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import pytest
from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult

from llamea_gpu.frameworks.helion.kernel_script import KernelCase, load_case, shipped_kernels
from llamea_gpu.frameworks.helion.static import pretend_gpu
from llamea_gpu.live.helion.runtime import HelionSearch, helion_search

# Helion writes no cache, draws no progress bar and keeps to one process.
QUIET = {"HELION_AUTOTUNE_PROGRESS_BAR": "0", "HELION_SKIP_CACHE": "1"}


def formula_ms(config: Any) -> float:
    """A smooth time of a configuration; inf where its tile is too large."""
    tile = math.prod(config.config["block_sizes"])
    if tile > 1 << 20:
        return math.inf
    log_time = 0.0
    for key, value in sorted(config.config.items()):
        for place, item in enumerate(value if isinstance(value, list) else [value]):
            wanted = zlib.crc32(f"{key}{place}".encode())
            if type(item) is int and item > 0:
                log_time += 0.05 * (math.log2(item) - wanted % 6) ** 2
            else:
                log_time += 0.02 * (zlib.crc32(f"{key}{place}{item}".encode()) % 8)
    return 0.01 * math.exp(log_time)


def reread(fns: list[Callable[[], float]], **_: Any) -> list[float]:
    """Helion's second, longer readings: what the "kernels" of FormulaProvider return."""
    return [fn() for fn in fns]


class FormulaProvider(BenchmarkProvider):
    """Times by a formula. ``seen`` are the configurations in order; ``on_batch`` may interfere."""

    time_ms: Callable[[Any], float] = staticmethod(formula_ms)
    _jobs = 16

    def __init__(self, **given: Any) -> None:
        self.log, self.metrics = given["log"], given["autotune_metrics"]
        self.mutated_arg_indices: Sequence[int] = ()
        self.batches: list[list[Any]] = []

    @property
    def seen(self) -> list[Any]:
        return [config for batch in self.batches for config in batch]

    def benchmark(
        self, configs: list[Any], *, desc: str = "", raise_if_no_viable_config: bool = True
    ) -> list[BenchmarkResult]:
        self.batches.append(list(configs))
        self.on_batch()
        self.metrics.num_configs_tested += len(configs)
        results = []
        for config in configs:
            time_ms = self.time_ms(config)
            status = "ok" if math.isfinite(time_ms) else "error"
            run = partial(lambda config, *_: self.time_ms(config), config)
            results.append(BenchmarkResult(config, run, time_ms, status, 0.1))
        return results

    def on_batch(self) -> None:
        """Called as a batch begins."""

    def setup(self) -> None: ...

    def cleanup(self) -> None: ...


_bound: dict[tuple[str, str], tuple[Any, KernelCase]] = {}


@contextlib.contextmanager
def bound_kernel(name: str, gpu: str, **settings: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """A shipped kernel bound on a pretended GPU, with its arguments and these settings.

    It is bound once in a process.
    """
    with pretend_gpu(gpu) as pretended, mock.patch.dict(os.environ, QUIET):
        if (name, gpu) not in _bound:
            with pretended.fake_tensors():
                case = load_case(shipped_kernels()[name])
            _bound[name, gpu] = pretended.bind(case.kernel, case.arguments), case
        bound, case = _bound[name, gpu]
        chosen = {"autotune_effort": "quick", "autotune_random_seed": 1, **settings}
        chosen.setdefault("autotune_benchmark_fn", reread)
        with contextlib.ExitStack() as stack:
            for key, value in chosen.items():
                stack.enter_context(mock.patch.object(bound.settings, key, value))
            yield bound, case.arguments


def run_search(search: Any, provider: Callable[..., Any] = FormulaProvider) -> Any:
    """The configuration that a search returns; its provider is left in ``benchmark_provider``."""
    search._benchmark_provider_cls = provider
    return search.autotune(skip_cache=True)


def searching(live: tuple[Any, Any], run: Any, **options: Any) -> HelionSearch:
    """A search whose optimizer is ``run(evaluate, space, rng)``."""
    return helion_search("Written", lambda: run, {}, "0")(*live, **options)


def settings(live: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """Settings of the kernel until the test ends."""
    for key, value in values.items():
        monkeypatch.setattr(live[0].settings, key, value)
