"""Every shipped optimizer on every kind of space: one property a test."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import json
import math
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.driver import Evaluate, run_in_process
from support.handmade import line_recording
from support.recordings import small_recording

from llamea_gpu.clocks import ParallelClock, PipelinedClock, SequentialClock
from llamea_gpu.errors import BudgetExhausted
from llamea_gpu.programs import Program, admit
from llamea_gpu.programs.shipped import shipped
from llamea_gpu.resources import resource_dir
from llamea_gpu.scoring import SpaceScore, score_space
from llamea_gpu.searchers.registry import resolve_program
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.recording import Recording, RecordingInfo
from llamea_gpu.spaces.space import SpaceView
from llamea_gpu.tasks import Task, Trace, run_seed

NAMES = tuple(shipped())
ASYNCHRONOUS = [name for name in NAMES if ".submit(" in resolve_program(name).program.source]
# Configurations of a space of which it begins with those that tell most about all others, so that
# only ties are left to chance. From larger ones a part is drawn first.
MAY_DRAW_NOTHING_UP_TO = {"main_effect_posterior": 250}
INF = math.inf
SEED = 3


def is_of_whole_spaces(name: str) -> bool:
    """Whether it was promoted on whole spaces, with a start that is given and much in parallel."""
    card = resource_dir("generated_optimizers") / f"{name}.json"
    return card.exists() and json.loads(card.read_text("utf-8")).get("modelled") is not None


def recording_of(configurations: np.ndarray, time_ms: np.ndarray) -> Recording:
    """Costs on chosen configurations; a second to compile, a tenth to time."""
    cardinalities = configurations.max(axis=0) + 1
    return Recording.from_rows(
        names=[f"p{j}" for j in range(configurations.shape[1])],
        values=[tuple(range(count)) for count in cardinalities],
        configurations=configurations,
        time_ms=time_ms,
        compile_s=np.full(len(time_ms), 1.0),
        benchmark_s=np.full(len(time_ms), 0.1),
        status=np.where(np.isfinite(time_ms), 0, 1),
        info=RecordingInfo(name="made", kernel="toy", device="none", framework="none"),
    )


def budgeted(recording: Recording, budget_s: float = 100.0) -> Task:
    """A task on a recording for which the score is not defined, such as one with a single cost."""
    return replace(Task.build(small_recording()), recording=recording, budget_s=budget_s)


def line() -> Task:
    return Task.build(line_recording([float(1 + (cost * 7) % 40) for cost in range(40)]))


def single() -> Task:
    return budgeted(line_recording([1.0]))


def one_works() -> Task:
    return budgeted(line_recording([INF] * 37 + [1.0] + [INF] * 22))


def constrained() -> Task:
    grid = np.array([c for c in itertools.product(range(8), range(7), range(5)) if sum(c) % 3])
    costs = 1 + np.abs(grid - [5, 2, 3]) @ np.array([0.1, 0.3, 0.7])
    costs[::11] = INF
    return Task.build(recording_of(grid, costs))


def side_by_side() -> Task:
    """Compilers and timer busy at once."""
    return Task.build(small_recording(), PipelinedClock(6))


def diagonal() -> Task:
    """No configuration has a neighbour."""
    return Task.build(
        recording_of(np.repeat(np.arange(60)[:, None], 3, axis=1), np.arange(1.0, 61))
    )


def h200_grid() -> Task:
    return Task.build(load_space("matmul-2048"))


SPACES: dict[str, Callable[[], Task]] = {
    make.__name__: make
    for make in (line, single, one_works, constrained, side_by_side, diagonal, h200_grid)
}


@pytest.fixture(scope="module", params=SPACES)
def task(request: pytest.FixtureRequest) -> Task:
    return SPACES[request.param]()


@pytest.fixture(scope="module", params=[name for name in SPACES if name != "h200_grid"])
def endless(request: pytest.FixtureRequest) -> Task:
    """A budget that never ends; on 2,304 configurations a model would compute for a minute."""
    return replace(SPACES[request.param](), budget_s=INF)


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def program(name: str) -> Program:
    return resolve_program(name).program


@pytest.fixture(scope="module")
def make(program: Program) -> Callable[[], Any]:
    """Instances of the shipped class, from the source that the sandbox would run."""
    namespace: dict[str, Any] = {"__name__": program.class_name}
    exec(compile(program.source, program.class_name, "exec"), namespace)  # our own code
    return namespace[program.class_name]


@pytest.fixture(scope="module")
def trace(make: Callable[[], Any], task: Task) -> Trace:
    return run_in_process(make(), task, SEED)


def test_the_same_seed_gives_the_same_run(
    make: Callable[[], Any], task: Task, trace: Trace
) -> None:
    again = run_in_process(make(), task, SEED)
    assert np.array_equal(trace.rows, again.rows)
    assert (trace.asks, trace.outcome) == (again.asks, again.outcome)


def test_other_seeds_give_other_runs(
    make: Callable[[], Any], name: str, task: Task, trace: Trace
) -> None:
    size = task.recording.space.size
    others = (run_in_process(make(), task, seed) for seed in range(SEED))
    if size == 1 or size > MAY_DRAW_NOTHING_UP_TO.get(name, 1):
        differ = any(not np.array_equal(other.rows, trace.rows) for other in others)
        assert differ == (size > 1)


def test_a_run_ends_with_the_budget_or_the_space(task: Task, trace: Trace) -> None:
    everything = trace.rows.size == task.recording.space.size
    assert trace.outcome == "budget" or (trace.outcome == "finished" and everything)


def test_everything_is_measured_and_nothing_asked_twice_when_the_budget_allows(
    make: Callable[[], Any], endless: Task
) -> None:
    trace = run_in_process(make(), endless, SEED)
    assert trace.outcome == "finished"
    assert sorted(trace.rows.tolist()) == list(range(endless.recording.space.size))
    assert trace.revisits == 0


def test_the_end_of_the_budget_passes_through(make: Callable[[], Any], task: Task) -> None:
    # The driver catches it; here nothing does, so it must arrive.
    short = replace(task, budget_s=1e-9)
    rng = np.random.default_rng(3)
    view = SpaceView(task.recording.space, rng)
    evaluate = Evaluate(short)
    ends_by_itself = task.recording.space.size == 1  # one visit is everything
    with contextlib.nullcontext() if ends_by_itself else pytest.raises(BudgetExhausted):
        make()(evaluate, view, rng)


def test_global_generators_are_left_alone(make: Callable[[], Any]) -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - what a searcher must not touch
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    run_in_process(make(), constrained(), SEED)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_batches_fill_the_workers(make: Callable[[], Any]) -> None:
    class Counting(Evaluate):
        calls = 0

        def __call__(self, configs: Any) -> list[float]:
            self.calls += 1
            return super().__call__(configs)

        def wait(self) -> list[tuple[tuple[int, ...], float]]:
            self.calls += 1
            return super().wait()

    task = replace(Task.build(small_recording(), ParallelClock(8)), budget_s=INF)
    rng = np.random.default_rng(3)
    evaluate = Counting(task)
    make()(evaluate, SpaceView(task.recording.space, rng), rng)
    assert 120 / evaluate.calls > 4


@pytest.mark.parametrize("name", ASYNCHRONOUS, indirect=True)
def test_what_submits_keeps_a_pipeline_full(make: Callable[[], Any]) -> None:
    class Watching(Evaluate):
        waited_at: list[int]

        def wait(self) -> list[tuple[tuple[int, ...], float]]:
            self.waited_at.append(self.pending)
            return super().wait()

    task = replace(Task.build(small_recording()), clock=PipelinedClock(6), budget_s=INF)
    evaluate = Watching(task)
    evaluate.waited_at = []
    rng = np.random.default_rng(3)
    make()(evaluate, SpaceView(task.recording.space, rng), rng)
    full = [pending >= evaluate.parallel for pending in evaluate.waited_at]
    assert all(full[: -evaluate.parallel])
    assert len(full) > 100


def test_hyperparameters_are_numbers_with_defaults(
    program: Program, make: Callable[[], Any]
) -> None:
    parameters = inspect.signature(make).parameters.values()
    assert {p.name: p.default for p in parameters} == program.settings
    assert all(type(value) in (int, float) for value in program.settings.values())


def test_the_source_stands_alone(program: Program) -> None:
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(program.source))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names | {"numpy", "scipy"}  # scipy: promoted ones


def test_the_source_is_admitted(program: Program) -> None:
    assert admit(program.source) == program


@functools.cache
def scored(name: str) -> SpaceScore:
    task = Task.build(load_space("layer_norm-4096x8192"), SequentialClock())
    program = resolve_program(name).program
    # Promoted ones compute for seconds a run, and are far from chance.
    repeats = 5 if (resource_dir("generated_optimizers") / f"{name}.py").exists() else 100
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(program.source, name, "exec"), namespace)  # our own code
    traces = [
        run_in_process(namespace[program.class_name](), task, run_seed(1, task.name, repeat))
        for repeat in range(repeats)
    ]
    return score_space(task, traces)


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name != "random_search" and not is_of_whole_spaces(name)]
)
def test_searching_beats_chance(name: str) -> None:
    found, chance = scored(name), scored("random_search")
    error = math.hypot(found.standard_error or 0.0, chance.standard_error or 0.0)
    assert found.p - chance.p > 2 * error
