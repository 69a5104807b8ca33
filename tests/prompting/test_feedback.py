"""Which weaknesses are put into words beside the table."""

from __future__ import annotations

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


def told(*results: SpaceResult, mechanisms: tuple[str, ...] = ()) -> tuple[str, ...]:
    return weak_points(Feedback(0.5, 0.1, "full", "ok", results, None, mechanisms))


def test_nothing_scored_nothing_said() -> None:
    assert weak_points(Feedback(None, None, "smoke", "error")) == ()


def test_a_lead_everywhere_is_not_called_a_loss() -> None:
    assert told(GOOD) == ()


def test_where_people_do_better_comes_first_the_widest_gap_ahead() -> None:
    behind = [replace(GOOD, space=f"s{i}", p=0.39 - i / 10) for i in range(5)]
    found = told(GOOD, *behind, mechanisms=("It waits.", "It fails."))
    assert found == (
        "Loses to the best human-designed searcher on s4, s3, s2 and 2 more.",
        "It waits.",
        "It fails.",
    )


def test_revisits_are_named_last() -> None:
    found = told(replace(GOOD, revisit_share=0.9), mechanisms=("It waits.",))
    assert found == (
        "It waits.",
        "Asks mostly for what it has visited on easy, which tells it nothing.",
    )


def test_there_are_seven_sentences_at_most() -> None:
    assert len(told(replace(GOOD, revisit_share=0.9), mechanisms=("It waits.",) * 9)) == 7


def test_cpu_seconds_change_nothing() -> None:
    assert told(GOOD) == told(replace(GOOD, cpu_s=9.0))
