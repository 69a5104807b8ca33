"""Reports: one self-contained HTML file of an evolution run or a bench.

What it does: reads an archive or a bench's results, computes what is shown, and renders
the page, in which Plotly (the extra ``report``) draws it and saves any chart as SVG.

What it does not do: score, judge or change anything. Everything a model wrote is data here: it is
escaped, and the page's own policy forbids every script but the two that belong to it.
"""

from llamea_gpu.report.output import LiveReport, read_source, write_comparison, write_report
from llamea_gpu.report.page import check_output

__all__ = ["LiveReport", "check_output", "read_source", "write_comparison", "write_report"]
