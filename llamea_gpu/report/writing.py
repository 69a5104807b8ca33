"""Writes reports and figures: what ``llamea-gpu report`` does.

A folder is told by what it holds: an archive is an evolution run, a summary is a bench.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from llamea_gpu.archive import FILE_NAME
from llamea_gpu.bench.results import SUMMARY, BenchResults
from llamea_gpu.errors import LlameaGpuError
from llamea_gpu.llm import Price, load_prices
from llamea_gpu.report.bench_page import bench_page
from llamea_gpu.report.charts import Page
from llamea_gpu.report.page import render_page
from llamea_gpu.report.run import read_run
from llamea_gpu.report.run_page import run_page
from llamea_gpu.spaces.formats._files import write_atomically


def write_report(
    source: Path, output: Path, *, prices: Mapping[str, Price] | None = None, running: str = ""
) -> int:
    """Write the report of the run or bench in ``source`` to ``output``, as a whole or not at all.

    ``prices`` by model name default to the shipped table. ``running`` marks a run under way.

    Returns:
        The size of the file in bytes.

    Raises:
        LlameaGpuError: ``source`` is neither, is damaged, or the extra ``report`` is missing.
    """
    data = render_page(_page(source, prices, running)).encode()
    write_atomically(output, lambda temporary: _fill(temporary, data))
    return len(data)


def _page(source: Path, prices: Mapping[str, Price] | None, running: str) -> Page:
    if (source / FILE_NAME).is_file():
        return run_page(read_run(source, load_prices() if prices is None else prices), running)
    if (source / SUMMARY).is_file():
        return bench_page(BenchResults.load(source), source.resolve().name)
    raise LlameaGpuError(
        f"a report is of a folder that 'evolve -o' wrote (it holds {FILE_NAME}) or 'bench -o' "
        f"({SUMMARY}), but {source} holds neither: name another folder"
    )


def _fill(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def require_plotting() -> None:
    """Check that reports can be drawn, before anything long begins."""
    from llamea_gpu.report.page import require_plotly

    require_plotly()
