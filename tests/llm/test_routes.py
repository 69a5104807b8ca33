"""Settings become clients; what all clients share; and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.chat import chat_answer, chat_request
from support.fake_openai import FakeOpenAI, completion

from llamea_gpu.llm import (
    BatchExchange,
    BatchOptions,
    ChatClient,
    Exchange,
    OpenAIOptions,
    RejectedAnswerError,
    ReplayClient,
    ReplayOptions,
    estimate_tokens,
    make_client,
    save_recording,
)
from llamea_gpu.llm.openai import OpenAIClient, delay_s


def test_importing_the_routes_does_not_import_the_sdk() -> None:
    code = (
        "import sys, llamea_gpu.llm; "
        "print(sorted({'openai', 'httpx', 'httpx2', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- one suite over every route ----------------------------------------------------------------

OpenRoute = Callable[[str], AbstractAsyncContextManager[Any]]


@pytest.fixture(params=["openai", "batch", "replay"])
def open_route(request: pytest.FixtureRequest, server: FakeOpenAI, tmp_path: Path) -> OpenRoute:
    """Opens a route at whose end ``text`` is the answer to ``chat_request()``."""

    @asynccontextmanager
    async def opened(text: str) -> AsyncIterator[ChatClient]:
        if request.param == "openai":
            server.default = lambda body: completion(text)
            client = make_client(OpenAIOptions(base_url=server.base_url, api_key_env="UNSET_KEY"))
        elif request.param == "batch":
            client = make_client(BatchOptions(tmp_path / "exchange", poll_s=0.01))
            line = (
                '{"custom_id": "r-1", "error": null, "response": {"status_code": 200, "body": '
                + completion(text).body.decode()
                + "}}\n"
            )
            (tmp_path / "exchange" / "answers" / "out.jsonl").write_text(line, "utf-8")
        else:
            path = tmp_path / "recording.jsonl"
            save_recording(path, [Exchange(chat_request(), chat_answer(text))])
            client = make_client(ReplayOptions(path))
        try:
            yield client
        finally:
            await client.aclose()

    return opened


async def test_every_route_gives_the_answer_with_its_usage(open_route: OpenRoute) -> None:
    async with open_route("def f(): …") as client:
        answer = await client.complete(chat_request())
    assert (answer.text, answer.model) == ("def f(): …", "served-model")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (100, 50)


async def test_every_route_refuses_an_empty_answer_with_its_cost(open_route: OpenRoute) -> None:
    async with open_route("") as client:
        with pytest.raises(RejectedAnswerError) as caught:
            await client.complete(chat_request())
    assert caught.value.answer.usage.prompt_tokens == 100


async def test_every_route_reports_no_warning_when_all_is_well(open_route: OpenRoute) -> None:
    async with open_route("text") as client:
        await client.complete(chat_request())
        assert client.warnings == ()


# --- options -----------------------------------------------------------------------------------


async def test_each_kind_of_options_makes_its_client(tmp_path: Path, server: FakeOpenAI) -> None:
    save_recording(tmp_path / "r.jsonl", [])
    by_http = make_client(OpenAIOptions(server.base_url), np.random.default_rng(0))
    await by_http.aclose()
    assert isinstance(by_http, OpenAIClient)
    assert isinstance(make_client(BatchOptions(tmp_path / "x")), BatchExchange)
    assert isinstance(make_client(ReplayOptions(tmp_path / "r.jsonl")), ReplayClient)


def test_options_hold_the_name_of_a_key_and_not_the_key(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    assert secret not in repr(OpenAIOptions())


# --- delays ------------------------------------------------------------------------------------


def test_delays_with_jitter_stay_between_half_and_whole() -> None:
    rng = np.random.default_rng(0)
    delays = [delay_s(4, None, rng) for _ in range(200)]
    assert 4.0 <= min(delays) < 4.5
    assert 7.5 < max(delays) <= 8.0


def test_the_same_seed_gives_the_same_delays() -> None:
    first, second = (
        [delay_s(i, None, rng) for i in range(1, 5)]
        for rng in (np.random.default_rng(3), np.random.default_rng(3))
    )
    assert first == second


def test_the_thousandth_retry_waits_no_longer_than_the_bound() -> None:
    assert delay_s(1500, None, None) == 60.0


# --- estimates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("≈", 1)]
)
def test_four_bytes_are_a_token(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens
