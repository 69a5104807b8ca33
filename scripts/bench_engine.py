"""How fast the engine is, beside Kernel Tuner's simulation mode, in one run on one machine.

    python scripts/bench_engine.py convolution/A100.json.gz --t1 convolution/T1.json [--json]

Both sides tune the same recording (a Kernel Tuner cache file; none ships with the project) until
the same simulated budget is used up, with random search and with a genetic algorithm of the same
parameters (`kernel_tuner_ga.py`). One side after the other, so that they do not share the cores.

- ours: every run is a fresh, hardened process under the best sandbox level that this machine has;
  the recording is loaded once, and the sandbox opened once, as in any use of it (the setup row).
- tune_kernel_T1: how autotuning_methodology runs Kernel Tuner for each repeat. Beside the search
  it reads T1 file and cache, makes the kernel's arguments, and converts the results to T4.
- tune_kernel, cold: a bare call with ``simulation_mode=True`` and no arguments, which reads the
  cache and constructs the search space.
- tune_kernel, warm: the same call, but handed the parsed cache and the constructed Searchspace
  (with all that it has memoised) of the call before, and without closing the cache file. Kernel
  Tuner has no such mode; it is the most that a harness can reuse.

Calls are configurations answered, revisits included. Kernel Tuner also counts its own real time in
the budget, which shortens its runs by less than one in a thousand here.

Kernel Tuner's own strategies run on both sides, the same code with the same options, seeds and
budget, timed in CPU seconds: here as a worker process runs them, there in the three kinds of calls.

The last part times a full fitness evaluation: a candidate on all training spaces, ten repeats each,
scores and bootstrap included.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from llamea_gpu.clocks import SequentialClock
from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.sandbox.jobs import Job
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.scoring import aggregate, score_space
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import ProgramSearcher, resolve, resolve_program
from llamea_gpu.seeding import seed_process
from llamea_gpu.spaces.catalogue import list_spaces, load_space, search_path_from_environment
from llamea_gpu.spaces.formats import import_recording
from llamea_gpu.tasks import Task, run_seed

GA_PARAMETERS = {"popsize": 20, "maxiter": 100, "mutation_chance": 10}
SEARCHERS: dict[str, tuple[str, str, Any]] = {
    "random search": ("random_search", "random_sample", {"fraction": 1.0}),
    "genetic algorithm": (
        str(Path(__file__).with_name("kernel_tuner_ga.py")),
        "genetic_algorithm",
        {**GA_PARAMETERS, "method": "uniform"},
    ),
}


SEARCH_CALLS: dict[str, tuple[str, Any]] = {
    name: (strategy, options) for name, (_, strategy, options) in SEARCHERS.items()
}

# The options of both sides. What by default stops a search early is set so that there is something
# to time; nsga2 and nsga3, which go on for very long under a budget, are left out.
EVERYTHING = "the number of configurations"
STRATEGIES: dict[str, dict[str, Any]] = {
    "random_sample": {"fraction": 1.0},
    "genetic_algorithm": {"maxiter": 90},
    "diff_evo": {},
    "simulated_annealing": {},
    "pso": {"maxiter": 190},
    "firefly_algorithm": {"maxiter": 100},
    "mls": {"max_fevals": EVERYTHING},
    "greedy_mls": {"max_fevals": EVERYTHING},
    "ordered_greedy_mls": {"max_fevals": EVERYTHING},
    "greedy_ils": {"max_fevals": EVERYTHING},
    "dual_annealing": {"max_fevals": EVERYTHING},
    "basinhopping": {},
    "minimize": {},
    "adaptive_tabu_greywolf": {"budget": 5000},
    "hybrid_vndx": {"budget": 500},
    "bayes_opt": {"max_fevals": 120},
}


@dataclass(frozen=True)
class Rate:
    """Whole runs of one searcher on one side."""

    searcher: str
    side: str
    runs: int
    calls_per_run: float
    runs_per_s: float
    calls_per_s: float


def rate(searcher: str, side: str, calls: Sequence[int], wall_s: float) -> Rate:
    runs = len(calls)
    return Rate(searcher, side, runs, sum(calls) / runs, runs / wall_s, sum(calls) / wall_s)


def job(searcher: ProgramSearcher, task: Task, repeat: int) -> Job:
    return Job(searcher.program, task, seed=run_seed(1, task.name, repeat))


def ours(task: Task, sandbox: Sandbox, side: str, runs: int) -> Iterator[Rate]:
    for searcher, (spec, _, _) in SEARCHERS.items():
        source = resolve_program(spec)
        sandbox.run(job(source, task, 0))  # the first run of a space sends it to the sandbox
        start = time.perf_counter()
        futures = [sandbox.submit(job(source, task, repeat)) for repeat in range(runs)]
        traces = [future.result() for future in futures]
        wall_s = time.perf_counter() - start
        broken = [trace.error for trace in traces if trace.outcome not in ("budget", "finished")]
        if broken:
            raise SystemExit(f"{searcher} failed: {broken[0]}")
        yield rate(searcher, side, [trace.asks for trace in traces], wall_s)


def options_for(strategy: str, size: int) -> dict[str, Any]:
    return {k: size if v is EVERYTHING else v for k, v in STRATEGIES[strategy].items()}


def our_strategies(task: Task, runs: int) -> Iterator[Rate]:
    """Every strategy of `STRATEGIES`, as a worker process runs it."""
    for strategy in STRATEGIES:
        options = options_for(strategy, task.recording.space.size)
        query = "&".join(f"{key}={value}" for key, value in options.items())
        searcher = resolve(f"kernel_tuner:{strategy}?{query}")
        assert isinstance(searcher, LibrarySearcher)
        run_optimizer(searcher.build, task, 0, cpu_s=None)  # imports, lists the configurations
        start = time.process_time()
        seeds = [run_seed(1, task.name, repeat) for repeat in range(runs)]
        traces = [run_optimizer(searcher.build, task, seed, cpu_s=None) for seed in seeds]
        cpu_s = time.process_time() - start
        broken = [trace.error for trace in traces if trace.error]
        if broken:
            raise SystemExit(f"{strategy} failed: {broken[0]}")
        yield rate(strategy, "ours", [trace.asks for trace in traces], cpu_s)


class KernelTuner:
    """Kernel Tuner on one cache file, copied into a folder of its own."""

    def __init__(self, folder: Path, recording: Path, t1: Path, task: Task) -> None:
        data = recording.read_bytes()
        self._cache = folder / "cache.json"  # it wants the file unpacked and writable
        self._cache.write_bytes(gzip.decompress(data) if recording.suffix == ".gz" else data)
        self._t1 = folder / "T1.json"
        self._t1.write_bytes(t1.read_bytes())
        self._header = json.loads(self._cache.read_text(encoding="utf-8"))
        specification = json.loads(self._t1.read_text(encoding="utf-8"))
        conditions = specification["ConfigurationSpace"]["Conditions"]
        self._restrictions = [condition["Expression"] for condition in conditions]
        kernel = self._header["kernel_name"]
        source = folder / specification["KernelSpecification"]["KernelFile"]
        source.write_text(f"__global__ void {kernel}() {{}}\n", encoding="utf-8")  # never compiled
        self._budget_s = task.budget_s
        self._name = task.name
        self._size = task.recording.space.size

    def bare(self, strategy: str, options: dict[str, Any]) -> int:
        """``tune_kernel``; the number of calls."""
        from kernel_tuner import tune_kernel

        results, _ = tune_kernel(
            self._header["kernel_name"],
            "",
            tuple(self._header["problem_size"]),
            [],
            self._header["tune_params"],
            restrictions=list(self._restrictions),
            lang="CUDA",
            cache=str(self._cache),
            simulation_mode=True,
            quiet=True,
            strategy=strategy,
            strategy_options={**options, "time_limit": self._budget_s},
        )
        return len(results)

    def strategies(self, runs: int) -> Iterator[Rate]:
        """Every strategy of `STRATEGIES`, each run with another seed."""
        cases = {name: (name, options_for(name, self._size)) for name in STRATEGIES}
        clock = time.process_time
        yield from self.rates("tune_kernel_T1", self.from_t1, runs, cases, clock)
        yield from self.rates("tune_kernel, cold", self.bare, runs, cases, clock)
        with self.warm():
            yield from self.rates("tune_kernel, warm", self.bare, runs, cases, clock)

    def from_t1(self, strategy: str, options: dict[str, Any]) -> int:
        """``tune_kernel_T1``; the number of calls."""
        from kernel_tuner import tune_kernel_T1

        _, results = tune_kernel_T1(
            self._t1,
            cache_filepath=self._cache,
            simulation_mode=True,
            device=self._header["device_name"],
            strategy=strategy,
            strategy_options={**options, "time_limit": self._budget_s},
        )
        return len(results["results"])

    def rates(
        self,
        side: str,
        call: Callable[..., int],
        runs: int,
        cases: Mapping[str, tuple[str, Any]] = SEARCH_CALLS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> Iterator[Rate]:
        """``runs`` calls of each of ``cases``, {searcher: (strategy, options)}."""
        for searcher, (strategy, options) in cases.items():
            calls = []
            start = clock()
            for repeat in range(runs):
                seed_process(run_seed(1, self._name, repeat))
                with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                    warnings.simplefilter("ignore")
                    calls.append(call(strategy, options))
            yield rate(searcher, side, calls, clock() - start)

    @contextlib.contextmanager
    def warm(self) -> Iterator[None]:
        """Hand every call the parsed cache and the Searchspace of a first one."""
        from kernel_tuner import interface, util

        kept: dict[str, Any] = {}

        def once(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if name not in kept:
                    kept[name] = make(*args, **kwargs)
                return kept[name]

            return call

        with (
            mock.patch.object(util, "process_cache", once("cache", util.process_cache)),
            mock.patch.object(util, "close_cache", return_value=None),
            mock.patch.object(interface, "Searchspace", once("space", interface.Searchspace)),
        ):
            self.bare("random_sample", {"fraction": 0.01})
            yield


def fitness(candidate: str, repeats: int, workers: int | None) -> dict[str, Any]:
    """Seconds of one full evaluation, from source text to score."""
    search_path = search_path_from_environment()
    names = [entry.name for entry in list_spaces(search_path) if entry.split == "train"]
    tasks = [Task.build(load_space(name, search_path)) for name in names]
    source = resolve_program(candidate)
    with Sandbox.open(workers=workers) as sandbox:
        for task in tasks:  # an evolution has sent them long before
            sandbox.run(job(source, task, 0))
        start = time.perf_counter()
        futures = [
            [sandbox.submit(job(source, task, repeat)) for repeat in range(repeats)]
            for task in tasks
        ]
        traces = [[future.result() for future in row] for row in futures]
        scores = [score_space(task, row) for task, row in zip(tasks, traces, strict=True)]
        p = aggregate(scores).p
        wall_s = time.perf_counter() - start
    cpu_s = sum(trace.cpu_s or 0.0 for row in traces for trace in row)
    return {
        "candidate": candidate,
        "spaces": names,
        "repeats": repeats,
        "wall_s": wall_s,
        "candidate_cpu_s": cpu_s,
        "p": p,
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        recording, _ = import_recording(arguments.recording, t1=arguments.t1)
        task = Task.build(recording, SequentialClock())
        load_s = time.perf_counter() - start

        rates: list[Rate] = []
        cores = len(os.sched_getaffinity(0))
        for workers in sorted({1, cores}):
            start = time.perf_counter()
            with Sandbox.open(workers=workers, level=arguments.level) as sandbox:
                open_s = time.perf_counter() - start
                level = sandbox.level
                side = f"ours, {workers} worker{'s' if workers > 1 else ''}"
                rates += ours(task, sandbox, side, arguments.runs)
        kernel_tuner = KernelTuner(Path(folder), arguments.recording, arguments.t1, task)
        cold_runs = arguments.cold_runs
        rates += kernel_tuner.rates("tune_kernel_T1", kernel_tuner.from_t1, cold_runs)
        rates += kernel_tuner.rates("tune_kernel, cold", kernel_tuner.bare, cold_runs)
        with kernel_tuner.warm():
            rates += kernel_tuner.rates("tune_kernel, warm", kernel_tuner.bare, arguments.warm_runs)

        strategies = [
            *our_strategies(task, arguments.strategy_runs),
            *kernel_tuner.strategies(arguments.strategy_runs),
        ]
    return {
        "machine": {"cores": cores, "python": platform.python_version(), "sandbox_level": level},
        "recording": {
            "name": task.name,
            "configurations": recording.space.size,
            "budget_s": task.budget_s,
            "budget_evaluations": task.budget_evaluations,
        },
        "setup_s": {"import_and_task": load_s, "open_sandbox": open_s},
        "rates": [asdict(each) for each in rates],
        "times_faster": times_faster(rates),
        "strategies": [asdict(each) for each in strategies],
        "fitness": fitness(arguments.candidate, arguments.repeats, None),
    }


def times_faster(rates: Sequence[Rate]) -> list[dict[str, Any]]:
    """Whole runs per second, ours over theirs."""
    return [
        {
            "searcher": mine.searcher,
            "ours": mine.side,
            "theirs": other.side,
            "ratio": mine.runs_per_s / other.runs_per_s,
        }
        for mine in rates
        for other in rates
        if mine.searcher == other.searcher
        and mine.side.startswith("ours")
        and not other.side.startswith("ours")
    ]


def show(found: dict[str, Any]) -> None:
    recording, machine, setup = found["recording"], found["machine"], found["setup_s"]
    print(
        f"{recording['name']}: {recording['configurations']} configurations, a budget of "
        f"{recording['budget_s']:.0f} simulated s ({recording['budget_evaluations']:.0f} "
        f"evaluations); {machine['cores']} cores, Python {machine['python']}, sandbox level "
        f"{machine['sandbox_level']}"
    )
    print(
        f"setup, once: import and task {setup['import_and_task']:.2f} s, "
        f"sandbox {setup['open_sandbox']:.2f} s\n"
    )
    print(f"{'searcher':<19}{'side':<21}{'runs':>5}{'calls/run':>11}{'runs/s':>9}{'calls/s':>10}")
    for row in found["rates"]:
        print(
            f"{row['searcher']:<19}{row['side']:<21}{row['runs']:>5}{row['calls_per_run']:>11.0f}"
            f"{row['runs_per_s']:>9.2f}{row['calls_per_s']:>10.0f}"
        )
    print()
    for row in found["times_faster"]:
        print(
            f"{row['searcher']:<19}{row['ours']:<17} over {row['theirs']}: {row['ratio']:.1f} times"
        )
    show_strategies(found["strategies"])
    fit = found["fitness"]
    print(
        f"\nfitness of {fit['candidate']}: {len(fit['spaces'])} training spaces x {fit['repeats']} "
        f"repeats in {fit['wall_s']:.2f} s (its own CPU {fit['candidate_cpu_s']:.2f} s), "
        f"P = {fit['p']:.3f}"
    )


def show_strategies(rates: Sequence[dict[str, Any]]) -> None:
    sides = ("ours", "tune_kernel_T1", "tune_kernel, cold", "tune_kernel, warm")
    print(f"\n{'strategy: CPU s a run':<24}{'calls':>7}{sides[0]:>8}", end="")
    print("".join(f"{side:>24}" for side in sides[1:]))
    by_strategy: dict[str, dict[str, Any]] = {}
    for row in rates:
        by_strategy.setdefault(row["searcher"], {})[row["side"]] = row
    for strategy, rows in by_strategy.items():
        own, *others = (1 / rows[side]["runs_per_s"] for side in sides)
        print(f"{strategy:<24}{rows['ours']['calls_per_run']:>7.0f}{own:>8.3f}", end="")
        print("".join(f"{other:>13.3f} ({other / own:>5.1f} x)" for other in others))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", type=Path, help="a Kernel Tuner cache file, .json or .json.gz")
    parser.add_argument("--t1", type=Path, required=True, help="its T1 file (constraints)")
    parser.add_argument("--runs", type=int, default=40, help="of ours, for each searcher")
    parser.add_argument("--cold-runs", type=int, default=5, help="of Kernel Tuner")
    parser.add_argument("--warm-runs", type=int, default=10, help="of Kernel Tuner")
    parser.add_argument("--strategy-runs", type=int, default=3, help="of each of its strategies")
    parser.add_argument("--level", type=int, help="sandbox level, the best one by default")
    parser.add_argument("--candidate", default="genetic_algorithm", help="whose fitness is timed")
    parser.add_argument("--repeats", type=int, default=10, help="of the fitness evaluation")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    found = measure(arguments)
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)


if __name__ == "__main__":
    main()
