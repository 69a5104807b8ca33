"""Verdicts: true differences are found, chance is not mistaken for one, noise is named."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from support.handmade import line_recording
from support.simulated import simulated_bench, small_tasks

from llamea_gpu.bench.analysis import analyse
from llamea_gpu.bench.findings import CURVE_POINTS, Analysis
from llamea_gpu.bench.plan import BenchSettings, Plan, RunKey, SearcherInfo, describe_space
from llamea_gpu.scoring import score_space
from llamea_gpu.tasks import Task, Trace


@functools.cache
def small() -> tuple[Task, ...]:
    return small_tasks(6)


def analysed(skills: dict[str, float], repeats: int, seed: int = 0, spaces: int = 6) -> Analysis:
    plan, tasks, runs = simulated_bench(skills, small()[:spaces], repeats, seed)
    return analyse(plan, tasks, runs, resamples=100)


def test_a_known_difference_is_detected() -> None:
    found = analysed({"chance": 0.0, "better": 1.0}, repeats=20)
    (pair,) = found.comparisons
    assert (pair.first, pair.second) == ("better", "chance")
    assert pair.decided
    assert pair.wins == 6
    assert pair.effect > 0.7
    assert pair.interval is not None
    assert pair.interval.low > 0
    assert pair.interval_spaces is not None
    assert [s.place_best for s in found.standings] == [1, 2]
    assert found.sentences[1].startswith("better beats chance on 6 of 6 spaces, P +")


def test_a_pair_is_seen_from_either_side() -> None:
    found = analysed({"chance": 0.0, "better": 1.0, "good": 0.5}, repeats=8)
    pairs = found.comparisons_of("chance")
    assert [pair.first for pair in pairs] == ["chance", "chance"]
    seen = next(pair for pair in pairs if pair.second == "better")
    pair = seen.seen_from("better")
    assert pair in found.comparisons
    assert pair.interval is not None
    assert seen.interval is not None
    assert (seen.interval.low, seen.interval.high) == (-pair.interval.high, -pair.interval.low)
    assert (seen.difference, seen.wins, seen.losses) == (-pair.difference, pair.losses, pair.wins)
    assert seen.effect == pytest.approx(1 - pair.effect)


def test_chance_is_rarely_taken_for_a_difference() -> None:
    """30 benches of equals: 5 % would be 1.5 wrong verdicts; more than 5 has a chance of 0.3 %."""
    wrong = sum(
        analysed({"a": 0.0, "b": 0.0}, repeats=8, seed=seed, spaces=4).comparisons[0].decided
        for seed in range(30)
    )
    assert wrong <= 5


def test_intervals_hold_what_many_runs_show() -> None:
    """P of 600 runs lies in the intervals of 8 runs: 95 % of 60 intervals are 57."""
    plan, tasks, runs = simulated_bench({"a": 0.3}, small()[:1], repeats=600)
    traces = [runs[key] for key in plan.runs()]
    (task,) = tasks.values()
    truth = score_space(task, traces, bootstrap=0).p
    held = 0
    for first in range(0, 480, 8):
        part = replace(plan, repeats=8)
        own = dict(zip(part.runs(), traces[first : first + 8], strict=True))
        interval = analyse(part, tasks, own, resamples=100).standings[0].interval
        assert interval is not None
        held += interval.low <= truth <= interval.high
    assert held >= 50


def test_the_number_of_repeats_that_would_tell_is_said() -> None:
    found = analysed({"a": 0.0, "b": 0.1}, repeats=5, seed=3)
    (pair,) = found.comparisons
    assert not pair.decided
    assert pair.repeats_needed is not None
    assert pair.repeats_needed > 5
    assert f"about {pair.repeats_needed:,} repeats would tell" in pair.sentence
    assert any("drown in noise" in caution for caution in found.cautions)


def test_too_few_repeats_give_numbers_and_no_verdict() -> None:
    found = analysed({"chance": 0.0, "better": 5.0}, repeats=4)
    assert not found.comparisons[0].decided
    assert found.comparisons[0].interval is None
    assert all(s.interval is None and s.curve_low is None for s in found.standings)
    assert [(s.place_best, s.place_worst) for s in found.standings] == [(1, 2), (1, 2)]
    assert "Fewer than 5 repeats" in found.cautions[0]
    assert "too few repeats" in found.sentences[1]


def test_where_nothing_is_said_no_test_says_something() -> None:
    """One rule: fewer than five repeats have no p of any kind, ranks over spaces included."""
    found = analysed({"a": 0.0, "b": 5.0}, repeats=4)
    assert found.ranks is None
    assert all(c.wilcoxon_p is None and c.p_value is None for c in found.comparisons)
    assert analysed({"a": 0.0, "b": 5.0}, repeats=5).comparisons[0].wilcoxon_p is not None
    three = {"a": 0.0, "b": 5.0, "c": 1.0}
    assert analysed(three, repeats=4).ranks is None
    assert analysed(three, repeats=5).ranks is not None


def test_pairs_of_a_baseline_do_not_weaken_what_is_asked() -> None:
    skills = {"new": 1.0, **{f"old-{i}": 0.1 * i for i in range(5)}}
    plan, tasks, runs = simulated_bench(skills, small()[:3], 6)
    together = analyse(plan, tasks, runs, 50)
    apart = analyse(plan, tasks, runs, 50, known={name for name in skills if name != "new"})
    for mixed, found in zip(together.comparisons, apart.comparisons, strict=True):
        assert (mixed.first, mixed.second, mixed.p_value) == (
            found.first,
            found.second,
            found.p_value,
        )
        assert found.p_holm is not None
        assert mixed.p_holm is not None
        assert found.p_holm <= mixed.p_holm
    least = min(c.p_value for c in apart.comparisons if "new" in (c.first, c.second))  # type: ignore[type-var]
    assert least in [c.p_holm and c.p_holm / 5 for c in apart.comparisons]
    assert len(apart.sentences) == 1 + 5
    assert all("new" in sentence for sentence in apart.sentences[1:])


def test_wilcoxon_is_left_out_where_it_cannot_decide() -> None:
    # 2 / 2**5 = .0625; with six spaces .03125, but not for the three pairs of three searchers.
    two, three = {"a": 0.0, "b": 2.0}, {"a": 0.0, "b": 2.0, "c": 0.5}
    assert analysed(two, repeats=5, spaces=5).comparisons[0].wilcoxon_p is None
    assert analysed(two, repeats=5, spaces=6).comparisons[0].wilcoxon_p == pytest.approx(0.03125)
    assert all(c.wilcoxon_p is None for c in analysed(three, repeats=5).comparisons)


def test_ranks_need_three_searchers_and_spaces() -> None:
    assert analysed({"a": 0.0, "b": 2.0}, repeats=5).ranks is None
    ranks = analysed({"a": 0.0, "b": 5.0, "c": 1.0}, repeats=5).ranks
    assert ranks is not None
    assert ranks.mean_ranks[0].searcher == "b"
    assert ranks.mean_ranks[0].rank == 1.0
    assert sum(r.rank for r in ranks.mean_ranks) == pytest.approx(6.0)


def test_p_is_that_of_scoring_and_curves_are_its() -> None:
    plan, tasks, runs = simulated_bench({"a": 0.5}, small(), 6)
    found = analyse(plan, tasks, runs, resamples=50).standings[0]
    scores = [
        score_space(tasks[s.name], [runs[RunKey("a", s.name, r)] for r in range(6)], bootstrap=0)
        for s in plan.spaces
    ]
    assert found.p == pytest.approx(np.mean([score.p for score in scores]))
    assert [s.p for s in found.spaces] == [score.p for score in scores]
    assert found.spaces[2].curve[-1] == pytest.approx(scores[2].curve[-1], abs=1e-5)
    assert len(found.curve) == CURVE_POINTS
    assert found.curve_low is not None
    assert all(low <= p for low, p in zip(found.curve_low, found.curve, strict=True))


def line_plan(task: Task, repeats: int) -> Plan:
    return Plan(
        BenchSettings(),
        repeats,
        (SearcherInfo("s", "source", ""),),
        (describe_space(task),),
    )


def line_trace(task: Task, rows: list[int], outcome: str = "budget") -> Trace:
    return Trace(
        rows=np.array(rows, dtype=np.int32),
        elapsed_s=np.arange(1.0, len(rows) + 1),
        cost_ms=task.recording.time_ms[rows],
        outcome=outcome,
        asks=len(rows),
        revisits=0,
        seed=0,
    )


def test_reaching_the_optimum_by_hand() -> None:
    # Costs 1.00, 1.02, ... 1.98, 2.00: within 10 % are rows 0 to 5, within 1 % row 0 alone.
    task = Task.build(line_recording([1 + 0.02 * i for i in range(51)]))
    traces = [
        line_trace(task, [40, 4, 0]),  # 10 % at 2, 1 % at 3
        line_trace(task, [30, 20, 10, 5]),  # 10 % at 4
        line_trace(task, [50], "error"),
    ]
    plan = line_plan(task, 3)
    runs = dict(zip(plan.runs(), traces, strict=True))
    standing = analyse(plan, {task.name: task}, runs).standings[0]
    ten, five, one = standing.reaches
    assert (ten.percent, five.percent, one.percent) == (10, 5, 1)
    assert ten.share == pytest.approx(2 / 3)
    assert ten.median_evaluations == 4.0
    assert one.share == pytest.approx(1 / 3)
    assert one.median_evaluations is None
    assert standing.failed_runs == 1
    assert standing.spaces[0].regret == pytest.approx((0 + 0.1 + 1.0) / 3)


def test_lotteries_are_named_and_left_out_beside() -> None:
    # The axis ends after 6 evaluations of random search.
    tasks = (*small()[:2], Task.build(line_recording([float(1 + i) for i in range(20)])))
    plan, by_name, runs = simulated_bench({"a": 0.5, "b": 0.0}, tasks, 5)
    assert [space.is_lottery for space in plan.spaces] == [False, False, True]
    found = analyse(plan, by_name, runs, resamples=50)
    standing = found.standings[0]
    assert standing.p_without_lotteries == pytest.approx(
        np.mean([space.p for space in standing.spaces[:2]])
    )
    assert any("mostly luck" in caution and "of line" in caution for caution in found.cautions)


def test_a_searcher_without_any_spread_is_compared_all_the_same() -> None:
    plan, tasks, runs = simulated_bench({"a": 0.0, "fixed": 0.0}, small()[:3], 6)
    for space in plan.spaces:
        same = runs[RunKey("fixed", space.name, 0)]
        for repeat in range(6):
            runs[RunKey("fixed", space.name, repeat)] = replace(
                same, seed=plan.seed_of(RunKey("fixed", space.name, repeat))
            )
    found = analyse(plan, tasks, runs, resamples=50)
    fixed = next(s for s in found.standings if s.searcher == "fixed")
    assert fixed.interval is not None
    assert fixed.interval.low == pytest.approx(fixed.p)
    assert math.isfinite(found.comparisons[0].difference)
