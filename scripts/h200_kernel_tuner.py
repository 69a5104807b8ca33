"""Record the CUDA kernels and tune a live one, in one call on a machine with an NVIDIA GPU.

    PYTHONPATH=. python scripts/h200_kernel_tuner.py OUT --seconds 560 --compilers 8
    PYTHONPATH=. python scripts/h200_kernel_tuner.py OUT2 --steps record --continue-from OUT

A call of ten minutes may not finish all recordings; another one continues from what it wrote (the
same --compilers, the same kind of device and driver). Steps, each of which may fail alone:

1. ``compilers.json``: the same 48 configurations of the matrix product with one compiler and with
   several side by side: does that change the times of the kernels, and those of compiling?
2. ``tuning.jsonl``: the convolution tuned live within the same time by Kernel Tuner's genetic
   algorithm, by an optimizer of this project through ``strategy(...)``, and by the same one as an
   exported file: a line each with every evaluation. Then their best configurations and the
   kernel's default, measured again in turns: ``tuning_best.json``.
3. ``NAME.parquet`` for each kernel, or ``NAME.parquet.journal`` when the time was up first.

``log.txt`` has the tracebacks of what failed. Tuning comes before recording, which takes the rest.
"""

# Besides llamea_gpu (here: numpy, scipy, scikit-learn with joblib and threadpoolctl, pyarrow) this
# needs kernel_tuner with jsonschema, attrs, referencing, rpds-py, jsonschema-specifications,
# typing-extensions, packaging, python-constraint2, pymoo, moocore, cma, autograd, alive-progress,
# about-time, graphemeu, Deprecated, wrapt, narwhals, platformdirs, cffi, pycparser, cloudpickle,
# xmltodict; and cuda-python or cupy. Kernel Tuner does without pandas here.

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pyarrow  # noqa: F401 - writes recordings: a missing one shows before the time is spent

from llamea_gpu.frameworks.kernel_tuner.kernel_script import KernelScript, load_kernel_script
from llamea_gpu.recording._base import KernelTunerSettings, RecordProgress
from llamea_gpu.recording.kernel_tuner.record import record_kernel
from llamea_gpu.spaces.recording import Recording

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "tuning_spaces" / "kernels" / "kernel_tuner"
NAMES = (
    *("matmul", "convolution", "stencil", "reduction", "nbody", "transpose", "row_norm"),
    *("bilateral_filter", "depthwise_convolution", "distance_matrix", "histogram"),
    "sparse_matvec",
)
TUNED = "convolution"
WAYS = ("genetic_algorithm of Kernel Tuner", "strategy", "exported file")
REMEASURED_ITERATIONS = 20


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.way:
        tune_one_way(options.way, options)
        return
    if options.probe:
        tune_default(options)
        return
    if options.continue_from:
        for path in options.continue_from.iterdir():
            if path.is_file():
                shutil.copyfile(path, options.out / path.name)  # writable, whatever that one is
    end = monotonic() + options.seconds
    log = (options.out / "log.txt").open("a")
    options.backend = options.backend or working_backend(log)
    steps: dict[str, Callable[[], None]] = {
        "compilers": lambda: compare_compilers(options),
        "tune": lambda: tune_live(options, log),
        "record": lambda: record_all(options, end, log),
    }
    for name in options.steps:
        _attempt(name, steps[name], log)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for what is written")
    parser.add_argument("--seconds", type=float, default=560, help="for everything")
    parser.add_argument("--compilers", type=int, default=8, help="side by side")
    parser.add_argument("--backend", help="CUDA, NVCUDA, CUPY; default: the first that works")
    parser.add_argument("--probe", action="store_true", help="try it (for the script itself)")
    parser.add_argument("--continue-from", type=Path, help="what an earlier call wrote")
    parser.add_argument("--tune-seconds", type=float, default=40, help="for each tuning run")
    parser.add_argument("--rounds", type=int, default=5, help="of measuring the winners again")
    parser.add_argument(
        "--optimizer",
        default=str(ROOT / "generated_optimizers" / "runs" / "h200-first" / "best.py"),
        help="of this project: a name or FILE.py",
    )
    parser.add_argument("--kernels", type=Path, default=KERNELS, help="their folder")
    parser.add_argument("--names", nargs="+", default=NAMES, help="the kernels to record")
    parser.add_argument("--way", choices=WAYS, help="tune in this way only (for the script itself)")
    parser.add_argument("--steps", nargs="+", default=["compilers", "tune", "record"])
    return parser.parse_args()


def _attempt(name: str, step: Callable[[], None], log: Any) -> None:
    """Run a step; a failure is written down and the next one goes on."""
    start = monotonic()
    try:
        step()
        print(f"{name}: done in {monotonic() - start:.0f} s", flush=True)
    except Exception as error:
        log.write(f"{name}:\n{traceback.format_exc()}\n")
        log.flush()
        print(f"{name}: {error!r} after {monotonic() - start:.0f} s", flush=True)


def working_backend(log: Any) -> str | None:
    """The first backend that can run a kernel's default; None, the scripts' own, if none can."""
    for backend in ("CUDA", "CUPY"):
        command = [sys.executable, __file__, *sys.argv[1:], "--probe", "--backend", backend]
        try:
            _checked(command, timeout_s=90)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            log.write(f"backend {backend}:\n{error}\n")
            log.flush()
        else:
            print(f"backend: {backend}", flush=True)
            return backend
    print("backend: neither CUDA nor CUPY works, see log.txt", flush=True)
    return None


def tune_default(options: argparse.Namespace) -> None:
    """Compile, check and time one kernel's default configuration."""
    script = load_kernel_script(options.kernels / f"{TUNED}.py")
    _measured_again(script, {"default": dict(script.default_configuration or {})}, options)


def _checked(command: list[str], timeout_s: float) -> None:
    """Run a part of this script; what it says last is in the error when it fails."""
    done = subprocess.run(command, timeout=timeout_s, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])


# -- recording ------------------------------------------------------------------------------


def record_all(options: argparse.Namespace, end: float, log: Any) -> None:
    """Record each kernel in its share of the time that is left."""
    backend = f" --backend {options.backend}" if options.backend else ""
    missing = [name for name in options.names if not (options.out / f"{name}.parquet").exists()]
    for position, name in enumerate(missing):
        share = (end - monotonic()) / (len(missing) - position)
        if share < 15:
            print(f"{name}: no time left", flush=True)
            continue

        def step(name: str = name, share: float = share) -> None:
            settings = KernelTunerSettings(
                compilers=options.compilers,
                backend=options.backend,
                seconds=share - 10,  # the last configurations and writing take some, too
                command=f"llamea-gpu spaces record kernel-tuner {name}.py "
                f"-o {name}.parquet --compilers {options.compilers}{backend}",
            )
            output = options.out / f"{name}.parquet"
            outcome = record_kernel(
                options.kernels / f"{name}.py", output, settings, _printer(name)
            )
            print(f"{name}: {outcome.done} of {outcome.total}", flush=True)

        _attempt(name, step, log)


def _printer(name: str) -> Callable[[RecordProgress], None]:
    """A line of progress every 20 s."""
    printed = monotonic()

    def show(progress: RecordProgress) -> None:
        nonlocal printed
        if monotonic() - printed >= 20:
            printed = monotonic()
            print(f"  {name}: {progress}", flush=True)

    return show


def compare_compilers(options: argparse.Namespace) -> None:
    """What compiling side by side does to the numbers."""
    found: dict[int, Recording] = {}
    seconds: dict[int, float] = {}
    folder = Path(tempfile.mkdtemp())
    for compilers in (1, options.compilers):
        output = folder / f"compilers-{compilers}.parquet"
        settings = KernelTunerSettings(
            sample=48, compilers=compilers, backend=options.backend, seconds=120
        )
        start = monotonic()
        outcome = record_kernel(options.kernels / "matmul.py", output, settings)
        seconds[compilers] = monotonic() - start
        assert outcome.recording is not None, f"{outcome.done} of {outcome.total} in time"
        found[compilers] = outcome.recording
    one, several = found[1], found[options.compilers]
    both = one.ok & several.ok
    ratios = {
        "time_ms": several.time_ms[both] / one.time_ms[both],
        "compile_s": several.compile_s[both] / one.compile_s[both],
        "benchmark_s": several.benchmark_s[both] / one.benchmark_s[both],
    }
    result = {
        "configurations": int(both.sum()),
        "seconds": seconds,
        "compile_s_median_of_one": float(np.median(one.compile_s[both])),
        "ratio_percentiles_5_50_95": {
            key: np.percentile(ratio, (5, 50, 95)).tolist() for key, ratio in ratios.items()
        },
        "spread": {n: r.info.provenance.get("spread", "") for n, r in found.items()},
    }
    (options.out / "compilers.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result), flush=True)


# -- tuning ---------------------------------------------------------------------------------


def tune_live(options: argparse.Namespace, log: Any) -> None:
    """The same kernel and time for three ways of tuning; then their winners side by side."""
    script = load_kernel_script(options.kernels / f"{TUNED}.py")
    own = [sys.executable, __file__, *sys.argv[1:]]
    own += ["--backend", options.backend] if options.backend else []
    for way in WAYS:
        # A process each: no way finds what another one has compiled.
        _attempt(way, partial(_checked, [*own, "--way", way], options.tune_seconds + 90), log)
    best: dict[str, dict[str, Any]] = {"default": dict(script.default_configuration or {})}
    for line in (options.out / "tuning.jsonl").read_text().splitlines():
        run = json.loads(line)
        ok = [e for e in run["evaluations"] if e["time_ms"] is not None]
        if ok:
            best[run["way"]] = min(ok, key=lambda e: e["time_ms"])["configuration"]
    times = _measured_again(script, best, options)
    report = {
        way: {"configuration": best[way], "times_ms": t, "median_ms": float(np.median(t))}
        for way, t in times.items()
    }
    (options.out / "tuning_best.json").write_text(json.dumps(report, indent=2) + "\n")
    for way, found in report.items():
        print(f"  {way}: {found['median_ms']:.5f} ms {found['configuration']}", flush=True)


def tune_one_way(way: str, options: argparse.Namespace) -> None:
    """Tune once and append a line to ``tuning.jsonl``."""
    os.environ["CUDA_CACHE_DISABLE"] = "1"  # of the driver
    os.environ["CUPY_CACHE_DIR"] = tempfile.mkdtemp()
    from kernel_tuner import tune_kernel

    script = load_kernel_script(options.kernels / f"{TUNED}.py")
    start = monotonic()
    results, environment = tune_kernel(
        **_arguments(script, options),
        strategy=_tuner(way, options),
        strategy_options={"time_limit": options.tune_seconds},
        quiet=True,
    )
    line = {
        "way": way,
        "optimizer": "" if way == WAYS[0] else Path(options.optimizer).name,
        "kernel": script.name,
        "device": str(environment.get("device_name")),
        "time_limit_s": options.tune_seconds,
        "seconds": monotonic() - start,
        "evaluations": [_evaluation(result, script) for result in results],
    }
    with (options.out / "tuning.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(f"  {way}: {len(results)} evaluations", flush=True)


def _tuner(way: str, options: argparse.Namespace) -> Any:
    from llamea_gpu.live.kernel_tuner import strategy

    if way == "strategy":
        return strategy(options.optimizer, seed=1)
    return _exported(options) if way == "exported file" else "genetic_algorithm"


def _evaluation(result: dict[str, Any], script: KernelScript) -> dict[str, Any]:
    phases = ("compile_time", "verification_time", "benchmark_time")
    return {
        "configuration": {name: _plain(result[name]) for name in script.arguments["tune_params"]},
        "time_ms": None if "__error__" in result else float(result["time"]),
        "error": str(result.get("__error__", "")),
        "seconds": sum(result.get(phase, 0.0) for phase in phases) / 1e3,
        "timestamp": str(result["timestamp"]),
    }


def _measured_again(
    script: KernelScript, best: dict[str, dict[str, Any]], options: argparse.Namespace
) -> dict[str, list[float]]:
    """Times in ms of each configuration, measured in turns so that drift hits all alike."""
    from kernel_tuner import tune_kernel

    times: dict[str, list[float]] = {way: [] for way in best}
    for _ in range(options.rounds):
        for way, configuration in best.items():
            arguments = _arguments(script, options)
            arguments["tune_params"] = {name: [value] for name, value in configuration.items()}
            results, _ = tune_kernel(**arguments, iterations=REMEASURED_ITERATIONS, quiet=True)
            times[way].append(float(results[0]["time"]))
    return times


def _arguments(script: KernelScript, options: argparse.Namespace) -> dict[str, Any]:
    backend = options.backend or script.language
    return {**script.arguments, "lang": backend}


def _exported(options: argparse.Namespace) -> Any:
    """The optimizer as a file that knows nothing of llamea_gpu, imported from there."""
    from llamea_gpu.export.kernel_tuner import export_source
    from llamea_gpu.searchers.registry import resolve_program

    optimizer = resolve_program(options.optimizer)
    path = Path(tempfile.mkdtemp()) / "exported_optimizer.py"
    path.write_text(export_source(optimizer), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return getattr(module, f"{optimizer.program.class_name}Strategy")(seed=1)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


if __name__ == "__main__":
    main()
