"""The evolution loop: asynchronous, steady state, and the same every time it is told the same.

Up to ``offspring`` slots are in flight: while a model writes one program, others are evaluated.
Slots are *settled in order*, and slot k is planned exactly when slot k - offspring is settled, so
what a slot sees never depends on which answer came first. Everything the loop does is therefore a
function of the settings, the answers and the traces, all three of which are in the archive; to
resume is to run again and find most of the work done.

It does not render prompts, parse answers or measure: those are prompting's and the cascade's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from llamea_gpu.archive import Archive, Call
from llamea_gpu.errors import (
    AnswerError,
    BudgetExceededError,
    TransportError,
)
from llamea_gpu.evolution.candidate import FAILED, Candidate
from llamea_gpu.evolution.evaluation import Assessment, Cascade
from llamea_gpu.evolution.population import Plan, Population, plan_slot
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.llm import (
    ChatClient,
    ChatRequest,
    Ledger,
    Message,
    RejectedAnswerError,
    Reservation,
)
from llamea_gpu.prompting import (
    ANSWER_SCHEMA,
    Operator,
    ParentView,
    Program,
    PromptContext,
    SpaceFacts,
    admit,
    parse_answer,
    render,
)
from llamea_gpu.searchers.registry import SearcherSource

# A route that fails this many slots in a row is down: stop, and let a continuation ask again.
TRANSPORT_FAILURES = 3


class Observer(Protocol):
    """Told what happens, as it happens; a live view, or nothing."""

    def notify(self, kind: str, slot: int | None, detail: dict[str, Any]) -> None:
        """``kind`` is asked, answered, evaluating, settled, seed, or stopped."""


class Silent:
    """The observer that shows nothing."""

    def notify(self, kind: str, slot: int | None, detail: dict[str, Any]) -> None:
        """Ignore."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run (or this session of it) ended; ``warnings`` are what the route met."""

    population: Population
    reason: str  # "complete", or which budget stopped it
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Refused:
    """An attempt that led nowhere: what to tell the model, and with which text."""

    kind: str
    message: str
    answer: str
    program: Program | None = None
    assessment: Assessment | None = None


class Evolution:
    """One run. Build it with everything it needs, then await ``run()`` once."""

    def __init__(
        self,
        settings: EvolutionSettings,
        archive: Archive,
        client: ChatClient,
        ledger: Ledger,
        cascade: Cascade,
        facts: Sequence[SpaceFacts],
        observer: Observer | None = None,
    ) -> None:
        self._settings = settings
        self._archive = archive
        self._client = client
        self._ledger = ledger
        self._cascade = cascade
        self._facts = tuple(facts)
        self._observer = observer or Silent()
        self._population = Population()
        self._freed = asyncio.Event()  # a reservation was settled: there may be room for another
        self._unreached: list[Candidate] = []  # settled by a failing route, not yet committed

    async def run(self, seed_programs: Sequence[tuple[SearcherSource, Program]]) -> Outcome:
        """Evaluate the seed programs, then evolve until a budget ends.

        Raises:
            TransportError: the route failed for several slots in a row (they are not settled: a
                continuation asks again).
            UnseenPromptError: a strict replay does not hold a prompt.
        """
        recorded = {
            slot: Candidate.from_document(document)
            for slot, document in self._archive.candidates().items()
        }
        for index, (source, program) in enumerate(seed_programs):
            slot = index - len(seed_programs)
            candidate = recorded.get(slot) or await self._assess_seed(slot, source.name, program)
            self._settle(candidate, known=slot in recorded)
        return await self._evolve(recorded)

    async def _evolve(self, recorded: dict[int, Candidate]) -> Outcome:
        total, width = self._settings.candidates, self._settings.offspring
        limit = self._settings.max_wall_s
        deadline = None if limit is None else time.monotonic() + limit
        running: dict[int, asyncio.Task[Candidate]] = {}
        reason = "complete"
        try:
            for slot in range(total):
                for planned in range(slot, min(slot + width, total)):
                    if planned not in running and planned not in recorded:
                        # Planned the moment slot (planned - width) was settled, so against
                        # exactly the population that any other run would plan it against.
                        plan = plan_slot(planned, self._population, self._settings)
                        developing = self._develop(plan, self._population)
                        running[planned] = asyncio.create_task(developing)
                if slot in recorded:
                    self._settle(recorded[slot], known=True)
                    continue
                left = None if deadline is None else deadline - time.monotonic()
                self._settle(await asyncio.wait_for(running.pop(slot), left), known=False)
        except asyncio.TimeoutError:
            reason = f"the wall-time budget of {limit:g} s is used up"
            await _cancelled(running)
        except BudgetExceededError as error:
            reason = str(error)
        except BaseException:
            await _cancelled(running)
            raise
        # Answers under way are paid for: let them arrive, so that a continuation finds them.
        await asyncio.gather(*running.values(), return_exceptions=True)
        self._observer.notify("stopped", None, {"reason": reason})
        return Outcome(self._population, reason, self._client.warnings)

    def _settle(self, candidate: Candidate, *, known: bool) -> None:
        """Commit ``candidate`` and let it into the population; hold back a failing route's."""
        if not known and candidate.kind == "transport":
            self._unreached.append(candidate)
            if len(self._unreached) >= TRANSPORT_FAILURES:
                raise TransportError(
                    f"the model could not be reached for {len(self._unreached)} candidates in a "
                    f"row; the last error: {candidate.message} The run is kept: continue it with "
                    f"--resume when the route works"
                )
        elif not known:
            for late in (*self._unreached, candidate):
                self._archive.record_candidate(late.slot, late.to_document())
            self._unreached.clear()
        self._population = self._population.with_candidate(candidate)
        kind = "seed" if candidate.slot < 0 else "settled"
        self._observer.notify(kind, candidate.slot, {"candidate": candidate, "known": known})

    async def _assess_seed(self, slot: int, name: str, program: Program) -> Candidate:
        found = await self._cascade.assess(slot, 0, program, self._population)
        return Candidate(
            slot=slot,
            generation=-1,
            operator=name,
            parents=(),
            status=found.status,
            kind=found.kind,
            message=found.message,
            attempts=0,
            model="",
            program=program,
            feedback=found.feedback,
        )

    async def _develop(self, plan: Plan, population: Population) -> Candidate:
        """Ask, parse, admit, evaluate, and ask for repairs; always a candidate in the end."""
        refused: _Refused | None = None
        model = ""
        for attempt in range(self._settings.max_repairs + 1):
            operator: Operator = "repair" if refused else plan.operator
            try:
                call = await self._ask(plan, attempt, operator, population, refused)
            except TransportError as error:
                refused = _Refused("transport", str(error), "")
                return _failed(plan, refused, attempt, model)
            model = call.answer.model if call.answer else model
            result = await self._try(plan, attempt, operator, call, population)
            if isinstance(result, Candidate):
                return result
            refused = result
        if refused is None:  # max_repairs is at least 0, so one attempt was made
            raise AssertionError("a slot without an attempt")
        return _failed(plan, refused, self._settings.max_repairs + 1, model)

    async def _try(
        self, plan: Plan, attempt: int, operator: Operator, call: Call, population: Population
    ) -> Candidate | _Refused:
        """Take one answer as far as it goes."""
        text = call.answer.text if call.answer else ""
        if call.problem is not None:
            return _Refused("refusal", call.problem, text)
        if call.answer is not None and call.answer.finish_reason == "length":
            cut = f"The answer was cut off after {self._settings.max_tokens} tokens: write less."
            return _Refused("truncated", cut, text)
        try:
            program = admit(parse_answer(text, operator, _parent_views(plan)))
        except AnswerError as error:
            return _Refused(error.kind, str(error), text)
        twin = population.digests().get(program.digest)
        if twin is not None:
            return _Refused(
                "duplicate",
                f"The program does the same as an earlier one ({twin.identifier}); "
                f"change what it does, not only how it is written.",
                text,
                program,
            )
        self._observer.notify("evaluating", plan.slot, {"program": program})
        found = await self._cascade.assess(plan.slot, attempt, program, population)
        if found.status == FAILED:
            return _Refused(found.kind, found.message, text, program, found)
        return Candidate(
            slot=plan.slot,
            generation=plan.generation,
            operator=plan.operator,
            parents=tuple(c.slot for c in plan.parents),
            status=found.status,
            kind=found.kind,
            message=found.message,
            attempts=attempt + 1,
            model=call.answer.model if call.answer else "",
            program=program,
            feedback=found.feedback,
        )

    async def _ask(
        self,
        plan: Plan,
        attempt: int,
        operator: Operator,
        population: Population,
        refused: _Refused | None,
    ) -> Call:
        """The answer to one attempt: from the archive, or paid for and committed at once."""
        known = self._archive.call(plan.slot, attempt)
        if known is not None and (known.answer is not None or known.problem is not None):
            return known
        context = PromptContext(
            spaces=self._facts,
            parents=_parent_views(plan),
            previous_ideas=population.ideas(),
            problem=refused.message if refused else None,
            failed_answer=_shown(refused) if refused else None,
            cpu_limit_s=self._settings.cpu_limit_s,
            sibling=plan.slot % self._settings.offspring + 1,
            siblings=self._settings.offspring,
        )
        structured = self._settings.structured_output
        system, user = render(
            operator, context, facts=self._settings.prompt_facts, structured=structured
        )
        request = ChatRequest(
            request_id=f"{self._settings.seed}-{plan.slot:04d}-{attempt}",
            model=self._settings.model,
            messages=(Message("system", system), Message("user", user)),
            temperature=self._settings.temperature,
            max_tokens=self._settings.max_tokens,
            response_schema=ANSWER_SCHEMA if structured else None,
        )
        reservation = await self._reserve(request)
        self._archive.record_call(plan.slot, attempt, operator, request)
        self._observer.notify("asked", plan.slot, {"operator": operator, "attempt": attempt})
        try:
            answer, problem = await self._client.complete(request), None
        except RejectedAnswerError as error:
            answer, problem = error.answer, str(error)
        except BaseException as error:
            self._ledger.settle_error(reservation, error)
            self._freed.set()
            raise
        self._archive.record_answer(request.request_id, answer, problem)
        self._ledger.settle(reservation, answer)
        self._freed.set()
        self._observer.notify("answered", plan.slot, {"usage": answer.usage})
        return Call(plan.slot, attempt, operator, request, answer, problem)

    async def _reserve(self, request: ChatRequest) -> Reservation:
        """Set aside what the request may cost; wait while requests in flight take up the room."""
        while True:
            try:
                return self._ledger.reserve(request)
            except BudgetExceededError:
                if not self._ledger.in_flight:
                    raise
            self._freed.clear()
            await self._freed.wait()


def _failed(plan: Plan, refused: _Refused, attempts: int, model: str) -> Candidate:
    return Candidate(
        slot=plan.slot,
        generation=plan.generation,
        operator=plan.operator,
        parents=tuple(c.slot for c in plan.parents),
        status=FAILED,
        kind=refused.kind,
        message=refused.message,
        attempts=attempts,
        model=model,
        program=refused.program,
        feedback=refused.assessment.feedback if refused.assessment else None,
    )


def _shown(refused: _Refused) -> str:
    """What a repair prompt shows as the failed answer: the program where there is one."""
    return refused.program.source if refused.program else refused.answer


def _parent_views(plan: Plan) -> tuple[ParentView, ...]:
    return tuple(
        ParentView(c.identifier, c.program.idea, c.program.source, c.feedback)
        for c in plan.parents
        if c.program is not None and c.feedback is not None
    )


async def _cancelled(running: dict[int, asyncio.Task[Candidate]]) -> None:
    for task in running.values():
        task.cancel()
    await asyncio.gather(*running.values(), return_exceptions=True)
