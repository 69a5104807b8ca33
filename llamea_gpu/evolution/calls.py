"""One attempt's answer: from the archive, or asked for, paid for and committed at once.

It keeps the order that makes a run survive a kill: request recorded, sent, answer committed, ledger
settled. It does not read answers, and does not decide what is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llamea_gpu.archive import Archive, Call
from llamea_gpu.errors import BudgetExceededError
from llamea_gpu.evolution.evaluation import Assessment
from llamea_gpu.evolution.plan import Plan
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.llm import (
    ChatAnswer,
    ChatClient,
    ChatRequest,
    FailedRequestError,
    Ledger,
    Message,
    RejectedAnswerError,
    Reservation,
)
from llamea_gpu.programs import Program
from llamea_gpu.prompting import (
    Operator,
    ParentView,
    PromptContext,
    SpaceFacts,
    render,
)

# Told kind, slot (None: of the whole run) and details of what happens, as it happens. Kinds are
# asked, answered, evaluating, settled, seed, started and stopped.
Observer = Callable[[str, "int | None", dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of an answer. ``kind`` and ``message`` say why it led nowhere, to the model too.

    They are empty of one that gave a ``program`` which ran without a fault.
    """

    kind: str
    message: str
    answer: str
    program: Program | None = None
    assessment: Assessment | None = None

    @property
    def shown(self) -> str:
        """What a repair prompt shows of it: the program where there is one."""
        return self.program.source if self.program else self.answer


class Caller:
    """Asks the model of one run."""

    def __init__(
        self,
        settings: EvolutionSettings,
        archive: Archive,
        client: ChatClient,
        ledger: Ledger,
        facts: Sequence[SpaceFacts],
        observer: Observer,
    ) -> None:
        self._settings = settings
        self._archive = archive
        self._client = client
        self._ledger = ledger
        self._facts = tuple(facts)
        self._observer = observer
        self._freed = asyncio.Event()  # a reservation was settled: there may be room for another
        self._stopping = ""
        self.waiting = 0  # attempts without an answer: requests, and who has no room for one

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the route met."""
        return self._client.warnings

    def usd(self, call: Call) -> float | None:
        """Dollars that the call's answer cost; None without a price, or an answer."""
        if call.answer is None:
            return None
        cost = self._ledger.usd(call.request.model, call.answer.usage)
        return None if cost is None else float(cost)

    def stop(self, reason: str) -> None:
        """Send no further request; who wants to is told ``reason`` as a BudgetExceededError."""
        self._stopping = reason
        self._freed.set()

    async def ask(
        self,
        plan: Plan,
        attempt: int,
        operator: Operator,
        population: Population,
        refused: Attempt | None,
    ) -> Call:
        """The answer to one attempt of a slot; ``refused`` is what a repair has to mend.

        Raises:
            BudgetExceededError: a cap would be passed, or the run is stopping.
            TransportError: no answer arrived.
        """
        known = self._archive.call(plan.slot, attempt)
        if known is not None and known.answer is not None:
            return known
        context = PromptContext(
            spaces=self._facts,
            parents=parent_views(plan),
            previous_ideas=population.ideas() if self._settings.strategy == "evolution" else (),
            tried=population.tried() if operator == "sequential" else (),
            problem=refused.message if refused else None,
            failed_answer=refused.shown if refused else None,
            cpu_limit_s=self._settings.cpu_limit_s,
            guidance=self._settings.guidance,
            sibling=plan.slot % self._settings.offspring + 1,
            siblings=self._settings.offspring,
        )
        system, user = render(operator, context)
        request = ChatRequest(
            request_id=f"{self._settings.seed}-{plan.slot:04d}-{attempt}",
            model=plan.model,
            messages=(Message("system", system), Message("user", user)),
            temperature=self._settings.temperature,
            max_tokens=self._settings.max_tokens,
        )
        self.waiting += 1
        try:
            return await self._paid(plan, attempt, operator, request)
        finally:
            self.waiting -= 1

    async def _paid(
        self, plan: Plan, attempt: int, operator: Operator, request: ChatRequest
    ) -> Call:
        """Send when there is room in the budget, and settle what it cost."""
        reservation = await self._reserve(request)
        try:
            answer, problem = await self._send(plan.slot, attempt, operator, request)
        except BaseException as error:
            lost = self._lost_attempts(error)
            self._ledger.release(reservation, lost_attempts=lost)
            if lost:
                self._archive.record_loss(request.request_id, lost)
            raise
        else:
            self._ledger.settle(reservation, answer)
        finally:
            self._freed.set()
        self._observer("answered", plan.slot, {"usage": answer.usage})
        return Call(plan.slot, attempt, operator, request, answer, problem)

    async def _send(
        self, slot: int, attempt: int, operator: Operator, request: ChatRequest
    ) -> tuple[ChatAnswer, str | None]:
        """Record, send, and commit the answer before anything looks into it."""
        self._archive.record_call(slot, attempt, operator, request, self._settings.route)
        self._observer("asked", slot, {"operator": operator, "attempt": attempt})
        try:
            answer, problem = await self._client.complete(request), None
        except RejectedAnswerError as error:
            answer, problem = error.answer, str(error)
        self._archive.record_answer(request.request_id, answer, problem)
        return answer, problem

    def _lost_attempts(self, error: BaseException) -> int:
        """Attempts that may have been billed although ``error`` came instead of an answer."""
        if isinstance(error, FailedRequestError):
            return error.lost_attempts
        return int(isinstance(error, asyncio.CancelledError) and self._settings.route == "openai")

    async def _reserve(self, request: ChatRequest) -> Reservation:
        """Set aside what the request may cost; wait while requests in flight take up the room."""
        while True:
            if self._stopping:
                raise BudgetExceededError(self._stopping)
            try:
                return self._ledger.reserve(request)
            except BudgetExceededError:
                if not self._ledger.in_flight:
                    raise
            self._freed.clear()
            await self._freed.wait()


def parent_views(plan: Plan) -> tuple[ParentView, ...]:
    """The plan's parents as prompts and parsing see them."""
    return tuple(
        ParentView(c.identifier, c.program.idea, c.program.source, c.feedback)
        for c in plan.parents
        if c.program is not None and c.feedback is not None
    )
