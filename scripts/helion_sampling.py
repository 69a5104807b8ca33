"""How a live search should draw its samples: Helion's searches on a model of what an H200 measured.

    PYTHONPATH=. python scripts/helion_sampling.py OUT.jsonl [--kernels rope …]

``docs/results/logs/helion_h200_readings.csv.gz`` holds the configurations of whole ConfigSpecs that
the live comparison measured: some 700 for each kernel. Two forests fitted to a kernel's readings
foretell time and failure of any other configuration, so that a search with Helion's real code can
run without a GPU. What they foretell beyond the readings is interpolation: it compares ways of
sampling, and says nothing about how fast a kernel can be.

Each searcher runs with samples drawn as ``HelionSpace.sample`` does (some parameters of a start
changed) and drawn throughout, as Helion draws its random ones. A line for each run: the best time
so far, relative to the best reading, after 30, 60, 100 and 150 configurations.
"""

# Besides llamea_gpu (numpy, scipy, scikit-learn, …) this needs helion, torch and triton.

from __future__ import annotations

import argparse
import ast
import csv
import gzip
import json
import math
import os
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import helion
import numpy as np
from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult
from sklearn.ensemble import ExtraTreesRegressor

from llamea_gpu.integrations.helion.kernels import find_script
from llamea_gpu.integrations.helion.live import search_class
from llamea_gpu.integrations.helion.space import HelionSpace
from llamea_gpu.integrations.helion.static import pretend_gpu
from llamea_gpu.integrations.optimizer import load_optimizer

ROOT = Path(__file__).resolve().parents[1]
READINGS = ROOT / "docs" / "results" / "logs" / "helion_h200_readings.csv.gz"
KERNELS = ("matmul", "attention", "layer_norm", "rope", "chunk_scan", "grouped_matmul")
SEARCHERS = ("conditioned_local_search", "growing_foresight")
AFTER = (30, 60, 100, 150)
QUIET = {"HELION_AUTOTUNE_PROGRESS_BAR": "0", "HELION_SKIP_CACHE": "1"}
SETTINGS = {"autotune_effort": "quick", "autotune_log_level": 40}


class Model:
    """Foretells a configuration's time in ms, inf where it fails.

    Attributes:
        best_ms: the best reading.
    """

    def __init__(self, kernel: str, generation: Any) -> None:
        self._generation = generation
        seeds = [flat for flat, _ in generation.seed_flat_config_pairs()]
        self._space = HelionSpace(generation, np.random.default_rng(0), seeds)
        with gzip.open(READINGS, "rt") as file:
            rows = [row for row in csv.DictReader(file) if row["kernel"] == kernel]
        codes = np.array([self._code(_config(row["config"])) for row in rows])
        ok = np.array([row["status"] == "ok" for row in rows])
        log_ms = np.log([float(row["perf_ms"] or 1.0) for row in rows])
        self.best_ms = math.exp(log_ms[ok].min())
        self._time = ExtraTreesRegressor(300, random_state=0).fit(codes[ok], log_ms[ok])
        self._failure = ExtraTreesRegressor(100, min_samples_leaf=2, random_state=0)
        self._failure.fit(codes, (~ok).astype(float))

    def time_ms(self, config: Any) -> float:
        """What launching ``config`` would take."""
        code = [self._code(config)]
        failing = self._failure.predict(code)[0] > 0.5
        return math.inf if failing else math.exp(self._time.predict(code)[0])

    def _code(self, config: Any) -> tuple[int, ...]:
        return self._space._nearest(self._generation.flatten(config))


class ModelProvider(BenchmarkProvider):
    """Helion's way to times, through a model; ``times`` has them in order."""

    model: Model
    _jobs = 16

    def __init__(self, **given: Any) -> None:
        self.log, self.metrics = given["log"], given["autotune_metrics"]
        self.mutated_arg_indices = ()
        self.times: list[float] = []

    def benchmark(self, configs: list[Any], **_: Any) -> list[BenchmarkResult]:
        """As Helion's."""
        found = []
        for config in configs:
            time_ms = self.model.time_ms(config)
            self.times.append(time_ms)
            status = "ok" if math.isfinite(time_ms) else "error"
            again = partial(lambda time_ms, *_: time_ms, time_ms)
            found.append(BenchmarkResult(config, again, time_ms, status, 0.1))
        return found

    def setup(self) -> None:
        """Nothing to set up."""

    def cleanup(self) -> None:
        """Nothing to clean up."""


def main() -> None:
    options = _options()
    for kernel in options.kernels:
        with pretend_gpu("H200") as gpu, mock.patch.dict(os.environ, QUIET):
            case = gpu.load_case(find_script(kernel), "medium")
            bound = gpu.bind(case.kernel, case.arguments)
            for name, value in {**SETTINGS, "autotune_benchmark_fn": _again}.items():
                setattr(bound.settings, name, value)
            model = Model(kernel, bound.config_spec.create_config_generation())
            for searcher in options.searchers:
                for seed in range(options.seeds):
                    bound.settings.autotune_random_seed = seed + 1
                    for samples in ("around the starts", "throughout"):
                        line = {"kernel": kernel, "searcher": searcher, "seed": seed + 1}
                        line["samples"] = samples
                        line |= search(bound, case.arguments, searcher, samples, model)
                        print(json.dumps(line), flush=True)
                        with options.out.open("a") as file:
                            file.write(json.dumps(line) + "\n")


def search(bound: Any, arguments: Any, searcher: str, samples: str, model: Model) -> dict[str, Any]:
    """Best times so far, relative to the best reading, and how many configurations failed."""
    made = search_class(load_optimizer(searcher))(bound, arguments, evaluations=AFTER[-1])
    made._benchmark_provider_cls = type("Provider", (ModelProvider,), {"model": model})
    with mock.patch.object(HelionSpace, "_near_a_start", _draw[samples]):
        made.autotune(skip_cache=True)
    times = made.benchmark_provider.times
    best = {f"after {n}": round(min(times[:n]) / model.best_ms, 4) for n in AFTER}
    return {**best, "failing": sum(map(math.isinf, times))}


_draw = {
    "around the starts": HelionSpace._near_a_start,
    "throughout": lambda _space, drawn, _far: drawn,
}


def _again(functions: list[Any], **_: Any) -> list[float]:
    return [function() for function in functions]


def _config(text: str) -> Any:
    """The configuration of ``Config(name=value, …)``, read as literals."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    return helion.Config(**{k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="JSON lines are appended to it")
    parser.add_argument("--kernels", nargs="+", default=KERNELS)
    parser.add_argument("--searchers", nargs="+", default=SEARCHERS)
    parser.add_argument("--seeds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
