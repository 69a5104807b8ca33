"""Budget, axis and baseline computed by hand, and what the evaluator charges and remembers."""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import replace

import numpy as np
import pytest
from support.handmade import line_recording
from support.recordings import small_recording

from llamea_gpu.baseline import cutoff_evaluations
from llamea_gpu.clocks import Clock, ParallelClock, PipelinedClock, SequentialClock
from llamea_gpu.errors import BudgetExhausted, Stalled, TaskError
from llamea_gpu.tasks import MAX_PENDING, OUTCOMES, Evaluator, Task, Trace, run_seed

INF = float("inf")
# Costs 1..21 ms, one second an evaluation. Median 11, so c(.95) = 1.5 and c(.01) = 10.9.
# At .95, 20 costs are worse; the next is the optimum itself, so i = 19: ceil(19 / (22 - 19)) = 7.
# At .01, 11 costs are worse: ceil(11 / (22 - 11)) = 1. Hence an axis from 1 s to 7 s.
TWENTY_ONE = [float(cost) for cost in range(21, 0, -1)]


def ask(evaluator: Evaluator, *rows: int) -> list[float]:
    return evaluator.ask(np.array(rows)).tolist()


def parallel_task(compile_s: float, budget_s: float) -> Task:
    """16 workers, 0.4 s a benchmark."""
    recording = line_recording(TWENTY_ONE, compile_s=compile_s, benchmark_s=0.4, workers=16)
    return replace(Task.build(recording), budget_s=budget_s)


def test_axis_and_budget_by_hand() -> None:
    task = Task.build(line_recording(TWENTY_ONE))
    assert (task.optimum_ms, task.median_ms, task.evaluation_s) == (1.0, 11.0, 1.0)
    assert (task.axis_s[0], task.axis_s[-1], task.axis_s.size) == (1.0, 7.0, 1000)
    assert task.budget_s == pytest.approx(7.7, abs=1e-12)
    assert task.budget_evaluations == pytest.approx(7.7, abs=1e-12)


def test_baseline_by_hand() -> None:
    # M = 1..7 draws reach rank round(22 M / (M + 1)) = 11, 15, 16 (16.5 to even), 18, 18, 19, 19
    # from the worst: 10, 6, 5, 3, 3, 2, 2 ms. The interpolation passes through those points, of
    # which the axis hits t = 1, 3, 5, 7.
    task = Task.build(line_recording(TWENTY_ONE))
    assert task.axis_s[[0, 333, 666, 999]] == pytest.approx([1.0, 3.0, 5.0, 7.0], abs=1e-12)
    assert task.baseline_ms[[0, 333, 666, 999]] == pytest.approx([10, 5, 3, 2], abs=1e-9)


def test_baseline_charges_failures() -> None:
    # 7 failures of 10 s among 28 rows: a valid evaluation costs 1 + (7 / 28) * 10 = 3.5 s, so at
    # the axis' end of 7 s random search has drawn twice: rank 15 of 21 from the worst, 6 ms.
    recording = line_recording(
        TWENTY_ONE + [INF] * 7, compile_s=[0.75] * 21 + [9.75] * 7, benchmark_s=0.25
    )
    task = Task.build(recording)
    assert task.axis_s[-1] == 7.0
    assert task.baseline_ms[-1] == pytest.approx(6.0, abs=1e-9)


def test_the_median_time_counts_failures() -> None:
    recording = line_recording(
        TWENTY_ONE + [INF] * 22, compile_s=[0.75] * 21 + [1.75] * 22, benchmark_s=0.25
    )
    assert Task.build(recording).evaluation_s == 2.0


def test_cutoffs_by_hand() -> None:
    ascending = np.array(sorted(TWENTY_ONE))
    assert cutoff_evaluations(ascending, 0.01) == 1
    assert cutoff_evaluations(ascending, 0.5) == 3  # c = 6: 15 are worse, ceil(15 / 7)
    assert cutoff_evaluations(ascending, 0.95) == 7
    assert cutoff_evaluations(ascending, 1.0) == 10  # 20 are worse, ceil(20 / 2)


def test_a_short_axis_is_widened_by_evaluations_whatever_the_unit() -> None:
    # 35 of 61 costs are far above the optimum, 25 are close: start and end are both
    # ceil(35 / (62 - 35)) = 2, and become 1 and 3.
    costs = np.array([1.0] + [1.01] * 25 + [5.0] * 6 + [9.0] * 29)
    assert cutoff_evaluations(costs, 0.01) == cutoff_evaluations(costs, 0.95) == 2
    for unit in (1.0, 1e-3, 1e3):
        task = Task.build(line_recording((costs * unit).tolist()))
        assert task.axis_s[[0, -1]] == pytest.approx([1.0, 3.0], abs=1e-12)
        assert task.budget_evaluations == pytest.approx(3.3, abs=1e-12)


@pytest.mark.parametrize(
    ("costs_ms", "times_s", "rule"),
    [
        ([1.0, INF, INF], 1.0, "at least 2 valid costs"),
        ([2.0, 2.0, 2.0, 2.0], 1.0, "not all be equal"),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 1.0, "above the optimum"),
        (TWENTY_ONE, 0.0, "evaluation time must be positive"),
    ],
)
def test_what_cannot_be_scored_is_refused(costs_ms: list[float], times_s: float, rule: str) -> None:
    with pytest.raises(TaskError, match=f"^line: .*{rule}"):
        Task.build(line_recording(costs_ms, compile_s=times_s, benchmark_s=0.0))


def test_a_task_survives_pickling() -> None:
    task = Task.build(small_recording())
    copy = pickle.loads(pickle.dumps(task))
    assert copy.budget_s == task.budget_s
    assert np.array_equal(copy.baseline_ms, task.baseline_ms)


def test_run_seeds_are_the_same_everywhere_and_differ() -> None:
    assert run_seed(1, "convolution-A100", 0) == 1962374314
    seeds = {run_seed(s, name, r) for s in range(5) for name in "ab" for r in range(50)}
    assert len(seeds) == 500


def test_costs_come_back_in_the_order_asked() -> None:
    evaluator = Evaluator(Task.build(line_recording([*TWENTY_ONE, INF])))
    assert ask(evaluator, 20, 21, 0) == [1.0, INF, 21.0]


def test_revisits_are_free_and_answered() -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)))
    ask(evaluator, 3)
    assert ask(evaluator, 3, 3) == [18.0, 18.0]
    trace = evaluator.trace(outcome="finished", seed=0)
    assert (trace.rows.tolist(), trace.elapsed_s.tolist()) == ([3], [1.0])
    assert (trace.asks, trace.revisits) == (3, 2)


def test_a_duplicate_in_a_batch_is_measured_once() -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)))
    assert ask(evaluator, 5, 4, 5) == [16.0, 17.0, 16.0]
    trace = evaluator.trace(outcome="finished", seed=0)
    assert (trace.rows.tolist(), trace.revisits) == ([5, 4], 1)


def test_a_visit_that_begins_in_time_is_recorded_whole() -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)))  # a budget of 7.7 s
    for row in range(8):
        ask(evaluator, row)
    assert evaluator.exhausted
    assert evaluator.spent == 1.0
    assert evaluator.trace(outcome="budget", seed=0).elapsed_s[-1] == 8.0
    with pytest.raises(BudgetExhausted):
        ask(evaluator, 8)
    assert evaluator.trace(outcome="budget", seed=0).rows.size == 8


def test_a_batch_is_cut_at_the_budget() -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)))
    with pytest.raises(BudgetExhausted):
        ask(evaluator, *range(21))
    assert evaluator.trace(outcome="budget", seed=0).rows.tolist() == list(range(8))


def test_revisits_are_answered_after_the_budget() -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)))
    with pytest.raises(BudgetExhausted):
        ask(evaluator, *range(21))
    assert ask(evaluator, 0, 7) == [21.0, 14.0]


def test_sequential_batches_charge_what_single_visits_charge() -> None:
    task = Task.build(small_recording(), SequentialClock())
    order = np.random.default_rng(3).permutation(120)
    traces = []
    for size in (1, 7, 120):
        evaluator = Evaluator(task)
        with contextlib.suppress(BudgetExhausted):
            for start in range(0, 120, size):
                evaluator.ask(order[start : start + size])
        traces.append(evaluator.trace(outcome="budget", seed=0))
    for other in traces[1:]:
        assert np.array_equal(traces[0].rows, other.rows)
        assert np.array_equal(traces[0].elapsed_s, other.elapsed_s)


def test_a_parallel_item_counts_when_its_benchmark_begins_in_time() -> None:
    # Eight compile in 3.4 s, then 0.4 s each: of a budget of 4 s, the second benchmark begins at
    # 3.8 s and counts, the third at 4.2 s does not.
    evaluator = Evaluator(parallel_task(compile_s=3.4, budget_s=4.0))
    with pytest.raises(BudgetExhausted):
        ask(evaluator, *range(8))
    trace = evaluator.trace(outcome="budget", seed=0)
    assert trace.rows.tolist() == [0, 1]
    assert trace.elapsed_s == pytest.approx([3.8, 4.2], abs=1e-12)
    assert evaluator.spent == 1.0


def test_a_parallel_batch_that_compiles_beyond_the_budget_measures_nothing() -> None:
    evaluator = Evaluator(parallel_task(compile_s=5.0, budget_s=4.0))
    with pytest.raises(BudgetExhausted):
        ask(evaluator, 0, 1)
    assert evaluator.trace(outcome="budget", seed=0).rows.size == 0
    assert evaluator.exhausted


def test_a_parallel_batch_shares_its_compilation() -> None:
    evaluator = Evaluator(parallel_task(compile_s=1.6, budget_s=4.0))
    assert evaluator.parallel == 16
    ask(evaluator, 0, 1)
    assert evaluator.trace(outcome="finished", seed=0).elapsed_s == pytest.approx([2.0, 2.4])


def test_asking_for_nothing_new_stalls() -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)), max_idle_asks=10)
    ask(evaluator, 0)
    for _ in range(10):
        ask(evaluator, 0)
    with pytest.raises(Stalled):
        ask(evaluator, 0)


def test_a_new_visit_ends_idleness() -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)), max_idle_asks=10)
    for row in range(5):
        for _ in range(10):
            ask(evaluator, row)
    assert len(evaluator.trace(outcome="finished", seed=0).rows) == 5


def test_empty_batches_stall_too() -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)), max_idle_asks=10)
    nothing = np.empty(0, dtype=np.int64)
    for _ in range(10):
        evaluator.ask(nothing)
    with pytest.raises(Stalled):
        evaluator.ask(nothing)


@pytest.mark.parametrize("row", [-1, 21])
def test_rows_outside_the_space_are_refused(row: int) -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)))
    with pytest.raises(ValueError, match=r"rows must lie in 0\.\.20"):
        ask(evaluator, 0, row)
    assert evaluator.trace(outcome="error", seed=0).rows.size == 0


@pytest.mark.parametrize(("charge_cpu", "elapsed_s"), [(True, 1.5), (False, 1.0)])
def test_own_seconds_count_only_when_charged(charge_cpu: bool, elapsed_s: float) -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)), charge_cpu=charge_cpu)
    evaluator.charge(0.5)
    ask(evaluator, 0)
    assert evaluator.trace(outcome="finished", seed=0).elapsed_s.tolist() == [elapsed_s]


def test_a_trace_says_what_was_asked_for_together() -> None:
    task = Task.build(line_recording(TWENTY_ONE))
    evaluator = Evaluator(task)
    ask(evaluator, 3, 4, 3)
    ask(evaluator, 4)  # nothing new: no batch
    ask(evaluator, 4, 7)
    first = evaluator.trace(outcome="finished", seed=0)
    assert first.rows.tolist() == [3, 4, 7]
    assert first.batch is not None
    assert first.batch.tolist() == [0, 0, 1]
    second = Evaluator(task, start=first)
    ask(second, 1, 2)
    joined = second.trace(outcome="finished", seed=0).batch
    assert joined is not None
    assert joined.tolist() == [0, 0, 1, 2, 2]
    with pytest.raises(TaskError, match="has its batches"):
        Evaluator(task, start=replace(first, batch=None))


@pytest.mark.parametrize("batch", [[0, 0], [0, -1, 0], [0, 1, 3]])
def test_batches_are_numbered_like_visits(batch: list[int]) -> None:
    times = np.arange(3.0)
    with pytest.raises(TaskError, match="number of its batch"):
        Trace(times.astype(np.int32), times, times, "budget", 3, 0, 0, batch=np.array(batch))


def pipelined(
    *, compile_s: float | list[float], benchmark_s: float | list[float], budget_s: float, w: int = 2
) -> Evaluator:
    recording = line_recording(TWENTY_ONE, compile_s=compile_s, benchmark_s=benchmark_s)
    task = replace(Task.build(line_recording(TWENTY_ONE)), recording=recording, budget_s=budget_s)
    return Evaluator(replace(task, clock=PipelinedClock(w)))


def submit(evaluator: Evaluator, *rows: int) -> None:
    evaluator.submit(np.array(rows, dtype=np.int64))


def answers(evaluator: Evaluator) -> list[tuple[int, float]]:
    rows, costs_ms = evaluator.wait()
    return list(zip(rows.tolist(), costs_ms.tolist(), strict=True))


def test_what_is_submitted_comes_as_it_is_done() -> None:
    evaluator = pipelined(compile_s=[3.0, *[1.0] * 20], benchmark_s=0.5, budget_s=100.0)
    submit(evaluator, 0, 1, 2)
    assert (evaluator.pending, evaluator.now_s, evaluator.spent) == (3, 0.0, 0.0)
    assert [answers(evaluator) for _ in range(3)] == [[(1, 20.0)], [(2, 19.0)], [(0, 21.0)]]
    assert (evaluator.pending, evaluator.now_s) == (0, 3.5)
    trace = evaluator.trace(outcome="finished", seed=0)
    assert (trace.rows.tolist(), trace.elapsed_s.tolist()) == ([1, 2, 0], [1.5, 2.5, 3.5])
    assert trace.batch is not None
    assert trace.batch.tolist() == [0, 1, 2]


def test_every_submission_is_answered_once_and_repeated_ones_together() -> None:
    evaluator = pipelined(compile_s=1.0, benchmark_s=0.5, budget_s=100.0)
    submit(evaluator, 4, 4, 5)
    submit(evaluator, 4)
    assert evaluator.pending == 4
    assert answers(evaluator) == [(4, 17.0)] * 3
    submit(evaluator, 4)  # known: the next wait says so, before anything else is done
    assert answers(evaluator) == [(4, 17.0)]
    assert evaluator.now_s == 1.5
    assert answers(evaluator) == [(5, 16.0)]
    assert answers(evaluator) == []
    trace = evaluator.trace(outcome="finished", seed=0)
    assert (trace.asks, trace.revisits) == (5, 3)


def test_a_call_waits_for_its_own_and_leaves_the_rest_to_later_waits() -> None:
    evaluator = pipelined(compile_s=[1.0, 9.0, *[1.0] * 19], benchmark_s=0.5, budget_s=100.0)
    submit(evaluator, 0, 1)
    assert ask(evaluator, 2, 0) == [19.0, 21.0]  # 0 had been submitted, and goes first
    assert evaluator.now_s == 2.5
    assert evaluator.pending == 2
    assert answers(evaluator) == [(0, 21.0)]
    assert evaluator.now_s == 2.5
    assert answers(evaluator) == [(1, 20.0)]


def test_of_a_flood_that_counts_which_is_done_in_time() -> None:
    evaluator = pipelined(compile_s=1.0, benchmark_s=1.0, budget_s=4.0)
    submit(evaluator, *range(21))
    assert [answers(evaluator) for _ in range(2)] == [[(0, 21.0)], [(1, 20.0)]]
    with pytest.raises(BudgetExhausted):  # the third is done at 4 s: not before the end
        evaluator.wait()
    assert evaluator.spent == 1.0
    trace = evaluator.trace(outcome="budget", seed=0)
    assert trace.elapsed_s.tolist() == [2.0, 3.0]
    assert trace.ended_s >= 4.0
    for _ in range(2):
        with pytest.raises(BudgetExhausted):
            evaluator.wait()
    with pytest.raises(BudgetExhausted):
        submit(evaluator, 20)


def test_known_ones_are_answered_after_the_budget() -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)))
    with pytest.raises(BudgetExhausted):
        ask(evaluator, *range(21))
    submit(evaluator, 0, 7)
    assert answers(evaluator) == [(0, 21.0), (7, 14.0)]
    assert answers(evaluator) == []


def test_what_is_done_before_the_end_counts_without_a_wait() -> None:
    evaluator = pipelined(compile_s=1.0, benchmark_s=1.0, budget_s=100.0, w=3)
    submit(evaluator, 0, 1, 2)
    evaluator.wait_until(3.5)  # 0 at 2 s, 1 at 3 s
    assert evaluator.trace(outcome="finished", seed=0).rows.tolist() == [0, 1]
    assert answers(evaluator) == [(0, 21.0), (1, 20.0)]


def test_own_time_passes_while_a_pipeline_works() -> None:
    task = Task.build(line_recording(TWENTY_ONE, compile_s=1.0, benchmark_s=1.0), PipelinedClock(1))
    evaluator = Evaluator(replace(task, budget_s=100.0), charge_cpu=True)
    submit(evaluator, 0)
    evaluator.charge(1.5)
    assert answers(evaluator) == [(0, 21.0)]
    assert evaluator.now_s == 2.0


def test_a_failed_compilation_leaves_the_timer_to_others() -> None:
    recording = line_recording([*TWENTY_ONE, INF], compile_s=1.0, benchmark_s=1.0)
    task = replace(Task.build(recording, PipelinedClock(2)), budget_s=100.0)
    evaluator = Evaluator(task)
    submit(evaluator, 21, 0)
    assert answers(evaluator) == [(21, INF)]
    assert evaluator.now_s == 1.0
    assert answers(evaluator) == [(0, 21.0)]
    assert evaluator.now_s == 2.0


@pytest.mark.parametrize(
    ("clock", "rows", "now_s"),
    [(SequentialClock(), [[3], [1], [2]], 1.0), (ParallelClock(2), [[3, 1, 2]], 2.25)],
)
def test_older_clocks_measure_at_a_wait(clock: Clock, rows: list[list[int]], now_s: float) -> None:
    evaluator = Evaluator(replace(Task.build(line_recording(TWENTY_ONE), clock), budget_s=100.0))
    submit(evaluator, 3)
    submit(evaluator, 1, 2)
    assert evaluator.now_s == 0.0
    found = [[row for row, _ in answers(evaluator)]]
    assert evaluator.now_s == now_s
    while evaluator.pending:
        found.append([row for row, _ in answers(evaluator)])
    assert found == rows


def test_submit_and_wait_are_a_call_under_older_clocks() -> None:
    order = np.random.default_rng(3).permutation(120)
    for clock in (SequentialClock(), ParallelClock(8)):
        called, waited = (Evaluator(Task.build(small_recording(), clock)) for _ in range(2))
        with contextlib.suppress(BudgetExhausted):
            for start in range(0, 120, 7):
                called.ask(order[start : start + 7])
        with contextlib.suppress(BudgetExhausted):
            for start in range(0, 120, 7):
                waited.submit(order[start : start + 7])
                while waited.pending:
                    waited.wait()
        assert called.exhausted
        one, other = (e.trace(outcome="budget", seed=0) for e in (called, waited))
        assert one.rows.tolist() == other.rows.tolist()
        assert one.elapsed_s.tolist() == other.elapsed_s.tolist()


def test_too_many_on_their_way_are_refused() -> None:
    evaluator = pipelined(compile_s=1.0, benchmark_s=1.0, budget_s=1e9)
    half = np.zeros(MAX_PENDING // 2, dtype=np.int64)
    evaluator.submit(half)
    evaluator.submit(half)
    with pytest.raises(ValueError, match=f"at most {MAX_PENDING} configurations"):
        submit(evaluator, 1)
    assert len(answers(evaluator)) == MAX_PENDING
    submit(evaluator, 1)
    assert answers(evaluator) == [(1, 20.0)]


def test_waiting_for_nothing_and_submitting_what_is_known_stall() -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)), max_idle_asks=10)
    submit(evaluator, 0)
    assert answers(evaluator) == [(0, 21.0)]
    for _ in range(5):
        submit(evaluator, 0)
        assert answers(evaluator) == [(0, 21.0)]
        assert answers(evaluator) == []
    with pytest.raises(Stalled):
        evaluator.wait()


def test_an_invalid_row_queues_nothing() -> None:
    evaluator = pipelined(compile_s=1.0, benchmark_s=1.0, budget_s=10.0)
    with pytest.raises(ValueError, match=r"rows must lie in 0\.\.20"):
        submit(evaluator, 0, 21)
    assert (evaluator.pending, answers(evaluator)) == (0, [])


def test_an_empty_trace_has_no_best() -> None:
    trace = Evaluator(Task.build(line_recording(TWENTY_ONE))).trace(outcome="error", seed=0)
    assert (trace.best_ms, trace.rows.size, trace.asks) == (INF, 0, 0)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_how_a_run_failed(outcome: str) -> None:
    evaluator = Evaluator(Task.build(line_recording(TWENTY_ONE)))
    nothing = evaluator.trace(outcome=outcome, seed=0)
    ask(evaluator, 0)
    something = evaluator.trace(outcome=outcome, seed=0)
    in_order = outcome in ("budget", "finished")
    assert nothing.is_failed
    assert something.is_failed != in_order
    assert something.is_faulty == nothing.is_faulty == (not in_order and outcome != "stalled")


def test_an_unknown_outcome_is_refused() -> None:
    empty = np.empty(0)
    with pytest.raises(TaskError, match="outcome must be one of"):
        Trace(empty.astype(np.int32), empty, empty, "won", 0, 0, 0)
