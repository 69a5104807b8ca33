"""An optimizer as a search of Helion, registered or exported: which configurations it visits.

What it does: `visits` has a worker process tune a made-up space with Helion's own search code, its
times a formula, and returns the configurations in order. The program is confined before it is
loaded (`llamea_gpu.export.confinement`).

What it does not do: compare, compile or need a GPU. Helion is imported in the worker alone. Helion
draws a space's configurations in its own way, so the visits are not those of the simulator: they
are to be the same of both forms, and of every run.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from llamea_gpu.export.confinement import confine, run_forms, run_worker, tell
from llamea_gpu.export.helion import export_source
from llamea_gpu.live.helion.registration import fingerprint
from llamea_gpu.live.optimizer import LoadedOptimizer, Provenance
from llamea_gpu.searchers.library import require
from llamea_gpu.searchers.registry import Hyperparameter


def visits(
    optimizer: LoadedOptimizer,
    folder: Path,
    *,
    evaluations: int,
    seed: int,
    unsafe: bool = False,
) -> list[list[str]]:
    """The configurations of ``evaluations`` first visits as text: registered, then exported.

    Raises:
        SearcherError: Helion is not installed, the optimizer cannot be exported or has a name
            that Helion knows, or its run failed.
    """
    for package in ("helion", "torch"):
        require(package, "helion", "parity with Helion")
    job = {
        "name": optimizer.name,
        "class_name": optimizer.class_name,
        "source": optimizer.source,
        "exported": export_source(optimizer),
        "hyperparameters": dict(optimizer.hyperparameters),
        "evaluations": evaluations,
        "seed": seed,
        "unsafe": unsafe,
    }
    return run_worker(__name__, job, folder, forms=2)


def _formula_ms(config: Any) -> float:
    """Smooth in two parameters, rugged in the others, and one configuration in eight fails."""
    block, stages = int(config["block"]).bit_length() - 1, int(config["stages"])
    kind, flag = "abcdef".index(config["kind"]), bool(config["flag"])
    if (block + stages + kind) % 8 == 0:
        return float("inf")
    return 1.0 + abs(block - 6) + 0.5 * abs(stages - 3) + 0.3 * (kind * 5 % 6) + 0.2 * flag


def _provider() -> type[Any]:
    from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult

    class FormulaProvider(BenchmarkProvider):  # type: ignore[misc]
        """Times by the formula; ``seen`` are the configurations in order."""

        mutated_arg_indices: Sequence[int] = ()
        _jobs = 16

        def __init__(self, **_: Any) -> None:
            self.seen: list[str] = []

        def setup(self) -> None:
            """Nothing to prepare."""

        def cleanup(self) -> None:
            """Nothing to put away."""

        def benchmark(self, configs: list[Any], **_: Any) -> list[Any]:
            """The formula's answers."""
            self.seen += [json.dumps(config.config, sort_keys=True) for config in configs]
            results = []
            for config in configs:
                time_ms = _formula_ms(config)
                status = "ok" if time_ms < float("inf") else "error"
                run = partial(lambda time_ms, *_: time_ms, time_ms)
                results.append(BenchmarkResult(config, run, time_ms, status, 0.1))
            return results

    return FormulaProvider


def _registered(job: dict[str, Any]) -> Any:
    from helion.autotuner import search_algorithms

    from llamea_gpu.live.helion.search import helion_register, helion_search

    settings = job["hyperparameters"]
    optimizer = LoadedOptimizer(
        name=job["name"],
        class_name=job["class_name"],
        source=job["source"],
        idea="",
        hyperparameters=settings,
        provenance=Provenance("file"),
    )

    def make(**settings: Hyperparameter) -> Any:
        return optimizer.with_settings(**settings).make()

    # As `live.search_class` does, which asks the disk for Helion's version.
    helion_register(helion_search(optimizer.class_name, make, settings, fingerprint(optimizer)))
    return search_algorithms[job["class_name"]]


def _exported(job: dict[str, Any]) -> Any:
    from helion.autotuner import search_algorithms

    module = types.ModuleType("exported")
    sys.modules["exported"] = module
    exec(compile(job["exported"], "exported", "exec"), module.__dict__)  # noqa: S102 - confined
    return search_algorithms[job["class_name"]]


class _OneThread:
    """threadpoolctl's limits where there is one thread already: they would read a file."""

    def __init__(self, limits: int, user_api: str) -> None:
        pass

    def restore_original_limits(self) -> None:
        """Nothing was changed."""


def _kernel(seed: int) -> Any:
    """Helion's adapter for tuning what is not a kernel of its own."""
    import torch
    from helion.autotuner import (
        BooleanFragment,
        EnumFragment,
        IntegerFragment,
        PowerOfTwoFragment,
    )
    from helion.autotuner.external import _ExternalKernelAdapter, create_user_config_spec

    spec = create_user_config_spec(
        {
            "block": PowerOfTwoFragment(1, 1024, 32),
            "stages": IntegerFragment(1, 8, 1),
            "kind": EnumFragment(tuple("abcdef")),
            "flag": BooleanFragment(),
        }
    )
    return _ExternalKernelAdapter(
        spec,
        lambda _: None,
        (),
        device=torch.device("cpu"),
        autotune_effort="quick",
        autotune_random_seed=seed,
        autotune_benchmark_fn=lambda fns, **_: [fn() for fn in fns],
        autotune_progress_bar=False,
    )


def _search(job: dict[str, Any], load: Callable[[dict[str, Any]], Any]) -> None:
    kernel, provider = _kernel(job["seed"]), _provider()
    confine(job["source"], unsafe=job["unsafe"])
    search = load(job)(kernel, (), evaluations=job["evaluations"])
    search._benchmark_provider_cls = provider
    search.autotune(skip_cache=True)
    tell(search.benchmark_provider.seen)


def _main() -> None:
    import helion.autotuner.external  # noqa: F401 - for both forms at once
    import threadpoolctl  # type: ignore[import-untyped]

    from llamea_gpu.live.helion import search

    for module in (threadpoolctl, search):
        vars(module)["threadpool_limits"] = _OneThread

    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    run_forms([partial(_search, job, load) for load in (_registered, _exported)])


if __name__ == "__main__":
    _main()
