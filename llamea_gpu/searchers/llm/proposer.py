"""`LLMProposer`: a searcher that asks a model for configurations while it tunes.

    request 1 ──────────────► answer ─► measure ─► request 2 (with results) ──► answer ─► …
    default, random ones measured

It ends after its rounds, or earlier when they bring nothing more. When its models cannot be reached
or answer nothing of use, the fallback searcher goes on with everything that was measured.

On a recording, time is simulated: a request takes none of it unless ``latency_s`` says how much.
Not here: the prompts (`llamea_gpu.prompting.proposer`) and what an answer means (`proposals`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu.contract import (
    Configuration,
    Evaluate,
    Optimizer,
    SimulatesTime,
    Space,
    facts_of,
    failure_of,
    measured_in,
)
from llamea_gpu.llm import ChatRequest, Ledger, Message, make_client, save_recording
from llamea_gpu.prompting.proposer import Progress, SpaceDescription, render_proposer
from llamea_gpu.searchers.library import DescribedSpace
from llamea_gpu.searchers.llm.conversation import Conversation, Reply
from llamea_gpu.searchers.llm.history import History
from llamea_gpu.searchers.llm.layout import Layout
from llamea_gpu.searchers.llm.proposals import Proposals, parse_proposals
from llamea_gpu.searchers.llm.settings import ProposerSettings, prices, record_folder, route_options
from llamea_gpu.searchers.llm.workload import workload_of

_MOST_EMPTY_ROUNDS = 2


class LLMProposer:
    """A searcher under the contract. ``fallback`` may be None: then it ends where models fail.

    ``trouble`` says after a run what it went on in spite of.
    """

    def __init__(self, settings: ProposerSettings, fallback: Optimizer | None) -> None:
        self._settings = settings
        self._fallback = fallback
        self.trouble: str | None = None

    def __call__(self, evaluate: Evaluate, space: Space, rng: np.random.Generator) -> None:
        """Propose until the rounds or the budget end.

        Raises:
            BudgetExhausted: the budget has ended.
            SearcherError: the route's variables are not set.
            UnseenPromptError: a replay does not hold a prompt.
        """
        run = _Run(self._settings, evaluate, space, rng)
        try:
            run.search()
        finally:
            run.close()
            self.trouble = run.trouble or None
        if run.degraded and self._fallback is not None:
            begun = DescribedSpace(space, facts_of(space), run.history.best_first())
            self._fallback(evaluate, begun, rng)


class _Run:
    """One run: the state between a search's rounds."""

    def __init__(
        self,
        settings: ProposerSettings,
        evaluate: Evaluate,
        space: Space,
        rng: np.random.Generator,
    ) -> None:
        self._settings = settings
        facts = facts_of(space)
        self._workload = workload_of(
            facts.info, evaluate.parallel, device=facts.device, notes=facts.notes
        )
        self._evaluate = evaluate
        self._space = space
        self._layout = Layout(space)
        self.history = History(self._layout)
        self.history.default = facts.default
        self._description: SpaceDescription = self._layout.describe(self.history.default)
        self._named = facts.info.name if facts.info else self._workload.kernel
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", self._named)[:60]
        self.run_id = f"{slug}-{int(rng.integers(2**32)):08x}-{settings.digest}"
        self._record_name = "-".join(filter(None, (self.run_id, settings.tag)))
        options = route_options(settings.route, self._record_name)
        record_folder()  # one that cannot be made is to be known before anything is spent
        self._conversation = Conversation(make_client(options), Ledger(prices(), settings.caps))
        self.rounds: list[dict[str, Any]] = []
        self.trouble = ""
        self._asked_at_s = 0.0
        self.degraded = False

    def search(self) -> None:
        """All rounds."""
        pending = self._begin()
        dull = empty = 0
        for number in range(1, self._settings.rounds + 1):
            replies = self._received(pending)
            if not self._can_go_on(replies):
                return
            proposals = self._read(replies)
            before_ms = self.history.best_ms
            self._measure(proposals.configs)
            gain = _gain(before_ms, self.history.best_ms)
            self._note(number, replies, proposals)
            empty = 0 if proposals.configs else empty + 1
            if proposals.configs:  # otherwise there was nothing that could gain
                dull = dull + 1 if gain < self._settings.min_gain else 0
            if empty >= _MOST_EMPTY_ROUNDS or (empty and number == self._settings.rounds == 1):
                self._degrade("its last answers held nothing to measure", replies)
                return
            if dull >= self._settings.patience or self._everything_is_known():
                return
            if number < self._settings.rounds:
                pending = self._ask_to_refine(number + 1, gain, proposals)

    def close(self) -> None:
        """End the conversation, and keep it where the environment says."""
        self._conversation.close()
        folder = record_folder()
        if folder is not None:
            self._record(folder)

    def _begin(self) -> Future[list[Reply]]:
        """The first request, and what is measured while it is under way."""
        known = list(measured_in(self._space))
        if known:  # another search has begun: it paid for these
            self._measure(known)
            return self._ask_to_refine(1, 0.0, Proposals())
        pending = self._ask(1, None)
        start = [] if self.history.default is None else [self.history.default]
        if self._settings.initial:
            start += self._space.sample(self._settings.initial)
        self._measure(list(dict.fromkeys(start)))  # one batch: they compile side by side
        return pending

    @property
    def _wanted(self) -> int:
        """Configurations that one request asks for."""
        return -(-self._settings.batch // len(self._settings.entrants))

    def _ask_to_refine(self, number: int, gain: float, proposals: Proposals) -> Future[list[Reply]]:
        progress = self.history.progress(
            number=number,
            rounds=self._settings.rounds,
            gain=gain if number > 1 else None,
            last=proposals.configs,
            notes=proposals.notes,
        )
        return self._ask(number, progress)

    def _ask(self, number: int, progress: Progress | None) -> Future[list[Reply]]:
        settings = self._settings
        prompt = render_proposer(self._workload, self._description, self._wanted, progress)
        if isinstance(self._evaluate, SimulatesTime):
            self._asked_at_s = self._evaluate.now_s
        messages = (Message("system", prompt[0]), Message("user", prompt[1]))
        schema = self._layout.schema(self._wanted) if settings.structured else None
        requests = []
        for place, (model, temperature) in enumerate(settings.entrants):
            request = ChatRequest(
                request_id="",
                model=model,
                messages=messages,
                temperature=temperature,
                max_tokens=settings.max_tokens,
                response_schema=schema,
            )
            identity = f"{model}/{temperature}/{request.key}"
            digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
            request_id = f"{self.run_id}-r{number}-{place + 1}-{digest}"
            requests.append(replace(request, request_id=request_id))
        return self._conversation.ask(requests)

    def _received(self, pending: Future[list[Reply]]) -> list[Reply]:
        replies = pending.result()
        if self._settings.latency_s and isinstance(self._evaluate, SimulatesTime):
            self._evaluate.wait_until(self._asked_at_s + self._settings.latency_s)
        return replies

    def _can_go_on(self, replies: Sequence[Reply]) -> bool:
        """Whether some model is still there; notes what is not."""
        outcomes = {reply.outcome for reply in replies}
        if outcomes & {"answer", "refused"}:
            return True
        if outcomes == {"capped"}:
            self.trouble = replies[0].problem
        else:
            self._degrade("the models could not be reached", replies)
        return False

    def _degrade(self, why: str, replies: Sequence[Reply]) -> None:
        self.degraded = True
        problems = "; ".join(dict.fromkeys(reply.problem for reply in replies if reply.problem))
        self.trouble = f"llm: {why}{': ' + problems if problems else ''}"

    def _read(self, replies: Sequence[Reply]) -> Proposals:
        """What all answers of a round propose, the first ones of each first."""
        anchor = self.history.best or self.history.default
        read: list[Proposals] = []
        for reply in replies:
            if reply.outcome == "answer" and reply.answer is not None:
                read.append(
                    parse_proposals(
                        reply.answer.text,
                        self._layout,
                        anchor=anchor,
                        measured=self.history.costs_ms,
                        most=self._wanted,
                    )
                )
        return _merged(read)

    def _measure(self, configs: Sequence[Configuration]) -> None:
        if not configs:
            return
        costs_ms = self._evaluate(list(configs))
        reasons = [
            None if math.isfinite(cost_ms) else failure_of(self._evaluate, config)
            for config, cost_ms in zip(configs, costs_ms, strict=True)
        ]
        self.history.add(configs, costs_ms, reasons)

    def _everything_is_known(self) -> bool:
        return self._space.size is not None and len(self.history.costs_ms) >= self._space.size

    def _note(self, number: int, replies: Sequence[Reply], proposals: Proposals) -> None:
        """For the record; tokens and dollars are the run's so far."""
        totals, best_ms = self._conversation.ledger.totals, self.history.best_ms
        self.rounds.append(
            {
                "number": number,
                "proposed": len(proposals.configs),
                "notes": proposals.notes,
                "problems": [reply.problem for reply in replies if reply.problem],
                "measured": len(self.history.costs_ms),
                "best_ms": best_ms if math.isfinite(best_ms) else None,
                "tokens": totals.tokens,
                "usd": str(totals.usd),
            }
        )

    def _record(self, folder: Path) -> None:
        save_recording(folder / f"{self._record_name}.jsonl", self._conversation.exchanges)
        document: dict[str, Any] = {
            "run_id": self.run_id,
            "space": self._named,
            "settings": asdict(self._settings),
            "trouble": self.trouble,
            "warnings": self._conversation.client.warnings,
            "rounds": self.rounds,
        }
        text = json.dumps(document, ensure_ascii=False, indent=1)
        path = folder / f"{self._record_name}.rounds.json"
        path.write_text(text + "\n", encoding="utf-8")


def _merged(read: Sequence[Proposals]) -> Proposals:
    """Several answers as one: configurations in turns, each once."""
    turns = [
        each.configs[i]
        for i in range(max((len(each.configs) for each in read), default=0))
        for each in read
        if i < len(each.configs)
    ]
    return Proposals(
        tuple(dict.fromkeys(turns)),
        tuple(text for each in read for text in each.repaired),
        tuple(rejection for each in read for rejection in each.rejected),
    )


def _gain(before_ms: float, after_ms: float) -> float:
    """Relative improvement; 1 where nothing worked before."""
    if not math.isfinite(before_ms):
        return 1.0 if math.isfinite(after_ms) else 0.0
    return 1.0 - after_ms / before_ms
