"""The Responses API through the ``openai`` route: requests, answers, and answers that are none."""

from __future__ import annotations

from typing import Any

import pytest
from support.chat import chat_request
from support.fake_openai import FakeOpenAI, Reply, error, json_reply

from llamea_gpu.llm import (
    FailedRequestError,
    OpenAIOptions,
    RejectedAnswerError,
    Usage,
    make_client,
)


def response(*content: dict[str, Any], **more: Any) -> Reply:
    return json_reply(
        {
            "model": "served-model",
            "created_at": 1_700_000_000,
            "status": "completed",
            "output": [
                {"type": "reasoning", "content": [{"type": "text", "text": "hm"}], "summary": []},
                {"type": "message", "role": "assistant", "content": list(content)},
            ],
            "usage": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
            **more,
        }
    )


def text(said: str) -> dict[str, Any]:
    return {"type": "output_text", "text": said, "annotations": []}


async def ask(server: FakeOpenAI, **fields: Any) -> Any:
    options = OpenAIOptions(
        base_url=server.base_url, api_key_env="UNSET_KEY", max_retries=0, api="responses"
    )
    client = make_client(options)
    try:
        return await client.complete(chat_request(**fields))
    finally:
        await client.aclose()


async def test_a_request_and_its_answer(server: FakeOpenAI) -> None:
    server.script.append(response(text("one "), text("two")))
    answer = await ask(
        server, temperature=0.5, max_tokens=9, response_schema={"type": "object", "title": "x"}
    )
    (received,) = server.received
    assert received.path == "/v1/responses"
    assert received.body == {
        "model": "asked-model",
        "input": [
            {"role": "system", "content": "You write optimizers."},
            {"role": "user", "content": "Write a class."},
        ],
        "store": False,
        "temperature": 0.5,
        "max_output_tokens": 9,
        "text": {
            "format": {
                "type": "json_schema",
                "name": "answer",
                "strict": True,
                "schema": {"type": "object", "title": "x"},
            }
        },
    }
    assert (answer.text, answer.model, answer.usage) == ("one two", "served-model", Usage(7, 3))
    assert (answer.finish_reason, answer.created) == ("stop", "2023-11-14T22:13:20+00:00")


async def test_an_answer_that_was_cut_off_is_returned(server: FakeOpenAI) -> None:
    details = {"reason": "max_output_tokens"}
    server.script.append(
        response(text("half"), status="incomplete", incomplete_details=details, usage=None)
    )
    answer = await ask(server)
    assert (answer.text, answer.finish_reason) == ("half", "length")
    assert answer.usage.estimated


async def test_a_refusal_and_an_empty_answer(server: FakeOpenAI) -> None:
    server.script.append(response({"type": "refusal", "refusal": "no"}))
    with pytest.raises(RejectedAnswerError, match="refusal"):
        await ask(server)
    server.script.append(response())
    with pytest.raises(RejectedAnswerError, match="without text"):
        await ask(server)


@pytest.mark.parametrize("body", [[], {}, {"output": "text"}, {"choices": []}])
async def test_another_thing_than_a_response(server: FakeOpenAI, body: Any) -> None:
    server.script.append(json_reply(body))
    with pytest.raises(FailedRequestError):
        await ask(server)


async def test_odd_items_are_passed_over(server: FakeOpenAI) -> None:
    output = [None, 3, {"content": "text"}, {"type": "message", "content": [None, text("x")]}]
    server.script.append(response(output=output))
    assert (await ask(server)).text == "x"


async def test_a_schema_and_a_temperature_that_are_not_supported_are_left_out(
    server: FakeOpenAI,
) -> None:
    server.script.extend(
        [
            error(400, "Unsupported parameter", param="text.format"),
            error(400, "temperature is not supported with this model", param="temperature"),
            response(text("x")),
        ]
    )
    answer = await ask(server, temperature=0.2, response_schema={"type": "object"})
    assert answer.text == "x"
    assert [sorted(each.body) for each in server.received][1:] == [
        ["input", "model", "store", "temperature"],
        ["input", "model", "store"],
    ]
