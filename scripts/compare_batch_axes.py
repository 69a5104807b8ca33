"""How long should an axis of batches be? Runs searchers on axes of several lengths and compares P.

    python scripts/compare_batch_axes.py [--batches 0 8 12] [--repeats 20] [--only SEARCHER ...]

For each least length: P of every searcher, and for each space how far the searchers lie apart in
units of P's standard error (what an axis tells apart), and the rank correlation of P with the
simulated time until a run is within 1 % of the optimum (what a user waits for). About half an hour
on two cores; the table in docs/adr/0003-batch-baseline.md is made of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from llamea_gpu import baseline
from llamea_gpu.runner import Runner
from llamea_gpu.scoring import SpaceScore, score_space
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.tasks import Task, Trace, run_seed

SPACES = (
    "matmul-2048",
    "attention-2x32x1024x64",
    "softmax-4096x4096",
    "layer_norm-4096x8192",
    "rms_norm-16384x4096",
)
SEARCHERS = (
    "random_search",
    "iterated_local_search",
    "genetic_algorithm",
    "differential_evolution",
    "simulated_annealing",
    "helion:LFBOTreeSearch",
    "helion:PatternSearch",
)
NEAR = 1.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=(0, 8, 12))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=SEARCHERS, metavar="SEARCHER")
    parser.add_argument("--workers", type=int)
    arguments = parser.parse_args()
    with Runner.open(workers=arguments.workers) as runner:
        for least in arguments.batches:
            baseline.LEAST_BATCHES = least
            print(f"\nat least {least} batches", flush=True)
            tasks = [Task.build(load_space(name)) for name in SPACES]
            compare(runner, tasks, arguments.only, arguments.repeats)


def compare(runner: Runner, tasks: Sequence[Task], searchers: Sequence[str], repeats: int) -> None:
    """One line a searcher, then one a space."""
    found: dict[str, list[tuple[SpaceScore, float]]] = {}
    for spec in searchers:
        searcher = resolve(spec)
        found[spec] = []
        for task in tasks:
            seeds = [run_seed(1, task.name, repeat) for repeat in range(repeats)]
            runs = [runner.submit(searcher, task, seed) for seed in seeds]
            traces = [run.result() for run in runs]
            found[spec].append((score_space(task, traces), near_s(task, traces)))
        scores = [score for score, _ in found[spec]]
        each = "  ".join(f"{s.p:+.2f} ± {s.standard_error or 0:.2f}" for s in scores)
        print(f"{spec[-40:]:40} {np.mean([s.p for s in scores]):+.3f}   {each}", flush=True)
    for index, task in enumerate(tasks):
        p = np.array([found[spec][index][0].p for spec in searchers])
        errors = [found[spec][index][0].standard_error or 0.0 for spec in searchers]
        waits = [found[spec][index][1] for spec in searchers]
        print(
            f"{task.name:30} {task.budget_evaluations:4.0f} evaluations; spread / error "
            f"{p.std() / np.mean(errors):.1f}; rank correlation with time to 1 % "
            f"{-spearmanr(p, waits).statistic:.2f}",
            flush=True,
        )


def near_s(task: Task, traces: Sequence[Trace]) -> float:
    """Simulated seconds spent for each run that comes within 1 % of the optimum."""
    spent_s, hits = 0.0, 0
    for trace in traces:
        near = np.flatnonzero(trace.cost_ms <= NEAR * task.optimum_ms)
        spent_s += float(trace.elapsed_s[near[0]]) if near.size else task.budget_s
        hits += near.size > 0
    return spent_s / hits if hits else float("inf")


if __name__ == "__main__":
    main()
