"""What Kernel Tuner's own tests ask of each of its strategies, asked of each of ours.

Kernel Tuner 1.5 tunes a vector addition from a cache file, with strings, bools, mixed types and a
single-valued parameter, at most ten evaluations, and checks what comes back; a starting point is
either respected or refused with a ValueError.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_tuner import tune_kernel
from kernel_tuner.util import InvalidConfig
from support.tuning import load_module

from llamea_gpu.export.kernel_tuner import export_source
from llamea_gpu.live.kernel_tuner import strategy
from llamea_gpu.programs.shipped import shipped
from llamea_gpu.resources import resource_dir
from llamea_gpu.searchers.registry import resolve_program

BEST = str(resource_dir("generated_optimizers") / "runs" / "h200-first" / "best.py")
MAX_EVALUATIONS = 10
PARAMS: dict[str, list[Any]] = {
    "block_size_x": [128 + 64 * i for i in range(15)],
    "algorithm": ["first", "second"],
    "single": [15],
    "flag": [True, False],
    "mixed": ["text", 1, True, 2.45],
}
RESTRICTIONS = ["algorithm == 'second'", "flag == True", "mixed == 2.45"]
TYPES: dict[str, Any] = {
    "block_size_x": int,
    "algorithm": str,
    "single": int,
    "flag": bool,
    "mixed": float,
    "time": (float, int),
    "times": list,
    "compile_time": (float, int),
    "verification_time": (float, int),
    "benchmark_time": (float, int),
    "strategy_time": (float, int),
    "framework_time": (float, int),
    "timestamp": str,
}


def entry(block_size: int) -> dict[str, Any]:
    """What Kernel Tuner notes of a configuration."""
    return {
        "block_size_x": block_size,
        "algorithm": "second",
        "single": 15,
        "flag": True,
        "mixed": 2.45,
        "time": abs(block_size - 500) / 100 + 1,
        "times": [1.0, 2.0],
        "compile_time": 440.9,
        "verification_time": 0,
        "benchmark_time": 2.0,
        "strategy_time": 0.1,
        "framework_time": 1.5,
        "timestamp": "2026-01-01 00:00:00+00:00",
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    entries = [entry(size) for size in PARAMS["block_size_x"]]
    path = tmp_path_factory.mktemp("cache") / "vector_add.json"
    content = {
        "device_name": "none",
        "kernel_name": "vector_add",
        "problem_size": 100,
        "tune_params_keys": list(PARAMS),
        "tune_params": PARAMS,
        "objective": "time",
        "cache": {",".join(str(item[name]) for name in PARAMS): item for item in entries},
    }
    path.write_text(json.dumps(content))
    return path


@pytest.fixture(
    scope="module",
    params=[(spec, kind) for spec in (*shipped(), BEST) for kind in ("strategy", "export")],
    ids=lambda given: f"{Path(given[0]).stem}-{given[1]}",
)
def ours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    spec, kind = request.param
    if kind == "strategy":
        return strategy(spec, seed=2)
    optimizer = resolve_program(spec)
    path = tmp_path_factory.mktemp("exported") / "exported.py"
    path.write_text(export_source(optimizer), encoding="utf-8")
    return getattr(load_module(path), f"{optimizer.program.class_name}Strategy")(seed=2)


def tune(cache: Path, ours: Any, **options: Any) -> list[dict[str, Any]]:
    numbers = np.zeros(100, dtype=np.float32)
    results, _ = tune_kernel(
        *("vector_add", "__global__ void vector_add(float *x)", 100, [numbers], PARAMS),
        restrictions=list(RESTRICTIONS),
        strategy=ours,
        strategy_options={"max_fevals": MAX_EVALUATIONS, **options},
        verbose=True,
        cache=cache,
        simulation_mode=True,
    )
    return list(results)


def test_results_are_what_kernel_tuner_expects_of_a_strategy(cache: Path, ours: Any) -> None:
    results = tune(cache, ours)
    assert len(results) > 0
    valid = [result for result in results if not isinstance(result["time"], InvalidConfig)]
    assert len({result["block_size_x"] for result in valid}) <= MAX_EVALUATIONS
    for result in results:
        assert result.keys() == TYPES.keys()
        for name, kind in TYPES.items():
            assert isinstance(result[name], kind), name


def test_a_starting_point_is_refused(cache: Path, ours: Any) -> None:
    with pytest.raises(ValueError, match="Unrecognized option x0"):
        tune(cache, ours, x0=[256, "second", 15, True, 2.45])
