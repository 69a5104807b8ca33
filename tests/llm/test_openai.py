"""The openai route: what it sends, what it reads, and what it does about each fault."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from support.chat import chat_request
from support.fake_openai import FakeOpenAI, Reply, completion, error, json_reply

from llamea_gpu.errors import SettingsError, TransportError
from llamea_gpu.llm import FailedRequestError, OpenAIOptions, RejectedAnswerError, Usage
from llamea_gpu.llm.openai import OpenAIClient

MakeClient = Callable[..., OpenAIClient]
SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}}


async def failure(client: OpenAIClient) -> FailedRequestError:
    with pytest.raises(FailedRequestError) as caught:
        await client.complete(chat_request())
    return caught.value


# --- what is sent and read ---------------------------------------------------------------------


async def test_the_request_arrives_as_asked(server: FakeOpenAI, make_openai: MakeClient) -> None:
    request = chat_request(temperature=0.5, max_tokens=77, response_schema=SCHEMA)
    await make_openai().complete(request)
    assert server.received[0].path == "/v1/chat/completions"
    assert server.received[0].body == {
        "model": "asked-model",
        "messages": [
            {"role": "system", "content": "You write optimizers."},
            {"role": "user", "content": "Write a class."},
        ],
        "temperature": 0.5,
        "max_tokens": 77,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA},
        },
    }


async def test_settings_that_are_not_given_are_not_sent(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    await make_openai().complete(chat_request())
    assert set(server.received[0].body) == {"model", "messages"}


async def test_the_key_is_sent_as_a_bearer_token(
    server: FakeOpenAI, make_openai: MakeClient, secret: str
) -> None:
    await make_openai().complete(chat_request())
    headers = {name.lower(): value for name, value in server.received[0].headers.items()}
    assert headers["authorization"] == f"Bearer {secret}"


async def test_the_answer_carries_text_model_usage_and_time(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.script.append(completion("prose", prompt_tokens=7, completion_tokens=3))
    answer = await make_openai().complete(chat_request())
    assert (answer.text, answer.model, answer.finish_reason) == ("prose", "served-model", "stop")
    assert answer.usage == Usage(7, 3)
    assert answer.created == "2023-11-14T22:13:20+00:00"
    assert answer.elapsed_s is not None
    assert answer.lost_attempts == 0


async def test_missing_usage_is_estimated_and_marked(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.script.append(completion("x" * 41, usage=False))
    answer = await make_openai().complete(chat_request(text="y" * 40))
    # ceil(21 / 4) + 4 for the system message, 40 / 4 + 4 for the user's; ceil(41 / 4) for the text
    assert answer.usage == Usage(6 + 4 + 10 + 4, 11, estimated=True)


@pytest.mark.parametrize("bad", [-1, "12", True, None, 1.5, 10**30])
async def test_impossible_token_counts_are_not_believed(
    server: FakeOpenAI, make_openai: MakeClient, bad: object
) -> None:
    body = json.loads(completion().body)
    body["usage"]["completion_tokens"] = bad
    server.script.append(json_reply(body))
    assert (await make_openai().complete(chat_request())).usage.estimated


async def test_an_answer_cut_off_by_its_limit_is_returned_with_the_reason(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.script.append(completion("class A", finish_reason="length"))
    answer = await make_openai().complete(chat_request())
    assert (answer.text, answer.finish_reason) == ("class A", "length")


async def test_a_megabyte_of_text_arrives_whole(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.script.append(completion("z" * 1_000_000))
    assert (await make_openai().complete(chat_request())).text == "z" * 1_000_000


async def test_content_in_parts_is_joined(server: FakeOpenAI, make_openai: MakeClient) -> None:
    body = json.loads(completion().body)
    body["choices"][0]["message"]["content"] = [
        {"type": "text", "text": "one "},
        {"type": "text", "text": "two"},
    ]
    server.script.append(json_reply(body))
    assert (await make_openai().complete(chat_request())).text == "one two"


async def test_lone_surrogates_do_not_reach_the_archive(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.script.append(completion("a\ud800b"))
    text = (await make_openai().complete(chat_request())).text
    assert text.encode("utf-8") == b"a?b"


# --- unusable answers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (completion(""), "without text"),
        (completion("  \n"), "without text"),
        (completion(None), "without text"),
        (completion("", finish_reason="length"), "raise max_tokens"),
        (completion("part", finish_reason="content_filter"), "declined"),
        (completion(None, refusal="I will not."), "I will not."),
    ],
)
async def test_an_unusable_answer_is_refused_with_what_it_cost(
    server: FakeOpenAI, make_openai: MakeClient, reply: Reply, words: str
) -> None:
    server.script.append(reply)
    with pytest.raises(RejectedAnswerError, match=words) as caught:
        await make_openai().complete(chat_request())
    assert caught.value.answer.usage == Usage(100, 50)
    assert len(server.received) == 1  # asking again would cost again: that is the caller's choice


async def test_no_choices_at_all_is_unusable(server: FakeOpenAI, make_openai: MakeClient) -> None:
    body = {**json.loads(completion().body), "choices": []}
    server.script.append(json_reply(body))
    with pytest.raises(RejectedAnswerError, match="without text"):
        await make_openai().complete(chat_request())


# --- faults that pass --------------------------------------------------------------------------

OK = completion().body
TRANSIENT = {
    "429": (error(429), 0),
    "500": (error(500), 0),
    "503": (error(503), 0),
    "408": (error(408), 0),
    "reset": (Reply(fault="reset"), 1),
    "truncated body": (Reply(OK, fault="truncate"), 1),
    "truncated chunks": (Reply(OK, fault="chunked-truncate"), 1),
    "empty body": (Reply(b""), 1),
    "html under 200": (Reply(b"<html>busy</html>"), 1),
    "half of the JSON": (Reply(OK[:60]), 1),
    "deeply nested": (Reply(b"[" * 100_000), 1),
    "error under 200": (json_reply({"error": {"code": 502, "message": "upstream"}}), 0),
}


@pytest.mark.parametrize("name", TRANSIENT)
async def test_a_passing_fault_is_tried_again(
    server: FakeOpenAI, make_openai: MakeClient, name: str
) -> None:
    reply, lost = TRANSIENT[name]
    server.script.append(reply)
    answer = await make_openai().complete(chat_request())
    assert (answer.text, answer.lost_attempts) == ("answer", lost)


@pytest.mark.parametrize("name", TRANSIENT)
async def test_a_lasting_fault_ends_after_all_attempts_and_says_so(
    server: FakeOpenAI, make_openai: MakeClient, name: str
) -> None:
    reply, lost = TRANSIENT[name]
    server.script.extend([reply] * 3)
    caught = await failure(make_openai(max_retries=2))
    assert (caught.lost_attempts, len(server.received)) == (3 * lost, 3)
    assert "request r-1 to http://127.0.0.1" in str(caught)
    assert "tried 3 times" in str(caught)
    assert "Remedy: " in str(caught)


@pytest.mark.parametrize("fault", ["hang", "drip"])
async def test_an_attempt_ends_at_its_timeout_however_the_server_stalls(
    server: FakeOpenAI, make_openai: MakeClient, fault: str
) -> None:
    server.script.append(Reply(OK, fault=fault))  # type: ignore[arg-type]
    answer = await make_openai(timeout_s=0.3).complete(chat_request())
    assert (answer.text, answer.lost_attempts) == ("answer", 1)


async def test_a_timeout_is_named(server: FakeOpenAI, make_openai: MakeClient) -> None:
    server.script.append(Reply(fault="hang"))
    caught = await failure(make_openai(timeout_s=0.2, max_retries=0))
    assert "no complete answer within 0.2 s" in str(caught)
    assert "raise timeout_s" in str(caught)


async def test_a_server_that_is_not_there_costs_nothing(
    server: FakeOpenAI, make_openai: MakeClient, delays: list[float]
) -> None:
    client = make_openai()
    server.close()
    caught = await failure(client)
    assert (caught.lost_attempts, delays) == (0, [1.0, 2.0])
    assert "check that the server" in str(caught)


# --- faults that stay --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (error(400, "bad request"), "HTTP 400: bad request"),
        (error(401, "who are you"), "set the environment variable LLAMEA_GPU_TEST_KEY"),
        (error(403, "not yours"), "may not use this model"),
        (error(404, "no such model"), "check the model's name"),
        (error(413, "too long"), "too long for the server"),
        (error(429, "pay first", code="insufficient_quota"), "out of credit"),
        (Reply(b"teapot", 418), "HTTP 418: teapot"),
        (json_reply({"error": {"code": 400, "message": "bad"}}), "the server reports"),
        (json_reply({"text": "hi"}), "'choices' is missing"),
        (json_reply([1, 2]), "needed, but got list"),
        (json_reply({"choices": [{"text": "completion, not chat"}]}), "has no 'message'"),
        (json_reply({"choices": [{"message": {"content": 5}}]}), "must be text, but is int"),
    ],
)
async def test_a_lasting_fault_is_not_tried_again(
    server: FakeOpenAI, make_openai: MakeClient, reply: Reply, words: str
) -> None:
    server.script.append(reply)
    caught = await failure(make_openai())
    assert words in str(caught)
    assert "tried once" in str(caught)
    assert len(server.received) == 1


async def test_a_runaway_answer_is_given_up_at_the_bound(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.script.append(completion("x" * 100_000))
    caught = await failure(make_openai(max_body_bytes=50_000))
    assert "larger than 50000 bytes" in str(caught)
    assert (caught.lost_attempts, len(server.received)) == (1, 1)


async def test_a_page_of_html_is_quoted_in_one_short_line(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.script.extend([Reply(b"<html>\n" + b"<p>down</p>\n" * 10_000, 503)] * 3)
    message = str(await failure(make_openai()))
    assert "\n" not in message
    assert len(message) < 700


# --- delays ------------------------------------------------------------------------------------


async def test_delays_double_up_to_the_bound(
    server: FakeOpenAI, make_openai: MakeClient, delays: list[float]
) -> None:
    server.script.extend([error(500)] * 9)
    await failure(make_openai(max_retries=8))
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "99999"}, 60.0),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "nan"}, 1.0),
        ({"Retry-After": "soon"}, 1.0),
        ({"Retry-After-Ms": "250", "Retry-After": "7"}, 0.25),
        ({}, 1.0),
    ],
)
async def test_retry_after_is_obeyed_within_the_bound(
    server: FakeOpenAI,
    make_openai: MakeClient,
    delays: list[float],
    headers: dict[str, str],
    expected: float,
) -> None:
    server.script.append(error(429, headers=headers))
    await make_openai().complete(chat_request())
    assert delays == [expected]


async def test_retry_after_may_be_a_date(
    server: FakeOpenAI, make_openai: MakeClient, delays: list[float]
) -> None:
    moment = datetime.now(timezone.utc) + timedelta(seconds=30)
    server.script.append(error(503, headers={"Retry-After": format_datetime(moment, usegmt=True)}))
    await make_openai().complete(chat_request())
    assert 10 < delays[0] <= 30


# --- concessions -------------------------------------------------------------------------------

NO_SCHEMA = error(400, "response_format: json_schema is not available", param="response_format")
NO_MAX_TOKENS = error(
    400,
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
    param="max_tokens",
    code="unsupported_parameter",
)
NO_TEMPERATURE = error(
    400,
    "Unsupported value: 'temperature' does not support 0.5 with this model.",
    param="temperature",
    code="unsupported_value",
)
FULL = {"temperature": 0.5, "max_tokens": 77, "response_schema": SCHEMA}


async def test_what_a_server_rejects_is_left_out(
    server: FakeOpenAI, make_openai: MakeClient, delays: list[float]
) -> None:
    server.script.extend([NO_SCHEMA, NO_MAX_TOKENS, NO_TEMPERATURE])
    client = make_openai(max_retries=0)
    await client.complete(chat_request(**FULL))
    last = server.received[-1].body
    assert set(last) == {"model", "messages", "max_completion_tokens"}
    assert last["max_completion_tokens"] == 77
    assert delays == []


async def test_a_concession_is_remembered_for_the_model(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.script.append(NO_SCHEMA)
    client = make_openai()
    for request_id in ("r-1", "r-2"):
        await client.complete(chat_request(request_id, response_schema=SCHEMA))
    assert ["response_format" in r.body for r in server.received] == [True, False, False]
    assert len(client.warnings) == 1
    assert "asked-model" in client.warnings[0]


async def test_a_concession_to_one_model_leaves_others_alone(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.script.append(NO_SCHEMA)
    client = make_openai()
    await client.complete(chat_request(response_schema=SCHEMA))
    await client.complete(chat_request("r-2", model="other", response_schema=SCHEMA))
    assert "response_format" in server.received[-1].body


async def test_requests_side_by_side_make_the_same_concession(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.default = lambda body: NO_SCHEMA if "response_format" in body else completion()
    client = make_openai(max_retries=0)
    requests = [chat_request(f"r-{i}", response_schema=SCHEMA) for i in range(4)]
    answers = await asyncio.gather(*map(client.complete, requests))
    assert [answer.text for answer in answers] == ["answer"] * 4
    assert len(client.warnings) == 1


async def test_a_wrong_value_is_reported_rather_than_dropped(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.script.append(error(400, "temperature must be at most 2", param="temperature"))
    with pytest.raises(FailedRequestError, match="temperature must be at most 2"):
        await make_openai().complete(chat_request(temperature=9.0))


# --- concurrency and life cycle ----------------------------------------------------------------


async def test_no_more_requests_are_under_way_than_allowed(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    def slow(body: dict[str, object]) -> Reply:
        server.wait(0.05)
        return completion()

    server.default = slow
    client = make_openai(max_concurrency=3)
    await asyncio.gather(*(client.complete(chat_request(f"r-{i}")) for i in range(9)))
    assert server.most_concurrent == 3


async def test_a_cancelled_request_gives_its_place_back(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.script.append(Reply(fault="hang"))
    client = make_openai(max_concurrency=1)
    waiting = asyncio.create_task(client.complete(chat_request("r-1")))
    while not server.received:
        await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await client.complete(chat_request("r-2"))).text == "answer"


async def test_a_local_server_needs_no_key(
    server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNSET_KEY", raising=False)
    client = OpenAIClient(OpenAIOptions(server.base_url, "UNSET_KEY"))
    assert (await client.complete(chat_request())).text == "answer"
    await client.aclose()


def test_impossible_options_beside_a_key_in_the_wrong_place_do_not_show_it(secret: str) -> None:
    options = OpenAIOptions("http://127.0.0.1:1/v1", f"sk-{secret}", max_retries=-1)
    with pytest.raises(SettingsError) as caught:
        OpenAIClient(options)
    assert secret not in str(caught.value)


def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("UNSET_KEY", raising=False)
    with pytest.raises(SettingsError, match="UNSET_KEY is not set"):
        OpenAIClient(OpenAIOptions(None, "UNSET_KEY"))


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http://"])
def test_a_base_url_has_scheme_and_host(url: str) -> None:
    with pytest.raises(SettingsError, match="with scheme and host"):
        OpenAIClient(OpenAIOptions(url))


@pytest.mark.parametrize(
    "options", [{"max_concurrency": 0}, {"timeout_s": 0.0}, {"max_retries": -1}]
)
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match="must hold, but got"):
        OpenAIClient(OpenAIOptions("http://127.0.0.1:1/v1", **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [200, 404, 500])
async def test_a_server_that_answers_is_there_whatever_it_says_of_models(
    server: FakeOpenAI, make_openai: MakeClient, status: int
) -> None:
    server.models = error(status)
    await make_openai().preflight()
    assert server.received == []  # no model was asked


async def test_a_key_that_is_refused_or_nobody_there_is_said_at_once(
    server: FakeOpenAI, make_openai: MakeClient
) -> None:
    server.models = error(401, "no such key")
    with pytest.raises(TransportError, match="no model can be asked") as refused:
        await make_openai().preflight()
    assert refused.value.__context__ is None
    server.close()
    with pytest.raises(TransportError, match="no model can be asked"):
        await make_openai().preflight()
