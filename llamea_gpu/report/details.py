"""What the page shows of one candidate: programs, diffs, prompts, answers, scores, convergence.

Texts repeat each other (a prompt holds its parents' programs, a program most lines of its parent),
so every line is kept once and a text is a list of line numbers. A run of 200 candidates stays far
below the texts' own size.

It does not render: the result is JSON, and the page turns it into text nodes.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.archive import Call
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.spending import Spending
from llamea_gpu.prompting.feedback import weak_points
from llamea_gpu.report.charts import plain_json
from llamea_gpu.report.run import Run
from llamea_gpu.tasks import Trace

CURVE_POINTS = 60
CONTEXT_LINES = 3
# Two programs longer than this are not compared: the comparison takes time by their product.
MAX_DIFF_LINES = 3_000
# A line as long as this is no program; the page says that it was cut.
MAX_LINE = 2_000

FloatArray = NDArray[np.float64]


class Lines:
    """Texts as numbers of distinct lines."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}

    def add(self, text: str) -> list[int]:
        """The line numbers of ``text``."""
        number = self._number
        return [number.setdefault(_cut(line), len(number)) for line in text.split("\n")]

    def all(self) -> list[str]:
        """Every line once, by its number."""
        return list(self._number)


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} … ({len(line):,} characters)"


def run_details(run: Run) -> dict[str, Any]:
    """``{"lines": […], "candidates": […], "axes": {space: …}}``, ready for JSON."""
    lines = Lines()
    calls: dict[int, list[tuple[Call, Spending]]] = {}
    for call, spent in zip(run.calls, run.spending, strict=True):
        calls.setdefault(call.slot, []).append((call, spent))
    axes = {space: _axis(run, space) for space in _spaces(run)}
    best_ms = {space: _best_ms(run, space) for space in axes}
    candidates = [
        {
            **_identity(candidate),
            "parents": [_parent(candidate, parent) for parent in run.parents(candidate)],
            "source": lines.add(candidate.program.source) if candidate.program else None,
            "spaces": list(map(asdict, candidate.feedback.spaces)) if candidate.feedback else (),
            "feedback": weak_points(candidate.feedback) if candidate.feedback else (),
            "calls": [_call(lines, *pair) for pair in calls.get(candidate.slot, ())],
            "curves": {
                space: median_regret(traces, axes[space], best_ms[space]).round(4).tolist()
                for space, traces in run.traces[candidate.slot].items()
            },
        }
        for candidate in run.population.candidates
    ]
    document = {
        "measure": run.measure.name,
        "candidates": candidates,
        "axes": {space: (axis / axis[-1]).tolist() for space, axis in axes.items()},
        "lines": lines.all(),
    }
    plain: dict[str, Any] = plain_json(document)
    return plain


def _identity(candidate: Candidate) -> dict[str, Any]:
    program = candidate.program
    return {
        "slot": candidate.slot,
        "id": candidate.identifier,
        "operator": candidate.origin,
        "generation": candidate.generation,
        "status": candidate.status,
        "kind": candidate.kind,
        "message": candidate.message,
        "model": candidate.model,
        "attempts": candidate.attempts,
        "p": candidate.p,
        "error": candidate.standard_error,
        "idea": program.idea if program else "",
        "class": program.class_name if program else "",
        "hyperparameters": [[n, repr(v)] for n, v in program.hyperparameters] if program else [],
        "length": len(program.source.splitlines()) if program else 0,
    }


def _parent(candidate: Candidate, parent: Candidate) -> dict[str, Any]:
    """A parent and, where both have programs, the difference as groups of difflib's opcodes."""
    groups = None
    before = parent.program.source.split("\n") if parent.program else []
    after = candidate.program.source.split("\n") if candidate.program else []
    if before and after and max(len(before), len(after)) <= MAX_DIFF_LINES:
        matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
        tags = {"equal": 0, "replace": 1, "delete": 1, "insert": 1}
        groups = [
            [[tags[tag], *span] for tag, *span in group]
            for group in matcher.get_grouped_opcodes(CONTEXT_LINES)
        ]
    return {"slot": parent.slot, "id": parent.identifier, "p": parent.p, "diff": groups}


def _call(lines: Lines, call: Call, spent: Spending) -> dict[str, Any]:
    answer = call.answer
    return {
        "operator": call.operator,
        "model": spent.model,
        "messages": [[m.role, lines.add(m.content)] for m in call.request.messages],
        "answer": lines.add(answer.text) if answer else None,
        "problem": call.problem,
        "finish": answer.finish_reason if answer else None,
        "prompt_tokens": spent.prompt_tokens,
        "completion_tokens": spent.completion_tokens,
        "usd": spent.usd,
    }


def _spaces(run: Run) -> list[str]:
    names = dict.fromkeys(space for traces in run.traces.values() for space in traces)
    return [space for space in names if np.isfinite(_best_ms(run, space))]


def _every_trace(run: Run, space: str) -> list[Trace]:
    return [trace for own in run.traces.values() for trace in own.get(space, ())]


def _axis(run: Run, space: str) -> FloatArray:
    ends = [float(t.elapsed_s[-1]) for t in _every_trace(run, space) if t.elapsed_s.size]
    return np.linspace(0.0, max(ends), CURVE_POINTS, dtype=np.float64)


def _best_ms(run: Run, space: str) -> float:
    return min((trace.best_ms for trace in _every_trace(run, space)), default=np.inf)


def median_regret(traces: Sequence[Trace], axis: FloatArray, best_ms: float) -> FloatArray:
    """(points,) median over ``traces`` of best so far / ``best_ms`` - 1.

    It is inf while fewer than half the runs have a result.
    """
    best_ms_by_run = []
    for trace in traces:
        best = np.concatenate([[np.inf], np.minimum.accumulate(trace.cost_ms)])
        best_ms_by_run.append(best[np.searchsorted(trace.elapsed_s, axis, side="right")])
    # Not the mean of the two middle ones, which is inf while one of them is.
    middle: FloatArray = np.sort(best_ms_by_run, axis=0)[(len(best_ms_by_run) - 1) // 2]
    return middle / best_ms - 1
