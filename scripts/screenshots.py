"""Pictures of what commands print and report today, for the README and the documentation.

    python scripts/screenshots.py                            # all of them
    python scripts/screenshots.py report-bench report-run    # or some

writes to docs/images: what each of `COMMANDS` prints in a pseudo terminal of 100 columns as
terminal-NAME.svg (what goes to standard error, progress, is left out), and, as a Chromium shows
them, the reports of a bench (report-bench.png) and of the recorded run that `scripts/demo` replays
(report-run.png). The run is made anew of its answers and its recorded assessments: no program runs.
Needs the extras `report` and `dev`.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import io
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.text import Text

from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.evaluation import Assessment
from llamea_gpu.evolution.loop import Evolution
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.session import build_ledger, build_problem, start
from llamea_gpu.evolution.settings import read_file, validated
from llamea_gpu.llm.replay import ReplayClient
from llamea_gpu.programs import Program

WIDTH = 100
ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
COMMANDS = {
    "bench": "bench growing_foresight genetic_algorithm random_search --suite quick",
}
BENCH = "bench growing_foresight iterated_local_search genetic_algorithm --suite quick"
RUN = ROOT / "generated_optimizers" / "runs" / "h200-helion"
# Exported pictures would fetch a font; the reader's own monospaced one does.
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def printed(arguments: str) -> str:
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    command = [sys.executable, "-m", "llamea_gpu", *shlex.split(arguments)]
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environment
    )
    os.close(theirs)
    chunks = []
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(ours)
    if process.wait():
        raise SystemExit(f"llamea-gpu {arguments} ended with status {process.returncode}")
    return b"".join(chunks).decode().replace("\r\n", "\n")


def picture_terminal() -> None:
    for name, arguments in COMMANDS.items():
        console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system="truecolor")
        console.print(f"[bold]$ llamea-gpu {arguments}[/]", highlight=False, soft_wrap=True)
        console.print(Text.from_ansi(printed(arguments)))
        picture = console.export_svg(title="llamea-gpu", unique_id=name)
        (IMAGES / f"terminal-{name}.svg").write_text(_FONT_FACE.sub("", picture), encoding="utf-8")


def llamea(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "llamea_gpu", *arguments], check=True)


@contextmanager
def opened(folder: Path, height: int) -> Iterator[Page]:
    """The report of a bench's or a run's folder in a window of 1200 pixels."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page = Path(scratch) / "report.html"
        llamea("report", str(folder), "-o", str(page))
        system = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(
            executable_path=system, args=["--no-sandbox", "--disable-gpu"]
        )
        size: Any = {"width": 1200, "height": height}
        tab = browser.new_page(viewport=size, reduced_motion="reduce", color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        yield tab
        browser.close()


def picture_bench() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "first"
        llamea(*shlex.split(BENCH), "-o", str(folder))
        with opened(folder, 1010) as tab:
            tab.wait_for_selector(".plot.js-plotly-plot:visible")
            tab.screenshot(path=IMAGES / "report-bench.png")


class RecordedCascade:
    """Assesses each program as the recorded run did."""

    def __init__(self) -> None:
        lines = (RUN / "candidates.jsonl").read_text(encoding="utf-8").splitlines()
        self.documents = {row["slot"]: row for row in map(json.loads, lines)}

    async def assess(
        self,
        slot: int,
        attempt: int,  # noqa: ARG002 - of the signature that a run calls
        program: Program,
        population: Population,  # noqa: ARG002
    ) -> Assessment:
        then = Candidate.from_document({**self.documents[slot], "program": asdict(program)})
        if then.feedback is None:
            raise SystemExit(f"{RUN}/candidates.jsonl has no assessment of candidate {slot}")
        return Assessment(then.status, then.kind, then.message, then.feedback, then.behaviour)


def replay(folder: Path) -> None:
    """The recorded run in a new folder."""
    settings = validated({**read_file(RUN / "evolve.toml"), "replay_strict": True})
    problem = build_problem(settings)
    with closing(start(folder, settings, problem)) as archive:
        client: Any = ReplayClient(RUN / "answers.jsonl", strict=True)
        recorded: Any = RecordedCascade()
        ledger = build_ledger(settings)
        evolution = Evolution(settings, archive, client, ledger, recorded, problem.facts)
        asyncio.run(evolution.run(problem.seeds))


def picture_run() -> None:
    """The family tree with the best candidate open."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / RUN.name
        replay(folder)
        with opened(folder, 1530) as tab:
            photograph_best(tab)


def photograph_best(tab: Page) -> None:
    tab.get_by_role("tab", name="Family tree").click()
    best = re.search(r"Best: #(\d+)", tab.locator("body").inner_text())
    if best is None:
        raise SystemExit("no candidate of the run was scored")
    tab.evaluate("number => { location.hash = `candidate=${number}`; }", best[1])
    tab.wait_for_selector("#details-title:visible")
    tab.evaluate("scrollTo(0, 0)")
    tab.screenshot(path=IMAGES / "report-run.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    kinds = ("terminal", "report-bench", "report-run")
    parser.add_argument("pictures", nargs="*", help=f"of {', '.join(kinds)}; default: all")
    options = parser.parse_args()
    wanted = options.pictures or kinds
    if unknown := set(wanted) - set(kinds):
        parser.error(f"the pictures are {', '.join(kinds)}, but got {', '.join(sorted(unknown))}")
    if "terminal" in wanted:
        picture_terminal()
    if "report-bench" in wanted:
        picture_bench()
    if "report-run" in wanted:
        picture_run()


if __name__ == "__main__":
    main()
