"""Helion's own searches on the shipped H200 recordings, beside figures that were known before.

    python scripts/reproduce_helion_anchors.py [--seeds 10] [--workers 2] [--only PatternSearch]

The known figures were measured once with Helion 1.5.1 through another provider, on fifteen
recordings of which eight ship, with 20 seeds, a random default configuration as the start, and, by
its counts of evaluations, every parameter as an ordinary tunable (``roles=false``: Helion is not
told what a block size is). Rows with the same settings say whether this project runs the searches
as that provider did; the others show what ``roles`` makes of them.

A search runs until it ends by itself: there is no budget. All figures count first visits. Random
search is 2,000 random orders of each space.

- evaluations: mean number of first visits.
- final: geometric mean of best found / optimum, and that of the worst space.
- to 5 %, to 1 %: median number of evaluations until the best is within that of the optimum; in
  brackets the runs that never were.
- score200: 1 - A/A_random, with A the mean over evaluations 1 to 200 of
  ln(min(best so far, median) / optimum), and A_random that of random search. 0 is random search, 1
  is the optimum at once. Mean over spaces.

``±`` is a bootstrap standard error over seeds; the spaces are taken as given.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import list_spaces, load_space
from llamea_gpu.tasks import Task, Trace, run_seed

LONGEST = 800  # first visits counted of a searcher that does not end by itself
SCORED = 200
RANDOM_ORDERS = 2_000
RESAMPLES = 1_000


# A spec, and below it what was known: the columns of the table.
ROWS = """
helion:LFBOTreeSearch?effort=full&roles=false
    152 | 1.006 (1.046) | 47.5 (3 %) | 109 (12 %) | .203
helion:LFBOTreeSearch?effort=quick&roles=false
    56 | 1.032 (1.115) | 33 (20 %) | 54 (40 %) | .208
helion:LFBOPatternSearch?effort=full&roles=false
    146 | 1.007 (1.038) | 47.5 (3 %) | 110 (14 %) | .197
helion:PatternSearch?effort=full&roles=false
    196 | 1.002 (1.019) | 47.5 (0 %) | 108.5 (8 %) | .184
helion:DifferentialEvolutionSearch?effort=full&roles=false
    446 | 1.000 (1.000) | 47.5 (0 %) | 197.5 (0 %) | .079
helion:RandomSearch?effort=full&roles=false
    793 | 1.005 (1.015) | 47.5 (1 %) | 259 (18 %) | .048
helion:LFBOTreeSearch?effort=full&start=default&roles=false
    148 | 1.005 (1.039) | 1 (1 %) | 101 (11 %) | .613
iterated_local_search
    800 | 1.000 (1.001) | 30 (0 %) | 60 (1 %) | .194
helion:LFBOTreeSearch?effort=full
helion:LFBOTreeSearch?effort=quick
helion:LFBOPatternSearch?effort=full
helion:PatternSearch?effort=full
helion:DifferentialEvolutionSearch?effort=full
helion:DESurrogateHybrid?effort=full
helion:RandomSearch?effort=full
helion:LFBOTreeSearch?effort=full&start=default
helion:PatternSearch?effort=full&start=default
"""


@dataclass(frozen=True)
class Measured:
    """(spaces, seeds) of each figure of a run."""

    evaluations: NDArray[np.float64]
    final: NDArray[np.float64]
    to_5: NDArray[np.float64]
    to_1: NDArray[np.float64]
    score: NDArray[np.float64]


def area(best_ms: NDArray[np.float64], task: Task) -> float:
    """Mean over evaluations 1 to 200 of ln(min(best, median) / optimum)."""
    scored = best_ms[:SCORED]
    scored = np.concatenate([scored, np.full(SCORED - len(scored), scored[-1])])
    return float(np.log(np.minimum(scored, task.median_ms) / task.optimum_ms).mean())


def first_within(limit: float, best_ms: NDArray[np.float64], task: Task) -> float:
    """The evaluation at which the best is within ``limit`` of the optimum; inf if it never is."""
    reached = np.flatnonzero(best_ms <= limit * task.optimum_ms)
    return float(reached[0] + 1) if len(reached) else math.inf


def random_search(task: Task) -> NDArray[np.float64]:
    """Area and evaluations to 5 % and 1 % of random orders of the whole space, (orders, 3)."""
    rng = np.random.default_rng(0)
    orders = (
        np.minimum.accumulate(rng.permutation(task.recording.time_ms)) for _ in range(RANDOM_ORDERS)
    )
    return np.array(
        [(area(o, task), first_within(1.05, o, task), first_within(1.01, o, task)) for o in orders]
    )


def figures(trace: Trace, task: Task, random: float) -> tuple[float, ...]:
    best_ms = np.minimum.accumulate(trace.cost_ms[:LONGEST])
    return (
        len(best_ms),
        best_ms[-1] / task.optimum_ms,
        first_within(1.05, best_ms, task),
        first_within(1.01, best_ms, task),
        1 - area(best_ms, task) / random,
    )


def measure(
    spec: str, tasks: Sequence[Task], seeds: int, runner: Runner, random: Sequence[float]
) -> Measured:
    searcher = resolve(spec)
    futures = [
        [runner.submit(searcher, task, run_seed(0, task.name, seed)) for seed in range(seeds)]
        for task in tasks
    ]
    found = []
    for task, of_random, runs in zip(tasks, random, futures, strict=True):
        traces = [future.result() for future in runs]
        broken = [trace.error for trace in traces if trace.outcome not in ("finished", "stalled")]
        if broken:
            raise SystemExit(f"{spec} failed on {task.name}: {broken[0]}")
        found.append([figures(trace, task, of_random) for trace in traces])
    return Measured(*np.moveaxis(np.array(found, dtype=np.float64), -1, 0))


def geometric_mean(ratios: NDArray[np.float64]) -> float:
    return float(np.exp(np.log(ratios).mean()))


def worst_space(ratios: NDArray[np.float64]) -> float:
    return max(geometric_mean(of_space) for of_space in ratios)


def with_error(
    statistic: Callable[[NDArray[np.float64]], float], values: NDArray[np.float64], digits: int
) -> str:
    """The statistic, and its standard error over resampled seeds of each space."""
    rng = np.random.default_rng(0)
    spaces, seeds = values.shape
    replicates = []
    for _ in range(RESAMPLES):
        drawn = rng.integers(0, seeds, (spaces, seeds))
        replicates.append(statistic(np.take_along_axis(values, drawn, axis=1)))
    error = float(np.std(replicates, ddof=1)) if np.isfinite(replicates).all() else math.inf
    return f"{statistic(values):.{digits}f} ± {error:.{digits}f}"


def cells(found: Measured) -> list[str]:
    def reached(evaluations: NDArray[np.float64]) -> str:
        never = np.isinf(evaluations).mean()
        return f"{with_error(lambda each: float(np.median(each)), evaluations, 1)} ({never:.0%})"

    return [
        with_error(lambda each: float(each.mean()), found.evaluations, 1),
        f"{with_error(geometric_mean, found.final, 4)} ({worst_space(found.final):.3f})",
        reached(found.to_5).replace("%", " %"),
        reached(found.to_1).replace("%", " %"),
        with_error(lambda each: float(each.mean()), found.score, 3),
    ]


def print_row(cells: Iterable[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="rows whose spec holds this")
    options = parser.parse_args()
    built = [Task.build(load_space(entry.name)) for entry in list_spaces()]
    tasks = [dataclasses.replace(task, budget_s=1e15) for task in built]
    random = np.array([random_search(task) for task in tasks])
    areas = random[:, :, 0].mean(axis=1).tolist()
    versions = {name: version(name) for name in ("helion", "torch", "scikit-learn", "numpy")}
    print(f"{len(tasks)} recordings, {options.seeds} seeds, {versions}\n")
    columns = ("evaluations", "final (worst)", "to 5 % (never)", "to 1 % (never)", "score200")
    print_row(["searcher", *columns])
    print_row(["---"] * 6)
    to_5, to_1 = np.median(random[:, :, 1:], axis=(0, 1))
    print_row([f"random search, {RANDOM_ORDERS} orders", "all", "1", f"{to_5:g}", f"{to_1:g}", "0"])
    print_row(["— known", "all", "–", "52", "249", "−.03"])
    with Runner.open(workers=options.workers) as runner:
        chosen = False
        for line in ROWS.strip().splitlines():
            if not line.startswith(" "):
                chosen = options.only in line
                if chosen:
                    print_row([line, *cells(measure(line, tasks, options.seeds, runner, areas))])
            elif chosen:
                print_row(["— known", *map(str.strip, line.split("|"))])


if __name__ == "__main__":
    main()
