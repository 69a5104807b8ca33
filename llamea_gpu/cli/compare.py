"""``llamea-gpu runs compare``: runs of several strategies in one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from llamea_gpu.archive import Archive
from llamea_gpu.bench.plan import BenchSettings
from llamea_gpu.bench.rescoring import SEED, Rescored, rescore
from llamea_gpu.bench.strategies import (
    REFERENCE,
    Cost,
    Scores,
    StrategyRun,
    answers_to_compare_at,
    check_comparable,
    costs,
    training_scores,
)
from llamea_gpu.bench.suites import spaces_of
from llamea_gpu.cli.options import (
    AsJson,
    BudgetS,
    Cluster,
    SpacesPath,
    Unfit,
    Unsafe,
    Workers,
    output_console,
    progress_line,
    search_path,
    step,
    warn_if_unsafe,
)
from llamea_gpu.cli.tables import print_table, printed
from llamea_gpu.cli.text import cell
from llamea_gpu.cluster import open_runner
from llamea_gpu.errors import BenchError
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings, recorded_settings
from llamea_gpu.evolution.training_spaces import run_measure
from llamea_gpu.modelled import load_tasks
from llamea_gpu.report.comparison_page import (
    TRAINING,
    costs_table,
    measured_again,
    near_best_table,
    runs_table,
    scores_table,
)
from llamea_gpu.runner.yardsticks import with_yardsticks

LUCK = (
    "The best of many is chosen for its luck too: --on measures the runs' best again, side by side "
    "on spaces that no run has seen."
)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, best several of each strategy.")],
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", help="Suite, split or space to measure the runs' best again on; repeatable."
        ),
    ] = None,
    at: Annotated[
        list[int] | None,
        typer.Option(
            "--at", help="Answers to compare after; repeatable (default: 1, 2, 4, ... and all)."
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=5, max=10_000, help="With --on: runs of each on a space.")
    ] = 20,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="With --on: folder to keep these runs in; it resumes."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="HTML file for a report.")] = None,
    budget_s: BudgetS = None,
    unfit: Unfit = False,
    workers: Workers = None,
    cluster: Cluster = "",
    spaces_path: SpacesPath = None,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """Compare strategies: the best after so many answers, by training or measured again."""
    if report is not None:
        from llamea_gpu.report import check_output

        check_output(report)
    strategy_runs, settings = _read(runs)
    check_comparable(strategy_runs)
    answers = answers_to_compare_at(strategy_runs, at or ())
    training, spent = training_scores(strategy_runs, answers), costs(strategy_runs)
    rescored = None
    if on:
        rules = _rules(settings, budget_s)
        path = (*search_path(spaces_path), *map(Path, settings[0].spaces_path))
        with step("reading the spaces"):
            names = spaces_of(on, path)
            tasks = load_tasks(names, path, rules.clock, unfit=unfit, budget_s=rules.budget_s)
        warn_if_unsafe(unsafe)
        with step("testing the sandbox"):
            opened = open_runner(cluster, workers, unsafe=unsafe)
        with opened as runner, progress_line(_progress, "simulating the yardstick") as show:
            rescored = rescore(
                strategy_runs,
                answers,
                with_yardsticks(tasks, runner),
                runner,
                repeats=repeats,
                settings=rules,
                folder=output,
                progress=lambda done, total: show((done, total)),
            )
    if report is not None:
        from llamea_gpu.report import write_comparison

        write_comparison(training, rescored, spent, report)
        typer.echo(f"report: {report}", err=True)
    if as_json:
        typer.echo(json.dumps(_document(training, rescored, spent), indent=1))
    else:
        _print(training, rescored, spent)


def _read(folders: Sequence[Path]) -> tuple[list[StrategyRun], list[EvolutionSettings]]:
    strategy_runs, recorded = [], []
    for folder in folders:
        with closing(Archive.open(folder, read_only=True)) as archive:
            settings = recorded_settings(archive.facts.get("settings", ""))
            recorded.append(settings)
            strategy_runs.append(
                StrategyRun(
                    name=str(folder),
                    strategy=settings.strategy,
                    problem=archive.facts.get("problem", ""),
                    measure=run_measure(archive.facts),
                    population=Population.read(archive),
                    cpu_s=archive.cpu_s(),
                )
            )
    return strategy_runs, recorded


def _rules(settings: Sequence[EvolutionSettings], budget_s: float | None) -> BenchSettings:
    """As the runs were scored, but on seeds of their own.

    Raises:
        BenchError: they were scored by different rules.
    """
    rules = {
        BenchSettings(
            seed=SEED,
            clock=own.clock,
            charge_cpu=own.charge_cpu,
            cpu_limit_s=own.cpu_limit_s,
            budget_s=own.budget_s if budget_s is None else budget_s,
        )
        for own in settings
    }
    if len(rules) > 1:
        first, second, *_ = rules
        raise BenchError(
            f"runs whose best are measured again must have the same clock, budget and rules for "
            f"CPU time, but one has {first.differences(second)} for another"
        )
    return rules.pop()


def _progress(at: tuple[int, int]) -> str:
    done, total = at
    return f"measuring the runs' best again: {done} of {total} runs"


def _document(training: Scores, rescored: Rescored | None, spent: Sequence[Cost]) -> dict[str, Any]:
    return {
        "reference": REFERENCE,
        "training": _scores_document(training),
        "again": rescored
        and {
            **_scores_document(rescored.scores),
            "near_best_known": [asdict(row) for row in rescored.near_best],
            "repeats": rescored.repeats,
            "cpu_s": rescored.cpu_s,
        },
        "costs": [{**asdict(cost), "failed_share": cost.failed_share} for cost in spent],
    }


def _scores_document(scores: Scores) -> dict[str, Any]:
    return {
        "measure": scores.measure.name,
        "scale": scores.measure.scale,
        "spaces": list(scores.spaces),
        "strategies": [asdict(row) for row in scores.strategies],
        "runs": [asdict(row) for row in scores.runs],
    }


def _print(training: Scores, rescored: Rescored | None, spent: Sequence[Cost]) -> None:
    console = output_console()
    titled_scores = [(TRAINING, training)]
    if rescored is not None:
        titled_scores.append((measured_again(rescored), rescored.scores))
    tables = [scores_table(scores, title) for title, scores in titled_scores]
    if rescored is not None and rescored.near_best:
        tables.append(near_best_table(rescored))
    last = max((row.answers for row in training.runs), default=0)
    for title, scores in titled_scores:
        chosen = tuple(row for row in scores.runs if row.answers == last)
        tables.append(runs_table(replace(scores, runs=chosen), title))
    for table in (*tables, costs_table(spent)):
        print_table(console, printed(table), keys=len(table.text))
    console.print(cell(f"{training.measure.name}: {training.measure.scale}"), soft_wrap=True)
    if rescored is None:
        console.print(LUCK, soft_wrap=True)
