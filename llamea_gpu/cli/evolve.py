"""``llamea-gpu evolve``: start or continue a run, and what a user sees of it meanwhile.

On a terminal that is a live panel, elsewhere a line an event.
"""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from llamea_gpu import toml
from llamea_gpu.archive import Archive
from llamea_gpu.bench.suites import suite_spaces
from llamea_gpu.cli.from_settings import options_of
from llamea_gpu.cli.options import output_console, step, warn_if_unsafe
from llamea_gpu.cli.tables import generation_table, leaders_table, print_table, score_text
from llamea_gpu.cli.text import cell
from llamea_gpu.errors import SettingsError
from llamea_gpu.evolution.candidate import FAILED, Candidate
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
from llamea_gpu.llm import Ledger, RunEstimate, Totals
from llamea_gpu.scoring import MODELLED, Measure
from llamea_gpu.spaces.catalogue import search_path_from_environment

if TYPE_CHECKING:
    from llamea_gpu.report import LiveReport


SHOWN_CANDIDATES = 10


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

            def observe(kind: str, slot: int | None, detail: dict[str, Any]) -> None:
                view.notify(kind, slot, detail)
                if report:
                    report.notify(kind, slot, detail)

            outcome = drive(folder, archive, settings, problem, observe)
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


class RunView:
    """Observes a run and renders it; use as a context manager around the run."""

    def __init__(
        self, settings: EvolutionSettings, measure: Measure, console: Console, *, plain: bool
    ) -> None:
        self._settings = settings
        self._measure = measure
        self._console = console
        self._live = None if plain else Live(console=console, refresh_per_second=4)
        self._ledger: Ledger | None = None
        self._started = time.monotonic()
        self._settled: list[Candidate] = []
        self._seeds: list[Candidate] = []
        self._stages: dict[int, str] = {}
        self._new_this_session = 0

    def __enter__(self) -> RunView:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.update(self._render())
            self._live.stop()

    def notify(self, kind: str, slot: int | None, detail: dict[str, Any]) -> None:
        """Take in one event of the loop."""
        if kind == "started":
            self._ledger = detail["ledger"]
            if detail.get("estimate"):
                self._console.print(f"estimate: {estimate_text(detail['estimate'])}")
        elif kind == "seed":
            self._seeds.append(detail["candidate"])
        elif kind == "settled" and slot is not None:
            self._settled.append(detail["candidate"])
            self._new_this_session += not detail["known"]
            self._stages.pop(slot, None)
        elif slot is not None:
            self._stages[slot] = kind
        if self._live:
            self._live.update(self._render())
        elif kind in ("seed", "settled"):
            line = _line(detail["candidate"], self._measure)
            self._console.print(line, highlight=False, soft_wrap=True)
        elif kind == "stopped" and detail["reason"] != "complete":
            self._console.print(f"stopped: {detail['reason']}", highlight=False)

    def _render(self) -> Panel:
        total = self._settings.candidates
        scored = [c for c in (*self._seeds, *self._settled) if c.p is not None]
        best = max(scored, key=lambda c: (c.p or 0.0, -c.slot), default=None)
        facts = Table.grid(padding=(0, 2))
        facts.add_row("generation", str(len(self._settled) // self._settings.offspring))
        seeds = len(self._settings.seed_programs) + len(self._settings.inspirations)
        if len(self._seeds) < seeds:
            facts.add_row("scoring seeds", f"{len(self._seeds)} of {seeds}")
        facts.add_row("candidates", f"{len(self._settled)} of {total}")
        if best is not None:
            score = f"{self._measure.name} {score_text(best)}"
            facts.add_row("best", f"{cell(best.identifier)}  {score}")
        stages = Counter(self._stages.values())
        facts.add_row("in flight", ", ".join(f"{n} {name}" for name, n in sorted(stages.items())))
        kinds = Counter(c.kind for c in self._settled if c.status == FAILED)
        facts.add_row("failed", ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()) or "-")
        if self._ledger is not None:
            facts.add_row("spent", spent_text(self._ledger.totals))
        facts.add_row("time", self._time_left(total))
        table = Table(expand=True)
        for column in ("candidate", "operator", f"{self._measure.name} ± s.e.", "idea or failure"):
            table.add_column(column, no_wrap=column != "idea or failure")
        for candidate in self._settled[-SHOWN_CANDIDATES:]:
            table.add_row(*_cells(candidate))
        return Panel(Group(facts, table), title="llamea-gpu evolve")

    def _time_left(self, total: int) -> str:
        elapsed = time.monotonic() - self._started
        text = f"{elapsed:.0f} s"
        if self._new_this_session:
            left = elapsed / self._new_this_session * (total - len(self._settled))
            text += f", about {left:.0f} s left"
        return text


def estimate_text(costs: RunEstimate) -> str:
    """What a run costs at most, in a sentence."""
    text = (
        f"at most {costs.requests} requests before repairs, {costs.prompt_tokens:,} prompt and "
        f"{costs.completion_tokens:,} completion tokens"
    )
    text += f", {costs.usd:.2f} USD" if costs.usd is not None else "; the model has no known price"
    if costs.affordable_requests is not None:
        text += f"; the caps allow {costs.affordable_requests} requests for certain"
    return text


def spent_text(totals: Totals) -> str:
    """Requests, tokens and money in a few words."""
    text = f"{totals.requests} answers, {totals.tokens:,} tokens"
    if totals.estimated_requests:
        text += f" ({totals.estimated_requests} estimated)"
    if totals.usd:
        text += f", {totals.usd:.4f} USD"
    if totals.unpriced_requests:
        text += f" ({totals.unpriced_requests} answers without a price)"
    return text


def _cells(candidate: Candidate) -> tuple[str, str, str, str]:
    score = "failed" if candidate.status == FAILED else score_text(candidate)
    idea = candidate.program.idea if candidate.program else ""
    text = f"{candidate.kind}: {candidate.reason}" if candidate.kind else idea
    return cell(candidate.identifier), cell(candidate.operator), score, cell(text)


def _line(candidate: Candidate, measure: Measure) -> str:
    name, operator, score, text = _cells(candidate)
    if measure is MODELLED and candidate.p is not None:
        score = f"modelled {score}"
    return (
        f"{name:>4}  {operator:10}  {score:15}  {text}"
        if candidate.is_written
        else (f"seed  {operator:24}  {score}")
    )
