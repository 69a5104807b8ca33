"""Runs side by side, such as one of each strategy, at the same number of answers.

Scores are those of training, and the best of many is chosen for its luck too: `bench` compares
winners fairly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llamea_gpu.errors import ArchiveError
from llamea_gpu.evolution.candidate import FAILED, Candidate
from llamea_gpu.evolution.population import Population


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run to compare: its name, strategy, problem and candidates."""

    run: str
    strategy: str
    problem: str
    population: Population


@dataclass(frozen=True, slots=True)
class Effort:
    """What a run took as a whole, and the best that it had after ``at_answers`` answers.

    ``best`` is a candidate that a model wrote; None, as its P, when none was scored by then.
    """

    run: str
    strategy: str
    answers: int
    tokens: int
    failed: int
    at_answers: int
    best: str | None
    p: float | None
    standard_error: float | None


def compare(runs: Sequence[RunResult]) -> list[Effort]:
    """Each run's effort, at the number of answers that all of them have.

    Raises:
        ArchiveError: the runs' scores rest on different recordings or seed programs.
    """
    if len({result.problem for result in runs}) > 1:
        raise ArchiveError(
            "compared runs must have been scored on the same recordings with the same seed "
            f"programs, but these differ: {', '.join(result.run for result in runs)}"
        )
    totals = [_answers(result.population.written().candidates) for result in runs]
    common = min(totals, default=0)
    return [_effort(result, total, common) for result, total in zip(runs, totals, strict=True)]


def _effort(result: RunResult, answers: int, common: int) -> Effort:
    written = result.population.written().candidates
    early = [c for place, c in enumerate(written, 1) if _answers(written[:place]) <= common]
    best = Population(tuple(early)).best()
    return Effort(
        run=result.run,
        strategy=result.strategy,
        answers=answers,
        tokens=sum(c.tokens for c in written),
        failed=sum(c.status == FAILED for c in written),
        at_answers=common,
        best=best.identifier if best else None,
        p=best.p if best else None,
        standard_error=best.standard_error if best else None,
    )


def _answers(candidates: Sequence[Candidate]) -> int:
    return sum(c.attempts for c in candidates)
