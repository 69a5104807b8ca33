"""Options that several commands share, and the search path they add up to."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from llamea_gpu.cli.text import cell
from llamea_gpu.errors import suggestion
from llamea_gpu.spaces.catalogue import search_path_from_environment

PLAIN_WIDTH = 1000  # a pipe has no width: nothing is cut or folded
_PLAIN_EVERY_S = 15.0
T = TypeVar("T")
MAX_CPU_LIMIT_S = 86_400.0
MAX_BUDGET_S = 86_400.0

SpacesPath = Annotated[
    list[Path] | None,
    typer.Option(
        "--spaces-path",
        help="Folder with further recordings; repeatable. Also: LLAMEA_GPU_SPACES.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Clock = Annotated[
    str,
    typer.Option(
        help="'sequential', 'parallel(W)' or 'pipelined(W)'; default: the recording's own."
    ),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Runs side by side; default: all cores.")]
Cluster = Annotated[
    str,
    typer.Option(help="'ray', HOST:PORT or ray://HOST:PORT: run on the nodes of a Ray cluster."),
]
BudgetS = Annotated[
    float | None,
    typer.Option(
        "--budget-s",
        min=0.1,
        max=MAX_BUDGET_S,
        help="Simulated seconds of a run on a whole space (default: 45).",
    ),
]
Unfit = Annotated[
    bool,
    typer.Option("--unfit", help="Use models that have not passed their gate, too."),
]
Unsafe = Annotated[
    bool,
    typer.Option(
        "--unsafe-no-sandbox", help="Run untrusted code without isolation (disposable VMs only)."
    ),
]


def one_of(values: Sequence[str], help_: str) -> Any:
    """An option whose value is one of ``values``, with either kind of dash, in any case."""

    def parse(text: str) -> str:
        value = text.lower().replace("_", "-")
        if value not in values:
            raise typer.BadParameter(
                f"{text!r} is none of {', '.join(values)}: {suggestion(text, values)}"
            )
        return value

    return typer.Option(help=help_, parser=parse, metavar="|".join(values))


def output_console() -> Console:
    """Where tables go: as wide as the terminal, or COLUMNS, and whole where neither is."""
    console = Console(highlight=False)
    bounded = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if bounded else Console(highlight=False, width=PLAIN_WIDTH)


def warn_if_unsafe(unsafe: bool) -> None:
    """Say on standard error what running without isolation means."""
    if unsafe:
        warning = "generated code runs without isolation: it can read and change this machine"
        Console(stderr=True).print(f"[bold red]WARNING:[/] {warning}")


def search_path(folders: list[Path] | None) -> tuple[Path, ...]:
    """``--spaces-path`` folders first, then those of the environment."""
    return (*(folders or ()), *search_path_from_environment())


@contextmanager
def step(text: str) -> Iterator[None]:
    """Name what takes seconds, while it does, where a terminal shows it."""
    with Console(stderr=True).status(text):
        yield


@contextmanager
def progress_line(text: Callable[[T], str], first: str = "") -> Iterator[Callable[[T], None]]:
    """A line that follows a run by ``text``; a new one every 15 s where nobody's terminal is.

    ``first`` names what is done before there is anything to follow.
    """
    console = Console(stderr=True, highlight=False)
    printed_at_s = -math.inf

    with Live(
        Text(first), console=console, auto_refresh=False, transient=True, redirect_stdout=False
    ) as live:

        def show(at: T) -> None:
            nonlocal printed_at_s
            if console.is_terminal:
                live.update(Text(text(at)), refresh=True)
            elif monotonic() - printed_at_s >= _PLAIN_EVERY_S:
                printed_at_s = monotonic()
                console.print(cell(text(at)))

        yield show
