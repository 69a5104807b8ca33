"""scipy's optimizers under the contract: the real code, its seeds, its end."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.driver import Evaluate, run_in_process
from support.handmade import line_recording
from support.recordings import small_recording

from llamea_gpu.clocks import ParallelClock, SequentialClock
from llamea_gpu.errors import BudgetExhausted, SearcherError
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.searchers.scipy_optimize import names
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.space import SpaceView
from llamea_gpu.tasks import Task

METHODS = names()


def build(spec: str) -> Any:
    return resolve(spec).build()  # type: ignore[union-attr]


@pytest.fixture(scope="module", params=["small", "constrained", "line"])
def task(request: pytest.FixtureRequest) -> Task:
    if request.param == "small":
        return Task.build(small_recording())
    if request.param == "line":
        return Task.build(line_recording([float(1 + (cost * 7) % 40) for cost in range(40)]))
    return Task.build(load_space("matmul_gelu-2048x8192"))


@pytest.mark.parametrize("method", METHODS)
def test_a_run_depends_on_its_seed_and_ends_with_the_budget(method: str, task: Task) -> None:
    first, again, other = (run_in_process(build(f"scipy:{method}"), task, s) for s in (1, 1, 2))
    assert first.outcome == "budget"
    assert first.rows.tolist() == again.rows.tolist()
    assert (first.rows.tolist() == other.rows.tolist()) == (method == "direct")


@pytest.mark.parametrize("method", ["dual_annealing", "differential_evolution"])
def test_no_limit_but_the_budget(method: str) -> None:
    """With restarts, everything is seen in the end, and no run is called stalled."""
    recording = line_recording([float(1 + (cost * 7) % 40) for cost in range(40)])
    task = replace(Task.build(recording), budget_s=math.inf)
    trace = run_in_process(build(f"scipy:{method}"), task, seed=1)
    assert trace.outcome == "finished"
    assert trace.rows.size == 40


def test_direct_goes_beyond_its_default_limit() -> None:
    task = replace(Task.build(load_space("matmul-2048")), budget_s=math.inf)
    trace = run_in_process(build("scipy:direct"), task, seed=1, max_idle_asks=100_000)
    assert trace.outcome == "finished"
    assert trace.asks > 1000 * 8  # scipy's own limit is 1,000 evaluations a parameter


@pytest.mark.parametrize("method", METHODS)
def test_a_space_of_one_configuration(method: str) -> None:
    task = replace(
        Task.build(small_recording()), recording=line_recording([1.0]), budget_s=math.inf
    )
    assert run_in_process(build(f"scipy:{method}"), task, seed=1).rows.tolist() == [0]


def test_failures_alone_end_nothing() -> None:
    recording = line_recording([math.inf] * 30 + [1.0])
    task = replace(Task.build(small_recording()), recording=recording, budget_s=math.inf)
    for method in METHODS:
        assert run_in_process(build(f"scipy:{method}"), task, 1).best_ms == 1.0


def test_a_generation_is_one_batch() -> None:
    class Counting(Evaluate):
        def __init__(self, task: Task) -> None:
            super().__init__(task)
            self.sizes: set[int] = set()

        def __call__(self, configs: Any) -> list[float]:
            self.sizes.add(len(configs))
            return super().__call__(configs)

    for clock, sizes in ((ParallelClock(8), {16}), (SequentialClock(), {1})):
        task = Task.build(small_recording(), clock)
        rng = np.random.default_rng(1)
        evaluate = Counting(task)
        with pytest.raises(BudgetExhausted):
            build("scipy:differential_evolution?popsize=4")(
                evaluate, SpaceView(task.recording.space, rng), rng
            )
        assert evaluate.sizes == sizes


def test_settings_reach_scipy() -> None:
    task = Task.build(small_recording(), ParallelClock(8))
    few, many = (
        run_in_process(build(f"scipy:differential_evolution?popsize={n}"), task, 1) for n in (2, 9)
    )
    assert few.rows.tolist() != many.rows.tolist()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("scipy:anneal", "did you mean dual_annealing"),
        ("scipy:direct?popsize=3", "no setting 'popsize': there are eps, locally_biased"),
        ("scipy:dual_annealing?visit=x", "visit must be of type float"),
    ],
)
def test_wrong_specs_say_what_to_do(spec: str, said: str) -> None:
    with pytest.raises(SearcherError, match=said):
        resolve(spec)


def test_what_decides_a_run_is_on_record() -> None:
    found = resolve("scipy:dual_annealing?visit=2.0")
    assert found.settings == {"method": "dual_annealing", "visit": 2.0}  # type: ignore[union-attr]
    assert set(found.versions) == {"scipy"}  # type: ignore[union-attr]
