"""The ``batch`` route: requests and answers are files in a folder.

``FOLDER/requests/*.jsonl`` holds requests in the input format of OpenAI's Batch API, one file
each: objects with ``custom_id``, ``method``, ``url`` and ``body``. ``FOLDER/answers/*.jsonl`` is
where answers in that API's output format (``custom_id``, ``response``, ``error``) are picked up as
they appear, in any file and any order. Whoever answers (the Batch API, a cluster job, a person)
needs nothing of this package: ``cat requests/*.jsonl`` is a batch.

A request is a whole file before it is waited for, and ``custom_id`` is its ``request_id``: after a
crash the same request finds its file, is not written again, and takes the answer that may be there
already. The first good answer to a request counts. An error in place of an answer fails the
request until a good one appears.

Not here: uploading to a provider. Two processes that ask in one folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from llamea_gpu.errors import LLMError, SettingsError, suggestion
from llamea_gpu.files import write_text
from llamea_gpu.llm._base import (
    ChatAnswer,
    ChatRequest,
    FailedRequestError,
    Message,
    prompt_key,
    require_usable,
)
from llamea_gpu.llm._completion import (
    NotACompletionError,
    completed,
    parse_completion,
    request_body,
)
from llamea_gpu.llm._jsonl_folder import JsonlFolder, Record

_URL = "/v1/chat/completions"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_STEM_CHARS = 80
_MAX_PROBLEM_CHARS = 300


class BatchExchange:
    """An exchange folder, seen from the side that asks and from the side that answers.

    Args:
        folder: created when missing.
        poll_s: seconds between looks at the answers.
        timeout_s: the longest wait for one answer; None: as long as it takes.

    Raises:
        SettingsError: the folder cannot be created or read.
    """

    def __init__(self, folder: Path, poll_s: float = 2.0, timeout_s: float | None = None) -> None:
        if not poll_s > 0:
            raise SettingsError(f"poll_s > 0 must hold, but got {poll_s}")
        self.folder = folder
        self._poll_s = poll_s
        self._timeout_s = timeout_s
        self._requests = JsonlFolder(folder / "requests", read_messages)
        self._answers = JsonlFolder(folder / "answers", read_answer)
        self._asked: dict[str, Record[tuple[Message, ...] | None]] = {}
        self._best: dict[str, Record[ChatAnswer | str]] = {}
        self._polled_s = time.monotonic()
        try:
            self._requests.folder.mkdir(parents=True, exist_ok=True)
            self._answers.folder.mkdir(exist_ok=True)
            self._poll()
        except OSError as error:
            raise SettingsError(
                f"the exchange folder {folder} must be a folder to read and write, but: {error}"
            ) from error

    def __repr__(self) -> str:
        return f"BatchExchange({str(self.folder)!r})"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Malformed, duplicated and unreadable lines, each said once with file and line."""
        return self._requests.warnings + self._answers.warnings

    async def complete(self, request: ChatRequest) -> ChatAnswer:
        """Write the request unless it is there, and wait for its answer. See ``ChatClient``.

        Cancelling the wait loses nothing: the request stays in the folder, and so does its answer.

        Raises:
            FailedRequestError: the answer is an error, none appeared in time, or the folder cannot
                be read or written any more.
            RejectedAnswerError: a refusal, or no text.
            LLMError: the folder holds another prompt under this request_id.
        """
        try:
            await self._wait(request)
        except OSError as error:
            raise FailedRequestError(
                f"request {request.request_id}: the exchange folder {self.folder} cannot be read "
                f"or written any more: {error}. Remedy: make it a folder with room to write again "
                f"and resume; what it holds is kept",
            ) from error
        answer = _require_answer(self._best[request.request_id], request)
        return require_usable(request.request_id, answer)

    async def preflight(self) -> None:
        """There is nothing that could be tried."""

    async def aclose(self) -> None:
        """Nothing is held open."""

    def pending(self) -> tuple[str, ...]:
        """The requests without a good answer, in order of their files."""
        self._poll()
        return tuple(custom_id for custom_id in self._asked if not self._is_answered(custom_id))

    def render_text(self, request_id: str) -> str:
        """The prompt as plain text, for a person or a tool that answers by hand.

        Raises:
            LLMError: there is no such request.
        """
        record = self._asked_record(request_id)
        return "\n\n".join(f"=== {m.role} ===\n{m.content}" for m in _prompt(record)) + "\n"

    def submit_answer(self, request_id: str, text: str, model: str) -> Path:
        """Answer a request by hand; ``model`` says who did.

        Returns:
            The file written. It states no usage, which is then estimated.

        Raises:
            LLMError: there is no such request, it has a good answer already, or ``text`` is blank.
        """
        self._asked_record(request_id)
        if self._is_answered(request_id):
            raise LLMError(
                f"a request is answered once, but {request_id!r} has an answer in "
                f"{self._best[request_id].place}: remove that line first to replace it"
            )
        if not text.strip():
            raise LLMError(f"an answer must have text, but that to {request_id!r} is blank")
        path = self._answers.folder / f"{file_stem(request_id)}.jsonl"
        if path.exists():  # an error that was reported there stays on record
            path = path.with_name(f"{path.stem}-{time.time_ns()}.jsonl")
        write_text(path, format_answer(request_id, text, model))
        return path

    async def _wait(self, request: ChatRequest) -> None:
        """Ask, and return when there is an answer."""
        self._ask(request)
        started_s = time.monotonic()
        while request.request_id not in self._best:
            if self._timeout_s is not None and time.monotonic() - started_s >= self._timeout_s:
                raise FailedRequestError(
                    f"request {request.request_id}: no answer appeared in {self._answers.folder} "
                    f"within {self._timeout_s:g} s. Remedy: let it be answered and resume; it "
                    f"stays in {self._requests.folder} and is not asked twice",
                )
            await asyncio.sleep(self._poll_s)
            # Requests that wait side by side share their looks at the folder.
            if time.monotonic() - self._polled_s >= self._poll_s:
                self._poll()

    def _ask(self, request: ChatRequest) -> None:
        self._poll()
        present = self._asked.get(request.request_id)
        if present is None:
            path = self._requests.folder / f"{file_stem(request.request_id)}.jsonl"
            write_text(path, format_request(request))
            # A whole poll for each request written would make many requests slow to write.
            self._asked[request.request_id] = Record(path, 1, request.request_id, request.messages)
        elif prompt_key(_prompt(present)) != request.key:
            raise LLMError(
                f"request {request.request_id!r} stands with another prompt in {present.place}, "
                f"so its answer would not fit: use a new exchange folder, or remove that line and "
                f"its answer"
            )

    def _poll(self) -> None:
        self._polled_s = time.monotonic()
        if self._requests.poll():
            self._asked = {}
            for request in self._requests.records():
                self._asked.setdefault(request.custom_id, request)
        if self._answers.poll():
            self._best = {}
            for answer in self._answers.records():
                self._consider(answer)

    def _consider(self, record: Record[ChatAnswer | str]) -> None:
        """Keep the first good answer by file name and line; without one, the last error."""
        if not self._is_answered(record.custom_id):
            self._best[record.custom_id] = record
        elif isinstance(record.value, ChatAnswer):
            first = self._best[record.custom_id]
            self._answers.warn(
                f"{record.place}: a second answer to {record.custom_id!r}; the first, in "
                f"{first.place}, counts"
            )

    def _is_answered(self, custom_id: str) -> bool:
        best = self._best.get(custom_id)
        return best is not None and isinstance(best.value, ChatAnswer)

    def _asked_record(self, request_id: str) -> Record[tuple[Message, ...] | None]:
        self._poll()
        if request_id not in self._asked:
            hint = suggestion(request_id, self._asked, f"it has {len(self._asked)} others")
            raise LLMError(f"no request {request_id!r} in {self._requests.folder}: {hint}")
        return self._asked[request_id]


def _prompt(record: Record[tuple[Message, ...] | None]) -> tuple[Message, ...]:
    if record.value is None:
        raise LLMError(
            f"{record.place}: a request needs body.messages with role and content: remove the "
            f"line, and the request is written again"
        )
    return record.value


def _require_answer(record: Record[ChatAnswer | str], request: ChatRequest) -> ChatAnswer:
    answer = record.value
    if isinstance(answer, str):
        raise FailedRequestError(
            f"request {request.request_id} was not answered: {answer} ({record.place}). Remedy: "
            f"run it again and put the new answer beside this one; a good answer takes precedence",
        )
    return completed(answer, request)


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
    """The answer of an output line, or what stands in its place, in words."""
    response = line.get("response")
    status = response.get("status_code") if isinstance(response, Mapping) else None
    body = response.get("body") if isinstance(response, Mapping) else None
    if line.get("error") or status != 200:
        problem = line.get("error") or body or "neither a response nor an error"
        return f"status {status}: {str(problem)[:_MAX_PROBLEM_CHARS]}"
    try:
        return parse_completion(body)
    except NotACompletionError as error:
        return str(error)


def file_stem(request_id: str) -> str:
    """A safe file name for any request_id; distinct ids keep distinct names."""
    stem = _UNSAFE.sub("_", request_id)[:_MAX_STEM_CHARS].lstrip(".")
    if stem == request_id:
        return stem
    return f"{stem}-{hashlib.sha256(request_id.encode()).hexdigest()[:12]}"
