"""Random search is what P = 0 means, under every clock, and how long an axis of batches is."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from support.recordings import small_recording

from llamea_gpu.baseline import _BatchRuns, _PipelinedRuns, cutoff_evaluations, simulated_yardstick
from llamea_gpu.clocks import ParallelClock, PipelinedClock, SequentialClock
from llamea_gpu.errors import BudgetExhausted
from llamea_gpu.scoring import score_space
from llamea_gpu.spaces.catalogue import list_spaces, load_space
from llamea_gpu.tasks import Evaluator, Task, Trace

# Every third of those measured in batches, from where most configurations fail to where least do.
EVERY_THIRD = (
    *("attention-4x16x4096x128", "attention-2x32x1024x64", "cross_entropy-4096x32000"),
    *("swiglu-8192x8192", "rms_norm-16384x4096", "kl_divergence-1024x4096"),
)


def random_search(task: Task, seed: int) -> Trace:
    evaluator = Evaluator(task)
    rows = np.random.default_rng(seed).permutation(task.recording.space.size)
    outcome = "finished"
    try:
        for first in range(0, rows.size, task.clock.workers):
            evaluator.ask(rows[first : first + task.clock.workers])
    except BudgetExhausted:
        outcome = "budget"
    return evaluator.trace(outcome=outcome, seed=seed)


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(entry.name, marks=() if entry.name in EVERY_THIRD else pytest.mark.slow)
        for entry in list_spaces()
    ],
)
def test_random_search_in_batches_scores_zero(space: str) -> None:
    task = Task.build(load_space(space))
    if space not in EVERY_THIRD and task.recording.info.parallel_workers == 1:
        pytest.skip("not measured in batches")
    score = score_space(task, [random_search(task, seed) for seed in range(10_000, 10_150)])
    assert abs(score.p) < 3 * score.standard_error
    assert score.standard_error < 0.12  # grouped_matmul, where every other one fails: .108


@pytest.mark.parametrize("space", ["matmul-2048", "attention-2x32x1024x64", "layer_norm-4096x8192"])
def test_random_search_one_by_one_scores_zero(space: str) -> None:
    task = Task.build(load_space(space), SequentialClock())
    score = score_space(task, [random_search(task, seed) for seed in range(1000, 1100)])
    assert abs(score.p) < max(0.1, 3 * score.standard_error)


def test_runs_of_the_baseline_are_what_the_evaluator_records() -> None:
    """The simulated runs and scored ones differ in their random numbers alone."""
    recording = load_space("layer_norm-4096x8192")
    task = Task.build(recording)
    runs = _BatchRuns(5, task.clock.workers, recording).until(task.budget_s)
    for seed, simulated in enumerate(runs):
        recorded = random_search(task, seed)
        assert simulated.elapsed_s.tolist() == recorded.elapsed_s.tolist()
        assert simulated.cost_ms.tolist() == recorded.cost_ms.tolist()


def always_on_its_way(task: Task, seed: int) -> Trace:
    """Random search as a pipeline wants it."""
    evaluator = Evaluator(task)
    rows = iter(np.random.default_rng(seed).permutation(task.recording.space.size))
    outcome = "finished"
    try:
        while room := evaluator.parallel - evaluator.pending:
            evaluator.submit(np.fromiter(islice(rows, room), np.int64))
            evaluator.wait()
    except BudgetExhausted:
        outcome = "budget"
    return evaluator.trace(outcome=outcome, seed=seed)


@pytest.mark.parametrize("space", ["layer_norm-4096x8192", "attention-4x16x4096x128"])
@pytest.mark.parametrize("workers", [1, 16])
def test_runs_of_the_pipelined_baseline_are_what_the_evaluator_records(
    space: str, workers: int
) -> None:
    recording = load_space(space)
    task = replace(Task.build(recording, PipelinedClock(16)), clock=PipelinedClock(workers))
    runs = _PipelinedRuns(5, workers, recording).until(task.budget_s)
    for seed, simulated in enumerate(runs):
        recorded = always_on_its_way(task, seed)
        assert simulated.elapsed_s.tolist() == recorded.elapsed_s.tolist()
        assert simulated.cost_ms.tolist() == recorded.cost_ms.tolist()


def test_simulated_pipelines_measure_everything_once() -> None:
    recording = small_recording()
    count = int(np.count_nonzero(recording.ok))
    runs = _PipelinedRuns(3, 4, recording)
    assert np.all(runs.when_worked_s(count) > runs.when_worked_s(count - 1))
    for run in runs.until(np.inf):
        assert sorted(run.cost_ms.tolist()) == sorted(recording.time_ms.tolist())
        assert np.all(np.diff(run.elapsed_s) >= 0)


@pytest.mark.parametrize("space", ["layer_norm-4096x8192", "attention-4x16x4096x128"])
def test_random_search_in_a_full_pipeline_scores_zero(space: str) -> None:
    task = Task.build(load_space(space), PipelinedClock(16))
    score = score_space(task, [always_on_its_way(task, seed) for seed in range(10_000, 10_150)])
    assert abs(score.p) < 3 * score.standard_error
    waiting = score_space(task, [random_search(task, seed) for seed in range(10_000, 10_050)])
    assert waiting.p < score.p - 0.2  # for its batches, while compilers and timer rest


def test_an_axis_of_batches_is_twelve_batches_long() -> None:
    recording = load_space("rms_norm-16384x4096")
    task = Task.build(recording)
    one_by_one = Task.build(recording, SequentialClock())
    assert one_by_one.budget_evaluations < 40
    assert 12 * 16 < task.budget_evaluations < 1.2 * 12 * 16
    done_s = [
        run.elapsed_s[np.isfinite(run.cost_ms)][12 * 16 - 1]
        for run in (random_search(replace(task, budget_s=1e9), seed) for seed in range(200))
    ]
    assert task.axis_s[-1] == pytest.approx(np.median(done_s), rel=0.1)


def test_an_axis_takes_a_quarter_of_a_small_space_at_most() -> None:
    recording = small_recording(workers=16)
    assert recording.space.size < 12 * 16
    task = Task.build(recording)
    assert task.budget_evaluations < 0.4 * recording.space.size
    assert task.baseline_ms[-1] > task.optimum_ms


def test_an_axis_that_random_search_needs_longer_for_is_not_cut() -> None:
    recording = load_space("layer_norm-4096x8192")
    two = Task.build(recording, ParallelClock(2))
    assert two.budget_evaluations > cutoff_evaluations(two.costs_ms, 0.95)


def test_a_batch_waits_for_its_slowest_compilation() -> None:
    recording = load_space("layer_norm-4096x8192")
    batched = Task.build(recording, ParallelClock(16)).evaluation_s
    divided = float(np.mean(recording.compile_s / 16 + recording.benchmark_s))
    alone = float(np.mean(recording.compile_s + recording.benchmark_s))
    assert 2 * divided < batched < alone


def test_a_parallel_clock_of_one_worker_is_the_published_method() -> None:
    recording = load_space("softmax-4096x4096")
    one, sequential = (Task.build(recording, c) for c in (ParallelClock(1), SequentialClock()))
    assert np.array_equal(one.axis_s, sequential.axis_s)
    assert np.array_equal(one.baseline_ms, sequential.baseline_ms)


def test_the_yardstick_is_the_same_every_time() -> None:
    recording = load_space("matmul-2048")
    first, second = (simulated_yardstick(recording, ParallelClock(16)) for _ in range(2))
    assert first.budget_s == second.budget_s
    assert np.array_equal(first.baseline_ms, second.baseline_ms)
