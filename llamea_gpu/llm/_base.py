"""The contract of an LLM route: one request in, one answer out.

A route is anything with ``complete``; the messages, the answer, what it cost and the errors which
carry that cost are defined here, with the two rules every route shares: which answers are unusable
and how the identity of a prompt is computed.

Not here: what a prompt says, what an answer means, and who commits it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from llamea_gpu.errors import AnswerUnusableError, TransportError

Role = Literal["system", "user", "assistant"]

# A number written by this project after "≈" was measured on this host (seconds of CPU, say).
_HOST_NUMBER = re.compile(r"≈\s?[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?")

# Finish reasons by which servers say that they, or the model, declined.
_DECLINED = frozenset({"content_filter", "refusal"})

_BYTES_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 4


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question to a model.

    Attributes:
        request_id: names the request within a run; the batch route's ``custom_id``.
        model: the name under which the server knows the model, and under which it is priced.
        messages: the conversation, oldest first.
        temperature: None leaves it to the server.
        max_tokens: the most tokens an answer may have; None leaves it to the server.
        response_schema: JSON schema the answer shall follow, where the server supports that.
    """

    request_id: str
    model: str
    messages: tuple[Message, ...]
    temperature: float | None = None
    max_tokens: int | None = None
    response_schema: Mapping[str, Any] | None = None

    @property
    def key(self) -> str:
        """The prompt's identity: SHA-256 (hex) of its messages, host-dependent numbers masked."""
        return prompt_key(self.messages)

    def estimated_prompt_tokens(self) -> int:
        """Tokens of the messages by :func:`estimate_tokens`, with the frame around each."""
        return sum(estimate_tokens(m.content) + _TOKENS_PER_MESSAGE for m in self.messages)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer; ``estimated`` when the server did not report them."""

    prompt_tokens: int
    completion_tokens: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """One answer, as it is to be committed before anything reads it.

    Attributes:
        text: what the model wrote; untrusted.
        model: the model by its own account; untrusted.
        usage: what it cost.
        finish_reason: "length" means that the text was cut off by ``max_tokens``: such an answer
            is returned, so that its reader can say so.
        created: ISO 8601, UTC.
        elapsed_s: wall time of the successful attempt; None where nobody measured.
        lost_attempts: earlier attempts at this answer that the server may have billed although
            nothing usable arrived (timeouts, broken connections).
    """

    text: str
    model: str
    usage: Usage
    finish_reason: str | None
    created: str
    elapsed_s: float | None
    lost_attempts: int = 0


class ChatClient(Protocol):
    """A route to a model."""

    async def complete(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request.

        Raises:
            TransportError: no answer arrived; a :class:`FailedRequestError` where attempts may
                have been billed.
            AnswerUnusableError: a refusal or an empty answer; always a
                :class:`RejectedAnswerError`, which carries what it cost.
            UnseenPromptError: a replay does not hold the prompt.
        """
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know of what the route met so far; one text each."""
        ...

    async def preflight(self) -> None:
        """Fail now for what every request would fail for, where that can be known for free.

        Raises:
            TransportError: what is wrong, and the remedy.
        """
        ...

    async def aclose(self) -> None:
        """Release what the route holds open."""
        ...


class FailedRequestError(TransportError):
    """A request that was sent, perhaps several times, and got no answer.

    ``lost_attempts`` of them may have been billed.
    """

    def __init__(self, message: str, *, lost_attempts: int = 0) -> None:
        super().__init__(message)
        self.lost_attempts = lost_attempts


class RejectedAnswerError(AnswerUnusableError):
    """An unusable answer. It was paid for: ``answer`` is there to be committed and settled."""

    def __init__(self, message: str, answer: ChatAnswer) -> None:
        super().__init__(message)
        self.answer = answer


def require_usable(request_id: str, answer: ChatAnswer) -> ChatAnswer:
    """The answer itself, when there is text to read.

    Raises:
        RejectedAnswerError: the model or a filter declined, or the text is blank.
    """
    reason = answer.finish_reason
    if reason in _DECLINED:
        excerpt = f": {answer.text[:200]!r}" if answer.text.strip() else ""
        raise RejectedAnswerError(
            f"request {request_id}: {answer.model} declined to answer ({reason}){excerpt}", answer
        )
    if answer.text.strip():
        return answer
    if reason == "length":
        problem = "used up its tokens before it wrote any text: raise max_tokens"
    else:
        problem = f"answered without text (finish_reason {reason!r})"
    raise RejectedAnswerError(f"request {request_id}: {answer.model} {problem}", answer)


def mask_host_numbers(text: str) -> str:
    """``text`` with every number after a "≈" replaced, so that hosts agree on it."""
    return _HOST_NUMBER.sub("≈#", text)


def prompt_key(messages: Sequence[Message]) -> str:
    """SHA-256 (hex) over roles and masked contents; the model and its settings play no part."""
    canonical = json.dumps([[m.role, mask_host_numbers(m.content)] for m in messages])
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def estimate_tokens(text: str) -> int:
    """Tokens of ``text`` by the rule of thumb of four bytes (UTF-8) a token, rounded up.

    Right within about a third for English and code; no tokenizer is consulted, because each model
    has its own and most publish none.
    """
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)
