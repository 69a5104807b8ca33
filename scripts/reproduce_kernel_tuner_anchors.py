"""Kernel Tuner's strategies on spaces of the FAIR benchmark hub, beside figures measured elsewhere.

    python scripts/reproduce_kernel_tuner_anchors.py run HUB_FOLDER RUNS.jsonl [--repeats 25]
    python scripts/reproduce_kernel_tuner_anchors.py run HUB_FOLDER RUNS.jsonl --native
    python scripts/reproduce_kernel_tuner_anchors.py report HUB_FOLDER RUNS.jsonl

HUB_FOLDER holds a folder for each kernel, with T1.json and DEVICE_T4.json(.gz) files; the spaces
are those of the hub (DOI 10.5281/zenodo.15364124). ``run`` adds a line to RUNS.jsonl when a run is
done and leaves out what is there already, so that it can be stopped. With ``--native`` it is Kernel
Tuner itself that runs: ``tune_kernel`` in simulation mode, with its own clock, solver and order of
configurations. ``report`` scores the lines:

- P: revisits are free, as in the budget of Kernel Tuner and in this project.
- P, revisits charged: a revisit takes the time of its benchmark runs, which autotuning_methodology
  1.1.0 adds to the score's axis (Kernel Tuner leaves ``times`` in the result of a revisit).
- package: the score of autotuning_methodology itself on the same traces (revisits charged), mean
  and standard deviation of several calls: it averages fits to random subsamples, unseeded.

The figures to compare with were measured with Kernel Tuner 1.5.0's simulation mode, 25 runs a
space: REFERENCE_SIX by that package on these six spaces, REFERENCE_TWELVE by a plain fit with
revisits free on these and six harder ones (A6000, W6600, W7800), which this script is not given.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import multiprocessing
import os
import random
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.scoring import ExternalTrace, aggregate, score_space
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.formats import export_recording, import_recording
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.tasks import Task, run_seed

DEVICES = ("A100", "A4000", "MI250X")
KERNELS = ("convolution", "dedispersion")
REFERENCE_SIX = {
    "hybrid_vndx": 0.516,
    "adaptive_tabu_greywolf": 0.399,
    "diff_evo": 0.383,
    "genetic_algorithm": 0.287,
}
REFERENCE_TWELVE = {
    "adaptive_tabu_greywolf": 0.380,
    "hybrid_vndx": 0.361,
    "genetic_algorithm": 0.346,
    "diff_evo": 0.337,
    "dual_annealing": 0.275,
    "simulated_annealing": 0.162,
    "pso": 0.097,
    "firefly_algorithm": 0.087,
    "random_sample": -0.010,
    "mls": -0.78,
    "greedy_ils": -0.85,
}
# As the figures were measured: with Kernel Tuner's own caps, but for the whole space at random.
AS_MEASURED = (
    "random_sample",
    "genetic_algorithm?maxiter=90",
    "diff_evo",
    "adaptive_tabu_greywolf",
    "simulated_annealing",
    "dual_annealing",
    "pso?maxiter=190",
    "firefly_algorithm?maxiter=100",
    "mls?max_fevals=100",
    "greedy_ils?max_fevals=100",
)
LIFTED = (
    "genetic_algorithm",
    "pso",
    "firefly_algorithm",
    "mls",
    "greedy_ils",
    "greedy_mls",
    "ordered_greedy_mls",
    "basinhopping",
)
# Tens of CPU seconds a run.
SLOW = ("hybrid_vndx?budget=5000", "bayes_opt")
NATIVE = " (tune_kernel)"
PACKAGE_CALLS = 5
TIME_KEYS = ["compilation", "runtimes", "framework", "search_algorithm", "validation"]


@dataclass(frozen=True)
class Problem:
    """A task, its file, and the seconds that each configuration's benchmark runs take."""

    task: Task
    t4: Path
    runtimes_s: np.ndarray


@cache
def load(folder: Path, kernel: str, device: str) -> Problem:
    t4 = next(folder.glob(f"{kernel}/{device}_T4.json*"))
    recording, _ = import_recording(t4, t1=folder / kernel / "T1.json")
    runtimes_s = np.zeros(recording.space.size)
    index = [{v: i for i, v in enumerate(values)} for values in recording.space.values]
    for result in json.loads(unpacked(t4))["results"]:
        config = result["configuration"]
        place = tuple(at[config[n]] for n, at in zip(recording.space.names, index, strict=True))
        row = recording.space.row(place)
        if row >= 0:
            runtimes_s[row] = sum(result["times"].get("runtimes") or [0.0]) / 1e3
    return Problem(Task.build(recording), t4, runtimes_s)


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


class Listening:
    """An optimizer that notes every configuration it asks for, revisits included."""

    def __init__(self, optimizer: Any, task: Task) -> None:
        self._optimizer = optimizer
        self._row = task.recording.space.row
        self.asked: list[int] = []

    def __call__(self, evaluate: Any, space: Any, rng: np.random.Generator) -> None:
        listener = self

        class Evaluate:
            parallel = evaluate.parallel
            spent = property(lambda _: evaluate.spent)

            def __call__(self, configs: Sequence[Any]) -> list[float]:
                listener.asked += map(listener._row, configs)
                costs: list[float] = evaluate(configs)
                return costs

        self._optimizer(Evaluate(), space, rng)


Order = tuple[Path, str, str, str, int, float]


def run_one(order: Order) -> dict[str, Any]:
    folder, kernel, device, spec, repeat, cpu_s = order
    problem = load(folder, kernel, device)
    if spec.endswith(NATIVE):
        return run_native(problem, folder / kernel / "T1.json", order)
    task = problem.task
    searcher = resolve(f"kernel_tuner:{spec}")
    assert isinstance(searcher, LibrarySearcher)
    made: list[Listening] = []

    def build() -> Listening:
        made.append(Listening(searcher.build(), task))
        return made[-1]

    trace = run_optimizer(build, task, run_seed(1, task.name, repeat), cpu_s=cpu_s)
    return {
        "searcher": spec,
        "space": f"{kernel}-{device}",
        "repeat": repeat,
        "outcome": trace.outcome,
        "error": trace.error,
        "asks": trace.asks,
        "cpu_s": round(trace.cpu_s or 0.0, 2),
        "rows": trace.rows.tolist(),
        "charged_s": [round(t, 4) for t in charged(problem, made[-1].asked, trace.rows.size)],
    }


@cache
def exported(recording: Recording) -> Path:
    path = Path(tempfile.mkdtemp(prefix="anchors")) / "cache.json"
    export_recording(recording, path, "kernel-tuner")
    return path


def run_native(problem: Problem, t1: Path, order: Order) -> dict[str, Any]:
    """``tune_kernel`` in simulation mode; the line of `run_one`."""
    from kernel_tuner import tune_kernel

    _, kernel, device, spec, repeat, _ = order
    task = problem.task
    space = task.recording.space
    conditions = json.loads(t1.read_text())["ConfigurationSpace"]["Conditions"]
    searcher = resolve(f"kernel_tuner:{spec.removesuffix(NATIVE)}")
    assert isinstance(searcher, LibrarySearcher)
    options = {k: v for k, v in searcher.settings.items() if k not in ("strategy", "module")}
    seed = run_seed(1, task.name, repeat)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - what Kernel Tuner draws from
    start = time.process_time()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        results, _ = tune_kernel(
            task.recording.info.kernel,
            "",
            (1,),
            [],
            {name: list(v) for name, v in zip(space.names, space.values, strict=True)},
            restrictions=[condition["Expression"] for condition in conditions],
            lang="CUDA",
            cache=str(exported(task.recording)),
            simulation_mode=True,
            quiet=True,
            strategy=searcher.settings["strategy"],
            strategy_options={**options, "time_limit": task.budget_s},
        )
    cpu_s = time.process_time() - start
    index = [{v: i for i, v in enumerate(values)} for values in space.values]
    places = (tuple(i[r[n]] for n, i in zip(space.names, index, strict=True)) for r in results)
    asked = [row for row in map(space.row, places) if row >= 0]
    rows = list(dict.fromkeys(asked))
    return {
        "searcher": spec,
        "space": f"{kernel}-{device}",
        "repeat": repeat,
        "outcome": "ended",
        "error": None,
        "asks": len(asked),
        "cpu_s": round(cpu_s, 2),
        "rows": rows,
        "charged_s": [round(t, 4) for t in charged(problem, asked, len(rows))],
    }


def charged(problem: Problem, asked: Sequence[int], visits: int) -> Iterator[float]:
    """When each first visit is done if revisits take the time of their benchmark runs."""
    evaluation_s = problem.task.recording.evaluation_s
    now_s, seen = 0.0, set()
    for row in asked:
        if len(seen) == visits:  # the rest of a last batch was not measured
            return
        if row in seen:
            now_s += problem.runtimes_s.item(row)
            continue
        seen.add(row)
        now_s += evaluation_s.item(row)
        yield now_s


def run(arguments: argparse.Namespace) -> None:
    done = {(line["searcher"], line["space"], line["repeat"]) for line in lines(arguments.runs)}
    orders: list[Order] = [
        (arguments.folder, kernel, device, spec, repeat, arguments.cpu_limit)
        for spec in chosen(arguments)
        for repeat in range(arguments.slow_repeats if spec in SLOW else arguments.repeats)
        for kernel in KERNELS
        for device in DEVICES
        if (spec, f"{kernel}-{device}", repeat) not in done
    ]
    os.environ["PYTHONHASHSEED"] = "0"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.workers) as pool, arguments.runs.open("a") as file:
        for number, line in enumerate(pool.imap_unordered(run_one, orders), start=1):
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(
                f"{number}/{len(orders)} {line['searcher']} on {line['space']}: {line['outcome']}, "
                f"{len(line['rows'])} visits, {line['cpu_s']} CPU s",
                flush=True,
            )


def chosen(arguments: argparse.Namespace) -> list[str]:
    if arguments.native:
        return [f"{spec}{NATIVE}" for spec in arguments.searcher or AS_MEASURED]
    return arguments.searcher or [*AS_MEASURED, *LIFTED, *SLOW]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def report(arguments: argparse.Namespace) -> None:
    problems = {f"{k}-{d}": load(arguments.folder, k, d) for k in KERNELS for d in DEVICES}
    runs = lines(arguments.runs)
    package = Package(problems)
    print(
        f"{'strategy':<44}{'runs':>5}{'P':>8}{'s.e.':>6}{'charged':>9}{'s.e.':>6}"
        f"{'package':>9}{'s.d.':>6}{'ref. 6':>8}{'ref. 12':>8}{'CPU s':>8}  ends"
    )
    for spec in dict.fromkeys(line["searcher"] for line in runs):
        found = [line for line in runs if line["searcher"] == spec]
        by_space = {name: [line for line in found if line["space"] == name] for name in problems}
        if not all(len(rows) > 1 for rows in by_space.values()):
            continue
        free, paid = (scored(problems, by_space, charge) for charge in (False, True))
        theirs = package.scores(by_space)
        name = spec.removesuffix(NATIVE).partition("?")[0]
        six, twelve = (
            f"{reference[name]:.3f}" if name in reference and spec not in LIFTED else "-"
            for reference in (REFERENCE_SIX, REFERENCE_TWELVE)
        )
        ends: dict[str, int] = {}
        for line in found:
            ends[line["outcome"]] = ends.get(line["outcome"], 0) + 1
        print(
            f"{spec:<44}{len(found):>5}{free.p:>8.3f}{free.standard_error or 0:>6.3f}"
            f"{paid.p:>9.3f}{paid.standard_error or 0:>6.3f}{np.mean(theirs):>9.3f}"
            f"{np.std(theirs, ddof=1):>6.3f}{six:>8}{twelve:>8}"
            f"{np.mean([line['cpu_s'] for line in found]):>8.2f}  "
            + ", ".join(f"{end} {count}" for end, count in sorted(ends.items()))
        )


def scored(
    problems: dict[str, Problem], runs: dict[str, list[dict[str, Any]]], charge: bool
) -> Any:
    return aggregate(
        [
            score_space(problem.task, [external(problem, line, charge) for line in runs[name]])
            for name, problem in problems.items()
        ]
    )


def external(problem: Problem, line: dict[str, Any], charge: bool) -> ExternalTrace:
    rows = np.array(line["rows"], dtype=np.int64)
    recording = problem.task.recording
    elapsed_s = np.array(line["charged_s"]) if charge else np.cumsum(recording.evaluation_s[rows])
    return ExternalTrace(str(line["repeat"]), elapsed_s, recording.time_ms[rows])


class Package:
    """autotuning_methodology on the same problems."""

    def __init__(self, problems: dict[str, Problem]) -> None:
        from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
        from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

        self._problems = problems
        self._data: dict[str, tuple[Any, Any]] = {}
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, problem in problems.items():
                path = Path(folder) / f"{name}.json"
                path.write_bytes(unpacked(problem.t4))
                stats = SearchspaceStatistics(
                    "kernel", "device", True, TIME_KEYS, ["time"], path, full_validate=False
                )
                self._data[name] = (RandomSearchCalculatedBaseline(stats), stats)

    def scores(self, runs: dict[str, list[dict[str, Any]]]) -> list[float]:
        """Of the same traces, several times."""
        from autotuning_methodology.report_experiments import (
            get_strategies_aggregated_performance,
        )

        data = []
        for name, problem in self._problems.items():
            traces = [external(problem, line, charge=True) for line in runs[name]]
            baseline, stats = self._data[name]
            data.append((baseline, [self._curve(traces)], stats, problem.task.axis_s, None))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [
                float(np.mean(get_strategies_aggregated_performance(data, 0.95)[0][0]))
                for _ in range(PACKAGE_CALLS)
            ]

    @staticmethod
    def _curve(traces: Sequence[ExternalTrace]) -> Any:
        """The traces as the package's runner lays them out."""
        from autotuning_methodology.curves import StochasticOptimizationAlgorithm

        class Curve(StochasticOptimizationAlgorithm):  # type: ignore[misc]
            def __init__(self) -> None:
                longest = max(trace.cost_ms.size for trace in traces)
                self._x_time = np.full((longest, len(traces)), np.nan)
                self._y = self._x_time.copy()
                for number, trace in enumerate(traces):
                    best = np.minimum.accumulate(trace.cost_ms)
                    self._x_time[: best.size, number] = trace.elapsed_s
                    self._y[: best.size, number] = np.where(np.isinf(best), np.nan, best)
                self.minimization = True
                self.name = self.display_name = "strategy"
                self.application_name = self.device_name = "space"

        return Curve()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("folder", type=Path, help="the hub's spaces")
    parser.add_argument("runs", type=Path, help="JSON lines, added to")
    parser.add_argument("--searcher", action="append", help="strategy?options; repeatable")
    parser.add_argument("--native", action="store_true", help="run Kernel Tuner itself")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--slow-repeats", type=int, default=25, help=f"of {', '.join(SLOW)}")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cpu-limit", type=float, default=600.0, help="CPU seconds of a run")
    arguments = parser.parse_args()
    (run if arguments.what == "run" else report)(arguments)


if __name__ == "__main__":
    main()
