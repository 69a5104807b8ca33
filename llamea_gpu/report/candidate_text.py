"""A candidate in a few words, for tables and for the pointer."""

from __future__ import annotations

from llamea_gpu.evolution.candidate import PARTIAL, Candidate
from llamea_gpu.report.charts import label, score
from llamea_gpu.scoring import Measure


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


def status_text(candidate: Candidate, measure: Measure) -> str:
    """``P … ± …``, or how it ended."""
    if candidate.p is not None:
        return f"{measure.name} {score(candidate.p, candidate.standard_error)}"
    return "stopped early" if candidate.status == PARTIAL else f"failed: {candidate.kind}"
