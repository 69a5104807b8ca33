"""Plotly figures for notebooks: how searches and benches came near the best. Not here: pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llamea_gpu.report.page import require_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as Figure


@dataclass(frozen=True, slots=True)
class Line:
    """A curve with its name; ``low`` and ``high``, where given, are the edges of its band."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def line_figure(
    lines: Sequence[Line],
    *,
    title: str,
    x_title: str,
    y_title: str,
    levels: Sequence[tuple[str, float]] = (),
    steps: bool = False,
) -> Figure:
    """A figure of ``lines``; ``levels`` are horizontal lines with names, for comparison.

    Raises:
        LlameaGpuError: the extra ``report`` is not installed.
    """
    require_plotly()
    from plotly.colors import qualitative
    from plotly.graph_objects import Figure, Scatter

    colors = qualitative.Plotly
    figure = Figure()
    shape = "hv" if steps else "linear"
    for place, line in enumerate(lines):
        color = colors[place % len(colors)]
        common: dict[str, Any] = {"legendgroup": line.name, "mode": "lines"}
        if line.low is not None and line.high is not None:
            red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
            figure.add_trace(
                Scatter(
                    x=[*line.x, *reversed(line.x)],
                    y=[*line.high, *reversed(line.low)],
                    fill="toself",
                    fillcolor=f"rgba({red},{green},{blue},.15)",
                    line={"width": 0},
                    hoverinfo="skip",
                    showlegend=False,
                    **common,
                )
            )
        figure.add_trace(
            Scatter(
                x=list(line.x),
                y=list(line.y),
                name=line.name,
                line={"shape": shape, "color": color},
                **common,
            )
        )
    for name, value in levels:
        figure.add_hline(y=value, line_dash="dot", line_width=1, annotation_text=name)
    figure.update_layout(
        title=title, xaxis_title=x_title, yaxis_title=y_title, template="plotly_white"
    )
    return figure
