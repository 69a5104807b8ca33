"""How a strategy behaves inside ``tune_kernel``: budget, memory, costs, seeds, faults, workers."""

from __future__ import annotations

import contextlib
import math
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import skip_or_fail
from kernel_tuner import tune_kernel
from kernel_tuner.runners.runner import Runner
from kernel_tuner.strategies.wrapper import OptAlgWrapper
from support.recordings import small_recording
from support.tuning import Simulation

from llamea_gpu.errors import SearcherError
from llamea_gpu.live.kernel_tuner import strategy
from llamea_gpu.live.kernel_tuner.runtime import KernelTunerStrategy

pytestmark = pytest.mark.filterwarnings("ignore:None of the tunable parameters:UserWarning")

Run = Callable[[Any, Any, np.random.Generator], Any]


def strategy_of(run: Run, seed: int | None = 1) -> KernelTunerStrategy:
    """A strategy whose optimizer is a function."""
    return KernelTunerStrategy("made", lambda: run, {}, seed)


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    return Simulation(small_recording(), tmp_path_factory.mktemp("cache"))


def test_the_budget_is_spent_on_first_visits_alone(simulation: Simulation) -> None:
    def run(evaluate: Any, space: Any, rng: Any) -> None:
        for config in space.sample(space.size):
            once = evaluate([config])
            assert evaluate([config, config]) == once * 2

    rows = simulation.rows(simulation.tune(strategy_of(run), 30))
    assert len(rows) == len(set(rows)) == 30


def test_a_batch_is_measured_in_its_order_without_its_duplicates(simulation: Simulation) -> None:
    asked: list[Any] = []

    def run(evaluate: Any, space: Any, rng: Any) -> None:
        asked.extend(space.sample(7))
        costs = evaluate([*asked, *asked[::-1]])
        assert costs == costs[::-1]
        assert evaluate(asked) == costs[:7]

    rows = simulation.rows(simulation.tune(strategy_of(run), 30))
    assert rows == [simulation.recording.space.row(config) for config in asked]


def test_a_batch_that_crosses_the_end_is_measured_up_to_it(simulation: Simulation) -> None:
    answered = []

    def run(evaluate: Any, space: Any, rng: Any) -> None:
        answered.append(evaluate(space.sample(8)))
        answered.append(evaluate(space.sample(50)))

    assert len(simulation.tune(strategy_of(run), 20)) == 20
    assert len(answered) == 1


def test_the_end_passes_through_except_exception(simulation: Simulation) -> None:
    def run(evaluate: Any, space: Any, rng: Any) -> None:
        while True:
            try:
                evaluate(space.sample(5))
            except Exception:
                raise AssertionError("the end of the budget was caught") from None

    assert len(simulation.tune(strategy_of(run), 40)) == 40


def test_spent_is_the_share_of_the_budget(simulation: Simulation) -> None:
    seen = []

    def run(evaluate: Any, space: Any, rng: Any) -> None:
        configs = space.sample(16)
        for stop in (0, 4, 8, 16, 12):
            evaluate(configs[:stop])
            seen.append(evaluate.spent)

    simulation.tune(strategy_of(run), 64)
    assert seen == [0.0, 4 / 64, 8 / 64, 16 / 64, 16 / 64]


def test_costs_are_those_of_the_recording_and_failures_are_infinite(
    simulation: Simulation,
) -> None:
    costs: dict[int, float] = {}
    space_of_recording = simulation.recording.space

    def run(evaluate: Any, space: Any, rng: Any) -> None:
        configs = space.sample(space.size - 1)
        costs.update(zip(map(space_of_recording.row, configs), evaluate(configs), strict=True))

    simulation.tune(strategy_of(run), simulation.recording.space.size)
    assert len(costs) == simulation.recording.space.size - 1
    assert math.inf in costs.values()
    for row, cost in costs.items():
        assert cost == simulation.recording.time_ms[row]


def test_an_objective_to_maximise_is_negated(simulation: Simulation) -> None:
    best: list[float] = []

    def run(evaluate: Any, space: Any, rng: Any) -> None:
        best.append(min(evaluate(space.pool(space.size)[:-1])))

    simulation.tune(
        strategy_of(run),
        120,
        metrics={"speed": lambda result: 1 / result["time"]},
        objective="speed",
        objective_higher_is_better=True,
    )
    assert best == [pytest.approx(-1 / simulation.recording.optimum_ms)]


@pytest.mark.parametrize("wrong", [(99, 0, 0, 0), (0, 0, 0), 3, "text", (0.5, 0, 0, 0), None])
def test_an_invalid_configuration_is_refused_and_costs_nothing(
    simulation: Simulation, wrong: Any
) -> None:
    def run(evaluate: Any, space: Any, rng: Any) -> None:
        with pytest.raises(ValueError, match="must be valid in this space"):
            evaluate([space.sample(1)[0], wrong])
        evaluate(space.sample(1))

    assert len(simulation.tune(strategy_of(run), 10)) == 1


def test_two_objectives_are_refused(simulation: Simulation) -> None:
    with pytest.raises(ValueError, match="minimises one objective"):
        simulation.tune(
            strategy("random_search", seed=1),
            10,
            objectives={"time": False, "benchmark_time": False},
        )


def test_an_optimizer_that_is_stuck_ends_with_a_warning(simulation: Simulation) -> None:
    def run(evaluate: Any, space: Any, rng: Any) -> None:
        first = space.sample(3)
        while True:
            evaluate(first)

    with pytest.warns(UserWarning, match="asked 10000 times for what it had seen"):
        assert len(simulation.tune(strategy_of(run), 10)) == 3


def test_the_clock_ends_a_run_without_new_visits(simulation: Simulation) -> None:
    def run(evaluate: Any, space: Any, rng: Any) -> None:
        first = space.sample(3)
        evaluate(first)
        evaluate.func.tuning_options.budget.add_time(seconds=1e6)  # as if it had passed
        evaluate(first)
        raise AssertionError("it went on")

    assert len(simulation.tune(strategy_of(run), 50, {"time_limit": 1e6})) == 3


def test_a_fault_keeps_what_was_measured(simulation: Simulation) -> None:
    def run(evaluate: Any, space: Any, rng: Any) -> None:
        evaluate(space.sample(5))
        raise KeyError("of the optimizer")

    with pytest.warns(UserWarning, match="made failed; .*(?s:.)*KeyError: 'of the optimizer'"):
        assert len(simulation.tune(strategy_of(run), 10)) == 5


def test_a_fault_before_anything_is_measured_is_raised(simulation: Simulation) -> None:
    def run(evaluate: Any, space: Any, rng: Any) -> None:
        raise KeyError("of the optimizer")

    with pytest.raises(KeyError):
        simulation.tune(strategy_of(run), 10)


def test_an_interrupt_is_no_fault(simulation: Simulation) -> None:
    def run(evaluate: Any, space: Any, rng: Any) -> None:
        evaluate(space.sample(5))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulation.tune(strategy_of(run), 10)


def test_the_generators_of_the_user_are_put_back(simulation: Simulation) -> None:
    def run(evaluate: Any, space: Any, rng: Any) -> None:
        random.random(), np.random.random()  # noqa: NPY002 - what is tested
        evaluate(space.sample(5))

    random.seed(7)
    np.random.seed(7)  # noqa: NPY002 - the user's
    expected = random.random(), np.random.random()  # noqa: NPY002
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    simulation.tune(strategy_of(run), 10)
    assert (random.random(), np.random.random()) == expected  # noqa: NPY002
    fresh = [np.random.default_rng().integers(1 << 62) for _ in range(2)]
    assert fresh[0] != fresh[1]
    simulation.tune(strategy_of(run), 10)
    assert np.random.default_rng().integers(1 << 62) not in fresh


def test_without_a_seed_the_run_tells_one_that_repeats_it(
    simulation: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    unseeded = strategy("simulated_annealing")
    first = simulation.rows(simulation.tune(unseeded, 25, quiet=False))
    assert f"simulated_annealing: seed {unseeded.seed}" in capsys.readouterr().out
    assert first == simulation.rows(
        simulation.tune(strategy("simulated_annealing", seed=unseeded.seed), 25)
    )
    assert "seed" not in capsys.readouterr().out
    again = simulation.rows(simulation.tune(unseeded, 25))
    assert first != again


def test_the_seed_of_tune_kernel_counts_when_the_strategy_has_none(
    simulation: Simulation,
) -> None:
    run = strategy("simulated_annealing")
    first = simulation.rows(simulation.tune(run, 25, seed=3))
    assert run.seed == 3
    own = strategy("simulated_annealing", seed=3)
    assert first == simulation.rows(simulation.tune(own, 25, seed=4))


@pytest.mark.parametrize("seed", [-1, 1.5, "1"])
def test_a_seed_that_is_none_is_refused(seed: Any, simulation: Simulation) -> None:
    with pytest.raises(ValueError, match="a seed must be an integer >= 0, but got"):
        strategy("random_search", seed=seed)
    with pytest.raises(ValueError, match="a seed must be an integer >= 0, but got"):
        simulation.tune(strategy("random_search"), 5, seed=seed)
    assert strategy("random_search", seed=np.int64(3)).seed == 3


def test_hyperparameters_come_by_keyword_by_spec_and_as_strategy_options(
    simulation: Simulation,
) -> None:
    kinds = [
        (strategy("genetic_algorithm", seed=1, population_size=4), {}),
        (strategy("genetic_algorithm?population_size=4", seed=1), {}),
        (strategy("genetic_algorithm", seed=1), {"population_size": 4}),
        (strategy("genetic_algorithm", seed=1, population_size=9), {"population_size": 4}),
    ]
    visits = [simulation.rows(simulation.tune(run, 40, options)) for run, options in kinds]
    assert visits[0] == visits[1] == visits[2] == visits[3]
    assert visits[0] != simulation.rows(simulation.tune(strategy("genetic_algorithm", seed=1), 40))


def test_unknown_and_ill_typed_options_are_refused(simulation: Simulation) -> None:
    run = strategy("genetic_algorithm", seed=1)
    with pytest.raises(ValueError, match="Unrecognized option popsize"):
        simulation.tune(run, 10, {"popsize": 4})
    with pytest.raises(SearcherError, match="population_size must be of type int"):
        simulation.tune(run, 10, {"population_size": 4.5})
    with pytest.raises(SearcherError, match="'popsize'"):
        strategy("genetic_algorithm", popsize=4)


def test_it_is_an_optimizer_of_kernel_tuners_own_interface_too(simulation: Simulation) -> None:
    run = strategy("iterated_local_search", seed=1)
    wrapped = simulation.tune(OptAlgWrapper(run), 20)
    assert simulation.rows(wrapped) == simulation.rows(simulation.tune(run, 20))


class StubParallelRunner(Runner):
    """Stands in for Kernel Tuner's, which needs Ray and GPUs: workers that are only counted."""

    made: list[StubParallelRunner] = []  # noqa: RUF012 - emptied by the test

    def __init__(self, *_: Any, num_workers: int | None) -> None:
        super().__init__()
        self.num_workers = num_workers
        self.quiet = True
        self.batches: list[int] = []
        self.made.append(self)

    def available_parallelism(self) -> int:
        return self.num_workers or 16

    def get_device_info(self) -> Any:
        return type("Device", (), {"name": "none", "max_threads": 1024})

    def get_environment(self, tuning_options: Any) -> dict[str, Any]:
        return {}

    def run(self, parameter_space: Any, tuning_options: Any) -> list[Any]:
        self.batches.append(len(parameter_space))
        results: list[Any] = []
        for x, y in parameter_space:
            done = tuning_options.budget.is_done()
            results.append(None if done else {"x": x, "y": y, "time": float(x + y)})
            tuning_options.budget.add_evaluations(1)
        return results


@pytest.mark.parametrize(("parallel", "workers"), [(4, 4), (True, 16)])
def test_the_parallel_runner_is_given_its_workers_and_whole_batches(
    monkeypatch: pytest.MonkeyPatch, parallel: int | bool, workers: int
) -> None:
    stub = ModuleType("kernel_tuner.runners.parallel")
    stub.ParallelRunner = StubParallelRunner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    StubParallelRunner.made.clear()
    seen = []

    def run(evaluate: Any, space: Any, rng: Any) -> None:
        seen.append(evaluate.parallel)
        while True:
            evaluate(space.sample(evaluate.parallel))

    params = {"x": list(range(20)), "y": list(range(20))}
    results, _ = tune_kernel(
        *("toy", "", 1, [], params),
        strategy=strategy_of(run),
        strategy_options={"max_fevals": 48},
        parallel=parallel,
        quiet=True,
    )
    (runner,) = StubParallelRunner.made
    assert seen == [workers]
    assert runner.batches[0] == workers
    assert len(results) == 48


def test_kernel_tuner_itself_would_give_a_strategy_object_one_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Why a strategy enters itself in Kernel Tuner's list: delete that when this fails."""
    stub = ModuleType("kernel_tuner.runners.parallel")
    stub.ParallelRunner = StubParallelRunner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    StubParallelRunner.made.clear()
    params = {"x": list(range(20)), "y": list(range(20))}
    wrapped = OptAlgWrapper(strategy("random_search", seed=1))
    tune_kernel("toy", "", 1, [], params, strategy=wrapped, parallel=4, quiet=True)
    assert StubParallelRunner.made[0].num_workers == 1


KERNEL = """
#include <chrono>
extern "C" float scale(float *out, const float *in, int n) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < n; i += unroll)
        for (int j = 0; j < unroll; j++) out[i + j] = factor * in[i + j];
    auto stop = std::chrono::steady_clock::now();
    return std::chrono::duration<float, std::milli>(stop - start).count();
}
"""


def tune_here(params: dict[str, list[int]], run: Any) -> tuple[Any, Any]:
    """Compiled with g++ and run on this machine: what simulation leaves out."""
    if shutil.which("g++") is None:
        skip_or_fail("no g++ to compile a kernel with")
    numbers = np.arange(1200, dtype=np.float32)
    return tune_kernel(
        *("scale", KERNEL, 1200, [np.zeros_like(numbers), numbers, np.int32(1200)], params),
        answer=[2 * numbers, None, None],
        lang="C",
        strategy=run,
        strategy_options={"max_fevals": 5},
        quiet=True,
    )


def test_it_tunes_a_real_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    params = {"unroll": [1, 2, 3, 4, 5, 6], "factor": [2]}
    run = strategy("genetic_algorithm", seed=1, population_size=4)
    results, env = tune_here(params, run)
    assert len(results) == 5
    assert env["best_config"]["time"] == min(result["time"] for result in results) > 0


def test_a_kernel_that_computes_wrongly_is_not_the_optimizers_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernel Tuner raises, and so it reaches the user, past an optimizer that catches much."""
    monkeypatch.chdir(tmp_path)

    def run(evaluate: Any, space: Any, rng: Any) -> None:
        for config in [(0, 0), (0, 1), (1, 0)]:
            with contextlib.suppress(Exception):
                evaluate([config])

    with pytest.raises(RuntimeError, match="verification failed for: unroll=1, factor=3"):
        tune_here({"unroll": [1, 2], "factor": [2, 3]}, strategy_of(run))
