"""The lines of OpenAI's Batch API: requests as its input format, answers as its output format.

Input:  {"custom_id", "method", "url", "body": {model, messages, …}}
Output: {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error"}

Not here: files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from llamea_gpu.llm._base import ChatAnswer, ChatRequest, Message
from llamea_gpu.llm._completion import NotACompletionError, parse_completion, request_body

_URL = "/v1/chat/completions"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_STEM_CHARS = 80
_MAX_PROBLEM_CHARS = 300


def format_request(request: ChatRequest) -> str:
    """The request's input line."""
    # OpenAI accepts only this name of the limit for newer models, and cannot be asked first.
    body = request_body(request, limit_field="max_completion_tokens")
    line = {"custom_id": request.request_id, "method": "POST", "url": _URL, "body": body}
    return json.dumps(line) + "\n"


def format_answer(request_id: str, text: str, model: str) -> str:
    """The output line of an answer that was written by hand."""
    message = {"role": "assistant", "content": text}
    body = {
        "object": "chat.completion",
        "created": int(datetime.now(timezone.utc).timestamp()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    response = {"status_code": 200, "request_id": request_id, "body": body}
    line = {"id": request_id, "custom_id": request_id, "response": response, "error": None}
    return json.dumps(line) + "\n"


def read_messages(line: Mapping[str, Any]) -> tuple[Message, ...] | None:
    """The prompt of an input line; None when it holds none."""
    body = line.get("body")
    entries = body.get("messages") if isinstance(body, Mapping) else None
    if not isinstance(entries, list):
        return None
    messages = []
    for entry in entries:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("content"), str):
            return None
        role = entry.get("role")
        if role not in ("system", "user", "assistant"):
            return None
        messages.append(Message(role, entry["content"]))
    return tuple(messages)


def read_answer(line: Mapping[str, Any]) -> ChatAnswer | str:
    """The answer of an output line, or what stands in its place, in words.

    A model that is not named is left blank, and a usage that is not reported counts no prompt
    tokens: only the request knows them.
    """
    response = line.get("response")
    status = response.get("status_code") if isinstance(response, Mapping) else None
    body = response.get("body") if isinstance(response, Mapping) else None
    if line.get("error") or status != 200:
        problem = line.get("error") or body or "neither a response nor an error"
        return f"status {status}: {str(problem)[:_MAX_PROBLEM_CHARS]}"
    try:
        return parse_completion(body, fallback_model="", prompt_tokens=0, elapsed_s=None)
    except NotACompletionError as error:
        return str(error)


def file_stem(request_id: str) -> str:
    """A safe file name for any request_id; distinct ids keep distinct names."""
    stem = _UNSAFE.sub("_", request_id)[:_MAX_STEM_CHARS].lstrip(".")
    if stem == request_id:
        return stem
    return f"{stem}-{hashlib.sha256(request_id.encode()).hexdigest()[:12]}"
