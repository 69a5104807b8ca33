"""What a user sees of a run: a live panel on a terminal, a line an event elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from llamea_gpu.cli.text import cell
from llamea_gpu.evolution.calls import Observer
from llamea_gpu.evolution.candidate import FAILED, PARTIAL, Candidate
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.llm import Ledger, RunEstimate, Totals
from llamea_gpu.scoring import MODELLED, Measure

SHOWN_CANDIDATES = 10


class Several:
    """Passes what happens on to each of several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def notify(self, kind: str, slot: int | None, detail: dict[str, Any]) -> None:
        """Tell all of them, in order."""
        for observer in self._observers:
            observer.notify(kind, slot, detail)


class RunView:
    """Observes a run and renders it; use as a context manager around the run."""

    def __init__(
        self, settings: EvolutionSettings, measure: Measure, console: Console, *, plain: bool
    ) -> None:
        self._settings = settings
        self._measure = measure
        self._console = console
        self._live = None if plain else Live(console=console, refresh_per_second=4)
        self._ledger: Ledger | None = None
        self._started = time.monotonic()
        self._settled: list[Candidate] = []
        self._seeds: list[Candidate] = []
        self._stages: dict[int, str] = {}
        self._new_this_session = 0

    def __enter__(self) -> RunView:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.update(self._render())
            self._live.stop()

    def notify(self, kind: str, slot: int | None, detail: dict[str, Any]) -> None:
        """Take in one event of the loop."""
        if kind == "started":
            self._ledger = detail["ledger"]
            if detail.get("estimate"):
                self._console.print(f"estimate: {estimate_text(detail['estimate'])}")
        elif kind == "seed":
            self._seeds.append(detail["candidate"])
        elif kind == "settled" and slot is not None:
            self._settled.append(detail["candidate"])
            self._new_this_session += not detail["known"]
            self._stages.pop(slot, None)
        elif slot is not None:
            self._stages[slot] = kind
        if self._live:
            self._live.update(self._render())
        elif kind in ("seed", "settled"):
            line = _line(detail["candidate"], self._measure)
            self._console.print(line, highlight=False, soft_wrap=True)
        elif kind == "stopped" and detail["reason"] != "complete":
            self._console.print(f"stopped: {detail['reason']}", highlight=False)

    def _render(self) -> Panel:
        total = self._settings.candidates
        scored = [c for c in (*self._seeds, *self._settled) if c.p is not None]
        best = max(scored, key=lambda c: (c.p or 0.0, -c.slot), default=None)
        facts = Table.grid(padding=(0, 2))
        facts.add_row("generation", str(len(self._settled) // self._settings.offspring))
        seeds = len(self._settings.seed_programs) + len(self._settings.inspirations)
        if len(self._seeds) < seeds:
            facts.add_row("scoring seeds", f"{len(self._seeds)} of {seeds}")
        facts.add_row("candidates", f"{len(self._settled)} of {total}")
        if best is not None:
            scored_as = f"{self._measure.name} {best.p:.3f} ± {best.standard_error:.3f}"
            facts.add_row("best", f"{cell(best.identifier)}  {scored_as}")
        stages = Counter(self._stages.values())
        facts.add_row("in flight", ", ".join(f"{n} {name}" for name, n in sorted(stages.items())))
        kinds = Counter(c.kind for c in self._settled if c.status == FAILED)
        facts.add_row("failed", ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()) or "-")
        if self._ledger is not None:
            facts.add_row("spent", spent_text(self._ledger.totals))
        facts.add_row("time", self._time_left(total))
        table = Table(expand=True)
        for column in ("candidate", "operator", f"{self._measure.name} ± s.e.", "idea or failure"):
            table.add_column(column, no_wrap=column != "idea or failure")
        for candidate in self._settled[-SHOWN_CANDIDATES:]:
            table.add_row(*_cells(candidate))
        return Panel(Group(facts, table), title="llamea-gpu evolve")

    def _time_left(self, total: int) -> str:
        elapsed = time.monotonic() - self._started
        text = f"{elapsed:.0f} s"
        if self._new_this_session:
            left = elapsed / self._new_this_session * (total - len(self._settled))
            text += f", about {left:.0f} s left"
        return text


def estimate_text(found: RunEstimate) -> str:
    """What a run costs at most, in a sentence."""
    text = (
        f"at most {found.requests} requests before repairs, {found.prompt_tokens:,} prompt and "
        f"{found.completion_tokens:,} completion tokens"
    )
    text += f", {found.usd:.2f} USD" if found.usd is not None else "; the model has no known price"
    if found.affordable_requests is not None:
        text += f"; the caps allow {found.affordable_requests} requests for certain"
    return text


def spent_text(totals: Totals) -> str:
    """Requests, tokens and money in a few words."""
    text = f"{totals.requests} answers, {totals.tokens:,} tokens"
    if totals.estimated_requests:
        text += f" ({totals.estimated_requests} estimated)"
    if totals.usd:
        text += f", {totals.usd:.4f} USD"
    if totals.unpriced_requests:
        text += f" ({totals.unpriced_requests} answers without a price)"
    return text


def _cells(candidate: Candidate) -> tuple[str, str, str, str]:
    if candidate.p is not None:
        score = f"{candidate.p:.3f} ± {candidate.standard_error:.3f}"
    else:
        score = "stopped early" if candidate.status == PARTIAL else "failed"
    idea = candidate.program.idea if candidate.program else ""
    text = f"{candidate.kind}: {candidate.reason}" if candidate.kind else idea
    return cell(candidate.identifier), cell(candidate.operator), score, cell(text)


def _line(candidate: Candidate, measure: Measure) -> str:
    name, operator, score, text = _cells(candidate)
    if measure is MODELLED and candidate.p is not None:
        score = f"modelled {score}"
    return (
        f"{name:>4}  {operator:10}  {score:15}  {text}"
        if candidate.is_written
        else (f"seed  {operator:24}  {score}")
    )
