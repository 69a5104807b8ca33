"""``llamea-gpu evolve``: start or continue a run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from llamea_gpu import toml
from llamea_gpu.archive import Archive
from llamea_gpu.bench.suites import suite_spaces
from llamea_gpu.cli.from_settings import options_of
from llamea_gpu.cli.live import RunView, Several, estimate_text
from llamea_gpu.cli.options import output_console, step, warn_if_unsafe
from llamea_gpu.cli.tables import generation_table, leaders_table, print_table
from llamea_gpu.cli.text import cell
from llamea_gpu.errors import SettingsError
from llamea_gpu.evolution.inspiration import expand_inspirations
from llamea_gpu.evolution.session import (
    Problem,
    build_problem,
    check_route,
    drive,
    estimate,
    is_complete,
    prices_of,
    resume,
    start,
)
from llamea_gpu.evolution.settings import (
    EvolutionSettings,
    decided,
    read_file,
    validated,
    with_absolute_paths,
)
from llamea_gpu.files import write_text
from llamea_gpu.spaces.catalogue import search_path_from_environment

if TYPE_CHECKING:
    from llamea_gpu.report import LiveReport


@options_of(
    EvolutionSettings,
    leave=("model", "further_models", "operators", "repeats_by_space", "replay_strict"),
    names={"spaces": "--space", "inspirations": "--inspire", "seed_programs": "--seed-program"},
)
def evolve(
    given: dict[str, Any],
    output: Annotated[Path, typer.Option("-o", "--output", help="Run folder.")],
    config: Annotated[Path | None, typer.Option(help="TOML file with any settings.")] = None,
    suite: Annotated[
        str | None, typer.Option(help="Training spaces: those of a suite ('bench --help').")
    ] = None,
    resume_: Annotated[bool, typer.Option("--resume", help="Go on with the run there.")] = False,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="A model's name at the endpoint; repeatable."),
    ] = None,
    settings_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting as KEY=VALUE (VALUE in TOML); repeatable."),
    ] = None,
    estimate_only: Annotated[
        bool, typer.Option("--estimate", help="Print what the run may cost, and stop.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines, not the live view.")] = False,
    live_report: Annotated[
        Path | None, typer.Option(help="HTML report, rewritten while the run goes on.")
    ] = None,
) -> None:
    """Evolve optimizers: ask a model, sandbox, score, breed. Everything paid for is kept."""
    if models:
        given |= {"model": models[0], "further_models": models[1:]}
    given.update(_assignments(settings_ or []))
    fields = {
        **(read_file(config) if config else {}),
        **with_absolute_paths(given, Path.cwd()),
    }
    if suite is not None:
        if "spaces" in given:
            raise SettingsError("training spaces are those of --suite or of --space, not of both")
        fields["spaces"] = list(suite_spaces(suite, _search_path(fields)))
    if "inspirations" in fields:
        fields["inspirations"] = expand_inspirations(fields["inspirations"])
    console = output_console()
    with ExitStack() as stack:
        archive = None
        if resume_:
            archive, settings = resume(output, fields)
            stack.enter_context(closing(archive))
        else:
            settings = validated({**fields, "spaces_path": list(map(str, _search_path(fields)))})
        with step("reading the recordings and the seed programs"):
            problem = build_problem(settings)
            if archive is None:
                settings = decided(settings, whole=problem.is_whole)
            expected = estimate(settings, problem)
        if estimate_only:
            console.print(estimate_text(expected), soft_wrap=True)
            return
        if archive is None or not is_complete(archive, settings):
            with step("asking whether the model can be reached"):
                check_route(output, settings)
        watcher = None if live_report is None else _live_report(output, live_report, settings)
        if archive is None:
            archive = stack.enter_context(closing(start(output, settings, problem)))
        plain = plain or not console.is_terminal
        _run(output, archive, settings, problem, console, watcher, plain=plain)


def _search_path(fields: Mapping[str, Any]) -> list[Path]:
    return [*map(Path, fields.get("spaces_path", ())), *search_path_from_environment()]


def _live_report(folder: Path, file: Path, settings: EvolutionSettings) -> LiveReport:
    from llamea_gpu.report import LiveReport, check_output

    check_output(file)
    return LiveReport(folder, file, prices_of(settings), warnings.warn)


def _assignments(items: list[str]) -> dict[str, Any]:
    """``KEY=VALUE`` pairs; a VALUE that is not TOML counts as a string."""
    fields: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name.isidentifier():
            raise SettingsError(f"--set must be KEY=VALUE, got {item!r}")
        try:
            fields[name] = toml.loads(f"value = {text}")["value"]
        except toml.TOMLDecodeError:
            fields[name] = text
    return fields


def _run(
    folder: Path,
    archive: Archive,
    settings: EvolutionSettings,
    problem: Problem,
    console: Console,
    report: LiveReport | None,
    *,
    plain: bool,
) -> None:
    warn_if_unsafe(settings.unsafe_no_sandbox)
    if is_complete(archive, settings):
        console.print(
            f"this run is finished: it has its {settings.candidates} candidates, and nothing is "
            f"asked again. --candidates with a larger number goes on.",
            soft_wrap=True,
        )
    try:
        shown = RunView(settings, problem.measure, console, plain=plain)
        with shown as view, report or nullcontext():
            observer = Several(view, report) if report else view
            outcome = drive(folder, archive, settings, problem, observer)
    except KeyboardInterrupt:
        console.print(
            f"stopped; everything paid for is kept. Go on with: "
            f"llamea-gpu evolve -o {folder} --resume"
        )
        raise typer.Exit(130) from None
    _print_warnings(console, outcome.warnings)
    print_table(console, generation_table(outcome.population, settings.offspring, problem.measure))
    print_table(console, leaders_table(outcome.population, problem.measure))
    best = outcome.population.best()
    if best is not None and best.program is not None:
        path = folder / "best.py"
        write_text(path, best.program.source)
        write_text(folder / "best.json", json.dumps(best.to_document(), indent=1))
        console.print(f"best: {best.identifier}, written to {path}")
    if outcome.reason != "complete":
        console.print(f"stopped early: {outcome.reason}")


def _print_warnings(console: Console, warnings_: Sequence[str]) -> None:
    """The first whole, and how many more there are: one cause often has one for each answer."""
    if warnings_:
        more = f" (and {len(warnings_) - 1} more like it)" if len(warnings_) > 1 else ""
        console.print(f"[yellow]warning:[/] {cell(warnings_[0])}{more}", soft_wrap=True)
