"""An evolution run as its archive tells it: candidates, calls, what each cost, and the traces.

Everything is read; nothing is drawn here, though a candidate is told in a few words. A folder may
come from elsewhere, so parents are followed only to earlier candidates that exist.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamea_gpu.archive import Archive, Call, Event
from llamea_gpu.errors import ArchiveError
from llamea_gpu.evolution.candidate import PARTIAL, Candidate
from llamea_gpu.evolution.population import Population, settled_traces
from llamea_gpu.evolution.settings import EvolutionSettings, recorded_settings
from llamea_gpu.evolution.spending import Spending, spent_on
from llamea_gpu.evolution.training_spaces import TrainingSpace, training_spaces
from llamea_gpu.llm import Ledger, Price
from llamea_gpu.report.charts import label, marks, score
from llamea_gpu.scoring import Measure, measure_of
from llamea_gpu.tasks import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run. ``traces`` are by slot and space, of the attempt that settled the slot.

    ``spaces`` are what scores are of; empty of an older run, which was on recordings.
    ``ended`` says why the last session stopped; it is empty while none has.
    """

    created: str
    version: str
    sandbox_level: int | None
    ended: str
    settings: EvolutionSettings
    population: Population
    calls: tuple[Call, ...]
    spending: tuple[Spending, ...]
    traces: Mapping[int, Mapping[str, tuple[Trace, ...]]]
    spaces: tuple[TrainingSpace, ...] = ()

    @property
    def measure(self) -> Measure:
        """What its scores are called."""
        return measure_of(any(space.modelled for space in self.spaces))

    @property
    def written(self) -> tuple[Candidate, ...]:
        """Candidates that a model wrote, by slot."""
        return self.population.written().candidates

    @property
    def priced(self) -> bool:
        """Whether every call has a price, so that dollars tell the whole cost."""
        return bool(self.spending) and all(item.usd is not None for item in self.spending)

    def parents(self, candidate: Candidate) -> tuple[Candidate, ...]:
        """The parents that are settled and earlier: a foreign archive may claim others."""
        known = {c.slot: c for c in self.population.candidates}
        slots = dict.fromkeys(candidate.parents)
        return tuple(known[s] for s in slots if s in known and s < candidate.slot)

    def lineage(self, candidate: Candidate) -> tuple[Candidate, ...]:
        """The candidate and all its ancestors, by slot."""
        family: dict[int, Candidate] = {}
        waiting = [candidate]
        while waiting:
            current = waiting.pop()
            if current.slot not in family:
                family[current.slot] = current
                waiting += self.parents(current)
        return tuple(family[slot] for slot in sorted(family))


def read_run(folder: Path, prices: Mapping[str, Price]) -> Run:
    """Read the run in ``folder``; ``prices`` by model name turn its tokens into dollars.

    Raises:
        ArchiveError: the folder holds no run, or a damaged one.
        SettingsError: its settings are of another version.
    """
    with closing(Archive.open(folder, read_only=True)) as archive:
        facts = archive.facts
        if "settings" not in facts:
            raise ArchiveError(f"{archive.path} must hold the run's settings, but does not")
        population = Population.read(archive)
        calls = tuple(archive.calls())
        sessions = [event for event in archive.events() if event.kind in ("session", "stopped")]
        levels = [e.detail.get("sandbox_level") for e in sessions if e.kind == "session"]
        last = sessions[-1] if sessions else None
        return Run(
            created=facts.get("created", ""),
            version=facts.get("program_version", ""),
            sandbox_level=levels[-1] if levels and isinstance(levels[-1], int) else None,
            ended=str(last.detail.get("reason", "")) if last and last.kind == "stopped" else "",
            settings=_settings(facts["settings"], sessions),
            population=population,
            calls=calls,
            spending=tuple(spent_on(calls, Ledger(prices))),
            traces={c.slot: settled_traces(archive, c) for c in population.candidates},
            spaces=training_spaces(facts),
        )


def _settings(recorded: str, sessions: Sequence[Event]) -> EvolutionSettings:
    """Those of the last session, which may have changed budgets; else those of the run's start."""
    latest = [e.detail["settings"] for e in sessions if e.detail.get("settings")]
    return recorded_settings(json.dumps(latest[-1]) if latest else recorded)


def hover(candidate: Candidate, measure: Measure) -> str:
    """A candidate in a few lines, for the pointer."""
    lines = [f"<b>{label(candidate.identifier)}</b> {label(status_text(candidate, measure))}"]
    if candidate.is_written:
        lines.append(label(candidate.operator))
    idea = candidate.program.idea if candidate.program else candidate.reason
    words: list[str] = []
    for word in idea[:160].split():
        if words and len(words[-1]) + len(word) < 48:
            words[-1] += f" {word}"
        else:
            words.append(word[:60])
    return "<br>".join([*lines, *map(label, words)])


def candidate_marks(
    name: str,
    candidates: Sequence[Candidate],
    measure: Measure,
    x: Sequence[float],
    y: Sequence[float],
    **more: Any,
) -> dict[str, Any]:
    """A trace with a mark for each candidate, which tells of it and opens it."""
    return marks(
        label(name),
        x,
        y,
        hovertext=[hover(candidate, measure) for candidate in candidates],
        hovertemplate="%{hovertext}<extra></extra>",
        customdata=[candidate.slot for candidate in candidates],
        **more,
    )


def status_text(candidate: Candidate, measure: Measure) -> str:
    """``P … ± …``, or how it ended."""
    if candidate.p is not None:
        return f"{measure.name} {score(candidate.p, candidate.standard_error)}"
    return "stopped early" if candidate.status == PARTIAL else f"failed: {candidate.kind}"
