"""How a live search should draw its samples: Helion's searches on a model of what an H200 measured.

    PYTHONPATH=. python scripts/helion_sampling.py OUT.jsonl [--kernels rope …]

``docs/results/logs/helion_h200_readings.csv.gz`` holds the configurations of whole ConfigSpecs that
the live comparison measured: some 700 for each kernel. Two forests fitted to a kernel's readings
foretell time and failure of any other configuration, so that a search with Helion's real code can
run without a GPU. What they foretell beyond the readings is interpolation: it compares ways of
sampling, and says nothing about how fast a kernel can be.

Searchers are written as for ``h200_helion.py``. One of ours runs with samples drawn as
``HelionSpace.sample`` does (one of the best with some parameters changed, often by a step), around
any start with any values, and throughout, as Helion draws its random ones. A line for each run: the
best time so far, relative to the best reading, after 30, 60, 100 and 150 configurations.
``--summary`` prints geometric means of what is there.
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
import random
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import helion
import numpy as np
from h200_helion import make_search
from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult
from sklearn.ensemble import ExtraTreesRegressor

from llamea_gpu.frameworks.helion.kernel_script import KernelCase, find_script
from llamea_gpu.frameworks.helion.space import HelionSpace
from llamea_gpu.frameworks.helion.static import pretend_gpu

ROOT = Path(__file__).resolve().parents[1]
READINGS = ROOT / "docs" / "results" / "logs" / "helion_h200_readings.csv.gz"
KERNELS = ("matmul", "attention", "layer_norm", "rope", "chunk_scan", "grouped_matmul")
SEARCHERS = (
    "conditioned_local_search@150",
    "growing_foresight@150",
    "helion:LFBOTreeSearch@quick",
    "helion:PatternSearch@quick",
)
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
    if options.summary:
        print(summary(options.out))
        return
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
                    for samples in _draw if "helion:" not in searcher else ("its own",):
                        line = {"kernel": kernel, "searcher": searcher, "seed": seed + 1}
                        line["samples"] = samples
                        line |= search(bound, case, searcher, samples, model)
                        print(json.dumps(line), flush=True)
                        with options.out.open("a") as file:
                            file.write(json.dumps(line) + "\n")


def search(
    bound: Any, case: KernelCase, searcher: str, samples: str, model: Model
) -> dict[str, Any]:
    """Best times so far, relative to the best reading, and how many configurations failed."""
    made = make_search(searcher, bound, case)
    made._benchmark_provider_cls = type("Provider", (ModelProvider,), {"model": model})
    with mock.patch.object(HelionSpace, "_near_a_leader", _draw.get(samples)):
        made.autotune(skip_cache=True)
    times = made.benchmark_provider.times[: AFTER[-1]]
    best = {f"after {n}": round(min(times[:n]) / model.best_ms, 4) for n in AFTER}
    return {**best, "failing": sum(map(math.isinf, times))}


def summary(out: Path) -> str:
    """As Markdown: geometric means over kernels and seeds."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in map(json.loads, out.read_text().splitlines()):
        runs[line["searcher"], line["samples"]].append(line)
    heads = [f"after {n}" for n in AFTER]
    rows = ["| searcher | samples | runs | " + " | ".join(heads) + " | failing |"]
    rows.append("| --- " * (len(heads) + 4) + "|")
    for (searcher, samples), lines in runs.items():
        means = [math.exp(np.mean([math.log(line[head]) for line in lines])) for head in heads]
        failing = np.mean([line["failing"] for line in lines]) / AFTER[-1]
        cells = [f"{mean:.3f}" for mean in means]
        rows.append(
            f"| {searcher} | {samples} | {len(lines)} | {' | '.join(cells)} | {failing:.0%} |"
        )
    return "\n".join(rows)


def _around_the_starts(space: HelionSpace, drawn: tuple[int, ...], far: bool) -> tuple[int, ...]:
    """As samples were drawn once: any start, any value."""
    if not (space.starts and drawn):
        return drawn
    mixed = list(random.choice(space.starts))
    most = len(drawn) if far else (len(drawn) + 1) // 2
    for j in random.sample(range(len(drawn)), int((most + 1) ** random.random())):
        mixed[j] = drawn[j]
    return tuple(mixed)


_draw = {
    "around the best": HelionSpace._near_a_leader,
    "around the starts": _around_the_starts,
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
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--summary", action="store_true", help="print what is there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
