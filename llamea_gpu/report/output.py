"""Writes reports: what ``llamea-gpu report`` does, and of a run under way again and again.

A folder is told by what it holds: an archive is an evolution run, a summary is a bench. Of a run
under way, a thread of its own reads the archive (SQLite lets it, beside the run) and writes the
file, so that the run does not wait; a report that fails ends no run: it is said once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

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

EVERY_S = 5.0
# A long run's report takes longer to write: it may use up to a tenth of the time.
SHARE_OF_TIME = 0.1


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
    training: Scores, rescored: Rescored | None, costs: Sequence[Cost], output: Path
) -> None:
    """Write the report of runs that were compared by strategy to ``output``.

    Raises:
        LlameaGpuError: the extra ``report`` is missing.
    """
    require_plotly()
    write_text(output, render_page(comparison_page(training, rescored, costs, output.stem)))


class LiveReport:
    """Observes a run and keeps its report fresh; use as a context manager around the run.

    Args:
        folder: the run folder.
        output: the report's file.
        prices: by model name.
        warn: told once, in a sentence, when a report could not be written.
        every_s: the least time between two writings, in seconds.

    Raises:
        LlameaGpuError: the extra ``report`` is not installed.
    """

    def __init__(
        self,
        folder: Path,
        output: Path,
        prices: Mapping[str, Price],
        warn: Callable[[str], None],
        *,
        every_s: float = EVERY_S,
    ) -> None:
        require_plotly()
        self._folder = folder
        self._output = output
        self._prices = prices
        self._warn = warn
        self._every_s = every_s
        self._warned = False
        self._settled = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="live-report", daemon=True)

    def __enter__(self) -> LiveReport:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._settled.set()
        self._thread.join()
        self._write(running="")

    def notify(self, kind: str, slot: int | None, detail: dict[str, Any]) -> None:  # noqa: ARG002
        """Take in one event of the loop."""
        if kind in ("seed", "settled"):
            self._settled.set()

    def _work(self) -> None:
        while self._settled.wait() and not self._ended.is_set():
            self._settled.clear()
            begun = time.monotonic()
            self._write(running=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"))
            took_s = time.monotonic() - begun
            self._ended.wait(max(self._every_s, took_s / SHARE_OF_TIME))

    def _write(self, running: str) -> None:
        try:
            title = self._folder.resolve().name
            state = read_run(self._folder, self._prices)
            write_report(state, self._output, title=title, running=running)
        except Exception as error:  # whatever it is, the run is worth more
            if not self._warned:
                self._warned = True
                self._warn(f"the live report could not be written: {error}")
