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
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from llamea_gpu.archive import Archive, Call
from llamea_gpu.errors import AnswerError, BudgetExceededError, TransportError
from llamea_gpu.evolution.calls import Attempt, Caller, Observer, parent_views
from llamea_gpu.evolution.candidate import FAILED, LOST, Candidate
from llamea_gpu.evolution.evaluation import Cascade
from llamea_gpu.evolution.inspiration import Inspiration
from llamea_gpu.evolution.parents import breeding_pool
from llamea_gpu.evolution.plan import Plan, plan_slot
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.llm import ChatClient, Ledger
from llamea_gpu.programs import Program, admit
from llamea_gpu.prompting import Operator, SpaceFacts, parse_answer
from llamea_gpu.searchers.registry import ProgramSearcher

# A route that fails this many slots in a row is down: stop, and let a continuation ask again.
TRANSPORT_FAILURES = 3
_LOOK_S = 0.2  # between looks whether there is anything to do but wait


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run (or this session of it) ended; ``warnings`` are what the route met."""

    population: Population
    reason: str  # "complete", or which budget stopped it
    warnings: tuple[str, ...] = ()


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
        observer: Observer = lambda *_: None,
    ) -> None:
        self._settings = settings
        self._archive = archive
        self._cascade = cascade
        self._observer = observer
        self._caller = Caller(settings, archive, client, ledger, facts, observer)
        self._population = Population()
        self._unreached: list[Candidate] = []  # settled by a failing route, not yet committed
        self._again: list[Candidate] = []  # scored again, not yet committed

    async def run(
        self,
        seed_programs: Sequence[ProgramSearcher],
        inspirations: Sequence[Inspiration] = (),
    ) -> Outcome:
        """Evaluate the seed programs and inspirations, then evolve until a budget ends.

        Raises:
            TransportError: the route failed for several slots in a row, or for the last ones (they
                are not settled: a continuation asks again).
            UnseenPromptError: a strict replay does not hold a prompt.
        """
        limit = self._settings.max_wall_s
        deadline = None if limit is None else time.monotonic() + limit
        recorded = {c.slot: c for c in Population.as_settled(self._archive).candidates}
        # The seeds first, whatever their slots: they are what feedback compares with.
        for slot, seed in enumerate(seed_programs, -len(seed_programs)):
            await self._take_in(slot, seed.name, seed.program, recorded, inspiration=False)
        for index, brought in enumerate(inspirations, 1):
            slot = -len(seed_programs) - index
            await self._take_in(slot, brought.name, brought.program, recorded, inspiration=True)
        running: dict[int, asyncio.Task[Candidate]] = {}
        try:
            reason = await self._evolve(recorded, running, deadline)
        except BaseException:
            await _cancelled(running)
            raise
        if reason != "complete":
            self._caller.stop(reason)
            await self._let_arrive(running)
        if self._unreached:
            raise TransportError(_unreached_message(self._unreached))
        self._observer("stopped", None, {"reason": reason})
        return Outcome(self._population, reason, self._caller.warnings)

    async def _evolve(
        self,
        recorded: dict[int, Candidate],
        running: dict[int, asyncio.Task[Candidate]],
        deadline: float | None,
    ) -> str:
        """Settle slot after slot; why it ended. Leaves what is under way in ``running``."""
        for slot in range(self._settings.candidates):
            await self._score_again(slot)
            self._plan_from(slot, recorded, running)
            if slot in recorded:
                self._settle(recorded[slot], known=True)
                continue
            stopped = await self._stopped_before(slot, running, deadline)
            if stopped:
                return stopped
            try:
                candidate = running.pop(slot).result()
            except BudgetExceededError as error:
                return str(error)
            self._settle(candidate, known=False)
        await self._score_again(self._settings.candidates)
        return "complete"

    async def _score_again(self, slot: int) -> None:
        """Where generations have seeds of their own, and one begins: the elite on its seeds, too.

        After the last whole generation it is done once more, for nobody is to be the best by the
        luck of its own seeds. Everything before ``slot`` is settled.
        """
        width = self._settings.offspring
        if not self._settings.fresh_seeds or slot == 0 or slot % width:
            return
        elite = breeding_pool(self._population, self._settings).elite
        rescored = [
            self._cascade.rescore(candidate, slot // width, self._population) for candidate in elite
        ]
        self._again += await asyncio.gather(*rescored)
        self._population = self._population.updated(self._again)
        if not self._unreached:
            self._commit_again()

    async def _stopped_before(
        self, slot: int, running: dict[int, asyncio.Task[Candidate]], deadline: float | None
    ) -> str:
        """Wait for ``slot``; why the run stops before it is done, or an empty string.

        Raises:
            Exception: what went wrong in any slot, at once; but a budget's end waits for its turn.
        """
        patience_s, idle_since = self._settings.max_wait_s, math.inf
        while not running[slot].done():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if patience_s is not None:
                left = min(_LOOK_S, _LOOK_S if left is None else left)
            pending = [task for task in running.values() if not task.done()]
            done, _ = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = None if task.cancelled() else task.exception()
                if error is not None and not isinstance(error, BudgetExceededError):
                    raise error
            now = time.monotonic()
            if not done and deadline is not None and now >= deadline:
                return f"the wall-time budget of {self._settings.max_wall_s:g} s is used up"
            idle = not done and self._caller.waiting == len(pending)
            idle_since = min(idle_since, now) if idle else math.inf
            if patience_s is not None and now - idle_since >= patience_s:
                return f"{len(pending)} answers are waited for, and there is nothing else to do"
        return ""

    def _plan_from(
        self,
        slot: int,
        recorded: dict[int, Candidate],
        running: dict[int, asyncio.Task[Candidate]],
    ) -> None:
        """Start what may start now that everything before ``slot`` is settled.

        A slot is planned the moment the slot ``offspring`` places before it is settled, so against
        exactly the population that any other run would plan it against. While the last slot was
        lost to the route, nothing builds on it: a continuation may ask it again.
        """
        total, width = self._settings.candidates, self._settings.offspring
        settled = self._population.candidates
        lost = bool(settled) and settled[-1].is_lost
        for planned in range(slot, min(slot + width, total)):
            if planned in running or planned in recorded:
                continue
            if lost and planned > slot:
                return
            if self._unreached:  # and nothing else is under way
                raise TransportError(_unreached_message(self._unreached))
            plan = plan_slot(planned, self._population, self._settings)
            running[planned] = asyncio.create_task(self._develop(plan, self._population))

    async def _let_arrive(self, running: dict[int, asyncio.Task[Candidate]]) -> None:
        """Wait for answers that are under way and paid for, so that a continuation finds them.

        Answers in an exchange folder wait by themselves. A fault of the host is not passed over.
        """
        if self._settings.route != "openai":
            await _cancelled(running)
            return
        for result in await asyncio.gather(*running.values(), return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, BudgetExceededError):
                raise result

    def _settle(self, candidate: Candidate, *, known: bool) -> None:
        """Commit ``candidate`` and let it into the population; hold back a failing route's."""
        if not known and candidate.is_lost:
            self._unreached.append(candidate)
            if len(self._unreached) >= TRANSPORT_FAILURES:
                raise TransportError(_unreached_message(self._unreached))
        elif not known:
            self._commit_unreached()
            self._archive.record_candidate(candidate.slot, candidate.to_document())
        self._population = self._population.with_candidate(candidate)
        kind = "settled" if candidate.is_written else "seed"
        self._observer(kind, candidate.slot, {"candidate": candidate, "known": known})

    def _commit_unreached(self) -> None:
        for candidate in self._unreached:
            self._archive.record_candidate(candidate.slot, candidate.to_document())
        self._unreached.clear()
        self._commit_again()

    def _commit_again(self) -> None:
        for candidate in self._again:
            self._archive.record_rescore(
                candidate.slot, candidate.rescored[-1], candidate.to_document()
            )
        self._again.clear()

    async def _take_in(
        self,
        slot: int,
        name: str,
        program: Program,
        recorded: dict[int, Candidate],
        *,
        inspiration: bool,
    ) -> None:
        """Evaluate a first parent, unless an earlier session has, and settle it."""
        if slot in recorded:
            self._settle(recorded[slot], known=True)
            return
        assessment = await self._cascade.assess(slot, 0, program, self._population)
        candidate = Candidate(
            slot=slot,
            generation=-1,
            operator=name,
            parents=(),
            status=assessment.status,
            kind=assessment.kind,
            message=assessment.message,
            attempts=0,
            model="",
            program=program,
            feedback=assessment.feedback,
            inspiration=inspiration,
            behaviour=assessment.behaviour,
        )
        self._settle(candidate, known=False)

    async def _develop(self, plan: Plan, population: Population) -> Candidate:
        """Ask, parse, admit, evaluate, and ask for repairs; always a candidate in the end."""
        calls: list[Call] = []
        last: Attempt | None = None
        for number in range(self._settings.max_repairs + 1):
            operator: Operator = "repair" if last else plan.operator
            try:
                call = await self._caller.ask(plan, number, operator, population, last)
            except TransportError as error:
                last = Attempt(LOST, str(error), "")
                break
            calls.append(call)
            last = await self._try(plan, number, operator, call, population)
            if not last.kind:
                break
        assert last is not None  # max_repairs is at least 0
        return self._settled(plan, last, calls)

    def _settled(self, plan: Plan, last: Attempt, calls: Sequence[Call]) -> Candidate:
        """The candidate that the slot ends as."""
        answers = [call.answer for call in calls if call.answer is not None]
        prices = [self._caller.usd(call) for call in calls]
        known = [usd for usd in prices if usd is not None]
        assessment = last.assessment
        tuned = assessment.tuned if assessment and not last.kind else None
        return Candidate(
            slot=plan.slot,
            generation=plan.generation,
            operator=plan.operator,
            parents=tuple(parent.slot for parent in plan.parents),
            status=assessment.status if assessment and not last.kind else FAILED,
            kind=last.kind,
            message=last.message or (assessment.message if assessment else ""),
            attempts=len(calls),
            model=answers[-1].model if answers else "",
            program=tuned or last.program,
            feedback=assessment.feedback if assessment else None,
            asked_model=plan.model,
            tokens=sum(a.usage.prompt_tokens + a.usage.completion_tokens for a in answers),
            usd=sum(known) if calls and len(known) == len(prices) else None,
            behaviour=assessment.behaviour if assessment else (),
            answered=last.program if tuned else None,
        )

    async def _try(
        self, plan: Plan, attempt: int, operator: Operator, call: Call, population: Population
    ) -> Attempt:
        """Take one answer as far as it goes."""
        text = call.answer.text if call.answer else ""
        if call.problem is not None:
            return Attempt("refusal", call.problem, text)
        if call.answer is not None and call.answer.finish_reason == "length":
            cut = f"The answer was cut off after {self._settings.max_tokens} tokens: write less."
            return Attempt("truncated", cut, text)
        try:
            program = admit(parse_answer(text, operator, parent_views(plan)))
        except AnswerError as error:
            return Attempt(error.kind, str(error), text)
        twin = population.digests().get(program.digest)
        if twin is not None and self._settings.strategy != "independent":
            return Attempt(
                "duplicate",
                f"The program does the same as an earlier one ({twin.identifier}); "
                f"change what it does, not only how it is written.",
                text,
                program,
            )
        self._observer("evaluating", plan.slot, {"program": program})
        assessment = await self._cascade.assess(plan.slot, attempt, program, population)
        complaint = assessment.message if assessment.status == FAILED else ""
        return Attempt(assessment.kind, complaint, text, program, assessment)


def _unreached_message(lost: Sequence[Candidate]) -> str:
    return (
        f"the model could not be reached for {len(lost)} candidates in a row; the last error: "
        f"{lost[-1].message} The run is kept: continue it with --resume when the route works"
    )


async def _cancelled(running: dict[int, asyncio.Task[Candidate]]) -> None:
    for task in running.values():
        task.cancel()
    await asyncio.gather(*running.values(), return_exceptions=True)
