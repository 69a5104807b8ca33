"""``llamea-gpu run`` and ``score``: one run, anybody's traces."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from llamea_gpu.cli.options import (
    MAX_CPU_LIMIT_S,
    AsJson,
    BudgetS,
    Clock,
    SpacesPath,
    Unsafe,
    output_console,
    search_path,
    step,
    warn_if_unsafe,
)
from llamea_gpu.cli.tables import print_table
from llamea_gpu.cli.text import cell, plain
from llamea_gpu.errors import SearcherError, UnknownSpaceError
from llamea_gpu.modelled import AnyTask, WholeTask, load_tasks
from llamea_gpu.runner import Runner
from llamea_gpu.runner.yardsticks import with_yardsticks
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.scoring import Measure, SpaceScore, measure_of, read_traces_csv, score_space
from llamea_gpu.searchers.registry import require_ready, resolve
from llamea_gpu.tasks import Trace

ChargeCpu = Annotated[
    bool, typer.Option("--charge-cpu", help="Add own CPU seconds to the simulated clock.")
]
CpuLimit = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        max=MAX_CPU_LIMIT_S,
        help="CPU seconds a run may take (default: 10; for a library's searcher 3600).",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="The run depends on it alone.")]


def _limits(cpu_s: float | None) -> Limits | None:
    return None if cpu_s is None else Limits(cpu_s=cpu_s)


def _task(
    space: str, clock: str, budget_s: float | None, spaces_path: list[Path] | None
) -> AnyTask:
    tasks = load_tasks([space], search_path(spaces_path), clock, budget_s=budget_s)
    if len(tasks) > 1:
        raise UnknownSpaceError(
            f"a run is of one space, but {space!r} is a split of {len(tasks)}: name one of "
            f"{', '.join(task.name for task in tasks)}"
        )
    return tasks[0]


def run(
    searcher: Annotated[str, typer.Argument(help="A name, FILE.py[:Class], with ?key=value&...")],
    space: Annotated[str, typer.Option(help="Recording to tune, or cloud of a whole space.")],
    seed: Seed = 1,
    clock: Clock = "",
    budget_s: BudgetS = None,
    cpu_limit: CpuLimit = None,
    charge_cpu: ChargeCpu = False,
    spaces_path: SpacesPath = None,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """Run a searcher once on a recording, or a modelled whole space, and print the trace."""
    source = resolve(searcher)
    require_ready(source.name)
    with step("reading the recording"):
        task = _task(space, clock, budget_s, spaces_path)
    warn_if_unsafe(unsafe)
    with step(f"running {cell(source.name)}"), Runner.open(workers=1, unsafe=unsafe) as runner:
        trace = runner.run(source, task, seed, limits=_limits(cpu_limit), charge_cpu=charge_cpu)
        level = runner.level
    if as_json:
        typer.echo(json.dumps(_trace_document(source.name, task, trace, level), indent=1))
    else:
        _print_trace(task, trace)
    if trace.error and not trace.is_failed:  # it went on in spite of that
        typer.echo(f"note: {plain(trace.error)}", err=True)
    elif trace.error:
        raise SearcherError(f"{source.name} failed on {task.name}:\n{trace.error}")
    elif not trace.rows.size:
        raise SearcherError(
            f"a run must measure something, but {source.name} ended without asking for a "
            f"configuration (or none was done within the budget): it asks by evaluate(configs)"
        )


def _trace_document(name: str, task: AnyTask, trace: Trace, level: int) -> dict[str, Any]:
    """The run as JSON. Only ``host`` depends on the machine."""
    visited = map(tuple, task.visited(trace).tolist())
    return {
        "searcher": name,
        "space": task.name,
        "modelled": isinstance(task, WholeTask),
        "clock": task.clock.name,
        "seed": trace.seed,
        "budget_s": task.budget_s,
        "optimum_ms": task.optimum_ms,
        "outcome": trace.outcome,
        "asks": trace.asks,
        "revisits": trace.revisits,
        "trace": [
            {
                "elapsed_s": float(elapsed),
                "cost_ms": float(cost) if math.isfinite(cost) else None,
                "configuration": task.value_dict(configuration),
            }
            for elapsed, cost, configuration in zip(
                trace.elapsed_s, trace.cost_ms, visited, strict=True
            )
        ],
        "error": trace.error,
        "host": {"cpu_s": trace.cpu_s, "sandbox_level": level},
    }


def _print_trace(task: AnyTask, trace: Trace) -> None:
    measure = _measure(task)
    table = Table(
        *("evaluation", "elapsed_s", "time_ms", f"above {measure.best}"),
        title=f"{measure.costs}improvements",
    )
    best = math.inf
    for number, (elapsed, cost) in enumerate(
        zip(trace.elapsed_s, trace.cost_ms, strict=True), start=1
    ):
        if cost < best:
            best = float(cost)
            excess = best / task.optimum_ms - 1
            table.add_row(str(number), f"{elapsed:.2f}", f"{best:.6g}", f"{excess:.2%}")
    print_table(output_console(), table)
    typer.echo(
        f"{trace.outcome} on {measure.costs}{task.name} ({task.clock.name}): "
        f"{len(trace.rows)} evaluations in {task.budget_s:.1f} simulated s, "
        f"{trace.revisits} revisits, own CPU {trace.cpu_s or 0:.2f} s"
    )


def _measure(task: AnyTask) -> Measure:
    return measure_of(isinstance(task, WholeTask))


def score(
    traces: Annotated[Path, typer.Argument(help="CSV with columns run,elapsed_s,cost.")],
    space: Annotated[str, typer.Option(help="Recording that was tuned.")],
    clock: Clock = "",
    budget_s: BudgetS = None,
    spaces_path: SpacesPath = None,
    unsafe: Unsafe = False,
    as_json: AsJson = False,
) -> None:
    """Score traces that anything produced; an empty or 'inf' cost is a failed configuration."""
    task = _task(space, clock, budget_s, spaces_path)
    if isinstance(task, WholeTask):
        with step("simulating the yardstick"), Runner.open(unsafe=unsafe) as runner:
            (task,) = with_yardsticks([task], runner)
    space_score = score_space(task, read_traces_csv(traces))
    if as_json:
        typer.echo(json.dumps(_score_document(task, space_score), indent=1))
        return
    # A single run has no standard error.
    error = "" if space_score.standard_error is None else f" ± {space_score.standard_error:.3f}"
    typer.echo(
        f"{_measure(task).name} {space_score.p:.3f}{error} on {space_score.space} "
        f"({space_score.runs} runs, budget {task.budget_s:.1f} s, clock {task.clock.name})"
    )


def _score_document(task: AnyTask, space_score: SpaceScore) -> dict[str, Any]:
    return {
        "space": space_score.space,
        "modelled": isinstance(task, WholeTask),
        "clock": task.clock.name,
        "p": space_score.p,
        "standard_error": space_score.standard_error,
        "runs": space_score.runs,
        "budget_s": task.budget_s,
        "budget_evaluations": task.budget_evaluations,
        "optimum_ms": task.optimum_ms,
        "median_ms": task.median_ms,
        "axis_s": [float(t) for t in task.axis_s],
        "p_curve": [float(p) for p in space_score.curve],
    }
