"""Submitting and waiting, by one suite for every ``evaluate``: in this process, and sandboxed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import submitting
from support.recordings import small_recording

from llamea_gpu.clocks import make_clock
from llamea_gpu.live.queued import QueuedEvaluate
from llamea_gpu.programs import Program
from llamea_gpu.runner import Runner
from llamea_gpu.runner.local import LocalEvaluate, run_optimizer
from llamea_gpu.searchers.registry import ProgramSearcher
from llamea_gpu.spaces.space import SpaceView
from llamea_gpu.tasks import MAX_PENDING, Evaluator, Task, Trace

Run = Callable[[str, Task], Trace]
SEED = 5
SOURCE = Path(submitting.__file__).read_text(encoding="utf-8")
CLOCKS = ("sequential", "parallel(4)", "pipelined(4)")


def in_this_process(name: str, task: Task) -> Trace:
    return run_optimizer(getattr(submitting, name), task, SEED, cpu_s=None)


@pytest.fixture(scope="module")
def sandboxed() -> Iterator[Run]:
    with Runner.open(workers=1) as runner:
        yield lambda name, task: runner.run(
            ProgramSearcher(name, Program.unread(SOURCE, name)), task, SEED
        )


@pytest.fixture(params=["in_this_process", "sandboxed"])
def run(request: pytest.FixtureRequest) -> Run:
    if request.param == "in_this_process":
        return in_this_process
    made: Run = request.getfixturevalue("sandboxed")
    return made


@pytest.fixture(params=CLOCKS)
def task(request: pytest.FixtureRequest) -> Task:
    return replace(Task.build(small_recording()), clock=make_clock(request.param), budget_s=50.0)


@pytest.mark.parametrize("check", submitting.CHECKS)
def test_what_the_contract_promises(run: Run, task: Task, check: str) -> None:
    trace = run(check, task)
    assert (trace.outcome, trace.error) == ("finished", None)


@pytest.mark.parametrize("check", submitting.CHECKS)
def test_what_the_contract_promises_where_a_framework_measures_in_calls(
    task: Task, check: str
) -> None:
    rng = np.random.default_rng(SEED)
    space = SpaceView(task.recording.space, rng)
    called = LocalEvaluate(task.recording.space, Evaluator(task))

    class Framework(QueuedEvaluate):
        parallel = called.parallel
        spent = property(lambda _: called.spent)

        def __call__(self, configs: Any) -> list[float]:
            return called(configs)

    getattr(submitting, check)()(Framework(space), space, rng)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("TheEndOfTheBudgetComesOutOfWait", "budget"),
        ("TheEndOfTheBudgetComesOutOfSubmit", "budget"),
        ("WaitsForNothingForEver", "stalled"),
        ("SubmitsWhatIsKnownForEver", "stalled"),
    ],
)
def test_how_runs_end(run: Run, task: Task, name: str, outcome: str) -> None:
    trace = run(name, replace(task, budget_s=5.0))
    assert trace.outcome == outcome
    assert trace.rows.size == np.unique(trace.rows).size
    assert (trace.ended_s >= 5.0) == (outcome == "budget")


def test_what_is_on_its_way_when_a_program_returns_is_dropped(run: Run, task: Task) -> None:
    trace = run("ReturnsBeforeAnythingIsDone", task)
    assert (trace.outcome, trace.rows.size, trace.asks) == ("finished", 0, 0)


def test_a_flood_is_bounded_by_the_host(run: Run, task: Task) -> None:
    """The check above accepts any bound; here it is the host's."""
    trace = run("AFloodIsRefused", task)
    assert trace.rows.size == 1
    assert MAX_PENDING - 1000 < trace.revisits <= MAX_PENDING + 2


def test_a_run_is_the_same_in_the_sandbox(sandboxed: Run, task: Task) -> None:
    task = replace(task, budget_s=10.0)
    here, there = in_this_process("ThisAndThat", task), sandboxed("ThisAndThat", task)
    assert here.outcome == there.outcome == "budget"
    assert here.rows.tolist() == there.rows.tolist()
    assert here.elapsed_s.tolist() == there.elapsed_s.tolist()
    assert (here.asks, here.revisits) == (there.asks, there.revisits)
