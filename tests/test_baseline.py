"""Random search is what P = 0 means, under either clock."""

from __future__ import annotations

import numpy as np
import pytest

from llamea_gpu.clocks import Clock, ParallelClock, SequentialClock
from llamea_gpu.errors import BudgetExhausted
from llamea_gpu.scoring import score_space
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.tasks import Evaluator, Task, Trace


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


@pytest.mark.parametrize("clock", [SequentialClock(), ParallelClock(16)], ids=lambda c: c.name)
@pytest.mark.parametrize(
    "space",
    ["matmul-2048", "attention-2x32x1024x64", "softmax-4096x4096", "layer_norm-4096x8192"],
)
def test_random_search_scores_zero(space: str, clock: Clock) -> None:
    task = Task.build(load_space(space), clock)
    score = score_space(task, [random_search(task, seed) for seed in range(1000, 1200)])
    assert abs(score.p) < max(0.1, 3 * score.standard_error)


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
    first, second = (Task.build(recording, ParallelClock(16)) for _ in range(2))
    assert first.budget_s == second.budget_s
    assert np.array_equal(first.baseline_ms, second.baseline_ms)
