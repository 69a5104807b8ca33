"""``llamea-gpu promote``: candidates of a run before the gate; those that pass are shipped."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from llamea_gpu.archive import FILE_NAME
from llamea_gpu.bench.findings import Standing
from llamea_gpu.cli.options import (
    AsJson,
    SpacesPath,
    Unsafe,
    Workers,
    output_console,
    search_path,
    warn_if_unsafe,
)
from llamea_gpu.cli.text import cell
from llamea_gpu.errors import SettingsError
from llamea_gpu.promotion import PromotionSettings, Report
from llamea_gpu.promotion import promote as promote_run


def promote(
    run: Annotated[str, typer.Argument(help="Run folder, or RUN:SLOT for one candidate.")],
    top: Annotated[
        int, typer.Option(min=1, help="Most candidates to consider; the first that passes ends it.")
    ] = 3,
    name: Annotated[
        str, typer.Option(help="Name to ship under; default: the class's in snake_case.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tune and check, but look at no validation space.")
    ] = False,
    repeats: Annotated[
        int, typer.Option(min=5, help="Runs of each searcher on each validation space.")
    ] = 25,
    tuning_runs: Annotated[
        int, typer.Option(min=0, help="Most runs that tuning the constants may take; 0: none.")
    ] = 400,
    into: Annotated[
        Path | None, typer.Option(help="Folder to write to; default: generated_optimizers.")
    ] = None,
    spaces: Annotated[
        list[str] | None,
        typer.Option("--space", help="Training recordings instead of the run's; repeatable."),
    ] = None,
    validation: Annotated[
        list[str] | None,
        typer.Option(help="Validation recordings: name, pattern, split or file; repeatable."),
    ] = None,
    incumbents: Annotated[
        list[str] | None, typer.Option("--incumbent", help="Whom to beat instead; repeatable.")
    ] = None,
    baseline_from: Annotated[
        Path | None, typer.Option(help="Take incumbents' runs from another bench's folder.")
    ] = None,
    charge_cpu: Annotated[
        bool | None,
        typer.Option(help="Own CPU seconds count as tuning time; default: as in the run."),
    ] = None,
    workers: Workers = None,
    spaces_path: SpacesPath = None,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """Tune the best candidates of a run, validate each once, and ship the first that passes."""
    folder, slot = _run_and_slot(run)
    if into is not None and not into.is_dir():
        raise SettingsError(f"--into must be a folder that exists, but got {into}")
    warn_if_unsafe(unsafe)
    settings = PromotionSettings(
        top=top,
        slot=slot,
        repeats=repeats,
        tuning_runs=tuning_runs,
        spaces=tuple(spaces or ()),
        validation=tuple(validation or ("validation",)),
        spaces_path=search_path(spaces_path),
        incumbents=tuple(incumbents or ()),
        baseline=baseline_from,
        charge_cpu=charge_cpu,
        name=name,
        into=into,
        dry_run=dry_run,
        workers=workers,
        unsafe=unsafe,
    )
    with Console(stderr=True).status("promotion") as status:
        reports = promote_run(folder, settings, lambda text: status.update(cell(text)))
    if as_json:
        typer.echo(json.dumps([_document(report) for report in reports], indent=1))
    else:
        for report in reports:
            _print(report, dry_run=dry_run)
    done = [report for report in reports if report.passed and (report.path or dry_run)]
    if not done:
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
        "default_p": tuning and tuning.default.p,
        "tuned_p": tuning and tuning.tuned and tuning.tuned.p,
        "settings": tuning and tuning.settings,
        "checks": [asdict(check) for check in report.checks],
    }


def _print(report: Report, *, dry_run: bool) -> None:
    console = output_console()
    console.print(f"[bold]#{report.slot} {cell(report.name)}[/]: {_tuning(report)}")
    table = Table("check", "measured", "wanted", "")
    for check in report.checks:
        verdict = "[green]pass[/]" if check.passed else "[red]FAIL[/]"
        table.add_row(cell(check.name), cell(check.measured), cell(check.threshold), verdict)
    console.print(table)
    for check in report.checks:
        if not check.passed:
            console.print(f"{cell(check.name)}: {cell(check.sentence)}", soft_wrap=True)
    if report.path is not None:
        console.print(
            f"promoted: {cell(str(report.path))}, with its card beside it", soft_wrap=True
        )
    elif dry_run:
        console.print("dry run: no validation space was looked at, nothing was written")
    else:
        console.print("not promoted")


def _tuning(report: Report) -> str:
    found = report.tuning
    if found is None:
        return "not tuned"
    text = f"default P {_p(found.default)} on training"
    if found.tuned is None:
        tried = (
            f"none of {found.arms - 1} other settings was ahead" if found.arms > 1 else "no race"
        )
        return f"{text}; {tried}; {found.runs} runs"
    kept = "taken" if found.is_tuned else "not clear of zero, defaults kept"
    return f"{text}, tuned P {_p(found.tuned)} ({kept}); {found.runs} runs"


def _p(standing: Standing) -> str:
    interval = standing.interval
    return f"{standing.p:.3f}" + (f" [{interval.low:.3f}, {interval.high:.3f}]" if interval else "")
