#!/usr/bin/env python3
"""Several shapes of a kernel: each started from the others' best, against each from cold.

    scripts/bench_shapes.py -o FOLDER [--kernels matmul layer_norm] [--seconds S] [--seeds N]
                            [--with SPEC] [--deadline S] [--gpus N]
    scripts/bench_shapes.py -o FOLDER --summary

Both arms tune every shape of a kernel for the same seconds with the same searcher and seed: `cold`
each shape in a process of its own, `warm` one after another (`tune --shapes all`). The warm arm's
look at the others' best afterwards is left out of what its searches found; it says which
configuration is best for all. The first shape starts from cold in both: its ratio is the noise.

When all runs of a kernel are done, winners of a shape are timed head to head in interleaved
passes, in one process, and beside them the warm arm's one configuration for all shapes. Processes,
their caches, several GPUs and the deadline are as in bench_live.py.

Everything goes to FOLDER as it comes: runs.jsonl, winners.jsonl. What is there is not run again, so
the same command goes on where one was ended. Needs Helion and an NVIDIA GPU; --summary neither.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean
from time import monotonic
from typing import Any

import bench_live
from bench_live import IMPORT_S, PATIENCE, START_S, Place, add_line, lines_of, places

ARMS = ("cold", "warm")
HEAD_S = 20.0  # kept by the deadline for timing the winners of a shape head to head
LOOK_S = 15.0  # of the warm arm, at the others' best

Row = dict[str, Any]
Job = tuple[str, int, str, str]  # kernel, seed, arm, and the shape of a cold one


def tune_cold(kernel: str, shape: str, searcher: str, seconds: float, seed: int) -> Row:
    """One shape, in this process."""
    from llamea_gpu.frameworks.helion.kernel_script import find_script
    from llamea_gpu.live import TuneSettings
    from llamea_gpu.live.helion.tuning import tune_helion_script

    settings = TuneSettings(seconds=seconds, seed=seed, shape=shape)
    return {"shapes": {shape: row_of(tune_helion_script(find_script(kernel), searcher, settings))}}


def tune_warm(kernel: str, searcher: str, seconds: float, seed: int) -> Row:
    """All shapes, one after another, in this process."""
    from llamea_gpu.frameworks.helion.kernel_script import find_script
    from llamea_gpu.live import TuneSettings
    from llamea_gpu.live.helion.tuning import tune_helion_shapes

    settings = TuneSettings(seconds=seconds, seed=seed)
    found = tune_helion_shapes(find_script(kernel), searcher, settings, "all")
    return {
        "shapes": {shape: row_of(result) for shape, result in found.searched.items()},
        "single": None if found.single is None else dict(found.single),
    }


def row_of(result: Any) -> Row:
    """Of one shape's search."""
    best = result.best
    return {
        "best_ms": best.time_ms if best else None,
        "best": dict(best.configuration) if best else None,
        "default_ms": result.default_ms,
        "elapsed_s": round(result.elapsed_s, 2),
        "device": result.device,
        "framework": result.framework,
        "trouble": result.trouble,
        "measured": [
            [round(each.elapsed_s, 2), each.time_ms if math.isfinite(each.time_ms) else None]
            for each in result.measured
        ],
    }


def shapes_of_kernels(kernels: list[str]) -> dict[str, list[str]]:
    """Of each script, in its order. Called in a process of its own: it imports all of Helion."""
    from llamea_gpu.frameworks.helion.kernel_script import find_script, shapes_of

    return {kernel: list(shapes_of(find_script(kernel))) for kernel in kernels}


class Bench:
    """What is not there yet, handed out to the places; ``until`` is of ``time.monotonic``."""

    def __init__(self, arguments: argparse.Namespace, shapes: dict[str, list[str]]) -> None:
        self.given, self.shapes = arguments, shapes
        self.folder: Path = arguments.output
        self.until = monotonic() + arguments.deadline
        known = {key_of(row) for row in lines_of(self.folder / "runs.jsonl")}
        self.runs = [job for job in self.all_runs() if job not in known]
        self.lock = threading.Lock()

    def all_runs(self) -> list[Job]:
        """Arms take turns in going first."""
        found: list[Job] = []
        for seed in range(1, self.given.seeds + 1):
            for kernel, shapes in self.shapes.items():
                cold = [(kernel, seed, "cold", shape) for shape in shapes]
                warm = [(kernel, seed, "warm", "")]
                found += cold + warm if seed % 2 else warm + cold
        return found

    def next_run(self) -> Job | None:
        """None when nothing is left that would be over in time."""
        with self.lock:
            kept = HEAD_S * sum(map(len, self.shapes.values())) / self.given.gpus
            while self.runs:
                job = self.runs.pop(0)
                if monotonic() + self.takes_s(job) + kept <= self.until:
                    return job
                print(f"not begun, for want of time: {job}", flush=True)
            return None

    def takes_s(self, job: Job) -> float:
        kernel, _, arm, _ = job
        if arm == "cold":
            return float(self.given.seconds + START_S)
        return float(len(self.shapes[kernel]) * (self.given.seconds + START_S / 2) + LOOK_S)

    def work(self, place: Place) -> None:
        while (job := self.next_run()) is not None:
            kernel, seed, arm, shape = job
            asked = {"kernel": kernel, "searcher": self.given.searcher}
            asked |= {"seconds": self.given.seconds, "seed": seed}
            do = {"do": tune_cold, "shape": shape} if arm == "cold" else {"do": tune_warm}
            limit_s = PATIENCE * self.takes_s(job) + IMPORT_S
            limit_s = min(limit_s, max(1.0, self.until - monotonic()))
            found = bench_live.child({**do, **asked}, limit_s, place)
            if found is not None:
                line = {"kernel": kernel, "seed": seed, "arm": arm, "shape": shape, **found}
                with self.lock:
                    add_line(self.folder / "runs.jsonl", {**line, "seconds": asked["seconds"]})
                best = {name: row["best_ms"] for name, row in found["shapes"].items()}
                print(f"{kernel} seed {seed} {arm}: {best}", flush=True)

    def time_winners(self, place: Place) -> None:
        """Head to head, one shape after another, unless those very ones have been timed."""
        while True:
            with self.lock:
                if not self.heads:
                    return
                kernel, shape = self.heads.pop(0)
            configs = contenders(lines_of(self.folder / "runs.jsonl"), kernel, shape)
            names = [name for name, _ in configs]
            timed = lines_of(self.folder / "winners.jsonl")
            if not configs or any(
                (x["kernel"], x["shape"], x["names"]) == (kernel, shape, names) for x in timed
            ):
                continue
            left_s = max(5.0, self.until - monotonic())
            job = {"do": bench_live.head_to_head, "kernel": kernel, "shape": shape}
            job["configs"] = [config for _, config in configs]
            found = bench_live.child(job, min(5 * HEAD_S, left_s), place)
            if found is not None:
                line = {"kernel": kernel, "shape": shape, "names": names}
                line |= {"ms": found[0], "known_ms": found[1]}
                with self.lock:
                    add_line(self.folder / "winners.jsonl", line)

    def run(self) -> None:
        where = places(self.given.gpus)
        self.heads = [(kernel, shape) for kernel, own in self.shapes.items() for shape in own]
        for do in (self.work, self.time_winners):
            threads = [threading.Thread(target=do, args=(place,)) for place in where]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


def key_of(row: Row) -> Job:
    return row["kernel"], row["seed"], row["arm"], row["shape"]


def contenders(rows: list[Row], kernel: str, shape: str) -> list[tuple[str, Row]]:
    """Name (arm and seed) and configuration of all that are to be timed at a shape."""
    found = []
    for row in rows:
        if row["kernel"] != kernel:
            continue
        best = row["shapes"].get(shape, {}).get("best")
        if best:
            found.append((f"{row['arm']} {row['seed']}", best))
        if row.get("single"):
            found.append((f"single {row['seed']}", row["single"]))
    return sorted(found, key=lambda each: each[0])


def best_after(row: Row, share: float, seconds: float) -> float:
    """The best reading of a search after this share of its seconds, in ms."""
    until = share * seconds
    return min((t for s, t in row["measured"] if t is not None and s <= until), default=math.inf)


Ratios = dict[str, dict[str, list[float]]]


def summary(folder: Path) -> str:
    """Warm over cold by shape, head to head and on the way; and one configuration for all."""
    rows = lines_of(folder / "runs.jsonl")
    first = {row["kernel"]: next(iter(row["shapes"])) for row in rows if row["arm"] == "warm"}
    ratios: Ratios = defaultdict(lambda: defaultdict(list))
    lines = [*head_to_heads(lines_of(folder / "winners.jsonl"), first, ratios)]
    on_the_way(rows, first, ratios)
    lines.append("warm over cold (geometric mean; first shapes are the noise)")
    for what, by in ratios.items():
        cells = ", ".join(
            f"{where} {geometric_mean(r):.4f} ({min(r):.3f} to {max(r):.3f}, {len(r)})"
            for where, r in by.items()
        )
        lines.append(f"  {what}: {cells}")
    for row in rows:
        lines += [
            f"  trouble: {row['kernel']} {row['arm']} {row['seed']} {shape}: {own['trouble'][:200]}"
            for shape, own in row["shapes"].items()
            if own["trouble"]
        ]
    return "\n".join(lines)


def head_to_heads(winners: list[Row], first: dict[str, str], ratios: Ratios) -> Iterator[str]:
    """A line for each shape; adds to ``ratios``."""
    for line in winners:
        ms = dict(zip(line["names"], line["ms"], strict=True))
        where = "first" if first.get(line["kernel"]) == line["shape"] else "later"
        shown = ", ".join(f"{name} {time_ms:.5f}" for name, time_ms in ms.items())
        known = f"; best known {min(line['known_ms']):.5f}" if line["known_ms"] else ""
        yield f"{line['kernel']} {line['shape']} ({where}): {shown} ms{known}"
        for name, time_ms in ms.items():
            arm, seed = name.split()
            if arm == "warm" and f"cold {seed}" in ms:
                ratios["winners, head to head"][where].append(time_ms / ms[f"cold {seed}"])
            if arm == "single" and f"warm {seed}" in ms:
                of_single = ratios["one configuration for all over the warm winner"]
                of_single["all"].append(time_ms / ms[f"warm {seed}"])


def on_the_way(rows: list[Row], first: dict[str, str], ratios: Ratios) -> None:
    """What was the best so far, by each search's own readings; adds to ``ratios``."""
    found = {
        (row["kernel"], row["seed"], row["arm"], shape): (own, row["seconds"])
        for row in rows
        for shape, own in row["shapes"].items()
    }
    for (kernel, seed, arm, shape), (own, seconds) in found.items():
        cold = found.get((kernel, seed, "cold", shape))
        if arm != "warm" or cold is None:
            continue
        where = "first" if first[kernel] == shape else "later"
        for share in (0.25, 0.5):
            pair = best_after(own, share, seconds), best_after(cold[0], share, seconds)
            if all(map(math.isfinite, pair)):
                what = f"best reading after {share:.0%} of the time"
                ratios[what][where].append(pair[0] / pair[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--kernels", nargs="+", default=["matmul", "layer_norm"])
    parser.add_argument("--with", dest="searcher", default="improvement_by_instalments")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each shape's search")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=math.inf)
    parser.add_argument("--gpus", type=int, default=1, help="how many to use at once")
    parser.add_argument("--summary", action="store_true", help="of what there is; run nothing")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    if not given.summary:
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # importing is to initialise no GPU
        bench_live._PROCESSES.set_forkserver_preload([*bench_live._IMPORTED])
        began = monotonic()
        asked = {"do": shapes_of_kernels, "kernels": given.kernels}
        shapes = bench_live.child(asked, 2 * IMPORT_S, places(1)[0])
        if shapes is None:
            parser.exit(1, "the kernels' scripts do not load\n")
        given.deadline -= monotonic() - began
        Bench(given, shapes).run()
    text = summary(given.output)
    with contextlib.suppress(OSError):
        (given.output / "summary.txt").write_text(text + "\n")
    print(text, flush=True)


if __name__ == "__main__":
    main()
