"""``llamea-gpu searchers``: what a spec may name, and what is known of each."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from llamea_gpu.cli.options import AsJson, output_console
from llamea_gpu.cli.tables import print_table
from llamea_gpu.cli.text import cell, plain
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import known_searchers, resolve
from llamea_gpu.searchers.spec import SCHEMES, Spec

app = typer.Typer(no_args_is_help=True, help="Searchers that a command may be given.")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the searchers that ship, and those that installed libraries bring."""
    known = known_searchers()
    if as_json:
        typer.echo(json.dumps(known, indent=1))
        return
    console = output_console()
    table = Table(Column("searcher", no_wrap=True), "what it does")
    for origin in ("classical", "generated"):
        for name in known.pop(origin):
            searcher = resolve(name)
            idea = "" if isinstance(searcher, LibrarySearcher) else searcher.program.idea
            table.add_row(cell(name), cell(idea))
        table.add_section()
    for scheme, specs in known.items():
        about = _about(scheme)
        names = [spec.partition(":")[2] for spec in specs]
        rest = ", ".join(names) if any(name not in about for name in names) else ""
        table.add_row(f"{scheme}:", cell(f"{about} {rest}".rstrip()))
    print_table(console, table)
    console.print("or FILE.py[:Class]; each takes ?key=value&key=value. See: searchers show NAME")


@app.command()
def show(
    searcher: Annotated[str, typer.Argument(help="A spec, such as genetic_algorithm.")],
    source: Annotated[bool, typer.Option("--source", help="Print the program itself.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one searcher: the idea, where it comes from, and what may be set.

    Example: llamea-gpu searchers show growing_foresight
    """
    definition = resolve(searcher)
    if source and not isinstance(definition, LibrarySearcher):
        typer.echo(plain(definition.program.source))
        return
    document: dict[str, Any] = {"searcher": definition.name}
    if isinstance(definition, LibrarySearcher):
        spec = Spec.parse(searcher)
        document["about"] = _about(spec.scheme)
        options = importlib.import_module(SCHEMES[spec.scheme]).options(spec.target)
        own_keys = {item.partition("=")[0] for item in spec.settings}
        own = {key: value for key, value in definition.settings.items() if key in own_keys}
        document["settings"] = {**options, **own}  # its own as they were understood
        document["versions"] = dict(definition.versions)
    else:
        provenance = asdict(definition.provenance)
        document |= {"idea": definition.program.idea, **{k: v for k, v in provenance.items() if v}}
        document["settings"] = definition.program.settings
    if as_json:
        typer.echo(json.dumps(document, indent=1))
        return
    console = output_console()
    for key, value in document.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{name}={each}" for name, each in value.items()) or "none"
        elif isinstance(value, tuple):
            value = ", ".join(value)
        console.print(f"[bold]{key:10}[/] {cell(str(value))}", soft_wrap=True)
    console.print(
        f"[bold]{'try':10}[/] llamea-gpu run {cell(searcher)} --space matmul-2048", soft_wrap=True
    )


def _about(scheme: str) -> str:
    """What the module of a scheme says of itself first."""
    text = importlib.import_module(SCHEMES[scheme]).__doc__ or ""
    return " ".join(text.partition("\n\n")[0].replace("``", "").split())
