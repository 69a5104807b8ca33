"""Configurations a second: the engine beside Helion's own batches, on the same lists.

    scripts/bench_live_engine.py -o OUT.jsonl [KERNEL[:SHAPE] ...] [--configs 64]

For each kernel a list of configurations is drawn (the default, the compiler's seeds, their
neighbours, samples near them; by seed) and measured twice, in fresh processes with cold caches: in
one batch of Helion's own provider, and on the engine. Written for each: seconds until the first
result and until the last, statuses, and times. The summary has the ratio of the rates and the
median ratio of the times of configurations that work in both. Needs Helion and an NVIDIA GPU.

    scripts/bench_live_engine.py -o OUT.jsonl --lost [KERNEL ...]

What a lost CUDA context costs: such a list on the engine, and among it, where the journals in
docs/results/logs have some of this kernel, configurations after which the context was gone.
Twice the timing process is killed as well. Printed for each: seconds until something has been timed
again, how many processes stood by, and how many compiled configurations were waiting.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

KERNELS = ["attention", "chunk_scan", "matmul", "layer_norm", "rope", "grouped_matmul"]
ARMS = ("helion", "engine")
JOURNALS = Path(__file__).parents[1] / "docs/results/logs/helion_h200_live_journals.tar.gz"
FATAL = 4  # configurations that end the context
KILLS = 2
APART = 25  # configurations


def listed(bound: Any, count: int) -> list[Any]:
    """The configurations to measure."""
    import numpy as np

    from llamea_gpu.frameworks.helion.space import HelionSpace

    generation = bound.config_spec.create_config_generation()
    seeds = [flat for flat, _ in generation.seed_flat_config_pairs()]
    space = HelionSpace(generation, np.random.default_rng(0), seeds)
    chosen = dict.fromkeys(space.starts)
    space.leaders = list(chosen)
    neighbors = space.neighbors(space.starts[0])
    order = np.random.default_rng(1).permutation(len(neighbors))
    chosen |= dict.fromkeys(neighbors[i] for i in order[: count // 3])
    while len(chosen) < count:
        chosen |= dict.fromkeys(space.sample(count - len(chosen)))
    return [space.config(config) for config in list(chosen)[:count]]


def measure(kernel: str, shape: str | None, arm: str, count: int) -> dict[str, Any]:
    """One arm on one kernel, in this process."""
    import torch
    from helion.autotuner.benchmark_provider import LocalBenchmarkProvider
    from helion.autotuner.finite_search import FiniteSearch

    import llamea_gpu.live.helion  # noqa: F401 - before anything asks for a GPU
    from llamea_gpu.frameworks.helion.kernel_script import find_script, load_case
    from llamea_gpu.live.helion.provider import PipelinedProvider
    from llamea_gpu.live.helion.registration import fork_early

    if arm == "engine":
        fork_early()
    with torch.device("cuda"):
        case = load_case(find_script(kernel), shape)
    bound = case.kernel.bind(case.arguments)
    configs = listed(bound, count)
    marks: list[float] = []
    found: list[Any] = []

    class Marked(PipelinedProvider):
        def wait(self, deadline: float | None = None) -> list[Any]:
            done = super().wait(deadline)
            marks.extend([perf_counter() - start] * len(done))
            return done

    class Search(FiniteSearch):
        def benchmark_batch(self, batch: list[Any], **options: Any) -> list[Any]:
            found.extend(super().benchmark_batch(batch, **options))
            marks.append(perf_counter() - start)
            return found

    search = Search(bound, case.arguments, configs)
    search._benchmark_provider_cls = Marked if arm == "engine" else LocalBenchmarkProvider
    torch.cuda.synchronize()
    start = perf_counter()
    search.autotune(skip_cache=True)
    return {
        "kernel": kernel,
        "shape": case.shape,
        "arm": arm,
        "measured": len(found),
        "first_s": marks[0],
        "last_s": marks[-1] if arm == "helion" else marks[-2],
        "statuses": Counter(result.status for result in found),
        "times_ms": [result.perf if math.isfinite(result.perf) else None for result in found],
        "marks_s": [round(mark, 3) for mark in marks],
    }


def lost(kernel: str, shape: str | None, count: int) -> list[dict[str, Any]]:
    """Each lost context, in this process."""
    import torch
    from helion.autotuner.finite_search import FiniteSearch

    import llamea_gpu.live.helion  # noqa: F401 - before anything asks for a GPU
    from llamea_gpu.engine.pipeline import Pipeline
    from llamea_gpu.frameworks.helion.kernel_script import find_script, load_case
    from llamea_gpu.live.helion.provider import PipelinedProvider
    from llamea_gpu.live.helion.registration import fork_early

    fork_early()
    with torch.device("cuda"):
        case = load_case(find_script(kernel), shape)
    bound = case.kernel.bind(case.arguments)
    configs = listed(bound, count)
    for number, config in enumerate(fatal(kernel, bound)):  # well apart, when spares are there
        configs.insert(APART * (number + 2), config)
    note = Pipeline._note_timed
    found: list[dict[str, Any]] = []
    timed = kills = 0

    def noted(self: Any, pool: Any, worker: Any, item: Any, content: Any) -> None:
        nonlocal timed, kills
        now, broken = perf_counter(), bool(content.get("broken"))
        timed += 1
        if found and "seconds" not in found[-1] and not broken:
            found[-1]["seconds"] = round(now - found[-1].pop("at"), 3)
            found[-1]["benchmark_s"] = round(content.get("benchmark_s", 0.0), 3)
        opened = [w for w in pool.workers if w.facts is not None and w is not worker]
        kill = not broken and kills < KILLS and len(self._compiled) > 0 and len(opened) > 0
        if kill := kill and timed > (found[-1]["timed"] if found else APART) + APART // 2:
            kills += 1
            os.kill(worker.facts["pid"], signal.SIGKILL)
        if broken or kill:
            fact = {"how": "killed" if kill else "broken", "at": now, "timed": timed}
            fact |= {"stand_by": len(opened), "waiting": len(self._compiled)}
            steps = [w.facts.get("opened_s") for w in opened][:1]
            found.append({**fact, "spare_opened_s": steps[0] if steps else None})
        note(self, pool, worker, item, content)

    with mock.patch.object(Pipeline, "_note_timed", noted):
        search = FiniteSearch(bound, case.arguments, configs)
        search._benchmark_provider_cls = PipelinedProvider
        search.autotune(skip_cache=True)
    return [{"kernel": kernel, **each} for each in found]


def fatal(kernel: str, bound: Any) -> list[Any]:
    """Configurations after which a live search had no CUDA context more."""
    import numpy as np

    from llamea_gpu.frameworks.helion.space import HelionSpace

    generation = bound.config_spec.create_config_generation()
    seeds = [flat for flat, _ in generation.seed_flat_config_pairs()]
    space = HelionSpace(generation, np.random.default_rng(0), seeds)
    found: dict[str, Any] = {}
    with tarfile.open(JOURNALS) as archive:
        for member in archive.getmembers():
            if not Path(member.name).name.startswith(f"{kernel}-"):
                continue
            file = archive.extractfile(member)
            assert file is not None
            head, *rows = map(json.loads, file.read().splitlines())
            if tuple(head["names"]) != tuple(space.names):
                continue
            for row in rows:
                if "misaligned address" in (row.get("message") or "") and space.contains(row["c"]):
                    found.setdefault(row["source"], space.config(row["c"]))
    return list(found.values())[:FATAL]


def summary(rows: dict[str, dict[str, Any]]) -> str:
    """Both arms of one kernel."""
    helion, engine = (rows[arm] for arm in ARMS)
    ratios = [b / a for a, b in zip(helion["times_ms"], engine["times_ms"], strict=True) if a and b]
    best = min(t for t in helion["times_ms"] if t)
    close = [
        b / a
        for a, b in zip(helion["times_ms"], engine["times_ms"], strict=True)
        if a and b and a < 2 * best
    ]
    rates = [row["measured"] / row["last_s"] for row in (helion, engine)]
    rate = f"{rates[0]:.2f} and {rates[1]:.2f} a second, x{rates[1] / rates[0]:.2f}"
    return (
        f"{helion['kernel']}: {rate}"
        f"; first result after {helion['first_s']:.1f} and {engine['first_s']:.1f} s; times: median"
        f" ratio {statistics.median(ratios):.4f} of {len(ratios)}"
        f" (within twice the best: {statistics.median(close):.4f} of {len(close)})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", default=KERNELS)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--configs", type=int, default=64)
    parser.add_argument("--arm", choices=ARMS)
    parser.add_argument("--lost", action="store_true", help="what a lost context costs")
    arguments = parser.parse_args()
    for spec in arguments.kernels:
        kernel, _, shape = spec.partition(":")
        if arguments.lost:
            for row in lost(kernel, shape or None, arguments.configs):
                print(json.dumps(row), flush=True)
                with arguments.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            continue
        if arguments.arm:
            row = measure(kernel, shape or None, arguments.arm, arguments.configs)
            print("\n" + json.dumps(row))
            continue
        rows: dict[str, dict[str, Any]] = {}
        for arm in ARMS:
            with tempfile.TemporaryDirectory() as cold:
                caches = {"TRITON_CACHE_DIR": cold, "TORCHINDUCTOR_CACHE_DIR": cold}
                command = [sys.executable, __file__, spec, "--arm", arm, "-o", os.devnull]
                command += ["--configs", str(arguments.configs)]
                quiet = {
                    "HELION_AUTOTUNE_PROGRESS_BAR": "0",
                    "HELION_AUTOTUNE_LOG_LEVEL": "WARNING",
                }
                done = subprocess.run(
                    command, env={**os.environ, **caches, **quiet}, capture_output=True, text=True
                )
            if done.returncode:
                print(f"{kernel} {arm}: {done.stderr[-2000:]}", flush=True)
                continue
            if "own way" in done.stderr:
                print(done.stderr[-2000:], flush=True)
            rows[arm] = json.loads(done.stdout.splitlines()[-1])
            with arguments.output.open("a") as file:
                file.write(json.dumps(rows[arm]) + "\n")
        if len(rows) == len(ARMS):
            print(summary(rows), flush=True)


if __name__ == "__main__":
    main()
