"""The family tree: every candidate with edges from its parents, by score or by generation.

Node traces carry slots as ``customdata``; what a click or a key does is the page's business. The
last trace is empty: the page draws the selected candidate's lineage into the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llamea_gpu.evolution.candidate import FAILED, PARTIAL, Candidate
from llamea_gpu.report.charts import (
    LEGEND,
    Chart,
    Figure,
    axis,
    count,
    figure,
    label,
    lines,
    marks,
    number,
)
from llamea_gpu.report.run import Run, candidate_marks

# Below this P marks are drawn at it: one hopeless program must not flatten all the others.
LOWEST_SHOWN_P = -0.5
SEED_STEP = 1.2

Places = Mapping[int, tuple[float, float]]


def tree_by_score(run: Run) -> Chart:
    """x: order of slots (seeds on the left), y: P; without a score: lanes at the bottom."""
    scored = [_clipped(c) for c in run.population.candidates if c.p is not None]
    low, high = min(scored, default=0.0), max(scored, default=1.0)
    step = max(high - low, 0.1) * 0.09
    lanes = {PARTIAL: low - step, FAILED: low - 2 * step}
    places = {
        c.slot: (_x(c), _clipped(c) if c.p is not None else lanes[c.status])
        for c in run.population.candidates
    }
    used = {c.status for c in run.population.candidates if c.p is None}
    notes = [
        {"xref": "paper", "x": 1, "xanchor": "right", "y": lanes[status], "showarrow": False}
        | {"text": text, "font": {"size": 11, "color": "@muted"}, "yshift": 10}
        for status, text in ((PARTIAL, "stopped early"), (FAILED, "failed"))
        if status in used
    ]
    shown = figure(
        _traces(run, places),
        x=axis("candidate (seed programs to the left)", showgrid=False),
        y=axis(run.measure.name, range=[low - (2.7 if used else 0.7) * step, high + step]),
        annotations=notes,
        **_layout(run),
    )
    return Chart("tree", "Family tree", _sentence(run), shown, wide=True)


def tree_by_generation(run: Run) -> Figure:
    """The same tree with a row a generation, seeds on top."""
    rows: dict[int, list[Candidate]] = {}
    for candidate in run.population.candidates:
        rows.setdefault(max(-1, candidate.generation), []).append(candidate)
    widest = max(map(len, rows.values()), default=1)
    places: dict[int, tuple[float, float]] = {}
    for generation, row in rows.items():
        for index, candidate in enumerate(row):
            x = (index + 0.5) * widest / len(row)
            places[candidate.slot] = (x, float(generation))
    ticks = sorted(rows)
    return figure(
        _traces(run, places),
        x=axis("", showgrid=False, showticklabels=False),
        y=axis(
            "generation",
            autorange="reversed",
            tickvals=ticks,
            ticktext=["seeds" if g < 0 else str(g) for g in ticks],
            showgrid=False,
        ),
        **_layout(run),
    )


def _layout(run: Run) -> dict[str, Any]:
    return {
        "height": 460,
        "hovermode": "closest",
        "dragmode": "pan",
        "legend": LEGEND,
        "coloraxis": {
            "colorscale": "@sequential",
            "colorbar": {"title": {"text": run.measure.name}, "thickness": 12, "outlinewidth": 0},
        },
    }


def _x(candidate: Candidate) -> float:
    return float(candidate.slot) if candidate.is_written else SEED_STEP * candidate.slot - 0.5


def _clipped(candidate: Candidate) -> float:
    return max(candidate.p or 0.0, LOWEST_SHOWN_P)


def _traces(run: Run, places: Places) -> list[dict[str, Any]]:
    best = run.population.best()
    everyone = run.population.candidates
    lineage = run.lineage(best) if best else ()
    title = f"lineage of the best ({best.identifier})" if best and best.is_written else "lineage"
    groups = (
        ("seed program", "square", [c for c in everyone if not c.is_written and c.p is not None]),
        ("scored", "circle", [c for c in everyone if c.is_written and c.p is not None]),
        ("stopped early", "triangle-down-open", [c for c in everyone if c.status == PARTIAL]),
        ("failed", "x-thin-open", [c for c in everyone if c.status == FAILED]),
    )
    shown = [group for group in groups if group[2]]
    labelled_slots = {c.slot for c in lineage}
    nodes = [_nodes(run, *group, places, labelled_slots) for group in shown]
    nodes += [_legend_entry(name, symbol) for name, symbol, _ in shown]
    return [
        _edges("parent to child", run, everyone, places, "@edge", 1.0),
        _edges(title, run, lineage, places, "@s1", 2.2),
        *nodes,
        marks(
            "selected",
            (),
            (),
            marker={"symbol": "circle-open", "size": 22, "color": "@accent"}
            | {"line": {"width": 3, "color": "@accent"}},
            hoverinfo="skip",
            showlegend=False,
        ),
    ]


def _edges(
    name: str, run: Run, children: tuple[Candidate, ...], places: Places, tone: str, width: float
) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    for child in children:
        for parent in run.parents(child):
            (x0, y0), (x1, y1) = places[parent.slot], places[child.slot]
            x += [x0, x1, None]
            y += [y0, y1, None]
    return lines(name, x, y, line={"color": tone, "width": width}, hoverinfo="skip")


def _nodes(
    run: Run,
    name: str,
    symbol: str,
    group: list[Candidate],
    places: Places,
    labelled_slots: set[int],
) -> dict[str, Any]:
    marker: dict[str, Any] = {"symbol": symbol, "size": 12, "line": {"width": 1, "color": "@paper"}}
    if group and group[0].p is not None:
        marker |= {"color": [_clipped(c) for c in group], "coloraxis": "coloraxis"}
        marker["line"] = {"width": 0.8, "color": "@ink"}
    else:
        marker |= {"color": "@muted", "line": {"width": 2, "color": "@muted"}, "size": 10}
    return candidate_marks(
        name,
        group,
        run.measure,
        [places[c.slot][0] for c in group],
        [places[c.slot][1] for c in group],
        mode="markers+text",
        marker=marker,
        text=[label(c.identifier) if c.slot in labelled_slots else "" for c in group],
        textposition="top center",
        textfont={"size": 10},
        legendgroup=name,
        showlegend=False,
    )


def _legend_entry(name: str, symbol: str) -> dict[str, Any]:
    """Plotly 4 cannot draw the legend of marks that are coloured by a number."""
    marker = {"symbol": symbol, "size": 10, "color": "@muted", "line": {"width": 1}}
    return marks(name, [None], [None], marker=marker, legendgroup=name)


def _sentence(run: Run) -> str:
    edges = sum(len(run.parents(c)) for c in run.written)
    low = [c for c in run.population.candidates if c.p is not None and c.p < LOWEST_SHOWN_P]
    text = (
        f"{count(len(run.population.candidates), 'candidate')} with "
        f"{count(edges, 'parent link')}; lighter or darker marks by {run.measure.name}, and "
        f"their shape says whether a candidate is a seed program, scored, stopped early or failed."
    )
    best = run.population.best()
    if best is not None and best.is_written:
        chain = run.lineage(best)
        written = [c.identifier for c in chain if c.is_written]
        text += f" The line of the best, {best.identifier}: {', '.join(written)}."
    if low:
        lowest = f"{run.measure.name} {number(LOWEST_SHOWN_P, 1)}"
        text += f" {count(len(low), 'mark')} below {lowest} stand at it."
    return text
