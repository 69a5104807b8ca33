"""Runs on whole spaces: in the sandbox and outside, a program sees the same space and costs."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recordings import small_recording
from support.whole import STARTS, ToyModel, ToySpace, ToyTask, toy_task

from llamea_gpu import modelled
from llamea_gpu.area import losses
from llamea_gpu.clocks import ParallelClock, PipelinedClock, SequentialClock
from llamea_gpu.programs import Program, make
from llamea_gpu.runner import Runner, yardsticks
from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.scoring import score_space
from llamea_gpu.searchers.registry import ProgramSearcher, resolve, resolve_program
from llamea_gpu.tasks import Evaluator, Trace, build_tasks

ASKS = '''
class Asks:
    """Everything that a space answers, told by what is measured."""

    def __init__(self, part=0):
        self.part = part

    def __call__(self, evaluate, space, rng):
        first = space.sample(2)
        assert first == [(1, 2, 0, 0, 0), (3, 3, 1, 0, 0)], first
        assert evaluate.spent > 0 and space.size is None
        spent = evaluate.spent
        evaluate(first)
        assert evaluate.spent == spent, "the starts are known"
        assert space.contains((1, 2, 0, 0, 2)) and not space.contains((4, 0, 0, 0, 0))
        assert not space.contains((1, 2, 0, 0)) and not space.contains("12000")
        assert space.repair((0.6, 9, -3, 0, 1.2)) == (1, 3, 0, 0, 0)
        assert (3, 2, 0, 1, 2) not in space.neighbors((3, 2, 0, 0, 0))
        assert set(space.neighbors((3, 2, 0, 1, 0), kind="adjacent")) >= {(2, 2, 0, 1, 0)}
        assert space.encode([(4, 0, 0, 1, 1)]).tolist() == [[1.0, 0.0, 0.0, 1.0, 0.5]]
        for wrong in ([(4, 0, 0, 0, 0)], [(1, 2, 0)], [5]):
            try:
                evaluate.submit(wrong)
            except ValueError:
                continue
            raise AssertionError(wrong)
        evaluate.submit([(0, 0, 0, 0, 2), (0, 0, 0, 0, 1), (0, 0, 0, 0, 0)])
        done = []
        while evaluate.pending:
            done += evaluate.wait()
        assert [config for config, _ in done] == [
            (0, 0, 0, 0, 2), (0, 0, 0, 0, 1), (0, 0, 0, 0, 0)], done
        assert len({cost for _, cost in done}) == 1
        evaluate(space.pool(12))
        evaluate([tuple(config) for config in space.neighbors(first[0])])
'''


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner.open(workers=1) as opened:
        yield opened


def same(a: Trace, b: Trace) -> bool:
    assert a.configurations is not None
    assert b.configurations is not None
    return (
        np.array_equal(a.configurations, b.configurations)
        and np.array_equal(a.elapsed_s, b.elapsed_s)
        and np.array_equal(a.cost_ms, b.cost_ms)
        and (a.outcome, a.asks, a.revisits) == (b.outcome, b.asks, b.revisits)
    )


def test_a_sandboxed_program_and_a_local_one_see_the_same_space(runner: Runner) -> None:
    task = toy_task(budget_s=1000.0)
    program = Program.unread(ASKS, "Asks")
    sandboxed = runner.run(ProgramSearcher("asks", program), task, 7)
    local = run_optimizer(lambda: make(program), task, 7, cpu_s=None)
    assert (sandboxed.outcome, local.outcome) == ("finished", "finished"), sandboxed.error
    assert same(sandboxed, local)
    assert sandboxed.configurations is not None
    assert [tuple(c) for c in sandboxed.configurations[:2].tolist()] in (
        list(STARTS),
        list(STARTS[::-1]),
    )
    assert sandboxed.rows.tolist() == list(range(len(sandboxed.rows)))
    model = ToyModel()
    expected = [model.outcome(tuple(c)).time_ms for c in sandboxed.configurations.tolist()]
    assert sandboxed.cost_ms.tolist() == expected


@pytest.mark.parametrize(
    "name", ["random_search", "steady_state_genetic_algorithm", "iterated_local_search"]
)
def test_classical_searchers_run_alike_in_the_sandbox_and_outside(
    runner: Runner, name: str
) -> None:
    found = resolve_program(name)
    sandboxed = runner.run(found, toy_task(), 3)
    local = run_optimizer(lambda: make(found.program), toy_task(), 3, cpu_s=None)
    assert sandboxed.outcome == "budget"
    assert same(sandboxed, local)
    assert not same(sandboxed, runner.run(found, toy_task(), 4))


def test_a_hybrid_goes_on_from_what_its_first_part_measured(runner: Runner) -> None:
    spec = "hybrid:random_search?share=0.5+iterated_local_search"
    trace = runner.run(resolve(spec), toy_task(), 1)
    assert trace.outcome == "budget"
    assert trace.configurations is not None
    visited = [tuple(c) for c in trace.configurations.tolist()]
    assert len(set(visited)) == len(visited)
    assert set(STARTS) <= set(visited[:3])


def test_a_strategy_that_needs_a_list_is_refused_with_the_reason(runner: Runner) -> None:
    trace = runner.run(resolve("kernel_tuner:genetic_algorithm"), toy_task(), 1)
    assert trace.outcome == "error"
    assert "list" in (trace.error or "")


@pytest.mark.parametrize("spec", ["scipy:differential_evolution", "optuna:RandomSampler"])
def test_libraries_that_need_no_list_run(runner: Runner, spec: str) -> None:
    trace = runner.run(resolve(spec), toy_task(), 1)
    assert trace.outcome in ("budget", "finished"), trace.error
    assert len(trace.rows) > 10


def test_clocks_charge_modelled_seconds() -> None:
    for clock, done_s in (
        # The starts compile in 1 and 1.5 s and are timed in .5 and .625 s.
        (SequentialClock(), [1.5, 3.625]),
        (ParallelClock(2), [2.0, 2.625]),
        (None, [1.5, 2.125]),
    ):
        task = toy_task(clock)
        with task.opened(1) as run:
            evaluator = Evaluator(task, costs=run.places)
            modelled.begin(evaluator, run.places, None)
        trace = evaluator.trace(outcome="finished", seed=1)
        assert trace.elapsed_s.tolist() == done_s, task.clock.name


@pytest.mark.parametrize(
    ("clock", "recipe", "timed_s"),
    [
        (PipelinedClock(2), 3, [0.5, 0.0]),
        (PipelinedClock(2), 2, [0.5, 0.5]),  # what a recorded run was charged
        (ParallelClock(2), 3, [0.5, 0.5]),  # Helion times equal code again
    ],
)
def test_code_is_timed_once_where_the_engine_measures(
    clock: Any, recipe: int, timed_s: list[float]
) -> None:
    task, alike = toy_task(clock), [(1, 2, 0, 0, 0), (1, 2, 0, 0, 1)]

    class Model(ToyModel):
        def outcome(self, config: Any) -> Any:
            known = tuple(config) in alike
            code = 7 if known else -1
            return super().outcome(config)._replace(benchmark_s=0.5, measured=known, code=code)

    task = ToyTask(replace(task.cloud, recipe=recipe), Model(), clock, task.budget_s)
    other = (0, 2, 0, 0, 0)  # not measured: nobody knows its code
    with task.opened(1) as run:
        rows = [run.places.place(config) for config in (*alike, other)]
        seconds = [measured[2] for measured in run.places.measurements(rows)]
        again = [measured[2] for measured in run.places.measurements(rows)]
    assert seconds == again == [*timed_s, 0.5]


def test_samples_are_drawn_around_what_is_done_and_nothing_else() -> None:
    task = toy_task()
    with task.opened(1) as run:
        evaluator = Evaluator(task, costs=run.places)
        assert run.places.space.leaders == []
        modelled.begin(evaluator, run.places, None)
        assert run.places.space.leaders == [STARTS[1], STARTS[0]]
        failing, best = run.places.row((3, 2, 2, 0, 0)), run.places.row((3, 2, 0, 1, 0))
        evaluator.submit(np.array([failing, best]))
        assert run.places.space.leaders == [STARTS[1], STARTS[0]]
        evaluator.ask(np.array([best]))
        assert run.places.space.leaders == [(3, 2, 0, 1, 0), STARTS[1], STARTS[0]]


HOSTILE = """
import os, struct
from llamea_gpu.sandbox import protocol
from llamea_gpu.sandbox.hardening import CHANNEL_FD
class Hostile:
    def __call__(self, evaluate, space, rng):
        os.write(CHANNEL_FD, {packet})
        os.read(CHANNEL_FD, 100000)
        raise RuntimeError("it was answered")
"""


@pytest.mark.parametrize(
    "packet",
    [
        "struct.pack('=i', protocol.PLACE)",
        "struct.pack('=i', protocol.PLACE) + bytes(7)",
        "struct.pack('=i', protocol.PLACE) + bytes(16390)",
        "struct.pack('=i', protocol.SAMPLE) + bytes(4)",
        "struct.pack('=i', protocol.POOL)",
        "struct.pack('=iii', protocol.NEIGHBORS, -1, 0)",
        "struct.pack('=iii', protocol.NEIGHBORS, 1 << 20, 0)",
        "struct.pack('=iii', protocol.NEIGHBORS, 0, 2)",
        "struct.pack('=i', protocol.REPAIR) + bytes(20)",
    ],
)
def test_a_malformed_question_about_the_space_ends_the_run(runner: Runner, packet: str) -> None:
    program = Program.unread(HOSTILE.format(packet=packet), "Hostile")
    trace = runner.run(ProgramSearcher("hostile", program), toy_task(), 1)
    assert trace.outcome == "protocol", trace.error
    assert len(trace.rows) == len(STARTS)


def test_questions_about_a_space_are_refused_where_it_is_listed(runner: Runner) -> None:
    packet = "struct.pack('=iq', protocol.SAMPLE, 3)"
    program = Program.unread(HOSTILE.format(packet=packet), "Hostile")
    (task,) = build_tasks([small_recording()])
    trace = runner.run(ProgramSearcher("hostile", program), task, 1)
    assert trace.outcome == "protocol"


def test_a_run_that_looks_at_too_much_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelled, "MAX_PLACES", 40)
    every = list(itertools.product(range(5), range(1, 4), range(3), (1,), (0,)))
    with toy_task().opened(1) as run, pytest.raises(modelled.PlacesFull):
        list(map(run.places.row, every))


def test_what_a_child_is_told_holds_no_cost() -> None:
    from llamea_gpu.sandbox.serving import SpaceService

    task = toy_task()
    answers: list[bytes] = []
    for better in (0.0, 0.125):  # other costs, in the same order, change no byte

        class Model(ToyModel):
            def outcome(self, config: Any, by: float = better) -> Any:
                found = super().outcome(config)
                return found._replace(time_ms=found.time_ms - by)

        other = ToyTask(task.cloud, Model(), task.clock, task.budget_s)
        with other.opened(5) as run:
            modelled.begin(Evaluator(other, costs=run.places), run.places, None)
            service = SpaceService(run.places)
            told = b""
            for kind in (10, 11):
                told += b"".join(service.answer(kind, struct.pack("=q", 16)))
            answers.append(told)
    assert answers[0] == answers[1]


def test_the_toy_space_keeps_its_own_rules() -> None:
    space = ToySpace(np.random.default_rng(0), STARTS)
    for config in space.sample(64):
        assert space.canonical(config) == config


def test_a_yardstick_is_simulated_once_and_kept(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLAMEA_GPU_CACHE", str(tmp_path))
    monkeypatch.setattr(yardsticks, "SEARCHER", "random_search")
    monkeypatch.setattr(yardsticks, "RUNS", 3)
    task = toy_task()
    (recorded,) = build_tasks([small_recording()])
    found, other = yardsticks.with_yardsticks([task, recorded], runner)
    assert other is recorded
    assert isinstance(found, ToyTask)
    assert found.yardstick is not None
    assert (found.yardstick.runs, found.yardstick.clock) == (3, "parallel(15)")
    assert 0 < found.yardstick.area < np.log(task.default_ms / task.optimum_ms)

    class NoRunner(Runner):
        def __init__(self) -> None:
            pass

    (kept,) = yardsticks.with_yardsticks([toy_task()], NoRunner())
    assert isinstance(kept, ToyTask)
    assert kept.yardstick is not None
    assert kept.yardstick.curve.tolist() == found.yardstick.curve.tolist()
    with pytest.raises(AttributeError):  # another budget needs runs of its own
        yardsticks.with_yardsticks([toy_task(budget_s=20.0)], NoRunner())
    trace = runner.run(resolve("random_search"), kept, 1)
    assert score_space(kept, [trace]).p == pytest.approx(
        1 - losses([trace], kept.axis_s, 0.5, kept.default_ms).mean() / kept.yardstick.area
    )
