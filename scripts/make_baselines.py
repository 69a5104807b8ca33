"""Makes the results that ship: the searchers below on the recordings of the suites below.

    python scripts/make_baselines.py [--repeats 25] [--only SEARCHER ...] [-o FOLDER]

It may be killed at any time and goes on where it stopped; with another searcher in the list, or
more repeats, it adds what is missing. A searcher whose code or library changed since is refused:
delete the folder and make all of it again. About five minutes on two cores.

Searchers that take seconds a run (`helion:`, `optuna:`) are left out; a bench runs them beside it.

`llamea-gpu bench SEARCHER --suite validation --baseline` uses the result. Training recordings are
left out (but for those of `quick`): comparisons are made on what no program was bred on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.progress import Progress

from llamea_gpu.bench import BenchSettings, make_plan, run_bench
from llamea_gpu.bench.results import SHIPPED
from llamea_gpu.bench.suites import spaces_of
from llamea_gpu.resources import resource_dir
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import load_spaces
from llamea_gpu.tasks import build_tasks

SEARCHERS = (
    "random_search",
    "iterated_local_search",
    "genetic_algorithm",
    "simulated_annealing",
    "differential_evolution",
    "scipy:differential_evolution",
    "kernel_tuner:genetic_algorithm",
    "kernel_tuner:adaptive_tabu_greywolf",
)
SUITES = ("quick", "validation", "test")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--only", nargs="+", default=SEARCHERS)
    parser.add_argument("--workers", type=int)
    parser.add_argument(
        "-o", "--output", type=Path, default=resource_dir("tuning_spaces") / "baselines" / SHIPPED
    )
    arguments = parser.parse_args()
    tasks = build_tasks(load_spaces(spaces_of(SUITES)))
    searchers = [resolve(spec) for spec in arguments.only]
    plan = make_plan(searchers, tasks, arguments.repeats, BenchSettings())
    with Runner.open(workers=arguments.workers) as runner, Progress() as progress:
        bar = progress.add_task("runs")
        results = run_bench(
            plan,
            searchers,
            tasks,
            runner,
            folder=arguments.output,
            command=("python", "scripts/make_baselines.py"),
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    (arguments.output / "bench.jsonl").unlink()  # empty: nothing is on its way
    assert results.analysis is not None
    for standing in results.analysis.standings:
        print(f"{standing.searcher}: P {standing.p:.3f}")


if __name__ == "__main__":
    main()
