"""Runs several searchers on the same tasks with the same seeds and scores them side by side.

A searcher that fails on a run keeps the trace it has (what a user would be left with), and the
failure is counted. Nothing is ranked away: every searcher asked for is in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llamea_gpu.runner import Runner
from llamea_gpu.sandbox import Limits
from llamea_gpu.scoring import Score, SpaceScore, aggregate, score_space
from llamea_gpu.searchers.registry import Searcher
from llamea_gpu.tasks import Task, Trace, run_seed


@dataclass(frozen=True, slots=True)
class Standing:
    """One searcher's result.

    ``failed_runs`` did not end in order or evaluated nothing; ``first_error`` is what the first of
    them said, where it said something.
    """

    searcher: str
    score: Score
    runs: int
    failed_runs: int
    first_error: str | None


def compare(
    searchers: Sequence[Searcher],
    tasks: Sequence[Task],
    runner: Runner,
    *,
    repeats: int,
    seed: int,
    limits: Limits | None = None,
    charge_cpu: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Standing]:
    """Standings of ``searchers``, best P first.

    Seeds are paired: repeat r on a space has the same seed for every searcher. ``progress`` is
    told (runs done, runs in all).
    """
    futures = {
        (place, index, repeat): runner.submit(
            searcher,
            task,
            run_seed(seed, task.recording.info.name, repeat),
            limits=limits,
            charge_cpu=charge_cpu,
        )
        for place, searcher in enumerate(searchers)
        for index, task in enumerate(tasks)
        for repeat in range(repeats)
    }
    standings = []
    done = 0
    for place, searcher in enumerate(searchers):
        scores: list[SpaceScore] = []
        failed: list[Trace] = []
        for index, task in enumerate(tasks):
            traces = []
            for repeat in range(repeats):
                traces.append(futures[place, index, repeat].result())
                done += 1
                if progress:
                    progress(done, len(futures))
            failed += [trace for trace in traces if _is_failed(trace)]
            scores.append(score_space(task, traces))
        total = aggregate(scores)
        error = next((trace.error for trace in failed if trace.error), None)
        runs = repeats * len(tasks)
        standings.append(Standing(searcher.name, total, runs, len(failed), error))
    return sorted(standings, key=lambda standing: -standing.score.p)


def _is_failed(trace: Trace) -> bool:
    return trace.outcome not in ("budget", "finished") or not trace.rows.size
