"""OpenAI's Responses API as JSON: the body of a request, and the reading of an answer.

The same questions and answers as in ``_completion``, for servers that speak this protocol instead.
Nothing is stored at the server; each request carries its whole conversation.

Not here: sockets, retries, tools, streaming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llamea_gpu.llm._base import ChatAnswer, ChatRequest, Usage, estimate_tokens
from llamea_gpu.llm._completion import (
    NotACompletionError,
    created_text,
    is_count,
    kind_of,
    label,
    well_formed,
)


def responses_body(request: ChatRequest) -> dict[str, Any]:
    """The JSON body of a request to ``/responses``."""
    body: dict[str, Any] = {
        "model": request.model,
        "input": [{"role": m.role, "content": m.content} for m in request.messages],
        "store": False,
    }
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if request.response_schema is not None:
        body["text"] = {
            "format": {
                "type": "json_schema",
                "name": "answer",
                "strict": True,
                "schema": dict(request.response_schema),
            }
        }
    return body


def parse_response(
    body: object, *, fallback_model: str, prompt_tokens: int, elapsed_s: float | None
) -> ChatAnswer:
    """Read a response; parameters as in ``parse_completion``.

    Raises:
        NotACompletionError: ``body`` is something else.
    """
    if not isinstance(body, Mapping):
        raise NotACompletionError(f"a JSON object is needed, but got {kind_of(body)}")
    output = body.get("output")
    if not isinstance(output, list):
        raise NotACompletionError(
            f"the list 'output' is missing; the fields are {sorted(map(str, body))[:10]}"
        )
    parts = list(_parts(output))
    refusals = [part["refusal"] for part in parts if isinstance(part.get("refusal"), str)]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    text = well_formed("".join(refusals or texts))
    model = body.get("model")
    return ChatAnswer(
        text=text,
        model=label(model) if isinstance(model, str) and model else fallback_model,
        usage=_usage(body.get("usage"), text, prompt_tokens),
        finish_reason="refusal" if refusals else _finish_reason(body),
        created=created_text(body.get("created_at")),
        elapsed_s=elapsed_s,
    )


def _parts(output: list[object]) -> Iterator[Mapping[str, Any]]:
    """The parts of every message; reasoning and other items are passed over."""
    for item in output:
        content = item.get("content") if isinstance(item, Mapping) else None
        is_message = isinstance(item, Mapping) and item.get("type", "message") == "message"
        if is_message and isinstance(content, list):
            yield from (part for part in content if isinstance(part, Mapping))


def _finish_reason(body: Mapping[str, Any]) -> str | None:
    """In the words of chat completions."""
    details = body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    if reason == "max_output_tokens":
        return "length"
    if isinstance(reason, str):
        return label(reason)
    return "stop" if body.get("status") == "completed" else None


def _usage(reported: object, text: str, prompt_tokens: int) -> Usage:
    if isinstance(reported, Mapping):
        prompt, completion = reported.get("input_tokens"), reported.get("output_tokens")
        if is_count(prompt) and is_count(completion):
            return Usage(prompt, completion)
    return Usage(prompt_tokens, estimate_tokens(text), estimated=True)
