"""Live tuning side by side: searchers on Helion kernels, inside Helion and on the engine.

    scripts/bench_live.py -o FOLDER [--kernels K ...] [--arms ENGINE=SPEC ...] [--seeds N]
                          [--seconds S]

Each run is a process of its own with cold caches. Its seconds begin when the kernel is bound and
its tuning starts. When all runs of a kernel are done, their winners are timed head to head in
interleaved passes, in one process; the table is relative to the fastest of them. Everything goes to
FOLDER/runs.jsonl and FOLDER/winners.jsonl as it comes. Needs Helion and an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KERNELS = ["attention", "chunk_scan", "rope", "grouped_matmul", "matmul", "layer_norm"]
ARMS = [
    "pipelined=steady_state_genetic_algorithm",
    "framework=helion:LFBOTreeSearch",
    "pipelined=helion:LFBOTreeSearch",
    "framework=helion:PatternSearch",
    "pipelined=growing_foresight",
    "pipelined=conditioned_local_search",
    "pipelined=main_effect_posterior",
]
MARKS_S = (5, 10, 15, 20, 30, 45)
PASSES = 15


def tune(kernel: str, arm: str, seed: int, seconds: float) -> dict[str, Any]:
    """One run, in this process."""
    import torch

    import llamea_gpu.live.helion  # noqa: F401 - before anything asks for a GPU
    from llamea_gpu.frameworks.helion.kernel_script import find_script, load_case
    from llamea_gpu.live.helion.registration import search_base
    from llamea_gpu.live.helion.tuning import tune_bound
    from llamea_gpu.live.result import TuneSettings

    engine, _, spec = arm.partition("=")
    settings = TuneSettings(seconds=seconds, seed=seed, engine=engine)  # type: ignore[arg-type]
    search_base(settings.engine)
    with torch.device("cuda"):
        case = load_case(find_script(kernel))
    bound = case.kernel.bind(case.arguments)
    torch.cuda.synchronize()
    result = tune_bound(bound, case.arguments, spec, settings)
    return {
        "kernel": kernel,
        "arm": arm,
        "seed": seed,
        "elapsed_s": result.elapsed_s,
        "default_ms": result.default_ms,
        "best": dict(result.best.configuration),
        "trouble": result.trouble,
        "measured": [
            [round(each.elapsed_s, 2), each.time_ms if math.isfinite(each.time_ms) else None]
            for each in result.measured
        ],
    }


def head_to_head(kernel: str, configs: list[dict[str, Any]]) -> list[float]:
    """Median milliseconds of each configuration, in interleaved passes."""
    import helion
    import torch

    from llamea_gpu.frameworks.helion.kernel_script import find_script, load_case
    from llamea_gpu.frameworks.helion.timing import time_call

    with torch.device("cuda"):
        case = load_case(find_script(kernel))
    bound = case.kernel.bind(case.arguments)
    functions = [bound.compile_config(helion.Config(**config)) for config in configs]
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(PASSES):
        for function, mine in zip(functions, times, strict=True):
            mine.append(time_call(lambda f=function: f(*case.arguments))["time_ms"])
    return [statistics.median(mine) for mine in times]


def child(job: dict[str, Any]) -> Any:
    """The result of one job, from a process with cold caches."""
    with tempfile.TemporaryDirectory() as cold:
        caches = {"TRITON_CACHE_DIR": cold, "TORCHINDUCTOR_CACHE_DIR": cold}
        done = subprocess.run(
            [sys.executable, __file__, "--job", json.dumps(job)],
            env={**os.environ, **caches},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        print(f"{job} failed: {done.stderr[-800:]}", flush=True)
        return None
    if "own way" in done.stderr:
        print(done.stderr[-500:], flush=True)
    return json.loads(done.stdout.splitlines()[-1])


def best_at(run: dict[str, Any], seconds: float) -> float:
    """The best time known after so many seconds, by the run's own readings."""
    return min((t for s, t in run["measured"] if t is not None and s <= seconds), default=math.inf)


def table(kernel: str, runs: list[dict[str, Any]], winners_ms: list[float]) -> str:
    """One kernel's runs, relative to the fastest winner and to the best reading."""
    best_ms = min(winners_ms)
    read_ms = min(best_at(run, math.inf) for run in runs)
    lines = [f"{kernel}: best {best_ms:.5f} ms, default {runs[0]['default_ms'] or math.nan:.5f} ms"]
    for run, time_ms in zip(runs, winners_ms, strict=True):
        curve = " ".join(f"{best_at(run, mark) / read_ms:6.3f}" for mark in MARKS_S)
        first = min((s for s, t in run["measured"] if t is not None), default=math.nan)
        lines.append(
            f"  {run['arm']:45} seed {run['seed']}: {curve} | {time_ms / best_ms:.4f}"
            f" | {len(run['measured'])} in {run['elapsed_s']:.0f} s, first {first:.1f} s"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--kernels", nargs="*", default=KERNELS)
    parser.add_argument("--arms", nargs="*", default=ARMS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--job")
    arguments = parser.parse_args()
    if arguments.job:
        job = json.loads(arguments.job)
        work = {"tune": tune, "head_to_head": head_to_head}[job.pop("do")]
        print("\n" + json.dumps(work(**job)))
        return
    arguments.output.mkdir(parents=True, exist_ok=True)
    for kernel in arguments.kernels:
        runs = []
        for seed in range(1, arguments.seeds + 1):
            for arm in arguments.arms:
                job = {"kernel": kernel, "arm": arm, "seed": seed, "seconds": arguments.seconds}
                if run := child({"do": "tune", **job}):
                    runs.append(run)
                    with (arguments.output / "runs.jsonl").open("a") as file:
                        file.write(json.dumps(run) + "\n")
        configs = [run["best"] for run in runs]
        winners_ms = child({"do": "head_to_head", "kernel": kernel, "configs": configs})
        if winners_ms:
            with (arguments.output / "winners.jsonl").open("a") as file:
                file.write(json.dumps({"kernel": kernel, "winners_ms": winners_ms}) + "\n")
            print(table(kernel, runs, winners_ms), flush=True)


if __name__ == "__main__":
    main()
