"""Pictures of what commands print today, for the README: a terminal of 100 columns as SVG.

    python scripts/screenshots.py

runs each of `COMMANDS` in a pseudo terminal and writes docs/images/terminal-NAME.svg. What goes to
standard error (progress) is left out.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100
IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
COMMANDS = {
    "bench": "bench growing_foresight genetic_algorithm random_search --suite quick",
}
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


def main() -> None:
    for name, arguments in COMMANDS.items():
        console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system="truecolor")
        console.print(f"[bold]$ llamea-gpu {arguments}[/]", highlight=False, soft_wrap=True)
        console.print(Text.from_ansi(printed(arguments)))
        picture = console.export_svg(title="llamea-gpu", unique_id=name)
        (IMAGES / f"terminal-{name}.svg").write_text(_FONT_FACE.sub("", picture), encoding="utf-8")


if __name__ == "__main__":
    main()
