"""What went wrong in one attempt at an HTTP request, and whether trying again can help.

Not here: the trying again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

import openai

_MAX_EXCERPT_CHARS = 300

# Beside every 5xx: request timeout, lock conflict, too early, too many requests.
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429})

# A 429 that no waiting mends.
_OUT_OF_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})

_REMEDIES = {
    400: "the server does not accept these settings: see its message",
    401: "set the environment variable {key} to a valid key for this server",
    403: "the key in {key} may not use this model: ask for access or choose another model",
    404: "check the model's name and base_url (it usually ends in /v1)",
    413: "the prompt is too long for the server: use fewer spaces or parents",
    422: "the server does not accept these settings: see its message",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One failed attempt.

    Attributes:
        problem: what happened, in words; may quote the server, at length and with secrets.
        remedy: what a person can do about it.
        transient: trying again can help.
        lost: the server may have billed the attempt.
        retry_after_s: the wait that the server asked for.
    """

    problem: str
    remedy: str
    transient: bool
    lost: bool = False
    retry_after_s: float | None = None


def status_fault(error: openai.APIStatusError, key_variable: str) -> Fault:
    """An answer with an HTTP error status; servers do not bill those."""
    status = error.status_code
    transient = (status in _TRANSIENT_STATUS or status >= 500) and error.code not in _OUT_OF_CREDIT
    if error.code in _OUT_OF_CREDIT:
        remedy = "the account is out of credit: top it up, then resume"
    elif status == 429:
        remedy = "wait, or lower max_concurrency"
    elif transient:
        remedy = "the server is in trouble: try again later"
    else:
        default = "the server refuses the request: see its message"
        remedy = _REMEDIES.get(status, default).format(key=key_variable)
    return Fault(
        problem=f"HTTP {status}: {server_message(error)}",
        remedy=remedy,
        transient=transient,
        retry_after_s=_retry_after_s(error.response.headers),
    )


def connection_fault(error: openai.APIConnectionError, base_url: str) -> Fault:
    """No answer: refused, reset, or closed before the headers came."""
    cause = error.__cause__ or error
    refused = type(cause).__name__.startswith("Connect")
    reason = str(cause) or type(cause).__name__
    return Fault(
        problem=f"no connection: {reason}" if refused else f"the server hung up: {reason}",
        remedy=f"check that the server at {base_url} runs and can be reached",
        transient=True,
        lost=not refused,
    )


def broken_body_fault(error: Exception) -> Fault:
    """The connection ended inside the answer's body."""
    return Fault(
        problem=f"the answer broke off: {str(error) or type(error).__name__}",
        remedy="check the connection and any proxy in between",
        transient=True,
        lost=True,
    )


def timeout_fault(timeout_s: float) -> Fault:
    """Nothing, or not everything, arrived in time."""
    return Fault(
        problem=f"no complete answer within {timeout_s:g} s",
        remedy="raise timeout_s, lower max_tokens, or lower max_concurrency",
        transient=True,
        lost=True,
    )


def oversized_fault(limit_bytes: int) -> Fault:
    """A body that would not end. Asking again would pay for the same again."""
    return Fault(
        problem=f"the answer is larger than {limit_bytes} bytes",
        remedy="set max_tokens, or choose a model that ends its answers",
        transient=False,
        lost=True,
    )


def not_json_fault(text: str) -> Fault:
    """A body that is no JSON: cut off by a proxy, or a page of HTML."""
    return Fault(
        problem=f"the answer is not JSON: {text}",
        remedy="check base_url (it usually ends in /v1) and any proxy in between",
        transient=True,
        lost=True,
    )


def foreign_json_fault(problem: str, body: object) -> Fault:
    """JSON that is not a chat completion. Some gateways send errors under status 200."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if error:
        code = error.get("code") if isinstance(error, Mapping) else None
        transient = isinstance(code, int) and (code in _TRANSIENT_STATUS or code >= 500)
        return Fault(
            problem=f"the server reports: {error}",
            remedy="see its message",
            transient=transient,
        )
    return Fault(
        problem=f"the answer is not a chat completion: {problem}",
        remedy="check that base_url is an OpenAI-compatible endpoint (it usually ends in /v1)",
        transient=False,
        lost=True,
    )


def excerpt(text: str) -> str:
    """``text`` on one line and short enough for a message."""
    line = " ".join(text[: 4 * _MAX_EXCERPT_CHARS].split())
    return line if len(line) <= _MAX_EXCERPT_CHARS else line[:_MAX_EXCERPT_CHARS] + " …"


def server_message(error: openai.APIStatusError) -> str:
    """What the server said, be it in OpenAI's error format or in any other."""
    body = error.body  # the SDK has unpacked {"error": …}
    if isinstance(body, Mapping) and isinstance(body.get("message"), str):
        return str(body["message"])
    return str(error.response.text or error.message)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds from ``Retry-After`` (a number or a date) or ``retry-after-ms``."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * unit_s
        except ValueError:
            seconds = _seconds_until(value)
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    return None


def _seconds_until(date: str) -> float:
    """Seconds until an HTTP date; NaN when it is none."""
    try:
        moment = parsedate_to_datetime(date)
    except (TypeError, ValueError):
        return math.nan
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - datetime.now(timezone.utc)).total_seconds()
