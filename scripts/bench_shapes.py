"""Several shapes of a kernel: each started from the others' best, against each from cold.

    python scripts/bench_shapes.py softmax matmul --seconds 30 --seeds 1 2 -o shapes.jsonl

Needs a GPU and Helion. Both arms tune every shape of a kernel for the same seconds with the same
searcher and seed; a line of JSON a kernel, arm and seed is appended, and the ratios are printed.
The first shape is tuned from cold in both, so that its ratio is the noise; the warm arm's look at
the others' best configurations afterwards is left out of its times.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import geometric_mean

from llamea_gpu.frameworks.helion.kernel_script import shapes_of
from llamea_gpu.live import TuneSettings
from llamea_gpu.live.helion.tuning import tune_helion_script, tune_helion_shapes
from llamea_gpu.live.scripts import find_kernel_script

ARMS = ("cold", "warm")


def tune(kernel: Path, arm: str, searcher: str, seconds: float, seed: int) -> dict[str, object]:
    settings = TuneSettings(seconds=seconds, seed=seed)
    single = None
    if arm == "warm":
        found = tune_helion_shapes(kernel, searcher, settings, "all")
        results = found.searched
        single = None if found.single is None else found.slowdown(found.single)
    else:
        results = {
            shape: tune_helion_script(
                kernel, searcher, TuneSettings(seconds=seconds, seed=seed, shape=shape)
            )
            for shape in shapes_of(kernel)
        }
    best = {shape: result.best.time_ms for shape, result in results.items()}
    return {"best_ms": best, "slowdown_of_one_for_all": single}


def report(lines: list[dict]) -> None:
    best: dict[tuple, dict[str, dict[str, float]]] = defaultdict(dict)
    for line in lines:
        best[line["kernel"], line["seed"]][line["arm"]] = line["best_ms"]
    later, firsts = [], []
    for (kernel, seed), arms in best.items():
        if set(arms) != set(ARMS):
            continue
        ratios = {shape: arms["warm"][shape] / arms["cold"][shape] for shape in arms["warm"]}
        first, *rest = ratios.values()
        firsts.append(first)
        later += rest
        shown = ", ".join(f"{shape} {ratio:.3f}" for shape, ratio in ratios.items())
        print(f"{kernel} seed {seed}: warm over cold: {shown}")
    if later:
        print(
            f"first shapes (noise) {geometric_mean(firsts):.3f}, others {geometric_mean(later):.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="+")
    parser.add_argument("--with", dest="searcher", default="growing_foresight")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    for kernel in given.kernels:
        path = find_kernel_script(kernel if "/" in kernel else f"helion/{kernel}")
        for seed in given.seeds:
            for arm in ARMS:
                told = tune(path, arm, given.searcher, given.seconds, seed)
                line = {"kernel": kernel, "arm": arm, "seed": seed, "seconds": given.seconds}
                with given.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**line, "searcher": given.searcher, **told}) + "\n")
    report([json.loads(line) for line in given.output.read_text("utf-8").splitlines()])


if __name__ == "__main__":
    main()
