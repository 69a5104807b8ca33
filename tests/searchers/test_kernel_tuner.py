"""Kernel Tuner's strategies: the real code, on our clock, asked the same questions as at home."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.handmade import line_recording
from support.imports import hidden_from_processes
from support.kernel_tuner_runs import RESTRICTION, KernelTuner, budgeted, constrained_recording

from llamea_gpu.clocks import ParallelClock
from llamea_gpu.errors import BudgetExhausted, SearcherError, Stalled
from llamea_gpu.runner import Runner
from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.searchers import kernel_tuner as installed
from llamea_gpu.searchers.kernel_tuner import names
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.seeding import seed_process
from llamea_gpu.spaces.formats import import_recording
from llamea_gpu.spaces.space import SearchSpace, SpaceView
from llamea_gpu.tasks import Evaluator, Task, Trace

pytest.importorskip("kernel_tuner")

# Options that keep a search short which would go on for long after it has found everything.
STRATEGIES = {
    "brute_force": "",
    "random_sample": "",
    "minimize": "",
    "basinhopping": "",
    "diff_evo": "popsize=4",
    "genetic_algorithm": "maxiter=12",
    "greedy_mls": "",
    "ordered_greedy_mls": "",
    "greedy_ils": "",
    "dual_annealing": "max_fevals=200",
    "mls": "",
    "pso": "popsize=10&maxiter=15",
    "simulated_annealing": "T_min=0.02",
    "firefly_algorithm": "popsize=6&maxiter=3",
    "bayes_opt": "popsize=10&max_fevals=25",
    "hybrid_vndx": "budget=80",
    "adaptive_tabu_greywolf": "budget=200",
    "nsga2": "popsize=10&max_fevals=60",
    "nsga3": "popsize=10&max_fevals=60",
}
BUDGET_EVALUATIONS = 100


def library_searcher(spec: str) -> LibrarySearcher:
    found = resolve(f"kernel_tuner:{spec}")
    assert isinstance(found, LibrarySearcher)
    return found


def spec_of(strategy: str) -> str:
    return f"{strategy}?{STRATEGIES[strategy]}"


@pytest.fixture(scope="module")
def task() -> Task:
    return budgeted(constrained_recording(), BUDGET_EVALUATIONS)


@pytest.fixture(scope="module")
def kernel_tuner(task: Task, tmp_path_factory: pytest.TempPathFactory) -> KernelTuner:
    return KernelTuner(task.recording, [RESTRICTION], tmp_path_factory.mktemp("kernel_tuner"))


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with (
        hidden_from_processes("torch", tmp_path_factory.mktemp("hidden")),
        Runner(Sandbox.open(workers=1, level=0, unsafe=True), workers=1) as runner,
    ):
        yield runner


def run(spec: str, task: Task, seed: int = 3) -> Trace:
    return run_optimizer(library_searcher(spec).build, task, seed, cpu_s=None)


# -- the same runs as at home -----------------------------------------------------------------


def test_every_strategy_of_the_installation_is_offered() -> None:
    from kernel_tuner.interface import strategy_map

    extra = {"skopt", "pyatf_strategies"}
    assert set(STRATEGIES) | extra == set(strategy_map)
    assert set(STRATEGIES) <= set(names()) <= set(strategy_map)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "brute_force"])
def test_it_visits_what_tune_kernel_visits(
    strategy: str, task: Task, kernel_tuner: KernelTuner
) -> None:
    from llamea_gpu.searchers.kernel_tuner import strategy as module

    found = library_searcher(spec_of(strategy))
    size = task.recording.space.size
    options = {**module.lifted(strategy, size), **found.settings}
    del options["strategy"], options["module"]
    home = importlib.import_module(str(found.settings["module"]))
    with module._without_clock(home):
        theirs = kernel_tuner.visits(strategy, options, budget_s=task.budget_s, seed=3)
    trace = run_optimizer(found.build, task, 3, cpu_s=None)
    assert trace.error is None
    assert trace.rows.tolist() == theirs
    assert len(theirs) > (3 if strategy == "minimize" else 20)


def test_brute_force_goes_through_the_list(task: Task) -> None:
    trace = run("brute_force", task)
    assert trace.outcome == "budget"
    assert trace.rows.tolist() == list(range(trace.rows.size))


@pytest.mark.parametrize("strategy", ["genetic_algorithm", "adaptive_tabu_greywolf"])
def test_it_visits_what_tune_kernel_visits_on_a_published_space(
    strategy: str, shared_spaces: Path, tmp_path: Path
) -> None:
    folder = shared_spaces / "kernel_tuner" / "convolution"
    recording, _ = import_recording(folder / "A4000_T4.json.gz", t1=folder / "T1.json")
    text = json.loads((folder / "T1.json").read_text(encoding="utf-8"))
    restrictions = [c["Expression"] for c in text["ConfigurationSpace"]["Conditions"]]
    task = Task.build(recording)
    theirs = KernelTuner(recording, restrictions, tmp_path).visits(
        strategy, {}, budget_s=task.budget_s, seed=1
    )
    spec = {"genetic_algorithm": "genetic_algorithm?maxiter=90"}.get(strategy, strategy)
    assert run(spec, task, seed=1).rows.tolist() == theirs
    assert len(theirs) > 50


@pytest.mark.parametrize("strategy", ["diff_evo", *sorted(set(STRATEGIES) - {"diff_evo"})])
def test_a_run_depends_on_its_seed_alone(strategy: str, task: Task, one_worker: Runner) -> None:
    """Also on no run before it in the same process: the first one imports what it needs."""
    searcher = library_searcher(spec_of(strategy))
    first, other, again = (one_worker.run(searcher, task, seed) for seed in (3, 4, 3))
    assert first.error is None
    assert first.rows.tolist() == again.rows.tolist()
    assert (first.asks, first.outcome) == (again.asks, again.outcome)
    assert strategy == "brute_force" or first.rows.tolist() != other.rows.tolist()


@pytest.mark.parametrize(
    "default",
    [
        "random_sample?fraction=0.1",
        "greedy_ils?max_fevals=100",
        "greedy_mls?max_fevals=100",
        "ordered_greedy_mls?max_fevals=100",
        "mls?max_fevals=100",
        "bayes_opt?max_fevals=30",
        "genetic_algorithm?maxiter=5",
        "hybrid_vndx?budget=50",
    ],
)
def test_a_default_that_only_stops_is_lifted(default: str) -> None:
    task = budgeted(constrained_recording(), 200)
    whole, part = run(default.partition("?")[0], task), run(default, task)
    assert part.outcome == "finished"
    assert part.rows.size < whole.rows.size
    assert part.rows.tolist() == whole.rows[: part.rows.size].tolist()


def test_options_reach_the_strategy(task: Task, kernel_tuner: KernelTuner) -> None:
    options = {"popsize": 12, "method": "uniform", "mutation_chance": 5, "maxiter": 6}
    theirs = kernel_tuner.visits("genetic_algorithm", options, budget_s=task.budget_s, seed=3)
    query = "&".join(f"{key}={value}" for key, value in options.items())
    assert run(f"genetic_algorithm?{query}", task).rows.tolist() == theirs
    assert run("genetic_algorithm?maxiter=6", task).rows.tolist() != theirs


# -- what is read from the installation -------------------------------------------------------


@pytest.mark.parametrize("strategy", installed.strategies())
def test_options_and_defaults_are_the_strategys_own(strategy: str) -> None:
    found = installed.strategies()[strategy]
    module = importlib.import_module(found.module)
    own = {name: default for name, (_, default) in module._options.items()}
    settable = {k: v for k, v in own.items() if isinstance(v, (bool, int, float, str))}
    assert {**found.options, "max_fevals": 0} == {**settable, "max_fevals": 0}
    assert ("max_fevals" in found.options) == (strategy != "brute_force")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("kernel_tuner:genetic", "Kernel Tuner .* has no strategy .*did you mean genetic_algor"),
        ("kernel_tuner:", "no strategy '': there are .*bayes_opt"),
        ("kernel_tuner:pso?pop=3", "no setting 'pop': did you mean popsize"),
        ("kernel_tuner:pso?popsize=x", "popsize must be of type int like its default 50"),
    ],
)
def test_wrong_specs_say_what_to_do(spec: str, problem: str) -> None:
    with pytest.raises(SearcherError, match=problem):
        resolve(spec)


def test_a_missing_package_of_a_strategy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "skopt" else find(name)
    )
    with pytest.raises(SearcherError, match="pip install scikit-optimize"):
        resolve("kernel_tuner:skopt")
    assert "skopt" not in names()


def test_without_kernel_tuner_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SearcherError, match=r"pip install 'llamea-gpu\[kernel-tuner\]'"):
        resolve("kernel_tuner:pso")
    assert names() == ()


def test_another_layout_of_kernel_tuner_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "interface.py").write_text("strategy_map = {}\n", encoding="utf-8")
    monkeypatch.setattr(installed, "_folder", lambda: tmp_path)
    with pytest.raises(SearcherError, match=r"Install kernel_tuner>=1\.5,<2"):
        installed.strategies.__wrapped__()


def test_naming_a_strategy_imports_no_kernel_tuner() -> None:
    code = (
        "import sys\nfrom llamea_gpu.searchers.registry import resolve\n"
        "from llamea_gpu.searchers.kernel_tuner import names\n"
        "resolve('kernel_tuner:pso?popsize=9'), names()\n"
        "print([n for n in ('kernel_tuner', 'torch', 'pymoo') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_record_names_the_versions_that_decide() -> None:
    found = library_searcher("pso")
    assert found.versions["kernel_tuner"] == importlib.metadata.version("kernel_tuner")
    assert found.versions["scipy"] == importlib.metadata.version("scipy")


# -- the objects that Kernel Tuner's code is given --------------------------------------------

Tune = Callable[[Any, Any, Any], None]


class Recorded:
    """``evaluate`` that keeps what it was asked."""

    def __init__(self, task: Task, max_idle_asks: int = 10_000) -> None:
        self._space = task.recording.space
        self.evaluator = Evaluator(task, max_idle_asks)
        self.batches: list[list[tuple[int, ...]]] = []

    @property
    def spent(self) -> float:
        return self.evaluator.spent

    @property
    def parallel(self) -> int:
        return self.evaluator.parallel

    def __call__(self, configs: Any) -> list[float]:
        self.batches.append(list(configs))
        rows = np.array([self._space.row(config) for config in configs], dtype=np.int64)
        return self.evaluator.ask(rows).tolist()  # type: ignore[no-any-return]


def search_with(tune: Tune, task: Task, evaluate: Recorded | None = None, **options: Any) -> Any:
    from llamea_gpu.searchers.kernel_tuner.bridge import search
    from llamea_gpu.searchers.kernel_tuner.searchspace import fresh_searchspace

    rng = seed_process(1)
    evaluate = evaluate or Recorded(task)
    search(tune, evaluate, fresh_searchspace(SpaceView(task.recording.space, rng)), options=options)
    return evaluate


def with_costs(ask: Callable[[Any, Any], None], **kwargs: Any) -> Tune:
    """A strategy that hands its cost function and search space to ``ask``."""

    def tune(searchspace: Any, runner: Any, tuning_options: Any) -> None:
        from kernel_tuner.strategies.common import CostFunc

        ask(CostFunc(searchspace, tuning_options, runner, **kwargs), searchspace)

    return tune


FLOAT_MAX = sys.float_info.max


def test_a_batch_is_measured_together_and_revisits_are_asked(task: Task) -> None:
    def ask(func: Any, searchspace: Any) -> None:
        batch = [*searchspace.list[:5], searchspace.list[0]]
        costs = func.eval_all(batch)
        assert costs[0] == costs[5]
        assert func(searchspace.list[0]) == costs[0]

    evaluate = search_with(with_costs(ask), task)
    assert [len(batch) for batch in evaluate.batches] == [6, 1]
    trace = evaluate.evaluator.trace(outcome="finished", seed=1)
    assert (trace.asks, trace.revisits) == (7, 2)


def test_what_breaks_a_constraint_costs_nothing(task: Task) -> None:
    def ask(func: Any, searchspace: Any) -> None:
        invalid = (256, 8, 0.5, "flat", 1)
        assert not searchspace.is_param_config_valid(invalid)
        assert func.eval_all([invalid, searchspace.list[0]])[0] == FLOAT_MAX
        assert func(invalid, check_restrictions=False) == FLOAT_MAX
        assert func.budget_spent_fraction < 0.02

    evaluate = search_with(with_costs(ask, snap=False), task)
    assert [len(batch) for batch in evaluate.batches] == [1, 0]


def test_a_failure_is_charged_and_costs_float_max(task: Task) -> None:
    failed = int(np.flatnonzero(np.isinf(task.recording.time_ms))[0])

    def ask(func: Any, searchspace: Any) -> None:
        assert func(searchspace.list[failed]) == FLOAT_MAX
        assert func.budget_spent_fraction > 0

    search_with(with_costs(ask), task)


def test_a_number_that_reads_differently_is_refused_as_at_home(
    task: Task, kernel_tuner: KernelTuner
) -> None:
    def ask(func: Any, searchspace: Any) -> None:
        config = searchspace.list[0]
        func((np.int64(config[0]), *config[1:]))
        assert searchspace.is_param_config_valid((float(config[0]), *config[1:]))
        func((float(config[0]), *config[1:]))

    class Strategy:
        tune = staticmethod(with_costs(ask, snap=False))

    with pytest.raises(ValueError, match=r"16\.0"):
        search_with(Strategy.tune, task)
    with pytest.raises(ValueError, match=r"16\.0"):
        kernel_tuner.visits(Strategy, {}, budget_s=task.budget_s, seed=1)


def test_the_budget_ends_first_as_at_home_then_for_good() -> None:
    from kernel_tuner.util import StopCriterionReached

    task = budgeted(constrained_recording(), 10)
    endings: list[type[BaseException]] = []

    def ask(func: Any, searchspace: Any) -> None:
        for config in itertools.cycle(searchspace.list):
            try:
                func(config)
            except StopCriterionReached as end:
                endings.append(type(end))
            except BudgetExhausted as end:
                endings.append(type(end))
                raise

    with pytest.raises(BudgetExhausted):
        search_with(with_costs(ask), task)
    assert endings == [StopCriterionReached, BudgetExhausted]


def test_a_batch_is_cut_off_where_the_budget_ends() -> None:
    from kernel_tuner.util import StopCriterionReached

    task = budgeted(constrained_recording(), 10)

    def ask(func: Any, searchspace: Any) -> None:
        with pytest.raises(StopCriterionReached):
            func.eval_all(searchspace.list)

    evaluate = Recorded(task)
    with pytest.raises(BudgetExhausted):
        search_with(with_costs(ask), task, evaluate)
    trace = evaluate.evaluator.trace(outcome="budget", seed=1)
    assert trace.rows.tolist() == list(range(trace.rows.size))
    assert 5 < trace.rows.size < 20
    assert trace.asks == trace.rows.size


def test_the_search_ends_when_everything_is_visited() -> None:
    task = budgeted(line_recording([float(cost) for cost in range(1, 31)]), 100)
    trace = run("greedy_ils", task)
    assert (trace.outcome, trace.rows.size) == ("finished", 30)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "brute_force"])
def test_what_is_lifted_ends_where_nothing_is_left_to_improve(strategy: str, task: Task) -> None:
    plateau = replace(task, recording=line_recording([1.0] * 40 + [2.0] * 20), budget_s=1000.0)
    trace = run_optimizer(library_searcher(strategy).build, plateau, 3, cpu_s=30.0)
    assert trace.outcome in ("finished", "stalled", "error"), trace.error
    assert trace.rows.size > 1


def test_a_search_that_asks_for_nothing_valid_stalls(task: Task) -> None:
    def ask(func: Any, searchspace: Any) -> None:
        while True:
            func((256, 8, 0.5, "flat", 1))

    with pytest.raises(Stalled):
        search_with(with_costs(ask, snap=False), task, Recorded(task, max_idle_asks=50))


@pytest.mark.parametrize(("asked", "batches"), [(32, [32]), (40, [4] * 10)])
def test_many_more_than_the_workers_can_hold_are_asked_in_pieces(
    asked: int, batches: list[int]
) -> None:
    recording = constrained_recording()
    task = Task.build(recording, ParallelClock(4))
    object.__setattr__(task, "budget_s", 1e6)

    def ask(func: Any, searchspace: Any) -> None:
        func.eval_all(searchspace.list[:asked])

    evaluate = search_with(with_costs(ask), task)
    assert [len(batch) for batch in evaluate.batches] == batches


def test_random_sampling_is_worth_as_much_with_a_parallel_clock() -> None:
    task = Task.build(constrained_recording(), ParallelClock(8))
    sizes = [run("random_sample", task, seed).rows.size for seed in range(5)]
    assert min(sizes) > 0.5 * task.budget_evaluations


@pytest.mark.parametrize("method", ["strictly-adjacent", "adjacent", "Hamming", "Hamming-adjacent"])
def test_neighbours_are_those_of_a_constructed_searchspace(task: Task, method: str) -> None:
    from kernel_tuner.searchspace import Searchspace

    from llamea_gpu.searchers.kernel_tuner.searchspace import fresh_searchspace

    view = SpaceView(task.recording.space, np.random.default_rng(1))
    ours = fresh_searchspace(view)
    params = {k: list(v) for k, v in zip(view.names, view.values, strict=True)}
    theirs = Searchspace(params, [RESTRICTION], 1024, framework="bruteforce")
    assert ours.list == theirs.list
    assert ours.get_list_dict() == theirs.get_list_dict()
    fictitious = (256, 8, 0.5, "flat", 1)
    for config in [*theirs.list, fictitious]:
        expected = theirs.get_neighbors(config, method)
        assert ours.get_neighbors(config, method) == expected
        assert ours.get_neighbors_no_cache(config, method) == expected


def test_a_searchspace_is_as_good_as_new(task: Task) -> None:
    from llamea_gpu.searchers.kernel_tuner.searchspace import fresh_searchspace

    view = SpaceView(task.recording.space, np.random.default_rng(1))
    first = fresh_searchspace(view)
    config = first.list[7]
    found = first.get_neighbors_indices(config, "Hamming")
    expected = found.tolist()
    found[:] = 0  # what its cache holds, and no other's
    first.list.reverse()
    first.tune_params["block"].append(512)
    second = fresh_searchspace(view)
    assert not second.are_neighbors_indices_cached(config, "Hamming")
    assert second.get_neighbors_indices(config, "Hamming").tolist() == expected
    assert second.list[7] == config
    assert second.tune_params["block"] == [16, 32, 64, 128, 256]


def test_equal_values_of_another_type_make_another_searchspace() -> None:
    from llamea_gpu.searchers.kernel_tuner.searchspace import fresh_searchspace

    rng = np.random.default_rng(1)
    for values in ((1, 2), (1.0, 2.0), (True, 2)):
        space = SearchSpace(["x"], [values], [[0], [1]])
        assert repr(fresh_searchspace(SpaceView(space, rng)).list) == repr([(v,) for v in values])


def test_a_space_that_cannot_be_counted_is_refused(task: Task) -> None:
    from llamea_gpu.searchers.kernel_tuner.searchspace import fresh_searchspace

    view = SpaceView(task.recording.space, np.random.default_rng(1))
    view.size = None
    with pytest.raises(SearcherError, match="cannot be counted"):
        fresh_searchspace(view)
