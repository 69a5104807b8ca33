"""The best-of-n control: whatever other answers are, the questions stay the same."""

from __future__ import annotations

from contextlib import closing

import pytest
from support.candidates import candidate
from support.programs import BROKEN, answer, climber_program, random_program

from llamea_gpu.errors import ArchiveError
from llamea_gpu.evolution.candidate import SCORED
from llamea_gpu.evolution.comparison import RunResult, compare
from llamea_gpu.evolution.population import Population


def questions(client) -> dict[str, str]:
    return {
        request.request_id: request.messages[-1].content
        for request in client.asked
        if request.request_id.endswith("-0")
    }


@pytest.mark.parametrize("control", ["best-of-n", "none"])
async def test_questions_of_the_control_do_not_depend_on_answers(
    harness, settings, scripted, control: str
) -> None:
    settings = settings.model_copy(update={"control": control, "candidates": 4})
    asked = []
    for first in (climber_program(2), random_program(3), BROKEN):
        answers = {(slot, 0): answer(climber_program(slot + 4)) for slot in range(4)}
        client = scripted({**answers, (0, 0): answer(first), (0, 1): answer(random_program(5))})
        outcome, archive = await harness.run(settings, client)
        archive.close()
        asked.append(questions(client))
    same = asked[0] == asked[1] == asked[2]
    assert same == (control == "best-of-n")
    if control == "best-of-n":
        written = [c for c in outcome.population.candidates if c.slot >= 0]
        assert {(c.operator, c.parents) for c in written} == {("new", ())}
        assert not any("climber" in text.lower() for text in asked[0].values())


async def test_an_equal_program_is_a_sample_like_any_other(harness, settings, scripted) -> None:
    """To ask again because another answer was the same would make the two depend."""
    settings = settings.model_copy(update={"control": "best-of-n"})
    client = scripted({(slot, 0): answer(climber_program(2)) for slot in range(4)})
    outcome, archive = await harness.run(settings, client)
    with closing(archive):
        written = [c for c in outcome.population.candidates if c.slot >= 0]
        assert {(c.status, c.attempts, c.p) for c in written} == {(SCORED, 1, written[0].p)}


async def test_the_answers_of_a_run_can_be_capped(harness, settings, scripted) -> None:
    settings = settings.model_copy(update={"max_answers": 3, "candidates": 6})
    answers = {(slot, 0): answer(climber_program(slot + 2)) for slot in range(6)}
    client = scripted({**answers, (1, 0): "none", (1, 1): answer(random_program(3))})
    outcome, archive = await harness.run(settings, client)
    archive.close()
    assert "3 requests" in outcome.reason
    assert len(client.asked) == 3


def run(name: str, *ps: float, attempts: int = 1, problem: str = "x") -> RunResult:
    candidates = [candidate(-1, 0.99, operator="a")]
    candidates += [candidate(slot, p, attempts=attempts, tokens=10) for slot, p in enumerate(ps)]
    return RunResult(name, "evolution", problem, Population(tuple(candidates)))


def test_runs_are_compared_at_the_same_number_of_answers() -> None:
    long, short = compare([run("a", 0.2, 0.5, 0.3, 0.9), run("b", 0.4, attempts=3)])
    assert (long.answers, long.tokens, long.at_answers) == (4, 40, 3)
    assert (long.best, long.p) == ("#1", 0.5)  # not the fourth, and not the seed program
    assert (short.answers, short.best, short.p) == (3, "#0", 0.4)


def test_runs_on_other_recordings_are_not_compared() -> None:
    with pytest.raises(ArchiveError, match="same recordings"):
        compare([run("a", 0.2), run("b", 0.4, problem="y")])
