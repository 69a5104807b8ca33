"""``llamea-gpu export``: an optimizer as one file for a live autotuner."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from llamea_gpu.cli.options import one_of
from llamea_gpu.cli.text import plain
from llamea_gpu.errors import SearcherError

TARGETS = ("kernel-tuner", "helion")


def export(
    name: Annotated[str, typer.Argument(help="NAME or FILE.py[:Class], with ?key=value settings.")],
    to: Annotated[str, one_of(TARGETS, "Autotuner.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; default: standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
) -> None:
    """Write an optimizer as one readable file that does not need llamea_gpu."""
    from llamea_gpu.searchers.registry import resolve_program

    searcher = resolve_program(name)
    writer = importlib.import_module(f"llamea_gpu.export.{to.replace('-', '_')}")
    source: str = writer.export_source(searcher)
    if output is None:
        typer.echo(plain(source) if sys.stdout.isatty() else source, nl=False)
        return
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(source)
    except FileExistsError:
        raise SearcherError(
            f"{output} exists already: name another file, or give --force"
        ) from None
    typer.echo(f"{output}: {searcher.program.class_name} for {to}")
