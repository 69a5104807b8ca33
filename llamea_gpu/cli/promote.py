"""``llamea-gpu promote``: candidates of a run before the gate; those that pass are shipped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from llamea_gpu.archive import FILE_NAME
from llamea_gpu.bench.findings import Standing
from llamea_gpu.cli.from_settings import options_of
from llamea_gpu.cli.options import (
    AsJson,
    output_console,
    search_path,
    warn_if_unsafe,
)
from llamea_gpu.cli.tables import print_table
from llamea_gpu.cli.text import cell
from llamea_gpu.errors import SettingsError
from llamea_gpu.promotion import Check, PromotionSettings, Report
from llamea_gpu.promotion import enter as enter_live
from llamea_gpu.promotion import promote as promote_run


@options_of(
    PromotionSettings,
    leave=("slot",),
    names={
        "spaces": "--space",
        "incumbents": "--incumbent",
        "baseline": "--baseline-from",
        "unsafe": "--unsafe-no-sandbox",
    },
)
def promote(
    given: dict[str, Any],
    run: Annotated[
        str,
        typer.Argument(help="Run folder, or RUN:SLOT for one candidate; NAME.json with --live."),
    ],
    live: Annotated[
        Path | None,
        typer.Option(
            help="Folder of scripts/bench_live.py: enter what a promoted optimizer did live into "
            "its card, NAME.json."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tune the best candidates of a run, validate each once, and ship the first that passes.

    The last gate is live: with --live, its card tells what was measured.
    """
    if live is not None:
        _enter(Path(run), live, given, as_json)
        return
    folder, slot = _run_and_slot(run)
    given |= {"slot": slot, "spaces_path": search_path(given.get("spaces_path"))}
    settings = PromotionSettings(**given)
    if settings.into is not None and not settings.into.is_dir():
        raise SettingsError(f"--into must be a folder that exists, but got {settings.into}")
    warn_if_unsafe(settings.unsafe)
    with Console(stderr=True).status("promotion") as status:
        reports = promote_run(folder, settings, lambda text: status.update(cell(text)))
    if as_json:
        typer.echo(json.dumps([_document(report) for report in reports], indent=1))
    else:
        for report in reports:
            _print(report, dry_run=settings.dry_run)
    promoted = [report for report in reports if report.passed and (report.path or settings.dry_run)]
    if not promoted:
        raise typer.Exit(1)


def _enter(card_file: Path, folder: Path, overrides: dict[str, Any], as_json: bool) -> None:
    if overrides:
        raise SettingsError(
            f"--live only enters what was measured into a card, but got "
            f"{', '.join(sorted(overrides))} as well: leave them out"
        )
    card, checks = enter_live(card_file, folder)
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        console = output_console()
        assert card.live is not None
        own = card.live.arms[0]
        console.print(
            f"[bold]{cell(card.name)}[/] live: {own.mean:.3f} / {own.worst:.3f} of the best known, "
            f"mean / worst of {own.runs} runs of {card.live.seconds:g} s"
        )
        _print_checks(checks)
        console.print(f"entered into {cell(str(card_file))}", soft_wrap=True)
    if not all(check.passed for check in checks):
        raise typer.Exit(1)


def _run_and_slot(text: str) -> tuple[Path, int | None]:
    """``RUN`` or ``RUN:SLOT``; a folder whose own name ends in a colon and a number is a folder."""
    folder, colon, slot = text.rpartition(":")
    if not colon or (Path(text) / FILE_NAME).is_file():
        return Path(text), None
    if not slot.isdecimal():
        raise SettingsError(f"a candidate must be RUN:SLOT with a number, but got {text!r}")
    return Path(folder), int(slot)


def _document(report: Report) -> dict[str, object]:
    tuning = report.tuning
    return {
        "slot": report.slot,
        "name": report.name,
        "passed": report.passed,
        "path": report.path and str(report.path),
        "measure": report.measure.name,
        "default_p": tuning and tuning.default.p,
        "tuned_p": tuning and tuning.tuned and tuning.tuned.p,
        "settings": tuning and tuning.settings,
        "checks": [asdict(check) for check in report.checks],
    }


def _print(report: Report, *, dry_run: bool) -> None:
    console = output_console()
    console.print(f"[bold]#{report.slot} {cell(report.name)}[/]: {_tuning(report)}")
    _print_checks(report.checks)
    if report.path is not None:
        console.print(
            f"promoted: {cell(str(report.path))}, with its card beside it", soft_wrap=True
        )
        if report.card is not None and report.card.modelled is not None:
            spaces = report.card.modelled.spaces
            models = ", ".join(f"{space.space} (gate: {space.gate})" for space in spaces)
            console.print(f"modelled, not measured: {cell(models)}", soft_wrap=True)
    elif dry_run:
        console.print("dry run: no validation space was looked at, nothing was written")
    else:
        console.print("not promoted")


def _print_checks(checks: Sequence[Check]) -> None:
    console = output_console()
    table = Table("check", "measured", "wanted", "")
    for check in checks:
        verdict = "[green]pass[/]" if check.passed else "[red]FAIL[/]"
        table.add_row(cell(check.name), cell(check.measured), cell(check.threshold), verdict)
    print_table(console, table)
    for check in checks:
        if not check.passed:
            console.print(f"{cell(check.name)}: {cell(check.sentence)}", soft_wrap=True)


def _tuning(report: Report) -> str:
    tuning = report.tuning
    if tuning is None:
        return "not tuned"
    name = report.measure.name
    text = f"default {name} {_p(tuning.default)} on training"
    if tuning.tuned is None:
        tried = (
            f"none of {tuning.arms - 1} other settings was ahead" if tuning.arms > 1 else "no race"
        )
        return f"{text}; {tried}; {tuning.runs} runs"
    decision = "taken" if tuning.is_tuned else "not clear of zero, defaults kept"
    return f"{text}, tuned {name} {_p(tuning.tuned)} ({decision}); {tuning.runs} runs"


def _p(standing: Standing) -> str:
    interval = standing.interval
    return f"{standing.p:.3f}" + (f" [{interval.low:.3f}, {interval.high:.3f}]" if interval else "")
