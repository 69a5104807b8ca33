"""Requests and answers for tests of the LLM routes."""

from __future__ import annotations

from typing import Any

from llamea_gpu.llm import ChatAnswer, ChatRequest, Message, Usage


def chat_request(
    request_id: str = "r-1", text: str = "Write a class.", **fields: Any
) -> ChatRequest:
    """A small request; ``fields`` are further ones of ``ChatRequest``."""
    messages = (Message("system", "You write optimizers."), Message("user", text))
    return ChatRequest(request_id, fields.pop("model", "asked-model"), messages, **fields)


def chat_answer(text: str = "answer", **fields: Any) -> ChatAnswer:
    """An answer of 100 + 50 tokens; ``fields`` replace those of ``ChatAnswer``."""
    values: dict[str, Any] = {
        "text": text,
        "model": "served-model",
        "usage": Usage(100, 50),
        "finish_reason": "stop",
        "created": "2026-01-01T00:00:00+00:00",
        "elapsed_s": None,
    }
    return ChatAnswer(**{**values, **fields})
