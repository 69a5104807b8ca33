"""Writes reports: what ``llamea-gpu report`` does.

A folder is told by what it holds: an archive is an evolution run, a summary is a bench.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from llamea_gpu.archive import FILE_NAME
from llamea_gpu.bench.rescoring import Rescored
from llamea_gpu.bench.results import SUMMARY, BenchResults
from llamea_gpu.bench.strategies import Cost, Scores
from llamea_gpu.errors import LlameaGpuError
from llamea_gpu.files import write_text
from llamea_gpu.llm import Price, load_prices
from llamea_gpu.report.bench_page import bench_page
from llamea_gpu.report.comparison_page import comparison_page
from llamea_gpu.report.page import render_page, require_plotly
from llamea_gpu.report.run import Run, read_run
from llamea_gpu.report.run_page import run_page


def read_source(source: Path, prices: Mapping[str, Price] | None = None) -> Run | BenchResults:
    """What ``source`` holds. ``prices`` by model name default to the shipped table.

    Raises:
        LlameaGpuError: it is neither the folder of a run nor of a bench, or is damaged.
    """
    if (source / FILE_NAME).is_file():
        return read_run(source, load_prices() if prices is None else prices)
    if (source / SUMMARY).is_file():
        return BenchResults.load(source)
    raise LlameaGpuError(
        f"a report is of a folder that 'evolve -o' wrote (it holds {FILE_NAME}) or 'bench -o' "
        f"({SUMMARY}), but {source} holds neither: name another folder"
    )


def write_report(source: Run | BenchResults, output: Path, *, title: str, running: str = "") -> int:
    """Write the report of a run or bench to ``output``, as a whole or not at all.

    ``title`` stands at its head; ``running`` marks a run under way, and says when this was.

    Returns:
        The size of the file in bytes.

    Raises:
        LlameaGpuError: the extra ``report`` is missing, or the bench is not finished.
    """
    require_plotly()
    page = (
        run_page(source, title, running) if isinstance(source, Run) else bench_page(source, title)
    )
    write_text(output, render_page(page))
    return output.stat().st_size


def write_comparison(
    training: Scores, again: Rescored | None, costs: Sequence[Cost], output: Path
) -> None:
    """Write the report of runs that were compared by strategy to ``output``.

    Raises:
        LlameaGpuError: the extra ``report`` is missing.
    """
    require_plotly()
    write_text(output, render_page(comparison_page(training, again, costs, output.stem)))
