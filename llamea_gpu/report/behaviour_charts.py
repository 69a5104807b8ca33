"""The map of behaviour and the diversity over a run."""

from __future__ import annotations

import numpy as np

from llamea_gpu.report.behaviour import BehaviourMap
from llamea_gpu.report.candidate_text import hover
from llamea_gpu.report.charts import (
    LEGEND,
    OPERATORS,
    Chart,
    Table,
    axis,
    figure,
    label,
    number,
    operator_style,
)
from llamea_gpu.scoring import Measure


def behaviour_map(behaviours: BehaviourMap, measure: Measure) -> Chart:
    """Candidates in the plane, near each other when they search alike."""
    traces = []
    brought = ("seed program", "inspiration")
    names = (*brought, *OPERATORS)
    own = [c.origin for c in behaviours.candidates]
    present = [n for n in names if n in own] + sorted(set(own) - set(names))
    for name in present:
        tone, symbol = ("@muted", "x") if name in brought else operator_style(name)
        here = [i for i, operator in enumerate(own) if operator == name]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label(name),
                "x": behaviours.place[here, 0].tolist(),
                "y": behaviours.place[here, 1].tolist(),
                "marker": {
                    "color": tone,
                    "symbol": symbol,
                    "size": [6 + 8 * max(0.0, behaviours.candidates[i].p or 0.0) for i in here],
                    "opacity": 0.85,
                    "line": {"width": 1, "color": "@paper"},
                },
                "hovertext": [hover(behaviours.candidates[i], measure) for i in here],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "customdata": [behaviours.candidates[i].slot for i in here],
            }
        )
    return Chart(
        key="behaviour-map",
        title="Map of behaviour",
        summary=f"Candidates that search alike lie close together; larger marks have a higher "
        f"{measure.name}. The two axes hold {100 * behaviours.explained:.0f} % of the spread, so "
        f"distances are approximate.",
        figure=figure(
            traces,
            x=axis("first axis of classical scaling", showticklabels=False),
            y=axis("second axis", showticklabels=False, scaleanchor="x"),
            height=440,
            legend=LEGEND,
            hovermode="closest",
        ),
        table=_behaviour_table(behaviours, measure),
    )


def novelty_chart(behaviours: BehaviourMap) -> Chart:
    """Distance to the nearest earlier candidate, and spread of the elite, over the run."""
    written = [i for i, c in enumerate(behaviours.candidates) if c.is_written]
    slots = [behaviours.candidates[i].slot for i in written]
    lines = (
        ("to the nearest earlier candidate", behaviours.novelty, "markers", "@s1", "solid"),
        ("mean within the elite", behaviours.elite_spread, "lines", "@s2", "solid"),
    )
    spread = [float(v) for v in behaviours.elite_spread[written] if np.isfinite(v)]
    sentence = (
        f"The elite's members are {spread[0]:.2f} apart on average when the first candidate is "
        f"settled, and {spread[-1]:.2f} at the end"
        if spread
        else "The elite has had no two members yet"
    )
    return Chart(
        key="novelty",
        title="Diversity over the run",
        summary=sentence + " (0: the same behaviour; 1: nothing in common).",
        figure=figure(
            [
                {
                    "type": "scatter",
                    "mode": mode,
                    "name": name,
                    "x": slots,
                    "y": [float(v) for v in values[written]],
                    "line": {"color": tone, "dash": dash, "width": 2, "shape": "hv"},
                    "marker": {"color": tone, "size": 7},
                    "customdata": slots,
                    "hovertemplate": "#%{x}: %{y:.3f}<extra></extra>",
                }
                for name, values, mode, tone, dash in lines
            ],
            x=axis("candidate"),
            y=axis("distance of behaviour", rangemode="tozero"),
            legend=LEGEND,
        ),
    )


def _behaviour_table(behaviours: BehaviourMap, measure: Measure) -> Table:
    rows = []
    for i, candidate in enumerate(behaviours.candidates):
        earlier = behaviours.distance[i, :i]
        nearest = behaviours.candidates[int(np.argmin(earlier))].identifier if i else "–"
        novelty = float(behaviours.novelty[i])
        rows.append((candidate.identifier, nearest, number(novelty), number(candidate.p)))
    return Table(
        caption="Behaviour of the candidates that were run",
        columns=("candidate", "nearest earlier", "distance to it", measure.name),
        rows=tuple(rows),
        text=frozenset({0, 1}),
    )
