"""``llamea-gpu bench``: several searchers on recordings, and what tells them apart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Column, Table

from llamea_gpu.bench import BenchResults, BenchSettings, make_plan, run_bench
from llamea_gpu.bench.baseline import load_baseline
from llamea_gpu.bench.findings import Analysis, Interval, Reach, Standing
from llamea_gpu.bench.iohprofiler import write_logs
from llamea_gpu.bench.plan import Plan
from llamea_gpu.bench.suites import load_patterns, load_suite
from llamea_gpu.cli.measure import ChargeCpu, CpuLimit, Seed
from llamea_gpu.cli.options import (
    AsJson,
    Clock,
    SpacesPath,
    Unsafe,
    Workers,
    output_console,
    search_path,
    warn_if_unsafe,
)
from llamea_gpu.cli.text import cell, plain
from llamea_gpu.errors import BenchError
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import require_ready, resolve
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.tasks import build_tasks

_SHOWN_SPACES = 6  # more columns do not fit a terminal


def bench(
    searchers: Annotated[list[str], typer.Argument(help="Searchers to compare.")],
    spaces: Annotated[
        list[str] | None,
        typer.Option("--spaces", help="Name, pattern, split or file of recordings; repeatable."),
    ] = None,
    suite: Annotated[
        str, typer.Option(help="A split, or quick, small, other-sizes or hub, instead of --spaces.")
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
    cpu_limit: CpuLimit = None,
    charge_cpu: ChargeCpu = False,
    workers: Workers = None,
    spaces_path: SpacesPath = None,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """Compare searchers on recordings (default: the validation split), seeds paired."""
    tasks = build_tasks(_recordings(spaces, suite, spaces_path), clock)
    sources = [resolve(spec) for spec in searchers]
    for source in sources:
        require_ready(source)
    settings = BenchSettings(seed, clock, charge_cpu, cpu_limit)
    plan = make_plan(sources, tasks, repeats, settings)
    known = load_baseline(baseline_from) if baseline or baseline_from else None
    _check_outputs(report, ioh)
    warn_if_unsafe(unsafe)
    with (
        Runner.open(workers=workers, unsafe=unsafe) as runner,
        _progress_bar() as progress,
    ):
        bar = progress.add_task("runs")
        results = run_bench(
            plan,
            sources,
            tasks,
            runner,
            folder=output,
            baseline=known,
            command=("llamea-gpu", *sys.argv[1:]),
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if ioh is not None:
        write_logs(results, {task.name: task.recording.space for task in tasks}, ioh)
    if report is not None:
        _write_report(results, report)
    if as_json:
        typer.echo(results.to_json())
    else:
        _print(results)


def _recordings(
    spaces: list[str] | None, suite: str, spaces_path: list[Path] | None
) -> list[Recording]:
    if suite and spaces:
        raise BenchError("a bench takes --suite or --spaces, but got both: leave one out")
    if suite:
        return load_suite(suite, search_path(spaces_path))
    return load_patterns(spaces or ["validation"], search_path(spaces_path))


def _check_outputs(report: Path | None, ioh: Path | None) -> None:
    """Before hours of runs, not after."""
    if ioh is not None and ioh.exists() and (not ioh.is_dir() or any(ioh.iterdir())):
        raise BenchError(f"--ioh needs a new folder, but {ioh} is not empty: give another")
    if report is not None:
        from llamea_gpu.report import check_output

        check_output(report)


def _write_report(results: BenchResults, file: Path) -> None:
    from llamea_gpu.report import write_report

    write_report(results, file, title=file.stem)
    typer.echo(f"report: {file}", err=True)
    if Console().is_terminal:
        typer.launch(file.resolve().as_uri())


def _progress_bar() -> Progress:
    console = Console(stderr=True)
    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _print(results: BenchResults) -> None:
    analysis = results.analysis
    if analysis is None:
        return
    console = output_console()
    console.print(_standings_table(analysis, results.plan))
    console.print(_effort_table(analysis))
    for sentence in analysis.sentences:
        console.print(cell(sentence), soft_wrap=True)
    for caution in analysis.cautions:
        console.print(f"[yellow]note:[/] {cell(caution)}", soft_wrap=True)
    for standing in analysis.standings:
        if standing.first_error:
            typer.echo(f"{plain(standing.searcher)}: {plain(standing.first_error)}", err=True)


def _standings_table(analysis: Analysis, plan: Plan) -> Table:
    """P with intervals by searcher, and by space where that fits."""
    table = Table(
        Column("place", no_wrap=True),
        Column("searcher", overflow="fold", min_width=24),
        Column("P [95 %]", no_wrap=True),
    )
    shown = plan.spaces if len(plan.spaces) <= _SHOWN_SPACES else ()
    ranks = {r.searcher: r.rank for r in analysis.ranks.mean_ranks} if analysis.ranks else {}
    for space in shown:
        table.add_column(cell(space.name) + ("*" if space.is_lottery else ""), overflow="fold")
    if ranks:
        table.add_column("mean rank", justify="right")
    table.add_column("failed runs", justify="right")
    for standing in analysis.standings:
        row = [
            _place(standing),
            cell(standing.searcher),
            f"[bold]{standing.p:.3f}[/]{_bracketed(standing.interval)}",
        ]
        if shown:
            row += [f"{found.p:.3f}" for found in standing.spaces]
        if ranks:
            row.append(f"{ranks[standing.searcher]:.2f}")
        table.add_row(*row, str(standing.failed_runs) if standing.failed_runs else "-")
    if analysis.ranks:
        table.caption = (
            f"Friedman p {analysis.ranks.friedman_p:.2g}; mean ranks differ from "
            f"{analysis.ranks.critical_difference:.2f} on (Nemenyi)"
        )
    return table


def _place(standing: Standing) -> str:
    first, last = standing.place_best, standing.place_worst
    return str(first) if first == last else f"{first}-{last}"


def _effort_table(analysis: Analysis) -> Table:
    """What it takes to come near the optimum."""
    targets = [reach.percent for reach in analysis.standings[0].reaches]
    table = Table(Column("searcher", overflow="fold"), title="share of runs: median evaluations")
    for percent in targets:
        table.add_column(f"within {percent} %", justify="right")
    for name in ("final regret", "evaluations", "revisits", "failing", "own CPU s"):
        table.add_column(name, justify="right")
    for standing in analysis.standings:
        spaces = standing.spaces
        cpu = [s.cpu_s for s in spaces if s.cpu_s is not None]
        revisits = [s.revisit_share or 0.0 for s in spaces]
        table.add_row(
            cell(standing.searcher),
            *(_reached(reach) for reach in standing.reaches),
            f"{_mean([s.regret for s in spaces]):.2%}",
            f"{_mean([s.evaluations for s in spaces]):.0f}",
            f"{_mean(revisits):.0%}",
            f"{_mean([s.failure_share for s in spaces]):.0%}",
            f"{_mean(cpu):.2f}" if cpu else "-",
        )
    return table


def _reached(reach: Reach) -> str:
    median = reach.median_evaluations
    return f"{reach.share:.0%}: {'-' if median is None else f'{median:g}'}"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _bracketed(interval: Interval | None) -> str:
    return "" if interval is None else f" \\[{interval.low:.3f}, {interval.high:.3f}]"
