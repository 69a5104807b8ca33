"""The ``openai`` route: any server that speaks one of OpenAI's protocols, by the official SDK.

One attempt is one non-streamed POST with a bound on its time and on its size. Failures are sorted
into faults (``_faults``); transient ones are tried again with growing delays. The SDK's own
retries are off, so that every attempt is known, counted and, where it may have been billed,
reported. What a server rejects although the request can do without it (a JSON schema, a
temperature, the name of the token limit) is left out from then on, and said in ``warnings``.

Not here: streaming (an answer is read whole, and must arrive whole to be worth anything), tools,
the ledger.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import openai

from llamea_gpu.errors import SettingsError, TransportError
from llamea_gpu.llm import _faults
from llamea_gpu.llm._base import (
    ChatAnswer,
    ChatRequest,
    FailedRequestError,
    require_usable,
)
from llamea_gpu.llm._completion import (
    NotACompletionError,
    completed,
    parse_completion,
    parse_response,
    request_body,
    responses_body,
)
from llamea_gpu.llm._faults import Fault, server_message
from llamea_gpu.llm._secrets import Redactor
from llamea_gpu.llm.routes import OpenAIOptions

if TYPE_CHECKING:
    import numpy as np


# An optimizer's source is some ten kilobytes; a body of this size is a runaway model.
MAX_BODY_BYTES = 4 << 20

_PREFLIGHT_S = 10.0
_MAX_DELAY_S = 60.0  # between attempts, also when a server asks for more

# The SDK insists on a key; local servers do not.
_NO_KEY = "none"


class OpenAIClient:
    """A client of one OpenAI-compatible server.

    Args:
        options: the server, and how it is asked.
        rng: jitter for the delays; None: no jitter.
        sleep: waits the seconds it is given.
        max_body_bytes: the largest body that is read.

    Raises:
        SettingsError: an option out of range, a base_url that carries credentials, an unusable
            key, or no key for OpenAI.
    """

    def __init__(
        self,
        options: OpenAIOptions,
        rng: np.random.Generator | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        _refuse_credentials(options.server)
        key = options.require_key()
        if options.max_concurrency < 1 or options.max_retries < 0 or not options.timeout_s > 0:
            raise SettingsError(
                "max_concurrency >= 1, max_retries >= 0 and timeout_s > 0 must hold, but got "
                f"{options}"
            )
        self._options = options
        self._redact = Redactor(key or "", options.api_key_env)
        self._places = asyncio.Semaphore(options.max_concurrency)
        self._rng = rng
        self._sleep = sleep
        self._max_body_bytes = max_body_bytes
        self._responses = options.api == "responses"
        self._dialects: dict[str, Dialect] = {}
        self._warnings: list[str] = []
        self._sdk = openai.AsyncOpenAI(
            api_key=key or _NO_KEY,
            base_url=options.server,
            timeout=options.timeout_s,
            max_retries=0,
        )

    def __repr__(self) -> str:
        variable = self._options.api_key_env
        return f"OpenAIClient(base_url={str(self._sdk.base_url)!r}, key from {variable})"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What had to be left out of requests, and for which model."""
        return tuple(self._warnings)

    async def complete(self, request: ChatRequest) -> ChatAnswer:
        """Ask, and ask again while that can help. See :class:`ChatClient`."""
        async with self._places:
            answer = await self._complete(request)
        return require_usable(request.request_id, answer)

    async def preflight(self) -> None:
        """Fail for what every request would fail for: nobody answers, or the key is refused.

        Asks for the list of models, which costs nothing; a server that has none is not faulted.

        Raises:
            TransportError: what is wrong, and the remedy.
        """
        sdk = self._sdk.with_options(timeout=min(self._options.timeout_s, _PREFLIGHT_S))
        try:
            await sdk.models.list()
            return
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            fault = _faults.status_fault(error, self._options.api_key_env)
        except openai.APITimeoutError:
            fault = _faults.timeout_fault(_PREFLIGHT_S)
        except openai.APIConnectionError as error:
            fault = _faults.connection_fault(error, str(self._sdk.base_url))
        except (openai.OpenAIError, ValueError):  # it answers, if not this
            return
        # Not where it was caught: the context would hold the request with its key.
        problem = _faults.excerpt(self._redact(fault.problem))
        raise TransportError(f"no model can be asked: {problem}. Remedy: {fault.remedy}")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._sdk.close()

    async def _complete(self, request: ChatRequest) -> ChatAnswer:
        attempt = lost = 0
        while True:
            attempt += 1
            outcome = await self._attempt_in_time(request)
            if isinstance(outcome, ChatAnswer):
                return replace(outcome, lost_attempts=lost)
            lost += outcome.lost
            if not outcome.transient or attempt > self._options.max_retries:
                # Raised here and not where the SDK's exception was caught: that one would stay
                # attached as the context, and it holds the request with its Authorization header.
                raise self._failure(request, outcome, attempt, lost)
            await self._sleep(delay_s(attempt, outcome.retry_after_s, self._rng))

    def _failure(
        self, request: ChatRequest, fault: Fault, attempts: int, lost: int
    ) -> FailedRequestError:
        times = "once" if attempts == 1 else f"{attempts} times"
        # Redacted before it is shortened, since half a key would not be found.
        problem = _faults.excerpt(self._redact(fault.problem))
        return FailedRequestError(
            f"request {request.request_id} to {self._sdk.base_url} (model {request.model}) "
            f"failed, tried {times}: {problem}. Remedy: {fault.remedy}",
            lost_attempts=lost,
        )

    async def _attempt_in_time(self, request: ChatRequest) -> ChatAnswer | Fault:
        """One attempt; the SDK's timeout bounds each read, this bounds them all together."""
        try:
            return await asyncio.wait_for(self._attempt(request), self._options.timeout_s)
        except asyncio.TimeoutError:
            return _faults.timeout_fault(self._options.timeout_s)

    async def _attempt(self, request: ChatRequest) -> ChatAnswer | Fault:
        dialect = self._dialects.setdefault(request.model, Dialect(responses=self._responses))
        while True:
            body = dialect.body(request)
            try:
                return await self._post(request, body)
            except openai.APIStatusError as error:
                conceded = dialect.concede(body, error)
                if conceded is None:
                    return _faults.status_fault(error, self._options.api_key_env)
                self._warn(f"{request.model}: {conceded}, since the server rejects it")
            except openai.APITimeoutError:
                return _faults.timeout_fault(self._options.timeout_s)
            except openai.APIConnectionError as error:
                return _faults.connection_fault(error, str(self._sdk.base_url))

    def _warn(self, warning: str) -> None:
        if warning not in self._warnings:  # concurrent requests find the same out
            self._warnings.append(warning)

    async def _post(self, request: ChatRequest, body: dict[str, Any]) -> ChatAnswer | Fault:
        started_s = time.perf_counter()
        # The streamed response is the SDK's only way to bound how much of a body is read.
        api: Any = self._sdk.responses if self._responses else self._sdk.chat.completions
        async with api.with_streaming_response.create(**body) as response:
            chunks = bytearray()
            try:
                async for chunk in response.iter_bytes():
                    chunks += chunk
                    if len(chunks) > self._max_body_bytes:
                        return _faults.oversized_fault(self._max_body_bytes)
            except Exception as error:
                # Depending on its version the SDK reads by httpx or httpx2, and lets their
                # errors through here; whichever it is, the body did not arrive.
                return _faults.broken_body_fault(error)
        return self._read(bytes(chunks), request, time.perf_counter() - started_s)

    def _read(self, raw: bytes, request: ChatRequest, elapsed_s: float) -> ChatAnswer | Fault:
        text = raw.decode("utf-8", "replace")
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            return _faults.not_json_fault(text)
        parse = parse_response if self._responses else parse_completion
        try:
            answer = completed(parse(body), request)
        except NotACompletionError as error:
            return _faults.foreign_json_fault(str(error), body)
        # A server may echo the request's headers; the answer goes to the archive.
        reason = answer.finish_reason
        return replace(
            answer,
            text=self._redact(answer.text),
            model=self._redact(answer.model),
            elapsed_s=elapsed_s,
            finish_reason=None if reason is None else self._redact(reason),
        )


def delay_s(retry: int, retry_after_s: float | None, rng: np.random.Generator | None) -> float:
    """Seconds to wait before retry number ``retry`` (from 1), at most a minute.

    A server's ``retry_after_s`` is obeyed. Otherwise the delay doubles from one second on, with
    ``rng`` shortened by up to half, so that requests which failed together do not return together.
    """
    if retry_after_s is not None:
        return min(max(retry_after_s, 0.0), _MAX_DELAY_S)
    # The exponent is bounded because 2.0**1024 overflows.
    delay = min(2.0 ** min(retry - 1, 60), _MAX_DELAY_S)
    return delay if rng is None else delay * float(rng.uniform(0.5, 1.0))


def _refuse_credentials(base_url: str | None) -> None:
    """URLs are written to logs, archives and errors; a key must not be part of one."""
    if base_url is None:
        return
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            "base_url must be like http://127.0.0.1:8000/v1, with scheme and host, but it is not"
        )
    if parts.username or parts.password or parts.query:
        raise SettingsError(
            "base_url must not carry a user, password or query, since it is logged: put the key "
            "into the environment variable that api_key_env names"
        )


@dataclass(slots=True)
class Dialect:
    """Starts with everything allowed and learns from rejections, once for each field."""

    responses: bool = False  # the protocol: Responses instead of chat completions
    schema: bool = True
    temperature: bool = True
    limit_field: str = "max_tokens"

    def body(self, request: ChatRequest) -> dict[str, Any]:
        """The request's JSON body without what the server rejects."""
        if not self.schema:
            request = replace(request, response_schema=None)
        if not self.temperature:
            request = replace(request, temperature=None)
        if self.responses:
            return responses_body(request)
        return request_body(request, limit_field=self.limit_field)

    def concede(self, sent: dict[str, Any], error: openai.APIStatusError) -> str | None:
        """Give up the field of ``sent`` that ``error`` complains about.

        Returns:
            The concession in words; None when the error is about something else. The next body
            lacks the field, so that each request makes at most three concessions, whichever of
            several concurrent requests made them first.
        """
        if error.status_code not in (400, 422):
            return None
        complaint = f"{error.param} {server_message(error)}".lower()
        schema_named = any(name in complaint for name in ("response_format", "text.format"))
        if schema_named and ("response_format" in sent or "text" in sent):
            self.schema = False
            return "answers are asked for without a JSON schema"
        if "support" not in complaint:  # an accepted field with a wrong value is the user's to mend
            return None
        if "max_tokens" in sent and "max_completion_tokens" in complaint:
            self.limit_field = "max_completion_tokens"
            return "max_tokens is sent as max_completion_tokens"
        if "temperature" in sent and "temperature" in complaint:
            self.temperature = False
            return "the temperature is left to the server"
        return None
