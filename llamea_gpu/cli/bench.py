"""``llamea-gpu bench``: several searchers on recordings, and what tells them apart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from llamea_gpu.bench import BenchResults, BenchSettings, make_plan, run_bench
from llamea_gpu.bench.ioh import write_logs
from llamea_gpu.bench.results import load_baseline
from llamea_gpu.bench.suites import spaces_of, suite_spaces
from llamea_gpu.cli.measure import ChargeCpu, CpuLimit, Seed
from llamea_gpu.cli.options import (
    AsJson,
    BudgetS,
    Clock,
    Cluster,
    SpacesPath,
    Unfit,
    Unsafe,
    Workers,
    output_console,
    search_path,
    step,
    warn_if_unsafe,
)
from llamea_gpu.cli.tables import print_table, printed
from llamea_gpu.cli.text import cell, plain
from llamea_gpu.cluster import open_runner
from llamea_gpu.errors import BenchError
from llamea_gpu.modelled import load_tasks
from llamea_gpu.report.bench_tables import effort_table, spaces_table, standings_table
from llamea_gpu.runner.yardsticks import with_yardsticks
from llamea_gpu.searchers.registry import require_ready, resolve
from llamea_gpu.tasks import Task


def bench(
    searchers: Annotated[list[str], typer.Argument(help="Searchers to compare.")],
    spaces: Annotated[
        list[str] | None,
        typer.Option(
            "--spaces", help="Name, pattern, split, suite or file of recordings; repeatable."
        ),
    ] = None,
    suite: Annotated[
        str,
        typer.Option(
            help="A split, or quick, small, other-sizes, hub or whole, instead of --spaces."
        ),
    ] = "",
    repeats: Annotated[
        int, typer.Option(min=1, max=10_000, help="Runs of each searcher on a space.")
    ] = 10,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder to keep the bench in; it resumes and grows."),
    ] = None,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Add the repository's results without running them.")
    ] = False,
    baseline_from: Annotated[
        Path | None, typer.Option(help="Add the results of another bench's folder instead.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="HTML file for a report; a terminal's user sees it.")
    ] = None,
    ioh: Annotated[
        Path | None, typer.Option(help="New folder for logs in the IOHprofiler format.")
    ] = None,
    seed: Seed = 1,
    clock: Clock = "",
    budget_s: BudgetS = None,
    cpu_limit: CpuLimit = None,
    charge_cpu: ChargeCpu = False,
    workers: Workers = None,
    cluster: Cluster = "",
    spaces_path: SpacesPath = None,
    unfit: Unfit = False,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """Compare searchers (default: on the validation split), seeds paired.

    On recordings, or on modelled whole spaces.
    """
    _check_outputs(report, ioh)
    sources = [resolve(spec) for spec in searchers]
    for source in sources:
        require_ready(source.name)
    with step("reading the recordings"):
        names = _spaces(spaces, suite, spaces_path)
        tasks = load_tasks(names, search_path(spaces_path), clock, unfit=unfit, budget_s=budget_s)
        settings = BenchSettings(seed, clock, charge_cpu, cpu_limit, budget_s)
        plan = make_plan(sources, tasks, repeats, settings)
        known = load_baseline(baseline_from) if baseline or baseline_from else None
    warn_if_unsafe(unsafe)
    bar = _progress_bar(plan.size)

    def show(done: int, total: int) -> None:
        text = "runs" if done < total else "comparing them"
        bar.update(bar.task_ids[0], completed=done, total=total, description=text)

    try:
        with step("testing the sandbox"):
            opened = open_runner(cluster, workers, unsafe=unsafe)
        with opened as runner, bar:
            tasks = with_yardsticks(tasks, runner)
            results = run_bench(
                plan,
                sources,
                tasks,
                runner,
                folder=output,
                baseline=known,
                command=("llamea-gpu", *sys.argv[1:]),
                progress=show,
            )
    except KeyboardInterrupt:
        typer.echo(_kept(bar, output), err=True)
        raise typer.Exit(130) from None
    if ioh is not None:
        listed = {t.name: t.recording.space for t in tasks if isinstance(t, Task)}
        write_logs(results, listed, ioh)
    if report is not None:
        title = output.resolve().name if output else suite or " ".join(spaces or ["validation"])
        _write_report(results, report, title)
    if as_json:
        typer.echo(results.to_json())
    else:
        _print(results)


def _spaces(
    spaces: list[str] | None, suite: str, spaces_path: list[Path] | None
) -> tuple[str, ...]:
    if suite and spaces:
        raise BenchError("a bench takes --suite or --spaces, but got both: leave one out")
    if suite:
        return suite_spaces(suite, search_path(spaces_path))
    return spaces_of(spaces or ["validation"], search_path(spaces_path))


def _check_outputs(report: Path | None, ioh: Path | None) -> None:
    """Before hours of runs, not after."""
    if ioh is not None and ioh.exists() and (not ioh.is_dir() or any(ioh.iterdir())):
        raise BenchError(f"--ioh needs a new folder, but {ioh} is not empty: give another")
    if report is not None:
        from llamea_gpu.report import check_output

        check_output(report)


def _write_report(results: BenchResults, file: Path, title: str) -> None:
    from llamea_gpu.report import write_report

    write_report(results, file, title=title)
    typer.echo(f"report: {file}", err=True)
    if Console().is_terminal:
        typer.launch(file.resolve().as_uri())


def _progress_bar(total: int) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    bar.add_task("runs", total=total)
    return bar


def _kept(bar: Progress, folder: Path | None) -> str:
    """What is left of a bench that was stopped, and how it goes on."""
    if folder is None:
        return "stopped; nothing is kept: with -o FOLDER a bench keeps its runs and goes on"
    task = bar.tasks[0]
    return (
        f"stopped; {task.completed:g} of {task.total:g} runs are kept in {folder}: the same "
        f"command goes on"
    )


def _print(results: BenchResults) -> None:
    analysis = results.analysis
    if analysis is None:
        return
    console = output_console()
    standings, spaces, measure = analysis.standings, results.plan.spaces, results.plan.measure
    print_table(console, printed(standings_table(standings, spaces, measure)), keys=2)
    print_table(console, printed(effort_table(standings, measure)))
    print_table(console, printed(spaces_table(standings, spaces, measure)))
    console.print(cell(f"{measure.name}: {measure.scale}"), soft_wrap=True)
    for sentence in analysis.sentences:
        console.print(cell(sentence), soft_wrap=True)
    for caution in analysis.cautions:
        console.print(f"[yellow]note:[/] {cell(caution)}", soft_wrap=True)
    for standing in analysis.standings:
        if standing.first_error:
            typer.echo(f"{plain(standing.searcher)}: {plain(standing.first_error)}", err=True)
