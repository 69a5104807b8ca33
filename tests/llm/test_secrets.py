"""A key stays out of everything that can be read afterwards, also when the server repeats it."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from support.chat import chat_request
from support.fake_openai import FakeOpenAI, Reply, completion, error, json_reply

from llamea_gpu.errors import LLMError, SettingsError
from llamea_gpu.llm import (
    BatchExchange,
    Exchange,
    OpenAIOptions,
    RejectedAnswerError,
    save_recording,
)
from llamea_gpu.llm.openai import OpenAIClient

MakeClient = Callable[..., OpenAIClient]


def everything(error: BaseException | None) -> str:
    """All texts of an exception, its causes and its contexts, suppressed ones included."""
    texts: list[str] = []
    while error is not None:
        texts += [str(error), repr(error), repr(vars(error)), *traceback.format_exception(error)]
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def echoes(secret: str) -> dict[str, Reply]:
    """Ways in which a careless server repeats the key."""
    said = f"Incorrect API key provided: {secret}."
    return {
        "401": error(401, said),
        "500": error(500, said),
        "400 text": Reply(said.encode(), 400),
        "200 text": Reply(said.encode()),
        "200 error": json_reply({"error": {"code": 401, "message": said}}),
        "200 foreign": json_reply({secret: said}),
        "truncated": Reply(said.encode(), fault="truncate"),
        "refusal": completion(None, refusal=said),
        "cut in the middle": Reply(b"x" * 270 + secret.encode(), 400),
    }


@pytest.mark.parametrize("name", echoes(""))
async def test_no_error_shows_the_key(
    server: FakeOpenAI, make_openai: MakeClient, secret: str, name: str
) -> None:
    server.default = lambda body: echoes(secret)[name]
    with pytest.raises(LLMError) as caught:
        await make_openai(max_retries=1).complete(chat_request())
    assert secret[:12] not in everything(caught.value)


async def test_a_redacted_text_names_the_variable(
    server: FakeOpenAI, make_openai: MakeClient, secret: str
) -> None:
    server.script.append(error(401, f"bad key {secret}"))
    with pytest.raises(LLMError, match=r"bad key \[LLAMEA_GPU_TEST_KEY\]"):
        await make_openai().complete(chat_request())


async def test_an_answer_that_repeats_the_key_is_redacted_in_every_field(
    server: FakeOpenAI, make_openai: MakeClient, secret: str
) -> None:
    server.script.append(completion(f"key={secret}", model=secret, finish_reason=secret))
    assert secret not in repr(await make_openai().complete(chat_request()))


async def test_a_refusal_that_repeats_the_key_is_committed_without_it(
    server: FakeOpenAI, make_openai: MakeClient, secret: str
) -> None:
    server.script.append(completion(None, refusal=f"I saw {secret}"))
    with pytest.raises(RejectedAnswerError) as caught:
        await make_openai().complete(chat_request())
    assert secret not in repr(caught.value.answer)


async def test_no_log_record_shows_the_key(
    server: FakeOpenAI, make_openai: MakeClient, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.script.extend([error(500, f"echo {secret}"), error(401, f"echo {secret}")])
    with pytest.raises(LLMError):
        await make_openai().complete(chat_request())
    assert caplog.records  # the SDK does log at this level
    assert secret not in caplog.text


async def test_the_client_shows_the_variable_and_not_the_key(
    make_openai: MakeClient, secret: str
) -> None:
    client = make_openai()
    shown = repr(client) + repr(vars(client))
    assert "LLAMEA_GPU_TEST_KEY" in shown
    assert secret not in shown


async def test_nothing_written_to_disk_holds_the_key(
    server: FakeOpenAI, make_openai: MakeClient, secret: str, tmp_path: Path
) -> None:
    server.script.append(completion(f"your key is {secret}"))
    request = chat_request(max_tokens=10)
    answer = await make_openai().complete(request)
    save_recording(tmp_path / "recording.jsonl", [Exchange(request, answer)])
    exchange = BatchExchange(tmp_path / "exchange", poll_s=0.01, timeout_s=0.01)
    with pytest.raises(LLMError):
        await exchange.complete(request)
    exchange.submit_answer(request.request_id, answer.text, answer.model)
    written = [path.read_text("utf-8") for path in tmp_path.rglob("*.jsonl")]
    assert len(written) == 3
    assert not any(secret in text for text in written)


@pytest.mark.parametrize("key", ["none", "ollama", "EMPTY"])
async def test_a_placeholder_is_no_secret_and_answers_keep_the_word(
    server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("PLACEHOLDER", key)
    server.script.append(completion(f"return {key}"))
    client = OpenAIClient(OpenAIOptions(server.base_url, "PLACEHOLDER"))
    assert (await client.complete(chat_request())).text == f"return {key}"
    await client.aclose()


async def test_white_space_around_a_key_is_not_sent(
    server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("PASTED", f" {secret}\n")
    client = OpenAIClient(OpenAIOptions(server.base_url, "PASTED"))
    await client.complete(chat_request())
    await client.aclose()
    assert f"Bearer {secret}" in json.dumps(server.received[0].headers)


@pytest.mark.parametrize("bad", ["sk-ключ-0123456789", "two words of a key", "line\nbreak-in-key"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(
    monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    monkeypatch.setenv("BROKEN", bad)
    with pytest.raises(SettingsError, match="BROKEN must hold a key") as caught:
        OpenAIClient(OpenAIOptions("http://127.0.0.1:1/v1", "BROKEN"))
    assert bad not in everything(caught.value)


@pytest.mark.parametrize("base_url", [None, "http://127.0.0.1:1/v1"])
def test_a_key_in_place_of_a_variables_name_is_refused_unseen(
    secret: str, base_url: str | None
) -> None:
    with pytest.raises(SettingsError, match="name of an environment variable") as caught:
        OpenAIClient(OpenAIOptions(base_url, f"sk-{secret}"))
    assert secret not in everything(caught.value)


@pytest.mark.parametrize("place", ["user:{}@127.0.0.1/v1", "127.0.0.1/v1?key={}", "{}@127.0.0.1"])
def test_a_base_url_with_credentials_is_refused_unseen(secret: str, place: str) -> None:
    with pytest.raises(SettingsError, match="must not carry") as caught:
        OpenAIClient(OpenAIOptions("http://" + place.format(secret)))
    assert secret not in everything(caught.value)
