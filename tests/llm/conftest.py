from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from support.fake_openai import FakeOpenAI

from llamea_gpu.llm import OpenAIOptions
from llamea_gpu.llm.openai import MAX_BODY_BYTES, OpenAIClient

KEY_VARIABLE = "LLAMEA_GPU_TEST_KEY"


@pytest.fixture
def secret() -> str:
    """A key of the length and alphabet of OpenAI's."""
    return "sk-proj-7Qf3vXw9_Zr2LmK8sTbYpN4-" + "a1B2" * 8


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as running:
        yield running


@pytest.fixture
def delays() -> list[float]:
    """What the client would have slept between attempts, in seconds."""
    return []


@pytest.fixture
async def make_openai(
    server: FakeOpenAI, delays: list[float], secret: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., OpenAIClient]]:
    """Makes clients of ``server`` that hold ``secret``, note delays and are closed at the end."""
    monkeypatch.setenv(KEY_VARIABLE, secret)
    made: list[OpenAIClient] = []

    async def note(seconds: float) -> None:
        delays.append(seconds)

    def make(**options: Any) -> OpenAIClient:
        bound = {"max_body_bytes": options.pop("max_body_bytes", MAX_BODY_BYTES)}
        asked = OpenAIOptions(server.base_url, KEY_VARIABLE, **{"max_retries": 2, **options})
        made.append(OpenAIClient(asked, sleep=note, **bound))
        return made[-1]

    yield make
    for client in made:
        await client.aclose()
