"""What random configurations of a whole ConfigSpec cost to compile, by how they are drawn.

    PYTHONPATH=. python scripts/helion_samples.py OUT.json [--kernels matmul …] [--gpu H200]

For each kernel, as many configurations are drawn as Helion draws its random ones and as
``HelionSpace.sample`` does (around the default and the compiler's seeds), and compiled for a GPU
that need not be there, with Triton and ptxas. Written are the compile seconds of each and the share
that fails; nothing is launched, so that what crashes at run time is not seen.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu.integrations.helion.kernels import find_script, load_case
from llamea_gpu.integrations.helion.pipeline import Limits, Pipeline, Task
from llamea_gpu.integrations.helion.space import HelionSpace
from llamea_gpu.integrations.helion.stages import PRELOAD, CompileStage
from llamea_gpu.integrations.helion.static import pretend_gpu
from llamea_gpu.integrations.helion.static_filter import NoTiming
from llamea_gpu.integrations.helion.template import Template

KERNELS = ("matmul", "attention", "layer_norm", "rope", "chunk_scan", "grouped_matmul")


def main() -> None:
    options = _options()
    found = {}
    for kernel in options.kernels:
        found[kernel] = {}
        for way, configs in draws(kernel, options).items():
            found[kernel][way] = compiled(kernel, configs, options)
            print(kernel, way, json.dumps(summary(found[kernel][way])), flush=True)
            options.out.write_text(json.dumps(found, indent=1))


def draws(kernel: str, options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Configurations by how they were drawn."""
    with pretend_gpu(options.gpu) as gpu:
        with gpu.fake_tensors():
            case = load_case(find_script(kernel), options.shape)
        spec = gpu.bind(case.kernel, case.arguments).config_spec
        generation = spec.create_config_generation()
        random.seed(options.seed)
        by_helion = [
            dict(generation.unflatten(generation.random_flat()).config)
            for _ in range(options.count)
        ]
        seeds = [flat for flat, _ in generation.seed_flat_config_pairs()]
        space = HelionSpace(generation, np.random.default_rng(options.seed), seeds)
        known = len(space.starts)
        ours = [dict(space.config(c).config) for c in space.sample(known + options.count)[known:]]
    return {"helion": by_helion, "around the starts": ours}


def compiled(
    kernel: str, configs: list[dict[str, Any]], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Status and seconds of compiling each."""
    with tempfile.TemporaryDirectory() as folder:
        stage = CompileStage(find_script(kernel), options.shape, Path(folder), options.gpu)
        limits = Limits(compile_s=options.compile_timeout)
        tasks = [Task(i, config) for i, config in enumerate(configs)]
        stages = [stage] * options.workers
        template = Template(PRELOAD, Path(folder) / "template.log")
        with Pipeline(stages, [NoTiming()], Path(folder), limits, template) as pipeline:
            return [
                {"status": outcome.status, "compile_s": outcome.compile_s}
                for outcome in pipeline.run(tasks)
            ]


def summary(outcomes: list[dict[str, Any]]) -> dict[str, float]:
    """Median and greatest seconds, and the share that failed."""
    seconds = [outcome["compile_s"] for outcome in outcomes]
    return {
        "median_s": round(statistics.median(seconds), 2),
        "upper_tenth_s": round(float(np.quantile(seconds, 0.9)), 2),
        "greatest_s": round(max(seconds), 2),
        "failing": sum(outcome["status"] != "ok" for outcome in outcomes) / len(outcomes),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--kernels", nargs="+", default=KERNELS)
    parser.add_argument("--shape", default="medium")
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--count", type=int, default=24, help="configurations of each kind")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--compile-timeout", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
