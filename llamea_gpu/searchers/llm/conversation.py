"""Asks models from a thread of its own, so that a kernel is measured meanwhile.

What it does: sends the requests of a round side by side, counts what they cost against the caps,
and turns whatever becomes of one into a `Reply`. Keeps every exchange, in the order of asking.

What it does not do: say what is asked, or what an answer means. A replay that does not know a
prompt is an error of the run, not a reply: such a run would prove nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Literal

from llamea_gpu.errors import (
    AnswerUnusableError,
    BudgetExceededError,
    LLMError,
    UnseenPromptError,
)
from llamea_gpu.llm import (
    ChatAnswer,
    ChatClient,
    ChatRequest,
    Exchange,
    Ledger,
    RejectedAnswerError,
)

_CLOSE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a request: ``problem`` is empty for an answer.

    ``outcome``: "refused" for an answer without use, "unreachable" when the route brought none,
    "capped" when the request was not sent, because it could have passed a cap.
    """

    request: ChatRequest
    outcome: Literal["answer", "refused", "unreachable", "capped"]
    answer: ChatAnswer | None = None
    problem: str = ""


class Conversation:
    """Talks through ``client`` within the caps of ``ledger``. Close it, whatever happens.

    ``exchanges`` is every request that was sent and came to an end, with its answer if it got one.
    """

    def __init__(self, client: ChatClient, ledger: Ledger) -> None:
        self.client = client
        self.ledger = ledger
        self.exchanges: list[Exchange] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="llm-proposer", daemon=True
        )
        self._thread.start()

    def ask(self, requests: Sequence[ChatRequest]) -> Future[list[Reply]]:
        """Send all of them; returns at once."""
        return asyncio.run_coroutine_threadsafe(self._ask_all(requests), self._loop)

    def close(self) -> None:
        """Give up what is under way, and end the thread."""
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        wait([closing], _CLOSE_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _ask_all(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        replies = await asyncio.gather(*map(self._ask, requests))
        for reply in replies:
            if reply.outcome != "capped":
                self.exchanges.append(Exchange(reply.request, reply.answer))
        return replies

    async def _ask(self, request: ChatRequest) -> Reply:
        try:
            reservation = self.ledger.reserve(request)
        except BudgetExceededError as error:
            return Reply(request, "capped", problem=str(error))
        try:
            answer = await self.client.complete(request)
        except BaseException as error:
            self.ledger.settle_error(reservation, error)
            if isinstance(error, UnseenPromptError) or not isinstance(error, LLMError):
                raise
            if isinstance(error, RejectedAnswerError):
                return Reply(request, "refused", error.answer, str(error))
            refused = isinstance(error, AnswerUnusableError)
            return Reply(request, "refused" if refused else "unreachable", problem=str(error))
        self.ledger.settle(reservation, answer)
        return Reply(request, "answer", answer)

    async def _close(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.client.aclose()
