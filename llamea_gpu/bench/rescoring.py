"""The best candidates of evolution runs measured again, side by side.

What it does: runs each on the same spaces with the same seeds, which no run has used, as a bench
does, and compares strategies by that.

What it does not do: choose candidates again: those compared are the ones that the runs had chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from llamea_gpu.bench.execution import Progress, make_plan, run_bench
from llamea_gpu.bench.plan import BenchSettings
from llamea_gpu.bench.results import BenchResults
from llamea_gpu.bench.samples import MIN_REPEATS, Samples
from llamea_gpu.bench.strategies import RunScore, Scores, StrategyRun, leaders, scores_of
from llamea_gpu.errors import BenchError
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.training_spaces import above_best_known, marks_of
from llamea_gpu.modelled import AnyTask, WholeTask
from llamea_gpu.programs import Program
from llamea_gpu.runner import BaseRunner
from llamea_gpu.searchers.registry import ProgramSearcher

SEED = 0x5C0E  # of no run and no bench
_RESAMPLES = 400


@dataclass(frozen=True, slots=True)
class NearBest:
    """How near the best known a strategy's last candidates come after ``seconds``, modelled.

    Best time so far / best known: ``mean`` is geometric over runs and spaces, ``worst`` that of the
    worst space.
    """

    strategy: str
    seconds: float
    mean: float
    worst: float


@dataclass(frozen=True, slots=True)
class Rescored:
    """Strategies on spaces that were measured for this; ``near_best`` of whole spaces alone."""

    scores: Scores
    near_best: tuple[NearBest, ...]
    repeats: int
    cpu_s: float


def rescore(
    runs: Sequence[StrategyRun],
    answers: Sequence[int],
    tasks: Sequence[AnyTask],
    runner: BaseRunner,
    *,
    repeats: int,
    settings: BenchSettings,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Rescored:
    """Strategies by their runs' best after each of ``answers``, run ``repeats`` times on ``tasks``.

    With ``folder`` the runs are kept there, as a bench. Tasks on whole spaces have yardsticks.

    Raises:
        BenchError: too few repeats for intervals, no candidate, or the folder holds another bench.
    """
    if repeats < MIN_REPEATS:
        raise BenchError(f"candidates must be run {MIN_REPEATS} times or more, but got {repeats}")
    best = leaders(runs, answers)
    searchers = _searchers(best)
    if not searchers:
        raise BenchError("a comparison needs a scored candidate, but the runs have none")
    distinct = {searcher.name: searcher for searcher in searchers.values()}
    chosen = tuple(distinct.values())
    plan = make_plan(chosen, tasks, repeats, settings)
    results = run_bench(plan, chosen, tasks, runner, folder=folder, progress=progress)
    by_name = {task.name: task for task in tasks}
    samples = Samples.of(plan, by_name, results.runs, _RESAMPLES)
    rows, noise = [], {}
    strategy = {run.name: run.strategy for run in runs}
    for (run, count), candidate in best.items():
        name = searchers[run, count].name
        replicates = samples.replicates(name)
        assert replicates is not None
        deviations = replicates.mean(axis=0)
        noise[run, count] = deviations
        error = float(deviations.std(ddof=1))
        score = float(samples.p(name).mean())
        rows.append(RunScore(run, strategy[run], count, candidate.slot, score, error))
    return Rescored(
        scores=scores_of(plan.measure, list(by_name), runs, answers, rows, noise),
        near_best=_near_best(runs, max(answers), tasks, searchers, results),
        repeats=repeats,
        cpu_s=sum(trace.cpu_s or 0.0 for trace in results.runs.values()),
    )


def _searchers(best: Mapping[tuple[str, int], Candidate]) -> dict[tuple[str, int], ProgramSearcher]:
    """One for each candidate; equal programs share one."""
    by_program: dict[Program, ProgramSearcher] = {}
    searchers = {}
    for (run, count), candidate in best.items():
        program = candidate.program
        assert program is not None  # of a scored candidate
        key = replace(program, idea="")
        searchers[run, count] = by_program.setdefault(
            key, ProgramSearcher(f"{run}{candidate.identifier}", program)
        )
    return searchers


def _near_best(
    runs: Sequence[StrategyRun],
    answers: int,
    tasks: Sequence[AnyTask],
    searchers: Mapping[tuple[str, int], ProgramSearcher],
    results: BenchResults,
) -> tuple[NearBest, ...]:
    whole = [task for task in tasks if isinstance(task, WholeTask)]
    if not whole:
        return ()
    marks_s = marks_of(min(task.budget_s for task in whole))
    near_best = []
    for strategy in dict.fromkeys(run.strategy for run in runs):
        keys = [(run.name, answers) for run in runs if run.strategy == strategy]
        own = [searchers[key].name for key in keys if key in searchers]
        if not own:
            continue
        by_space = np.log(
            [
                above_best_known(
                    [trace for name in own for trace in results.traces(name, task.name)],
                    marks_s,
                    task.optimum_ms,
                    task.default_ms,
                )
                for task in whole
            ]
        )
        mean, worst = np.exp(by_space.mean(axis=0)), np.exp(by_space.max(axis=0))
        near_best += [
            NearBest(strategy, *map(float, row)) for row in zip(marks_s, mean, worst, strict=True)
        ]
    return tuple(near_best)
