"""The loop with a scripted model, the real sandbox and real scores."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from support.programs import BROKEN, answer, climber_program, random_program

from llamea_gpu.archive import Archive
from llamea_gpu.errors import SandboxError, SettingsError, TransportError
from llamea_gpu.evolution.candidate import FAILED, PARTIAL, SCORED
from llamea_gpu.evolution.session import _spent
from llamea_gpu.llm import FailedRequestError

GOOD = {(slot, 0): answer(climber_program(slot + 2)) for slot in range(8)}


async def test_candidates_are_scored_and_the_best_wins(harness, settings, scripted) -> None:
    outcome, archive = await harness.run(settings, scripted(GOOD))
    written = [c for c in outcome.population.candidates if c.slot >= 0]
    assert outcome.reason == "complete"
    assert [c.slot for c in written] == [0, 1, 2, 3]
    assert {c.status for c in written} <= {SCORED, PARTIAL}
    best = outcome.population.best()
    assert best is not None
    highest = max(c.p for c in outcome.population.candidates if c.p is not None)
    assert best.p == pytest.approx(highest, abs=0.01)  # the shorter of programs as good
    assert len(best.feedback.spaces) == 3
    assert len(archive.candidates()) == 2 + 4


async def test_a_space_may_have_more_repeats_than_the_others(harness, settings, scripted) -> None:
    more = settings.model_copy(update={"repeats": 3, "repeats_by_space": {"small2": 7}})
    outcome, archive = await harness.run(more, scripted(GOOD))
    scored = next(c for c in outcome.population.candidates if c.slot >= 0 and c.status == SCORED)
    counts = {
        result.space: len(archive.traces(scored.slot, 0, result.space))
        for result in scored.feedback.spaces
    }
    assert sorted(counts.values()) == [3, 3, 7]
    assert counts["small2"] == 7


async def test_repeats_of_a_space_that_is_not_trained_on_are_refused(
    harness, settings, scripted
) -> None:
    absent = settings.model_copy(update={"repeats_by_space": {"small99": 7}})
    with pytest.raises(SettingsError, match=r"must name training spaces .*small2.* got small99"):
        await harness.run(absent, scripted(GOOD))


async def test_later_generations_show_parents_with_code_and_feedback(
    harness, settings, scripted
) -> None:
    settings = settings.model_copy(update={"operators": {"refine": 1.0}})
    client = scripted(GOOD)
    outcome, _ = await harness.run(settings, client)
    prompts = {request.request_id: request.messages[-1].content for request in client.asked}
    parent = next(c for c in outcome.population.candidates if c.slot == 3).parents[0]
    shown = next(c for c in outcome.population.candidates if c.slot == parent)
    assert shown.program.source.strip() in prompts["1-0003-0"]
    assert "small2" in prompts["1-0003-0"]
    assert shown.program.source.strip() not in prompts["1-0000-0"]


async def test_a_program_that_raises_is_repaired_with_its_traceback(
    harness, settings, scripted
) -> None:
    client = scripted({**GOOD, (1, 0): answer(BROKEN), (1, 1): answer(climber_program(9))})
    outcome, archive = await harness.run(settings, client)
    repaired = next(c for c in outcome.population.candidates if c.slot == 1)
    assert (repaired.status in (SCORED, PARTIAL), repaired.attempts) == (True, 2)
    prompt = archive.call(1, 1).request.messages[-1].content
    assert "ZeroDivisionError" in prompt
    assert "return 1 / self.divisor" in prompt


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("I would rather not.", "no-class"),
        (answer(climber_program(3).replace("start=3", "start")), "no-defaults"),
        (answer("import os\n" + climber_program(3)), "forbidden-import"),
        (answer(climber_program(3))[:-60], "truncated"),
    ],
)
async def test_what_admission_refuses_is_never_run(
    harness, settings, scripted, text: str, kind: str
) -> None:
    client = scripted({**GOOD, (0, 0): text, (0, 1): text})
    outcome, archive = await harness.run(settings, client)
    failed = next(c for c in outcome.population.candidates if c.slot == 0)
    assert (failed.status, failed.kind, failed.attempts) == (FAILED, kind, 2)
    assert failed.message in archive.call(0, 1).request.messages[-1].content
    assert not archive.traces(0, 0, "small0")


async def test_a_duplicate_is_refused_before_evaluation(harness, settings, scripted) -> None:
    twin = answer(climber_program(2).replace("around", "nearby") + "\n# a comment\n")
    client = scripted({**GOOD, (2, 0): twin, (2, 1): answer(climber_program(12))})
    outcome, archive = await harness.run(settings, client)
    assert "#0" in archive.call(2, 1).request.messages[-1].content
    assert not archive.traces(2, 0, "small0")
    assert next(c for c in outcome.population.candidates if c.slot == 2).attempts == 2


async def test_a_hopeless_candidate_is_stopped_early(harness, settings, scripted) -> None:
    settings = settings.model_copy(update={"repeats": 6})
    worst = (
        "class Stuck:\n"
        '    """Asks for one configuration."""\n\n'
        "    def __init__(self, count=1):\n        self.count = count\n\n"
        "    def __call__(self, evaluate, space, rng):\n"
        "        evaluate([max(space.pool(200).tolist())])\n"
    ).replace("[max(space.pool(200).tolist())]", "[tuple(max(space.pool(200).tolist()))]")
    outcome, archive = await harness.run(settings, scripted({**GOOD, (2, 0): answer(worst)}))
    stopped = next(c for c in outcome.population.candidates if c.slot == 2)
    assert stopped.status == PARTIAL
    assert not archive.traces(2, 0, "small1")
    assert stopped not in outcome.population.elite(10)


async def test_a_refusal_is_paid_for_and_asked_again(harness, settings, scripted, refusal) -> None:
    client = scripted({**GOOD, (1, 0): refusal, (1, 1): answer(climber_program(9))})
    _, archive = await harness.run(settings, client)
    assert harness.ledger.totals.requests == 5
    assert archive.call(1, 0).problem == "the model declined"


async def test_a_lost_slot_does_not_stop_the_run(harness, settings, scripted, outage) -> None:
    outcome, _ = await harness.run(settings, scripted({**GOOD, (1, 0): outage}))
    kinds = {c.slot: c.kind for c in outcome.population.candidates}
    assert kinds[1] == "transport"
    assert kinds[3] == ""


async def test_an_outage_stops_the_run_and_its_slots_are_asked_again(
    harness, settings, scripted, outage
) -> None:
    settings = settings.model_copy(update={"candidates": 6})
    down = {**GOOD, **{(slot, 0): outage for slot in range(1, 6)}}
    client = scripted(down)
    with pytest.raises(TransportError, match="--resume"):
        await harness.run(settings, client)
    folder = next(harness.folder.iterdir())
    archive = Archive.open(folder)
    assert max(archive.candidates()) == 0
    again = scripted(GOOD)
    outcome, _ = await harness.run(settings, again, archive)
    assert "1-0000-0" not in again.asked_ids()
    assert [c.slot for c in outcome.population.candidates if c.status == FAILED] == []


async def test_a_token_cap_stops_before_it_is_passed(harness, settings, scripted) -> None:
    # A request reserves its prompt and 16,384 tokens for the answer; each answer then took 1,500.
    settings = settings.model_copy(update={"max_tokens_total": 24_000, "candidates": 8})
    client = scripted(GOOD)
    outcome, _ = await harness.run(settings, client)
    assert "cap of 24000 tokens" in outcome.reason
    assert harness.ledger.totals.tokens <= 24_000
    assert 0 < len(client.asked) < 8


async def test_equal_answers_give_equal_archives_whatever_arrives_first(
    harness, settings, scripted
) -> None:
    class Jumbled(scripted):
        async def complete(self, request):
            await asyncio.sleep(0.3 * (int(request.request_id.split("-")[1]) % 2 == 0))
            return await super().complete(request)

    answers = {**GOOD, (1, 0): answer(random_program(5))}
    first, _ = await harness.run(settings, scripted(answers))
    second, _ = await harness.run(settings, Jumbled(answers))

    def essence(outcome):
        return [
            (c.slot, c.operator, c.parents, c.status, c.p) for c in outcome.population.candidates
        ]

    assert essence(first) == essence(second)


async def test_the_last_slots_lost_are_not_called_complete(
    harness, settings, scripted, outage
) -> None:
    settings = settings.model_copy(update={"candidates": 2})
    client = scripted({(0, 0): outage, (1, 0): outage})
    with pytest.raises(TransportError, match="--resume"):
        await harness.run(settings, client)


async def test_nothing_builds_on_a_slot_that_may_be_asked_again(
    harness, settings, scripted, outage
) -> None:
    """Slot 3 is planned two places after slot 1, which was lost: after slot 2 came, not before."""
    client = scripted({**GOOD, (1, 0): outage})
    outcome, _ = await harness.run(settings, client)
    order = client.asked_ids()
    assert order.index("1-0003-0") == len(order) - 1
    assert [c.slot for c in outcome.population.candidates] == [-2, -1, 0, 1, 2, 3]


async def test_a_fault_of_the_host_ends_the_run_at_once(harness, settings, scripted) -> None:
    class Stuck(scripted):
        async def complete(self, request):
            if request.request_id == "1-0000-0":
                await asyncio.sleep(60)
            raise SandboxError("the machine is on fire")

    settings = settings.model_copy(update={"route": "openai"})
    with pytest.raises(SandboxError, match="fire"):
        await asyncio.wait_for(harness.run(settings, Stuck(GOOD)), 30)


async def test_the_wall_time_ends_a_run_that_waits(harness, settings, scripted) -> None:
    class Slow(scripted):
        async def complete(self, request):
            await asyncio.sleep(60)

    settings = settings.model_copy(
        update={"max_wall_s": 0.5, "route": "batch", "exchange": "unused"}
    )
    outcome, archive = await asyncio.wait_for(harness.run(settings, Slow(GOOD)), 30)
    assert "wall-time" in outcome.reason
    assert max(archive.candidates()) < 0
    assert harness.ledger.in_flight == 0


async def test_a_run_whose_answers_are_not_there_yet_stops_and_goes_on(
    harness, settings, scripted
) -> None:
    """As an exchange is answered by hand: every session does what it can, and ends."""

    class Handed(scripted):
        handed = 0

        async def complete(self, request):
            if int(request.request_id.split("-")[1]) >= self.handed:
                await asyncio.sleep(60)
            return await super().complete(request)

    settings = settings.model_copy(update={"max_wait_s": 0.0, "route": "batch", "exchange": "x"})
    client, archive = Handed(GOOD), None
    for client.handed, waiting in ((0, 2), (2, 2), (3, 1)):
        outcome, archive = await asyncio.wait_for(harness.run(settings, client, archive), 30)
        assert outcome.reason.startswith(f"{waiting} answers are waited for")
        assert max(archive.candidates()) == client.handed - 1
    client.handed = 4
    outcome, _ = await harness.run(settings, client, archive)
    assert outcome.reason == "complete"
    assert len(client.asked) == 4  # each of them once


async def test_what_may_have_been_billed_is_remembered(harness, settings, scripted) -> None:
    lost = FailedRequestError("no answer", lost_attempts=3)
    client = scripted({**GOOD, (1, 0): lost})
    _, archive = await harness.run(settings, client)
    assert archive.call(1, 0).lost == 3
    restored = _spent(archive, settings)
    assert restored.lost_attempts == harness.ledger.totals.lost_attempts == 3
    assert restored.tokens == harness.ledger.totals.tokens


async def test_a_dollar_cap_holds(harness, settings, scripted, tmp_path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[models.canned]\ninput = 10.0\noutput = 10.0\n")
    settings = settings.model_copy(update={"max_usd": 0.25, "candidates": 8, "prices": str(prices)})
    outcome, _ = await harness.run(settings, scripted(GOOD))
    assert "USD" in outcome.reason
    assert harness.ledger.totals.usd <= Decimal("0.25")
