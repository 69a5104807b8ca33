"""The ``replay`` route: answers from a recording, and nothing else.

A recording is JSON lines, one exchange each: ``request_id``, ``model``, ``key``, ``messages`` and
``answer``. A prompt is recognised by its key, so numbers marked "≈", which depend on the host, may
differ. A prompt that is not recorded is an error that shows the nearest recorded prompt and the
first differences: a replay that guesses would prove nothing.

Not here: recording while a run goes on; whoever commits the answers can export them with
``save_recording``.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from llamea_gpu.errors import LLMError, UnseenPromptError
from llamea_gpu.files import read_text, write_text
from llamea_gpu.llm._base import (
    ChatAnswer,
    ChatRequest,
    FailedRequestError,
    Message,
    Usage,
    mask_host_numbers,
    require_usable,
)
from llamea_gpu.llm._completion import MAX_COUNT, well_formed

# More than any retry policy makes; each of them is charged.
_MAX_LOST_ATTEMPTS = 1000
_MAX_BYTES = 1 << 28
_REMEDY = "Remedy: replay with the settings and the version that recorded it, or record again"


_MAX_CHARS = 20_000
_MAX_EXACT = 5
_MAX_DIFF_LINES = 24
_MAX_LINE_CHARS = 160


class Exchange(NamedTuple):
    """One question and its answer; a recording keeps the question's id, model and messages.

    ``answer`` is None where the route brought none and the run went on without.
    """

    request: ChatRequest
    answer: ChatAnswer | None


class ReplayClient:
    """Answers from the recording at ``path``.

    Args:
        path: written by :func:`save_recording`.
        strict: False: a prompt that is not recorded gets the answer recorded under the same
            request_id, where there is one, and ``warnings`` say so; a further attempt that was not
            recorded (an edit of another parent did not fit, say) that of the attempt before it.

    Raises:
        LLMError: the file cannot be read or breaks the format; the message names the line.
    """

    def __init__(self, path: Path, strict: bool = True) -> None:
        self._path = path
        self._strict = strict
        self._exchanges = load_recording(path)
        self._by_key: dict[str, list[int]] = {}
        self._by_name: dict[str, int] = {}
        for index, exchange in enumerate(self._exchanges):
            self._by_key.setdefault(exchange.request.key, []).append(index)
            self._by_name.setdefault(exchange.request.request_id, index)
        self._served: set[int] = set()
        self._warnings: list[str] = []

    def __repr__(self) -> str:
        return f"ReplayClient({str(self._path)!r}, strict={self._strict})"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Where a lenient replay answered another prompt than the recorded one; with the diff."""
        return tuple(self._warnings)

    async def complete(self, request: ChatRequest) -> ChatAnswer:
        """The recorded answer to this prompt. See ``ChatClient``.

        A prompt recorded several times is answered by the exchange of the same request_id, else
        by the first one, in the recorded order, that was not served yet.

        Raises:
            UnseenPromptError: the recording has no answer left for this prompt.
            RejectedAnswerError: the recorded answer was unusable, and still is.
            FailedRequestError: the recorded run got no answer.
        """
        index = self._find(request)
        self._served.add(index)
        answer = self._exchanges[index].answer
        if answer is None:
            raise FailedRequestError(
                f"request {request.request_id}: the recording has no answer, because the recorded "
                f"run got none",
            )
        return require_usable(request.request_id, answer)

    async def preflight(self) -> None:
        """There is nothing that could be tried."""

    async def aclose(self) -> None:
        """Nothing is held open."""

    def _find(self, request: ChatRequest) -> int:
        same = self._by_key.get(request.key, [])
        namesakes = {i for i in same if self._exchanges[i].request.request_id == request.request_id}
        # Asked again under its own name, as a resumed run does, an exchange is served again.
        left = [i for i in same if i in namesakes or i not in self._served]
        if left:
            return min(left, key=lambda i: (i not in namesakes, i in self._served))
        problem = (
            f"request {request.request_id}: its prompt is recorded {len(same)} times in "
            f"{self._path}, and all these answers are used up. {_REMEDY}"
            if same
            else self._unseen(request)
        )
        name = request.request_id
        while name not in self._by_name and (slot := re.fullmatch(r"(.+-\d+-)([1-9]\d*)", name)):
            name = f"{slot[1]}{int(slot[2]) - 1}"
        if self._strict or name not in self._by_name:
            raise UnseenPromptError(problem)
        self._warnings.append(problem)
        return self._by_name[name]

    def _unseen(self, request: ChatRequest) -> str:
        if not self._exchanges:
            return f"request {request.request_id}: the recording {self._path} is empty. {_REMEDY}"
        prompt = _as_text(request.messages)
        texts = [_as_text(exchange.request.messages) for exchange in self._exchanges]
        index = _nearest(prompt, texts, preferred=self._by_name.get(request.request_id, 0))
        similarity = _similarity(_matcher(prompt), texts[index])
        name = self._exchanges[index].request.request_id
        return (
            f"request {request.request_id}: its prompt is not in {self._path}. The nearest is "
            f"that of {name}, {similarity:.1%} alike; the "
            f"differences (- recorded, + asked):\n{_difference(texts[index], prompt)}\n{_REMEDY}"
        )


def save_recording(path: Path, exchanges: Iterable[tuple[ChatRequest, ChatAnswer | None]]) -> None:
    """Write a recording, atomically and in the given order; equal input gives equal bytes."""
    write_text(path, "".join(_to_line(*exchange) for exchange in exchanges))


def load_recording(path: Path) -> tuple[Exchange, ...]:
    """Read a recording.

    Raises:
        LLMError: the file cannot be read, or a line breaks the format.
    """
    try:
        lines = read_text(path, _MAX_BYTES).split("\n")
    except (OSError, ValueError) as error:
        raise LLMError(f"the recording {path} cannot be read: {error}") from error
    exchanges = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                exchanges.append(_from_line(line))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                raise LLMError(
                    f"{path}, line {number}: not a recorded exchange: {problem}. Record again, or "
                    f"remove the line"
                ) from error
    return tuple(exchanges)


def _as_text(messages: tuple[Message, ...]) -> str:
    return "\n".join(f"[{m.role}]\n{mask_host_numbers(m.content)}" for m in messages)


def _to_line(request: ChatRequest, answer: ChatAnswer | None) -> str:
    data = {
        "request_id": request.request_id,
        "model": request.model,
        "key": request.key,
        "messages": [asdict(message) for message in request.messages],
        "answer": None if answer is None else asdict(answer),
    }
    return json.dumps(data, ensure_ascii=False, sort_keys=True) + "\n"


def _from_line(line: str) -> Exchange:
    data = _object(json.loads(line), "the line")
    messages = tuple(_message(_object(m, "a message")) for m in data["messages"])
    request = ChatRequest(_text(data, "request_id"), _text(data, "model"), messages)
    if data["key"] != request.key:
        raise ValueError("the key does not belong to the messages, so one of them was edited")
    return Exchange(request, None if data["answer"] is None else _answer(data["answer"]))


def _message(data: Mapping[str, Any]) -> Message:
    role = data["role"]
    if role not in ("system", "user", "assistant"):
        raise ValueError(f"the role must be system, user or assistant, but is {role!r}")
    return Message(role, _text(data, "content"))


def _answer(value: object) -> ChatAnswer:
    data = _object(value, "answer")
    usage = _object(data["usage"], "usage")
    reason, elapsed_s = data["finish_reason"], data["elapsed_s"]
    return ChatAnswer(
        text=_text(data, "text"),
        model=_text(data, "model"),
        usage=Usage(
            _count(usage, "prompt_tokens"),
            _count(usage, "completion_tokens"),
            bool(usage["estimated"]),
        ),
        finish_reason=None if reason is None else well_formed(str(reason)),
        created=_text(data, "created"),
        elapsed_s=None if elapsed_s is None else _seconds(elapsed_s),
        lost_attempts=_count(data, "lost_attempts", most=_MAX_LOST_ATTEMPTS),
    )


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object, but is {type(value).__name__}")
    return value


def _text(data: Mapping[str, Any], name: str) -> str:
    if not isinstance(data[name], str):
        raise ValueError(f"{name} must be text, but is {type(data[name]).__name__}")
    return well_formed(data[name])


def _count(data: Mapping[str, Any], name: str, most: int = MAX_COUNT) -> int:
    value = data[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{name} must be a whole number from 0 to {most}, but is {value!r:.40}")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= float(value) < math.inf:
        raise ValueError(f"elapsed_s must be a finite number of at least 0, but is {value!r:.40}")
    return float(value)


def _nearest(text: str, candidates: Sequence[str], preferred: int) -> int:
    """Index of the candidate most like ``text``; among equals ``preferred``, then the first.

    An upper bound of the similarity ranks all candidates; only the best few are compared exactly.
    """
    matcher = _matcher(text)
    bounds = []
    for candidate in candidates:
        matcher.set_seq1(candidate[:_MAX_CHARS].split())
        bounds.append(matcher.quick_ratio())
    order = sorted(range(len(bounds)), key=lambda i: (-bounds[i], i != preferred, i))
    shortlist = dict.fromkeys([preferred, *order[:_MAX_EXACT]])  # max() takes the first of equals
    return max(shortlist, key=lambda i: _similarity(matcher, candidates[i]))


def _difference(recorded: str, asked: str) -> str:
    """A short unified diff."""
    lines = difflib.unified_diff(
        recorded[:_MAX_CHARS].splitlines(), asked[:_MAX_CHARS].splitlines(), lineterm="", n=1
    )
    shown = [line[:_MAX_LINE_CHARS] for line in list(lines)[2 : 3 + _MAX_DIFF_LINES]]
    if len(shown) > _MAX_DIFF_LINES:
        shown[-1] = "…"
    if not shown:
        shown = [f"(they differ after the first {_MAX_CHARS} characters, or in line breaks only)"]
    return "\n".join(shown)


def _matcher(text: str) -> difflib.SequenceMatcher[str]:
    # The matcher caches its second sequence: that is the text compared with many.
    return difflib.SequenceMatcher(None, "", text[:_MAX_CHARS].split(), autojunk=False)


def _similarity(matcher: difflib.SequenceMatcher[str], candidate: str) -> float:
    matcher.set_seq1(candidate[:_MAX_CHARS].split())
    return matcher.ratio()
