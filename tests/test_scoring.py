"""The score computed by hand, and what happens to runs that the published method refuses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.handmade import line_recording
from support.recordings import small_recording

from llamea_gpu.clocks import ParallelClock
from llamea_gpu.errors import BudgetExhausted, TaskError
from llamea_gpu.scoring import (
    ExternalTrace,
    aggregate,
    read_traces_csv,
    resampled_curves,
    score_space,
)
from llamea_gpu.spaces.recording import LEAST_TIME_MS, MOST_S, MOST_TIME_MS
from llamea_gpu.tasks import Evaluator, Task, Trace

INF = float("inf")
# Costs 1..21 ms at one second each: axis 1..7 s, budget 7.7 s, and a baseline of 10, 5, 3, 2 ms at
# t = 1, 3, 5, 7 s, which are the points 0, 333, 666, 999 (see test_tasks).
TASK = Task.build(line_recording([float(cost) for cost in range(1, 22)]))
AT_1357 = [0, 333, 666, 999]


def external(run: str, *points: tuple[float, float]) -> ExternalTrace:
    elapsed_s, cost_ms = np.array(points).T
    return ExternalTrace(run, elapsed_s, cost_ms)


def every_second(run: str, *costs_ms: float) -> ExternalTrace:
    return external(run, *((second, cost) for second, cost in enumerate(costs_ms, start=1)))


def visit(task: Task, *rows: int, outcome: str = "finished", cpu_s: float | None = None) -> Trace:
    evaluator = Evaluator(task)
    try:
        evaluator.ask(np.array(rows, dtype=np.int64))
    except BudgetExhausted:
        outcome = "budget"
    return evaluator.trace(outcome=outcome, seed=0, cpu_s=cpu_s)


def test_one_run_by_hand() -> None:
    # Best so far 21, 6, 6 (a failure), 3, 3, 1, 1: at t = 1, 3, 5, 7 s
    # P = (21 - 10) / (1 - 10), (6 - 5) / (1 - 5), (3 - 3) / (1 - 3), (1 - 2) / (1 - 2).
    score = score_space(TASK, [every_second("a", 21, 6, INF, 3, 9, 1, 2, 4)])
    assert score.curve[AT_1357] == pytest.approx([-11 / 9, -1 / 4, 0, 1], abs=1e-9)


def test_between_visits_the_rank_falls_linearly() -> None:
    # From rank 20 at 1 s to rank 5 at 2 s; at point 100, t = 1 + 600/999, rank 10.99 -> 11: 12 ms.
    score = score_space(TASK, [every_second("a", 21, 6, 6, 6, 6, 6, 6)])
    expected = (12 - TASK.baseline_ms[100]) / (1 - TASK.baseline_ms[100])
    assert score.curve[100] == pytest.approx(expected, abs=1e-9)


def test_runs_are_pooled_by_isotonic_regression() -> None:
    # At equal times ranks average: (20 + 10) / 2 at 1 s, (5 + 10) / 2 at 2 s, then 7.5, which
    # rounds to the even rank 8: 9 ms.
    score = score_space(
        TASK, [every_second("a", 21, 6, 6, 6, 6, 6, 6), every_second("b", *[11] * 7)]
    )
    assert score.curve[0] == pytest.approx((16 - 10) / (1 - 10), abs=1e-9)
    assert score.curve[999] == pytest.approx((9 - 2) / (1 - 2), abs=1e-9)


def test_a_later_worse_point_is_averaged_with_the_earlier_one() -> None:
    # Run b is worse and its points lie between those of a: 5 at 2 s, 15 at 2.5 s pool to 10.
    a = external("a", (1, 21), (2, 6))
    b = external("b", (1, 21), (2.5, 16))
    ranks_pooled = score_space(TASK, [a, b]).curve[999]
    assert ranks_pooled == pytest.approx((11 - 2) / (1 - 2), abs=1e-9)


def test_the_curve_is_frozen_after_the_first_end_beyond_the_median_end() -> None:
    # Ends at 3, 4, 5, 7 s: the median is 4.5, so what happens after 5 s does not count. There the
    # rank has begun to fall from 10 (at 5 s) to 0 (at 6 s) and rounds to 10: 11 ms.
    runs = [
        every_second("a", 11, 11, 11),
        every_second("b", 11, 11, 11, 11),
        every_second("c", 11, 11, 11, 11, 11),
        every_second("d", 11, 11, 11, 11, 11, 1, 1),
    ]
    score = score_space(TASK, runs)
    assert score.curve[999] == pytest.approx((11 - 2) / (1 - 2), abs=1e-9)


# Twice the same run: 11 ms until 6.5 s and 1 ms at 8 s. If the last point counts, the rank falls
# from 10 to 0 between the two, and is 6.67 at 7 s: 8 ms.
LATE = [*((second, 11.0) for second in range(1, 7)), (6.5, 11.0), (8.0, 1.0)]
COUNTED, NOT_COUNTED = (8 - 2) / (1 - 2), (11 - 2) / (1 - 2)


def test_the_margin_depends_on_the_longest_run() -> None:
    # Eight evaluations: the window ends at 7 * (1.1 + 0.25 / 8) = 7.92 s, whatever the other run.
    short = external("b", (1, 11), (2, 11))
    for runs in ([external("a", *LATE)], [external("a", *LATE), short]):
        assert score_space(TASK, runs).curve[999] == pytest.approx(NOT_COUNTED, abs=1e-9)


def test_the_margin_does_not_count_failures_before_the_first_success() -> None:
    # Five evaluations with a point: 7 * (1.1 + 0.25 / 5) = 8.05 s.
    failures_first = [(t, INF if t < 4 else cost) for t, cost in LATE]
    score = score_space(TASK, [external("a", *failures_first)])
    assert score.curve[999] == pytest.approx(COUNTED, abs=1e-9)


def test_the_optimum_at_once_scores_one() -> None:
    assert score_space(TASK, [every_second("a", *[1] * 7)]).p == 1.0


def test_p_is_the_mean_along_the_axis() -> None:
    score = score_space(TASK, [every_second("a", 21, 6, INF, 3, 9, 1, 2, 4)])
    assert score.p == pytest.approx(sum(score.curve) / 1000, abs=1e-12)


def test_an_external_cost_takes_the_rank_it_would_have() -> None:
    # 6.5 ms is worse than six of the costs: rank 6, which is 7 ms.
    exact = score_space(TASK, [every_second("a", *[7] * 7)])
    between = score_space(TASK, [every_second("a", *[6.5] * 7)])
    assert between.p == exact.p


def test_costs_in_another_unit_are_refused() -> None:
    with pytest.raises(TaskError, match="run 'a': costs must be milliseconds on line"):
        score_space(TASK, [every_second("a", 0.021, 0.006)])


def test_no_traces_are_refused() -> None:
    with pytest.raises(TaskError, match="at least 1 trace"):
        score_space(TASK, [])


def test_a_run_in_which_nothing_worked_counts_as_the_median() -> None:
    task = Task.build(line_recording([float(c) for c in range(1, 22)] + [INF] * 8))
    failing = score_space(task, [every_second("a", *[INF] * 7)])
    median = score_space(task, [every_second("a", *[11] * 7)])
    assert failing.p == median.p


def test_a_run_without_a_visit_counts_as_the_median() -> None:
    empty = score_space(TASK, [visit(TASK)])
    assert empty.curve[AT_1357] == pytest.approx([-1 / 9, -6 / 4, -8 / 2, -9 / 1], abs=1e-9)
    assert empty.regret == 10.0


def late(task: Task) -> Trace:
    """A run whose first evaluation takes longer than all the time that counts."""
    done_s = np.array([task.budget_s * 10])
    rows, cost_ms = np.array([0], dtype=np.int32), task.recording.time_ms[:1].copy()
    return Trace(rows, done_s, cost_ms, outcome="budget", asks=1, revisits=0, seed=0)


def test_a_run_that_comes_too_late_counts_as_one_without_result() -> None:
    task = Task.build(small_recording())
    nothing = visit(task)
    assert score_space(task, [late(task)]).p == score_space(task, [nothing]).p
    good = visit(task, *np.argsort(task.recording.time_ms)[:1])
    mixed = score_space(task, [good, good, late(task)])
    assert mixed.p == pytest.approx(score_space(task, [good, good, nothing]).p)
    assert mixed.p < score_space(task, [good, good]).p


def test_an_external_run_that_comes_too_late_is_scored() -> None:
    task = Task.build(small_recording())
    found = score_space(task, [external("a", (task.budget_s * 10, task.optimum_ms))])
    assert found.p < 0.5


def test_a_run_that_stops_early_is_held_to_the_end() -> None:
    # Rows 20 and 5 cost 21 and 6 ms; held, the run goes on at 6 ms every second.
    held = score_space(TASK, [visit(TASK, 20, 5)])
    explicit = score_space(TASK, [every_second("a", 21, 6, INF, INF, INF, INF, INF, INF)])
    assert np.array_equal(held.curve, explicit.curve)


def test_giving_up_when_stuck_does_not_pay() -> None:
    good, stuck = visit(TASK, *range(8)), visit(TASK, 10, *range(11, 18))
    gives_up = visit(TASK, 10, 11)
    assert gives_up.outcome == "finished"
    patient = score_space(TASK, [good, good, stuck, stuck])
    hasty = score_space(TASK, [good, good, gives_up, gives_up])
    assert hasty.p == pytest.approx(patient.p, abs=1e-12)


def test_batches_have_a_floor_of_minus_one_and_a_sequence_has_none() -> None:
    # The worst cost all along, against 10, 5, 3, 2 ms at 1, 3, 5, 7 s.
    worst = every_second("a", *[21] * 8)
    unbounded = [-11 / 9, -16 / 4, -18 / 2, -19 / 1]
    assert score_space(TASK, [worst]).curve[AT_1357] == pytest.approx(unbounded)
    batches = replace(TASK, clock=ParallelClock(16))
    assert np.all(score_space(batches, [worst]).curve == -1.0)
    fair = every_second("b", *[5] * 8)
    unbounded_fair = score_space(TASK, [fair]).curve
    assert np.array_equal(score_space(batches, [fair]).curve, np.maximum(unbounded_fair, -1.0))
    assert resampled_curves(batches, [worst], np.array([[2]])).min() == -1.0


def test_external_runs_are_not_held_while_they_have_points() -> None:
    # Without holding, the short run has no weight after its end.
    short, long = every_second("a", 11, 11), every_second("b", *[1] * 8)
    assert score_space(TASK, [short, long]).curve[999] == 1.0


def test_an_external_run_without_a_point_in_the_window_is_held() -> None:
    early = external("a", (0.1, 11), (0.2, 11))
    assert score_space(TASK, [early]).curve[999] == pytest.approx((11 - 2) / (1 - 2))


def test_the_standard_error_is_that_of_resampled_runs() -> None:
    # With one cost a run, P is the mean rank's: resampling it by hand gives the same spread.
    costs = [1, 3, 5, 7, 9, 11, 13, 15]
    runs = [every_second(str(cost), *[cost] * 7) for cost in costs]
    error = score_space(TASK, runs, bootstrap=2000).standard_error
    rng = np.random.default_rng(0)
    ranks = np.array(costs) - 1
    means = np.rint(rng.choice(ranks, (2000, 8)).mean(axis=1)) + 1
    by_hand = np.mean((means[:, None] - TASK.baseline_ms) / (1 - TASK.baseline_ms), axis=1)
    assert error == pytest.approx(by_hand.std(ddof=1), rel=0.1)


def test_equal_runs_have_no_error_and_one_run_no_known_one() -> None:
    run = every_second("a", 21, 6, INF, 3, 9, 1, 2, 4)
    assert score_space(TASK, [run] * 5).standard_error == 0.0
    assert score_space(TASK, [run]).standard_error is None


def test_the_error_covers_the_spread_between_samples() -> None:
    task = Task.build(small_recording())
    rng = np.random.default_rng(5)
    scores = [
        score_space(task, [visit(task, *rng.permutation(120)) for _ in range(20)])
        for _ in range(60)
    ]
    spread = np.std([score.p for score in scores], ddof=1)
    errors = [score.standard_error for score in scores if score.standard_error is not None]
    assert 0.6 < np.mean(errors) / spread < 1.6


def test_means_over_runs() -> None:
    task = Task.build(line_recording([*(float(c) for c in range(1, 22)), INF]))
    first = Evaluator(task)
    first.ask(np.array([20, 2, 21, 2]))
    traces = [
        first.trace(outcome="finished", seed=0, cpu_s=2.0),
        visit(task, 4, cpu_s=4.0),
    ]
    score = score_space(task, traces)
    assert (score.runs, score.evaluations, score.cpu_s) == (2, 2.0, 3.0)
    assert score.failure_share == 1 / 4
    assert score.revisit_share == 1 / 5
    assert score.regret == pytest.approx(((3 - 1) + (5 - 1)) / 2)
    assert score.last_improvement == pytest.approx((2 + 1) / 2 / task.budget_s)


def test_external_traces_do_not_tell_revisits_and_seconds() -> None:
    score = score_space(TASK, [every_second("a", 3, 2)])
    assert (score.revisit_share, score.cpu_s) == (None, None)


def test_the_aggregate_is_the_mean_over_spaces() -> None:
    one = score_space(TASK, [every_second("a", *[1] * 7), every_second("b", *[3] * 7)])
    two = score_space(TASK, [every_second("a", *[5] * 7), every_second("b", *[9] * 7)])
    total = aggregate([one, two])
    assert total.p == pytest.approx((one.p + two.p) / 2, abs=1e-12)
    assert total.curve == pytest.approx((one.curve + two.curve) / 2)
    errors = np.array([one.standard_error, two.standard_error], dtype=float)
    assert total.standard_error == pytest.approx(np.sqrt((errors**2).sum()) / 2)


def test_the_aggregate_error_is_unknown_when_one_is() -> None:
    one = score_space(TASK, [every_second("a", *[1] * 7)])
    two = score_space(TASK, [every_second("a", *[5] * 7), every_second("b", *[9] * 7)])
    assert aggregate([one, two]).standard_error is None
    with pytest.raises(TaskError, match="at least 1 space"):
        aggregate([])


SCORE_IN_A_NEW_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from support.driver import run_in_process
from support.recordings import small_recording
from llamea_gpu.scoring import score_space
from llamea_gpu.programs.classical.genetic_algorithm import GeneticAlgorithm
from llamea_gpu.tasks import Task, run_seed
task = Task.build(small_recording())
traces = [run_in_process(GeneticAlgorithm(), task, run_seed(1, task.name, r)) for r in range(5)]
score = score_space(task, traces)
print(score.p.hex(), score.standard_error.hex())
"""


def test_a_score_is_bit_identical_in_another_process() -> None:
    tests = str(Path(__file__).parent)
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCORE_IN_A_NEW_PROCESS, tests],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(tests).parent)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_traces_are_read_from_csv(tmp_path: Path) -> None:
    path = write(
        tmp_path / "traces.csv",
        "cost,run,note,elapsed_s",
        "3.5,one,x,1",
        "2,two,x,0.5",
        ",one,x,2.25",
        "inf,one,x,2.25",
    )
    one, two = read_traces_csv(path)
    assert (one.run, one.elapsed_s.tolist(), one.cost_ms.tolist()) == (
        "one",
        [1.0, 2.25, 2.25],
        [3.5, INF, INF],
    )
    assert (two.run, two.elapsed_s.tolist(), two.cost_ms.tolist()) == ("two", [0.5], [2.0])


def test_a_spreadsheet_csv_is_read(tmp_path: Path) -> None:
    path = tmp_path / "traces.csv"
    path.write_bytes(b"\xef\xbb\xbfrun,elapsed_s,cost\r\n1,0.5,2\r\n")
    assert read_traces_csv(path)[0].cost_ms.tolist() == [2.0]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["run,elapsed_s", "1,2"], r"line 1: .*cost is missing"),
        (["run,elapsed_s,cost", "1,2,3", "1,2"], r"line 3: a row must have 3 fields"),
        (["run,elapsed_s,cost", "1,x,3"], r"line 2: elapsed_s must be a number, but is 'x'"),
        (["run,elapsed_s,cost", "1,2,x"], r"line 2: cost must be a number, but is 'x'"),
        (["run,elapsed_s,cost", "1,-1,3"], r"line 2: elapsed_s must be from 0 to 1e[+]07"),
        (["run,elapsed_s,cost", "1,inf,3"], r"line 2: elapsed_s must be from 0"),
        (["run,elapsed_s,cost", "1,1,nan"], r"line 2: cost must be from 1e-06"),
        (["run,elapsed_s,cost", "1,1,0"], r"line 2: cost must be from 1e-06"),
        (["run,elapsed_s,cost", "1,2,3", "2,0,1", "1,1,3"], r"line 4: .*not decrease .*2.0 to 1.0"),
        (["run,elapsed_s,cost"], "at least one row"),
    ],
)
def test_malformed_csv_is_refused_with_the_line(
    tmp_path: Path, lines: list[str], problem: str
) -> None:
    with pytest.raises(TaskError, match=problem):
        read_traces_csv(write(tmp_path / "traces.csv", *lines))


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "traces.csv"
    binary.write_bytes(b"\xff\xfe\x00run")
    for path in (binary, tmp_path / "missing.csv", tmp_path):
        with pytest.raises(TaskError, match="cannot be read"):
            read_traces_csv(path)


def test_no_score_overflows_at_the_ends_of_what_a_time_may_be() -> None:
    costs_ms = np.geomspace(LEAST_TIME_MS, MOST_TIME_MS, 21).tolist()
    recording = line_recording(costs_ms, compile_s=MOST_S, benchmark_s=MOST_S)
    with np.errstate(all="raise"):
        task = Task.build(recording)
        evaluator = Evaluator(task)
        with pytest.raises(BudgetExhausted):
            evaluator.ask(np.arange(21, dtype=np.int32)[::-1])
        score = score_space(task, [evaluator.trace(outcome="budget", seed=0)] * 2)
    assert np.isfinite(score.curve).all()
    assert np.isfinite([score.p, score.regret]).all()
