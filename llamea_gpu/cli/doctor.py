"""``llamea-gpu doctor``: which isolation this machine offers, and how to get what it lacks."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from llamea_gpu.cli.options import AsJson, output_console
from llamea_gpu.sandbox.diagnosis import diagnose
from llamea_gpu.sandbox.report import LevelReport, SandboxReport

_MARKS = {
    "active": "[green]active[/]",
    "missing": "[yellow]missing[/]",
    "failed": "[red]failed[/]",
    "off": "off",
}


def doctor(
    brief: Annotated[bool, typer.Option("--brief", help="The level in use, and no more.")] = False,
    as_json: AsJson = False,
) -> None:
    """Attack the sandbox from inside and say which level holds. Exit status 1 when none does."""
    report = diagnose(first_only=brief)
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=1))
    else:
        _print(report, brief=brief)
    if report.level is None:
        raise typer.Exit(1)


def _print(report: SandboxReport, *, brief: bool) -> None:
    console = output_console()
    current = report.current
    if current is None:
        console.print(
            "[bold red]no sandbox level could be verified[/]: generated code will not run"
        )
    else:
        summary = f"{len(current.verdicts)} self-attacks held off"
        console.print(f"sandbox [bold]level {current.number}[/] ({current.title}), {summary}")
    if not brief:
        for tried in report.tried:
            _print_level(console, tried)
        if report.alone:
            console.print("\n[bold]each layer without the others[/] (none: what they keep out)")
        for verdict in report.alone:
            mark = "[green]holds[/]" if verdict.held else "[yellow]does not hold[/]"
            console.print(f"  {verdict.name}: {mark}: {escape(verdict.detail)}", soft_wrap=True)
    if not brief or current is None:
        for remedy in report.remedies:
            console.print(f"to get more: {remedy}", soft_wrap=True)


def _print_level(console: Console, tried: LevelReport) -> None:
    verdict = "[green]verified[/]" if tried.verified else f"[red]not available[/]: {tried.problem}"
    console.print(f"\n[bold]level {tried.number}[/] {tried.title}: {verdict}", soft_wrap=True)
    layers = Table("layer", "state", "detail")
    for layer in tried.layers:
        layers.add_row(layer.name, _MARKS[layer.state], layer.detail)
    console.print(layers)
    for attack in tried.verdicts:
        if not attack.held:
            console.print(f"  [red]got through[/]: {attack.name}: {attack.detail}", soft_wrap=True)
    if tried.costs is not None:
        costs = tried.costs
        console.print(
            f"start {costs.start_s:.2f} s, a run {costs.run_ms:.1f} ms, an ask {costs.ask_us:.1f} "
            f"µs, a configuration in batches of 100 {costs.batched_us:.2f} µs"
        )
