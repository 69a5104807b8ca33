"""Reports: one self-contained HTML file of an evolution run or a bench, and figures for papers.

What it does: reads an archive or a bench's results, computes what is shown, draws it (Plotly in the
page, Matplotlib for files), and renders the page. Both libraries are the extra ``report``; they are
imported when something is drawn.

What it does not do: score, judge or change anything. Everything a model wrote is data here: it is
escaped, and the page's own policy forbids every script but the two that belong to it.
"""

from llamea_gpu.report.live import LiveReport
from llamea_gpu.report.output import read_source, write_figures, write_report

__all__ = ["LiveReport", "read_source", "write_figures", "write_report"]
