"""The command line: arguments in, text or JSON out. Nothing is decided or computed here."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

import typer
from rich.console import Console

from llamea_gpu import __version__
from llamea_gpu.cli import (
    bench,
    doctor,
    evolve,
    exchange,
    export,
    measure,
    promote,
    report,
    runs,
    spaces,
    tune,
)
from llamea_gpu.cli.text import cell
from llamea_gpu.errors import LlameaGpuError

app = typer.Typer(
    name="llamea-gpu",
    help="Generate, score and use LLM-written optimizers for GPU-kernel autotuning.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold what must not be printed
    add_completion=False,
)
app.add_typer(spaces.app, name="spaces")
app.add_typer(runs.app, name="runs")
app.add_typer(exchange.app, name="exchange")
app.command("run")(measure.run)
app.command("score")(measure.score)
app.command("tune")(tune.tune)
app.command("bench")(bench.bench)
app.command("evolve")(evolve.evolve)
app.command("promote")(promote.promote)
app.command("export")(export.export)
app.command("report")(report.report)
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"llamea-gpu {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Generate, score and use LLM-written optimizers for GPU-kernel autotuning."""


def main() -> None:
    """Entry point: an error of the user or the system is one message and exit status 2."""
    warnings.showwarning = _show_warning
    try:
        app()
    except (LlameaGpuError, OSError) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {cell(str(error))}", soft_wrap=True)
        sys.exit(2)


def _show_warning(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001 - the signature of warnings.showwarning
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """A warning is for the user: what it says, not where in the code."""
    Console(stderr=True).print(f"[yellow]warning:[/] {cell(str(message))}", soft_wrap=True)
