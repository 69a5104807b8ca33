"""A whole run against a real HTTP server that misbehaves: it goes on, and counts what it paid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.fake_openai import FakeOpenAI, Reply, completion, error, json_reply
from support.programs import answer, climber_program

from llamea_gpu.errors import TransportError
from llamea_gpu.evolution.candidate import FAILED, Candidate
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.llm import OpenAIOptions
from llamea_gpu.llm.openai import OpenAIClient

KEY = "sk-proj-notarealkey0123456789abcdefABCDEF"


@pytest.fixture
def settings(settings: EvolutionSettings) -> EvolutionSettings:
    """What a program is run on is no matter here."""
    one = {"spaces": ("small0",), "seed_programs": ("random_search",)}
    return settings.model_copy(update=one)


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as running:
        programs = iter(climber_program(start) for start in range(2, 100))
        running.default = lambda body: completion(answer(next(programs)))
        yield running


@pytest.fixture
def client(server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> OpenAIClient:
    monkeypatch.setenv("LLAMEA_GPU_TEST_KEY", KEY)

    async def no_sleep(_: float) -> None:
        return None

    options = OpenAIOptions(
        server.base_url, "LLAMEA_GPU_TEST_KEY", timeout_s=1.0, max_retries=2, max_concurrency=2
    )
    return OpenAIClient(options, np.random.default_rng(0), sleep=no_sleep)


def candidates(outcome) -> dict[int, Candidate]:
    return {c.slot: c for c in outcome.population.candidates if c.slot >= 0}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(error(429, headers={"Retry-After": "1"}), id="429-retry-after"),
        pytest.param(error(429), id="429"),
        pytest.param(error(500), id="500"),
        pytest.param(Reply(fault="hang"), id="timeout"),
        pytest.param(Reply(fault="reset"), id="reset"),
        pytest.param(
            Reply(b'{"choices": [{"message": {"content"', fault="truncate"), id="truncated"
        ),
        pytest.param(Reply(b"<html>gateway</html>"), id="not-json"),
    ],
)
async def test_a_passing_fault_costs_no_candidate(
    harness, settings, server: FakeOpenAI, client: OpenAIClient, fault: Reply
) -> None:
    server.script.append(fault)
    outcome, archive = await harness.run(settings, client)
    await client.aclose()
    found = candidates(outcome)
    assert len(found) == settings.candidates
    assert [c.kind for c in found.values() if c.status == FAILED] == []
    answered = [call for call in archive.calls() if call.answer is not None]
    assert harness.ledger.totals.requests == len(answered)
    assert harness.ledger.in_flight == 0


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("I cannot help with that.", id="prose"),
        pytest.param("x = 1\n" * 200_000, id="megabyte"),
        pytest.param('{"idea": "x"}', id="wrong-json-answer"),
        pytest.param("```python\nclass A:", id="cut-off"),
    ],
)
async def test_a_useless_answer_is_paid_for_and_repaired(
    harness, settings, server: FakeOpenAI, client: OpenAIClient, text: str
) -> None:
    server.script.append(completion(text))
    outcome, _ = await harness.run(settings, client)
    await client.aclose()
    assert [c.status for c in candidates(outcome).values()].count(FAILED) == 0
    assert harness.ledger.totals.requests == settings.candidates + 1
    assert harness.ledger.totals.prompt_tokens == 100 * (settings.candidates + 1)
    assert harness.ledger.totals.completion_tokens == 50 * (settings.candidates + 1)


async def test_a_refusal_is_paid_for_and_repaired(
    harness, settings, server: FakeOpenAI, client: OpenAIClient
) -> None:
    server.script.append(completion(None, refusal="I would rather not", finish_reason="stop"))
    outcome, archive = await harness.run(settings, client)
    await client.aclose()
    assert sorted(c.attempts for c in candidates(outcome).values()) == [1, 1, 1, 2]
    assert harness.ledger.totals.requests == settings.candidates + 1
    assert [call.problem for call in archive.calls() if call.problem]


async def test_a_server_that_speaks_something_else_costs_that_candidate_alone(
    harness, settings, server: FakeOpenAI, client: OpenAIClient
) -> None:
    server.script.append(json_reply({"unexpected": True}))
    outcome, _ = await harness.run(settings, client)
    await client.aclose()
    assert sorted(c.kind for c in candidates(outcome).values()) == ["", "", "", "transport"]
    assert harness.ledger.in_flight == 0


async def test_a_dead_server_stops_the_run_with_advice(
    harness, settings, server: FakeOpenAI, client: OpenAIClient
) -> None:
    server.default = lambda body: error(503)
    with pytest.raises(TransportError, match="--resume"):
        await harness.run(settings, client)
    await client.aclose()


async def test_the_key_is_nowhere_in_the_run_folder(
    harness, settings, server: FakeOpenAI, client: OpenAIClient
) -> None:
    server.script.append(error(401, f"Incorrect API key provided: {KEY}"))
    _, archive = await harness.run(settings, client)
    await client.aclose()
    archive.close()
    for path in Path(archive.path).parent.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
