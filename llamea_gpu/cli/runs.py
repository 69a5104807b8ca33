"""``llamea-gpu runs``: list, show, compare, record."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.syntax import Syntax
from rich.table import Table

from llamea_gpu.archive import FILE_NAME, Archive
from llamea_gpu.cli.compare import compare
from llamea_gpu.cli.options import AsJson, output_console
from llamea_gpu.cli.tables import (
    LEADERS,
    arms_table,
    generation_table,
    leaders_table,
    print_table,
    printed,
    score_text,
)
from llamea_gpu.cli.text import cell, plain
from llamea_gpu.errors import ArchiveError
from llamea_gpu.evolution.behaviour import novelty
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.inspiration import recorded_provenance
from llamea_gpu.evolution.population import Population, settled_traces
from llamea_gpu.evolution.settings import recorded_settings
from llamea_gpu.evolution.training_spaces import run_measure, training_spaces
from llamea_gpu.llm import save_recording
from llamea_gpu.prompting import Feedback
from llamea_gpu.report.run_page import times_table
from llamea_gpu.scoring import MODELLED, Measure

app = typer.Typer(no_args_is_help=True, help="Recorded evolution runs.")
Run = Annotated[Path, typer.Argument(help="Run folder.")]
_SHOWN = (  # of a candidate, by ``show --json``
    *("slot", "generation", "operator", "tokens", "usd", "parents", "status", "kind", "attempts"),
    *("p", "standard_error"),
)


@app.command("list")
def list_(
    folder: Annotated[Path, typer.Argument(help="Folder that holds run folders.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs under a folder."""
    if not folder.is_dir():
        raise ArchiveError(f"runs are listed under a folder, but {folder} is none: name another")
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.rglob(FILE_NAME)):
        try:
            rows.append(_summary(path.parent))
        except ArchiveError as error:
            typer.secho(f"warning: {error}", fg=typer.colors.YELLOW, err=True)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("run", "created", "candidates", "best", "score")
    for row in rows:
        score = f"{row['measure']} {row['p']:.3f}" if row["p"] is not None else "-"
        best = cell(row["best"] or "-")
        table.add_row(cell(row["run"]), row["created"], str(row["candidates"]), best, score)
    print_table(output_console(), table)


def _summary(run: Path) -> dict[str, Any]:
    with closing(Archive.open(run, read_only=True)) as archive:
        population = Population.read(archive)
        best = population.best()
        return {
            "run": str(run),
            "created": archive.facts.get("created", ""),
            "candidates": len(population.written().candidates),
            "best": best.identifier if best else None,
            "p": best.p if best else None,
            "measure": run_measure(archive.facts).name,
        }


@app.command()
def show(
    run: Run,
    candidate: Annotated[int | None, typer.Option(help="Show one candidate (its slot).")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a run, or one candidate of it with its program and feedback."""
    with closing(Archive.open(run, read_only=True)) as archive:
        population = Population.read(archive)
        settings = recorded_settings(archive.facts.get("settings", ""))
        brought = recorded_provenance(archive.facts)
        answers = [call.answer for call in archive.calls() if call.answer is not None]
        measure, spaces = run_measure(archive.facts), training_spaces(archive.facts)
        leaders = population.elite(LEADERS) if candidate is None else [_find(population, candidate)]
        times = None
        if measure is MODELLED:
            times = printed(times_table(spaces, [(c, settled_traces(archive, c)) for c in leaders]))
    if candidate is not None:
        _show_candidate(leaders[0], measure, times, as_json=as_json)
        return
    if as_json:
        novel = novelty({c.slot: c.behaviour for c in population.candidates})
        rows = [{**_row(c), "novelty": novel.get(c.slot)} for c in population.candidates]
        document = {
            "settings": settings.model_dump(),
            "measure": measure.name,
            "inspirations": brought,
            "candidates": rows,
        }
        typer.echo(json.dumps(document, indent=1))
        return
    console = output_console()
    print_table(console, generation_table(population, settings.offspring, measure))
    print_table(console, leaders_table(population, measure))
    if times is not None:
        print_table(console, times, keys=2)
    print_table(console, arms_table(population, settings))
    for item in brought:
        facts = ", ".join(f"{key} {value}" for key, value in item.items() if key != "spec")
        console.print(f"inspiration {cell(item.get('spec', '?'))}: {cell(facts)}", soft_wrap=True)
    failures = Counter(c.kind for c in population.candidates if c.kind)
    console.print("failures:", ", ".join(f"{n} {cell(k)}" for k, n in failures.items()) or "none")
    tokens = sum(a.usage.prompt_tokens + a.usage.completion_tokens for a in answers)
    console.print(f"answers: {len(answers)}, {tokens:,} tokens")


def _row(candidate: Candidate) -> dict[str, Any]:
    """One line about a candidate; ``show --candidate`` has the rest."""
    return {
        **{name: getattr(candidate, name) for name in _SHOWN},
        "model": candidate.asked_model or candidate.model,
        "space_p": candidate.space_p(),
        "idea": candidate.program.idea if candidate.program else "",
    }


def _find(population: Population, slot: int) -> Candidate:
    candidate = population.find(slot)
    if candidate is not None:
        return candidate
    slots = [c.slot for c in population.candidates]
    raise ArchiveError(
        f"--candidate must be a settled slot, got {slot}: "
        + (f"this run has {min(slots)} to {max(slots)}" if slots else "this run has none yet")
    )


def _show_candidate(
    candidate: Candidate, measure: Measure, times: Table | None, *, as_json: bool
) -> None:
    if as_json:
        typer.echo(json.dumps(candidate.to_document(), indent=1))
        return
    console = output_console()
    name = f"{candidate.identifier} {candidate.operator}"
    scored = candidate.p is not None
    console.print(f"{cell(name)}: {measure.name + ' ' if scored else ''}{score_text(candidate)}")
    if candidate.message:
        console.print(cell(candidate.message))
    if candidate.feedback is not None and candidate.feedback.spaces:
        print_table(console, _feedback_table(candidate.feedback, measure))
    if times is not None:
        print_table(console, times, keys=2)
    if candidate.program is not None:
        source = plain(candidate.program.source)
        if console.is_terminal:
            console.print(Syntax(source, "python", word_wrap=True))
        else:
            typer.echo(source)


def _feedback_table(feedback: Feedback, measure: Measure) -> Table:
    """What the model is told of a candidate, as numbers."""
    score = f"{measure.name} ± s.e."
    table = Table("space", score, "best seed", "evaluations", "failures", "regret", "own CPU s")
    for space_result in feedback.spaces:
        table.add_row(
            cell(space_result.space),
            f"{space_result.p:.3f} ± {space_result.standard_error:.3f}",
            f"{space_result.reference_p:.3f} ({cell(space_result.reference)})",
            f"{space_result.evaluations:.1f}",
            f"{space_result.failure_share:.1%}",
            f"{space_result.regret:.2%}",
            f"{space_result.cpu_s:.2f}",
        )
    return table


app.command("compare")(compare)


@app.command()
def record(
    run: Run,
    output: Annotated[Path, typer.Option("-o", "--output", help="JSONL file to write.")],
) -> None:
    """Write a run's requests and answers as a recording that the replay route answers from."""
    with closing(Archive.open(run, read_only=True)) as archive:
        lost = {c.slot for c in Population.read(archive).candidates if c.is_lost}
        exchanges = [
            (call.request, call.answer)
            for call in archive.calls()
            if call.answer is not None or call.slot in lost
        ]
    if not exchanges:
        raise ArchiveError(f"a recording needs answers, but {run} has none yet")
    save_recording(output, exchanges)
    typer.echo(f"{output}: {len(exchanges)} answers")
