"""Which weaknesses are put into words."""

from __future__ import annotations

import math
from dataclasses import replace

from llamea_gpu.prompting import Feedback, SpaceResult
from llamea_gpu.prompting.feedback import weak_points

GOOD = SpaceResult(
    space="easy",
    p=0.8,
    standard_error=0.02,
    reference="genetic_algorithm",
    reference_p=0.4,
    evaluations=100.0,
    revisit_share=0.1,
    failure_share=0.05,
    last_improvement=0.7,
    regret=0.0,
    cpu_s=0.1,
)


def told(*results: SpaceResult) -> str:
    return " ".join(weak_points(Feedback(0.5, 0.1, "full", "ok", results)))


def test_nothing_scored_nothing_said():
    assert weak_points(Feedback(None, None, "smoke", "error")) == ()


def test_the_space_of_the_lowest_p_is_named_and_where_people_do_better():
    hard = replace(GOOD, space="hard", p=0.1, regret=0.015)
    assert told(GOOD, hard) == (
        "Most is to be gained on hard: P 0.100. Loses to the best human-designed searcher on hard."
    )


def test_a_lead_everywhere_is_not_called_a_loss():
    assert told(GOOD) == "Most is to be gained on easy: P 0.800."


def test_an_early_stop_with_a_regret_is_named():
    assert "Gets stuck on easy" in told(replace(GOOD, regret=0.05, last_improvement=0.2))


def test_a_run_that_found_nothing_counts_as_stuck():
    assert "Gets stuck on easy" in told(replace(GOOD, regret=math.inf, last_improvement=0.0))


def test_an_early_optimum_is_not_called_stuck():
    assert "stuck" not in told(replace(GOOD, regret=0.0, last_improvement=0.2))


def test_a_slow_start_is_named():
    assert "Starts slowly on easy" in told(replace(GOOD, p=0.3))


def test_revisits_are_named():
    assert "what it has visited on easy" in told(replace(GOOD, revisit_share=0.9))


def test_failures_are_named():
    assert "failing configurations on easy" in told(replace(GOOD, failure_share=0.4))


def test_many_spaces_are_counted_not_listed():
    results = [replace(GOOD, space=f"s{i}", revisit_share=0.9) for i in range(5)]
    assert "s0, s1, s2 and 2 more" in told(*results)


def test_cpu_seconds_change_nothing():
    assert told(GOOD) == told(replace(GOOD, cpu_s=9.0))
