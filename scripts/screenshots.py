"""Pictures of what commands print and report today, for the README and the documentation.

    python scripts/screenshots.py             # all of them: 4 minutes on two cores
    python scripts/screenshots.py terminal report-bench report-run       # or some
    python scripts/screenshots.py report-run --run RUN                   # of a run that is there

writes to docs/images: what each of `COMMANDS` prints in a pseudo terminal of 100 columns as
terminal-NAME.svg (what goes to standard error, progress, is left out), and the reports of a bench
and of the run that `scripts/demo` replays as report-bench.png and report-run.png, as a Chromium
shows them. Needs the extras `report` and `dev`.
"""

from __future__ import annotations

import argparse
import fcntl
import io
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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.text import Text

WIDTH = 100
ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
COMMANDS = {
    "bench": "bench growing_foresight genetic_algorithm random_search --suite quick",
}
BENCH = "bench growing_foresight iterated_local_search genetic_algorithm --suite quick"
RUN = f"evolve --config {ROOT}/generated_optimizers/runs/h200-helion/evolve.toml --candidates 14"
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


def picture_run(folder: Path) -> None:
    """The family tree with the best candidate open, at its convergence."""
    with opened(folder, 1530) as tab:
        tab.get_by_role("tab", name="Family tree").click()
        best = re.search(r"Best: #(\d+)", tab.locator("body").inner_text())
        if best is None:
            raise SystemExit(f"{folder} has no candidate that was scored")
        tab.evaluate("number => { location.hash = `candidate=${number}`; }", best[1])
        tab.locator("#details").get_by_role("tab", name="Convergence").click()
        tab.wait_for_selector("#details .js-plotly-plot:visible")
        tab.evaluate("scrollTo(0, 0)")
        tab.screenshot(path=IMAGES / "report-run.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    kinds = ("terminal", "report-bench", "report-run")
    parser.add_argument("pictures", nargs="*", help=f"of {', '.join(kinds)}; default: all")
    parser.add_argument("--run", type=Path, help="the folder of a run that was made before")
    options = parser.parse_args()
    wanted = options.pictures or kinds
    if unknown := set(wanted) - set(kinds):
        parser.error(f"the pictures are {', '.join(kinds)}, but got {', '.join(sorted(unknown))}")
    if "terminal" in wanted:
        picture_terminal()
    if "report-bench" in wanted:
        picture_bench()
    if "report-run" in wanted:
        if options.run:
            picture_run(options.run)
            return
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "h200-helion"
            llamea(*shlex.split(RUN), "-o", str(folder))
            picture_run(folder)


if __name__ == "__main__":
    main()
