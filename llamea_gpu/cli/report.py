"""``llamea-gpu report``: a run or a bench as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llamea_gpu.llm import load_prices


def report(
    source: Annotated[Path, typer.Argument(help="Run folder, or the folder of a bench.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="Heading; default: the folder's name.")] = "",
    prices: Annotated[
        Path | None, typer.Option(help="Price table (TOML) for a run's dollars.")
    ] = None,
) -> None:
    """Write a report that needs no network: one file, for any browser."""
    from llamea_gpu.report import check_output, read_source, write_report

    check_output(output)
    run_or_bench = read_source(source, load_prices(prices))
    size = write_report(run_or_bench, output, title=title or source.resolve().name)
    typer.echo(f"{output}: {size / 1e6:.1f} MB, open it in a browser")
