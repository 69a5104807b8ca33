"""The recorder's rate beside that of Helion's FiniteSearch: same kernel, list and machine, one run.

    PYTHONPATH=. python scripts/bench_helion_recorder.py OUT.json --kernel matmul --points 768

Needs a CUDA GPU. Each side runs in a process of its own, with a cold cache and all cores. A side's
rate is the configurations it has results for, divided by the seconds of the call: for the recorder
from its start (workers included) to the written recording, and beside it the steady rate from its
first result to its last; for FiniteSearch of ``autotune`` alone, with the kernel bound and the GPU
warm, which favours it. The ratio from start to end is the fair one: that of the whole processes.
FiniteSearch gets the list at once, and as many compiling jobs as there are cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from llamea_gpu.frameworks.helion.kernel_script import find_script, load_case
from llamea_gpu.recording._base import HelionSettings
from llamea_gpu.recording.helion.grid import read_grid
from llamea_gpu.recording.helion.record import plan_recording, record_kernel

COMPILE_TIMEOUT_S = 30


def main() -> None:
    options = _options()
    script = find_script(options.kernel)
    if options.side:
        print(json.dumps(SIDES[options.side](script, options.shape, options.grid)))
        return
    with tempfile.TemporaryDirectory() as folder:
        grid = Path(folder) / "grid.toml"
        settings = HelionSettings(auto=options.points, shape=options.shape)
        grid.write_text(plan_recording(script, settings).grid.to_toml(), encoding="utf-8")
        found = {
            "kernel": options.kernel,
            "shape": options.shape,
            "cores": len(os.sched_getaffinity(0)),
            "points": read_grid(grid).size,
        }
        for side in SIDES:
            found[side] = _alone(side, options, grid, Path(folder))
            options.out.write_text(json.dumps(found, indent=2))
    ours, theirs = found["recorder"], found["finite_search"]
    found["ratio"] = ours["rate"] / theirs["rate"]
    found["ratio_from_start_to_end"] = theirs["process_seconds"] / ours["process_seconds"]
    found["ratio_steady"] = ours["steady_rate"] / theirs["rate"]
    options.out.write_text(json.dumps(found, indent=2))
    print(json.dumps(found, indent=2))


def recorder(script: Path, shape: str, grid: Path) -> dict[str, Any]:
    """Record the grid."""
    settings = HelionSettings(grid=grid, shape=shape, compile_timeout_s=COMPILE_TIMEOUT_S)
    start = perf_counter()
    outcome = record_kernel(script, grid.with_name("recorded.parquet"), settings)
    seconds = perf_counter() - start
    assert outcome.recording is not None
    return {
        "seconds": seconds,
        "steady_seconds": outcome.measured_s,
        "results": outcome.measured,
        "ok": int(outcome.recording.ok.sum()),
        "best_ms": outcome.recording.optimum_ms,
        "rate": outcome.measured / seconds,
        "steady_rate": (outcome.measured - 1) / outcome.measured_s,
        "provenance": dict(outcome.recording.info.provenance),
    }


def finite_search(script: Path, shape: str, grid_file: Path) -> dict[str, Any]:
    """Have Helion's FiniteSearch measure the grid's points."""
    import helion
    import torch
    from helion.autotuner import FiniteSearch

    with torch.device("cuda"):
        case = load_case(script, shape)
    bound = case.kernel.bind(case.arguments)
    default = dict(bound.config_spec.default_config().config)
    grid = read_grid(grid_file)
    configs = [helion.Config(**grid.config(point, default)) for point in range(grid.size)]
    bound.settings.autotune_compile_timeout = COMPILE_TIMEOUT_S
    bound.settings.autotune_precompile_jobs = len(os.sched_getaffinity(0))
    bound.settings.autotune_ignore_errors = True  # a point that fails is a result here
    bound.settings.autotune_log_level = 30
    results: list[Any] = []

    class Keeping(FiniteSearch):
        def _autotune(self) -> Any:
            results.extend(self.benchmark_batch(self.configs, desc="FiniteSearch"))
            return min(results, key=lambda result: result.perf).config

    case.kernel.bind(case.arguments).compile_config(default)(*case.arguments)
    torch.cuda.synchronize()
    start = perf_counter()
    Keeping(bound, case.arguments, configs).autotune(skip_cache=True)
    seconds = perf_counter() - start
    times = [result.perf for result in results]
    return {
        "seconds": seconds,
        "results": len(results),
        "ok": sum(time < float("inf") for time in times),
        "best_ms": min(times),
        "rate": len(results) / seconds,
        "versions": {"helion": version("helion"), "torch": version("torch")},
    }


SIDES = {"recorder": recorder, "finite_search": finite_search}


def _alone(side: str, options: argparse.Namespace, grid: Path, folder: Path) -> dict[str, Any]:
    """In a process of its own, with caches of its own."""
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(folder / side / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / side / "inductor"),
    }
    command = [sys.executable, __file__, str(options.out), "--kernel", options.kernel]
    command += ["--shape", options.shape, "--side", side, "--grid", str(grid)]
    start = perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"process_seconds": perf_counter() - start, **found}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--kernel", default="matmul", help="a shipped kernel or a script")
    parser.add_argument("--shape", default="medium")
    parser.add_argument("--points", type=int, default=768, help="most points of the grid")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--grid", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
