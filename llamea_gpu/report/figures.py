"""The report's charts as Plotly figures, for notebooks. Not here: pages."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from llamea_gpu.report import charts
from llamea_gpu.report.page import ASSETS, require_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as Figure


def notebook_figure(figure: charts.Figure, title: str) -> Figure:
    """``figure`` in the page's light colours.

    Raises:
        LlameaGpuError: the extra ``report`` is not installed.
    """
    require_plotly()
    from plotly.graph_objects import Figure

    light = (ASSETS / "style.css").read_text(encoding="utf-8").partition("}")[0]
    colours = dict(re.findall(r"--(\w+): #([0-9a-f]{6})", light))

    def painted(token: re.Match[str]) -> str:
        red, green, blue = bytes.fromhex(colours[token[1]])
        return f'"rgba({red},{green},{blue},{int(token[2] or 100) / 100:g})"'

    tokens = rf'"@({"|".join(colours)})(?:/(\d+))?"'
    spec = json.loads(re.sub(tokens, painted, json.dumps(figure)))
    return Figure(spec).update_layout(title=title, template="plotly_white")
