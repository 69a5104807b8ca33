"""Kernel Tuner on the engine beside its own sequential runner: the same lists, and a search.

    scripts/bench_live_kernel_tuner.py -o OUT.jsonl [KERNEL ...] [--configs 200] [--seconds 30]
                                       [--deadline S] [--backend CUPY] [--processes N]
                                       [--opening N] [--only PART ...]

For each kernel (of tuning_spaces/kernels/kernel_tuner, or FILE.py) the same random valid
configurations go through ``tune_kernel`` twice, a process each: through Kernel Tuner's sequential
runner and through the engine. Seconds begin with the call of ``tune_kernel``, when everything is
imported, and end with its return. Then the first kernel is tuned for so many seconds by each of
SEARCHES. At last, while there is time, the sequential runner measures its lists again, which says
what differs by itself. Compilers' caches are off throughout.

OUT.jsonl gets a line a configuration as it is measured and one when a part is done; called again
with the same file, it goes on with what is missing. After ``--deadline`` seconds nothing new is
begun, and what runs is ended. The table comes last. Needs Kernel Tuner and an NVIDIA GPU.
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
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

KERNELS = ["matmul", "convolution", "stencil"]
ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tuning_spaces" / "kernels" / "kernel_tuner"
SEARCHES = (
    "framework=genetic_algorithm",
    "pipelined=genetic_algorithm",
    "pipelined=steady_state_genetic_algorithm",
)
ENGINES = ("framework", "pipelined")
MARKS_S = (2, 5, 10, 20, 30, 45, 60)
NEAR = 2.0  # times the best: whose readings are compared
_LEAST_S = 15.0  # of the time that is left, to begin a part
_SEED = 1

Rows = list[dict[str, Any]]


def main() -> None:
    options = _options()
    if options.part:
        measure(options)
        return
    end = monotonic() + options.deadline
    for part in parts(options):
        if any(row["part"] == part and row.get("done") for row in rows_of(options.output)):
            continue
        left_s = end - monotonic()
        if left_s < _LEAST_S:
            print(f"{part}: no time left", flush=True)
            continue
        begun = monotonic()
        code = run(part, options, left_s)
        said = "done" if code == 0 else f"ended with {code}"
        print(f"{part}: {said} after {monotonic() - begun:.1f} s", flush=True)
    print_table(rows_of(options.output), options.kernels)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", default=KERNELS)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--configs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30, help="of a search")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds, of everything")
    parser.add_argument("--backend", help="CUDA, NVCUDA, CUPY; default: the script's own")
    parser.add_argument("--processes", type=int, help="of the engine; default: its own choice")
    parser.add_argument("--opening", type=int, help="of them, that start CUDA at once")
    parser.add_argument(
        "--only", nargs="*", help="parts that contain one of these: list::pipelined"
    )
    parser.add_argument("--on-host", action="store_true", help="kernels in C, to try this script")
    parser.add_argument("--part", help="measure this part alone (for the script itself)")
    options = parser.parse_args()
    options.kernels = [str(Path(k).resolve()) if k.endswith(".py") else k for k in options.kernels]
    options.output = options.output.resolve()
    return options


def parts(options: argparse.Namespace) -> list[str]:
    """KERNEL::list::ENGINE and KERNEL::search::SEARCH, in the order in which they are measured."""
    lists = [f"{k}::list::{engine}" for k in options.kernels for engine in ENGINES]
    searches = [f"{options.kernels[0]}::search::{search}" for search in SEARCHES]
    found = lists + searches + [f"{kernel}::list::again" for kernel in options.kernels]
    return [p for p in found if not options.only or any(word in p for word in options.only)]


def rows_of(output: Path) -> Rows:
    """What was written so far; of a part that was ended and begun again, the last time."""
    found: dict[str, Rows] = {}
    for line in output.read_text().splitlines() if output.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:  # cut short by the end of a part
            continue
        if row.get("begun"):
            found[row["part"]] = []
        found.setdefault(row["part"], []).append(row)
    return [row for rows in found.values() for row in rows]


def run(part: str, options: argparse.Namespace, left_s: float) -> int | str:
    """Measure a part in a process of its own, with caches of its own."""
    command = [sys.executable, __file__, "-o", str(options.output), "--part", part]
    for name in ("configs", "seconds", "backend", "processes", "opening"):
        if (value := getattr(options, name)) is not None:
            command += [f"--{name}", str(value)]
    command += ["--on-host"] * options.on_host
    paths = [str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    with tempfile.TemporaryDirectory(prefix="bench-live-kt-") as folder:
        own = {"CUPY_CACHE_DIR": folder, "CUDA_CACHE_DISABLE": "1"}
        own["PYTHONPATH"] = ":".join([str(ROOT), *paths])
        with (Path(folder) / "log").open("w+") as log:
            try:
                done = subprocess.run(
                    command,
                    env={**os.environ, **own},
                    cwd=folder,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=left_s if math.isfinite(left_s) else None,
                )
            except subprocess.TimeoutExpired:
                return "the deadline"
            if done.returncode:
                log.seek(0)
                print(log.read()[-3000:], flush=True)
            return done.returncode


def measure(options: argparse.Namespace) -> None:
    """One part: write a line for each configuration, and one at the end."""
    from kernel_tuner import tune_kernel

    from llamea_gpu.frameworks.kernel_tuner.kernel_script import load_kernel_script
    from llamea_gpu.live.kernel_tuner import handed, pipelined
    from llamea_gpu.live.kernel_tuner.facts import KernelTunerFramework
    from llamea_gpu.live.kernel_tuner.pipelined import PipelinedStrategy
    from llamea_gpu.live.searcher import load_searcher

    if options.on_host:
        handed.BACKENDS.add("C")
    if options.opening:
        pipelined.OPENING = options.opening
    kernel, kind, name = options.part.split("::")
    script = load_kernel_script(Path(kernel) if kernel.endswith(".py") else FOLDER / f"{kernel}.py")
    engine, _, spec = name.partition("=")
    engine = "framework" if engine == "again" else engine
    if kind == "search":
        make = load_searcher(spec, KernelTunerFramework(script), {}).make
        budget = {"time_limit": options.seconds}
    else:
        make = listed(options.configs, one_by_one=engine == "framework")
        budget = {}
    strategy = PipelinedStrategy(
        name, make, {}, _SEED, engine=engine, processes=options.processes, tolerant=True
    )
    with options.output.open("a", buffering=1) as file:
        write = Written(file, options.part, list(script.arguments["tune_params"]))
        strategy.on_batch = write.note
        tune_kernel(
            **{
                **script.arguments,
                "lang": options.backend or script.language,
                "quiet": True,
                "strategy": strategy,
                "strategy_options": budget,
            }
        )
        write.end(why_not=strategy.why_not, device=strategy.device, backend=options.backend)


def listed(count: int, *, one_by_one: bool) -> Callable[[], Any]:
    """An optimizer that has so many random configurations measured and nothing else."""

    def measured(evaluate: Any, space: Any, rng: Any) -> None:
        del rng
        rows = np.random.default_rng(_SEED).permutation(space.size)[:count]
        configs = [tuple(map(int, config)) for config in space.pool(space.size)[rows]]
        if one_by_one:
            for config in configs:
                evaluate([config])
        else:
            evaluate.submit(configs)
            while evaluate.pending:
                evaluate.wait()

    return lambda: measured


class Written:
    """Writes results as they come, with the seconds since it was made."""

    def __init__(self, file: Any, part: str, names: list[str]) -> None:
        self._file, self._part, self._names = file, part, names
        self._start = datetime.now(timezone.utc)
        self._count = 0
        self._write(begun=True)

    def note(self, results: Any) -> None:
        for result in results[self._count :]:
            failed = str(result.get("__error__", ""))
            self._write(
                at_s=self._seconds(result.get("timestamp")),
                key=[str(result[name]) for name in self._names],
                status=failed or "ok",
                message=str(result.get("llamea_gpu_message", "")),
                time_ms=None if failed else float(result["time"]),
                compile_ms=float(result.get("compile_time", 0.0)),
                verify_ms=float(result.get("verification_time", 0.0)),
                benchmark_ms=float(result.get("benchmark_time", 0.0)),
            )
        self._count = len(results)

    def end(self, **facts: Any) -> None:
        self._write(done=True, wall_s=self._seconds(), cores=os.cpu_count(), **facts)

    def _seconds(self, at: str | None = None) -> float:
        """Until a result of a batch was there, or until now."""
        time = datetime.now(timezone.utc) if at is None else datetime.fromisoformat(at)
        return (time - self._start).total_seconds()

    def _write(self, **row: Any) -> None:
        self._file.write(json.dumps({"part": self._part, **row}) + "\n")


def print_table(rows: Rows, kernels: list[str]) -> None:
    for kernel in kernels:
        print("\n".join(compared(rows, kernel)))
    print("\n".join(searched(rows)))


def compared(rows: Rows, kernel: str) -> Iterator[str]:
    """Sentences on the lists of one kernel."""
    name = Path(kernel).stem
    names = [f"{kernel}::list::{arm}" for arm in (*ENGINES, "again")]
    own, engine, again = (of_part(rows, part) for part in names)
    if engine and not own:
        first_s, last_s = (of(row["at_s"] for row in engine.values()) for of in (min, max))
        yield f"{name}: engine: {len(engine)} in {last_s:.1f} s, the first after {first_s:.2f} s"
    if not own or not engine:
        yield f"{name}: not measured by both"
        return
    walls = [wall_s(rows, part) for part in names[:2]]
    firsts = [min(row["at_s"] for row in arm.values()) for arm in (own, engine)]
    spans = [max(row["at_s"] for row in arm.values()) for arm in (own, engine)]
    rates = [
        (len(arm) - 1) / max(span - first, 1e-9)
        for arm, first, span in zip((own, engine), firsts, spans, strict=True)
    ]
    yield (
        f"{name}: {len(own)} and {len(engine)} configurations in {walls[0]:.1f} s (Kernel Tuner) "
        f"and {walls[1]:.1f} s (engine): {walls[0] / walls[1]:.2f} x; first result after "
        f"{firsts[0]:.2f} and {firsts[1]:.2f} s, from then on {rates[0]:.1f} and {rates[1]:.1f} a "
        f"second: {rates[1] / rates[0]:.2f} x"
    )
    for row in rows:
        if row["part"] == names[1] and row.get("why_not"):
            yield f"  NOT on the engine: {row['why_not']}"
    yield f"  engine relative to Kernel Tuner: {agreement(own, engine)}"
    if again:
        yield f"  Kernel Tuner relative to itself: {agreement(own, again)}"
    for arm, found in (("Kernel Tuner", own), ("engine", engine)):
        medians = [
            statistics.median(row[phase] for row in found.values())
            for phase in ("compile_ms", "verify_ms", "benchmark_ms")
        ]
        text = ", ".join(f"{each:.1f}" for each in medians)
        yield f"  median ms to compile, check and time ({arm}): {text}"


def agreement(one: dict[str, Any], other: dict[str, Any]) -> str:
    """How the readings of two arms differ."""
    common = [key for key in one if key in other]
    differing = [key for key in common if one[key]["status"] != other[key]["status"]]
    times = [(one[k]["time_ms"], other[k]["time_ms"]) for k in common]
    times = [(a, b) for a, b in times if a is not None and b is not None]
    if not times:
        return "nothing works in both"
    best = min(a for a, _ in times)
    ratios = sorted(b / a for a, b in times)
    near = sorted(b / a for a, b in times if a <= NEAR * best)
    low, high = np.percentile(near, [5, 95])
    text = (
        f"times {statistics.median(ratios):.4f} in the median of {len(ratios)}; of {len(near)} "
        f"within {NEAR:g} x the best {statistics.median(near):.4f} [{low:.3f}, {high:.3f}]; the "
        f"best {min(b for _, b in times) / best:.4f}; {len(differing)} of {len(common)} with "
        f"another status"
    )
    for key in differing[:3]:
        text += f"; {key}: {one[key]['status']}, {other[key]['status']} {other[key]['message']}"
    return text


def searched(rows: Rows) -> Iterator[str]:
    """Best so far at marks, relative to the best reading of all searches of the kernel."""
    names = list(dict.fromkeys(row["part"] for row in rows if "::search::" in row["part"]))
    runs = {name: [r for r in rows if r["part"] == name and r.get("time_ms")] for name in names}
    best_ms = min((row["time_ms"] for run in runs.values() for row in run), default=math.inf)
    for name, run in runs.items():
        text = []
        for mark in MARKS_S:
            known = [row["time_ms"] for row in run if row["at_s"] <= mark]
            if known and mark <= wall_s(rows, name) + 1:
                text.append(f"{mark} s {min(known) / best_ms:.3f} ({len(known)})")
        yield f"{name}: " + ", ".join(text)


def of_part(rows: Rows, part: str) -> dict[str, Any]:
    return {",".join(row["key"]): row for row in rows if row["part"] == part and "key" in row}


def wall_s(rows: Rows, part: str) -> float:
    """Seconds of the whole call; of one that was ended, until its last result."""
    own = [row for row in rows if row["part"] == part]
    done = [row["wall_s"] for row in own if row.get("done")]
    return float(done[0] if done else max(row.get("at_s", 0.0) for row in own))


if __name__ == "__main__":
    main()
