"""OpenAI's two protocols as JSON: the body of a request, and the reading of an answer.

The ``openai`` and ``batch`` routes speak chat completions over different carriers; the Responses
API has the same questions and answers, for servers that speak that protocol instead. There nothing
is stored at the server: each request carries its whole conversation. Everything read here was
written by a server and is untrusted: sizes are bounded, types checked.

Not here: sockets, files, retries, tools, streaming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, TypeGuard

from llamea_gpu.llm._base import ChatAnswer, ChatRequest, Usage, estimate_tokens

_MAX_LABEL_CHARS = 200
MAX_COUNT = 1 << 53  # what every reader of JSON, and every database, can hold


class NotACompletionError(ValueError):
    """Valid JSON that is no answer; the message says in what way."""


def request_body(request: ChatRequest, *, limit_field: str) -> dict[str, Any]:
    """The JSON body of a chat-completions request.

    ``limit_field`` is the field for ``max_tokens``: OpenAI's newer models accept only
    ``max_completion_tokens``, many other servers know only ``max_tokens``.
    """
    body = _body(request, "messages", limit_field)
    if request.response_schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": _schema(request)}
    return body


def responses_body(request: ChatRequest) -> dict[str, Any]:
    """The JSON body of a request to ``/responses``."""
    body = {**_body(request, "input", "max_output_tokens"), "store": False}
    if request.response_schema is not None:
        body["text"] = {"format": {"type": "json_schema", **_schema(request)}}
    return body


def _body(request: ChatRequest, messages_field: str, limit_field: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        messages_field: [{"role": m.role, "content": m.content} for m in request.messages],
    }
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        body[limit_field] = request.max_tokens
    return body


def _schema(request: ChatRequest) -> dict[str, Any]:
    return {"name": "answer", "strict": True, "schema": dict(request.response_schema or {})}


def parse_completion(body: object) -> ChatAnswer:
    """Read a chat completion: decoded JSON.

    A model that is not named is left blank, and a usage that is not reported counts no prompt
    tokens: `completed` knows the request.

    Raises:
        NotACompletionError: ``body`` is something else.
    """
    fields, choices = _fields(body, "choices")
    text, reason = _first_choice(choices)
    return _answer(fields, text, reason, ("prompt_tokens", "completion_tokens"), "created")


def completed(answer: ChatAnswer, request: ChatRequest) -> ChatAnswer:
    """The answer, with what its server left out taken from the request."""
    usage = answer.usage
    if usage.estimated:
        usage = replace(usage, prompt_tokens=request.estimated_prompt_tokens())
    return replace(answer, usage=usage, model=answer.model or request.model)


def _first_choice(choices: list[object]) -> tuple[str, str | None]:
    """Text and finish reason; a refusal is reported as the finish reason "refusal"."""
    if not choices:
        return "", None
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise NotACompletionError("the first of 'choices' has no 'message'")
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        return well_formed(refusal), "refusal"
    reason = choice.get("finish_reason")
    return _text(message.get("content")), label(reason) if isinstance(reason, str) else None


def _text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return well_formed(content)
    if isinstance(content, list):  # content parts, as some gateways send them
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return well_formed("".join(part for part in parts if isinstance(part, str)))
    raise NotACompletionError(f"the message's content must be text, but is {kind_of(content)}")


def parse_response(body: object) -> ChatAnswer:
    """Read a response, as `parse_completion` does.

    Raises:
        NotACompletionError: ``body`` is something else.
    """
    fields, output = _fields(body, "output")
    parts = list(_parts(output))
    refusals = [part["refusal"] for part in parts if isinstance(part.get("refusal"), str)]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    text = well_formed("".join(refusals or texts))
    reason = "refusal" if refusals else _response_finish_reason(fields)
    return _answer(fields, text, reason, ("input_tokens", "output_tokens"), "created_at")


def _parts(output: list[object]) -> Iterator[Mapping[str, Any]]:
    """The parts of every message; reasoning and other items are passed over."""
    for item in output:
        content = item.get("content") if isinstance(item, Mapping) else None
        is_message = isinstance(item, Mapping) and item.get("type", "message") == "message"
        if is_message and isinstance(content, list):
            yield from (part for part in content if isinstance(part, Mapping))


def _response_finish_reason(body: Mapping[str, Any]) -> str | None:
    """In the words of chat completions."""
    details = body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    if reason == "max_output_tokens":
        return "length"
    if isinstance(reason, str):
        return label(reason)
    return "stop" if body.get("status") == "completed" else None


def _fields(body: object, list_name: str) -> tuple[Mapping[str, Any], list[object]]:
    """The object, and the list that must be in it."""
    if not isinstance(body, Mapping):
        raise NotACompletionError(f"a JSON object is needed, but got {kind_of(body)}")
    entries = body.get(list_name)
    if not isinstance(entries, list):
        raise NotACompletionError(
            f"the list {list_name!r} is missing; the fields are {sorted(map(str, body))[:10]}"
        )
    return body, entries


def _answer(
    fields: Mapping[str, Any],
    text: str,
    reason: str | None,
    usage_names: tuple[str, str],
    created_name: str,
) -> ChatAnswer:
    model, reported = fields.get("model"), fields.get("usage")
    usage = Usage(0, estimate_tokens(text), estimated=True)
    if isinstance(reported, Mapping):
        prompt, completion = (reported.get(name) for name in usage_names)
        if is_count(prompt) and is_count(completion):
            usage = Usage(prompt, completion)
    model_name = label(model) if isinstance(model, str) else ""
    created = created_text(fields.get(created_name))
    return ChatAnswer(text, model_name, usage, reason, created, elapsed_s=None)


def created_text(reported: object) -> str:
    """The server's time stamp where it is a plausible one, else the present."""
    if is_count(reported) and 0 < reported < 4_102_444_800:  # year 2100
        moment = datetime.fromtimestamp(reported, timezone.utc)
    else:
        moment = datetime.now(timezone.utc)
    return moment.isoformat(timespec="seconds")


def is_count(value: object) -> TypeGuard[int]:
    """Whether ``value`` is a number of tokens or seconds that can be believed."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def label(text: str) -> str:
    """A name by a server, of bounded length."""
    return well_formed(text[:_MAX_LABEL_CHARS])


def well_formed(text: str) -> str:
    """JSON can smuggle in lone surrogates, which no database or file would then accept."""
    return text.encode("utf-8", "replace").decode("utf-8")


def kind_of(value: object) -> str:
    """The type of a JSON value, for a message."""
    return "null" if value is None else type(value).__name__
