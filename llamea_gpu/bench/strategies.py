"""Ways of asking side by side: several evolution runs of each strategy, at equal answers.

What it does: the best that each run had after so many answers, the mean of that over the runs of a
strategy with a 95 % interval, the difference to `REFERENCE`, and what it all cost.

What it does not do: run anything. `llamea_gpu.bench.rescoring` measures the runs' best candidates
again, side by side: the score that a run chose its best by is too high, because the best of many
is chosen for its luck too.

The rule of the intervals. A run's score spreads for two reasons: another run would have found
another candidate, and another measurement would have given this one another score. With n runs of
a strategy, the variance of their mean is s^2 / n, s being their standard deviation, plus what the
candidates' errors add to the mean. That is the bootstrap over runs and errors, without its draws
and with n - 1 for n. The first part has n - 1 degrees of freedom, differences add theirs by
Satterthwaite's rule, and intervals are Student's. The candidates' errors are in s as well: counted
twice, they make intervals wider, never narrower. One run says nothing about others, and has no
interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.bench.findings import Interval
from llamea_gpu.errors import BenchError
from llamea_gpu.evolution.candidate import FAILED, Candidate
from llamea_gpu.evolution.population import Population
from llamea_gpu.scoring import Measure
from llamea_gpu.statistics import student_half_width

FloatArray = NDArray[np.float64]

REFERENCE = "independent"  # what strategies are compared with: best of n


@dataclass(frozen=True, slots=True)
class StrategyRun:
    """One evolution run.

    ``problem`` is the identity of what its scores rest on, ``measure`` what they are called,
    ``cpu_s`` what its candidates computed.
    """

    name: str
    strategy: str
    problem: str
    measure: Measure
    population: Population
    cpu_s: float

    @property
    def answers(self) -> int:
        """How many answers it got."""
        return _answers(self.population.written().candidates)

    def best_after(self, answers: int) -> Candidate | None:
        """The best candidate that a model wrote within so many answers; None if none is scored."""
        written = self.population.written().candidates
        early = [c for place, c in enumerate(written, 1) if _answers(written[:place]) <= answers]
        return Population(tuple(early)).best()


@dataclass(frozen=True, slots=True)
class Cost:
    """What the ``runs`` of a strategy took together; one whose name is ``run``, alone.

    ``failed_answers`` could not be used, or their programs failed; ``cpu_s`` are the candidates'.
    """

    strategy: str
    run: str | None
    runs: int
    answers: int
    failed_answers: int
    tokens: int
    cpu_s: float

    @property
    def failed_share(self) -> float:
        """Failed answers among all."""
        return self.failed_answers / self.answers if self.answers else 0.0


@dataclass(frozen=True, slots=True)
class RunScore:
    """The candidate of ``slot`` was the best of ``run`` after ``answers``."""

    run: str
    strategy: str
    answers: int
    slot: int
    score: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class StrategyScore:
    """The mean over the runs of a strategy of their best after ``answers``.

    ``difference`` is to `REFERENCE`; None of it itself and where there is no run of it.
    """

    strategy: str
    answers: int
    runs: int
    score: float
    interval: Interval | None
    difference: float | None
    difference_interval: Interval | None


@dataclass(frozen=True, slots=True)
class Scores:
    """Strategies on the same ``spaces``, by ``measure``; by answers, then by strategy."""

    measure: Measure
    spaces: tuple[str, ...]
    strategies: tuple[StrategyScore, ...]
    runs: tuple[RunScore, ...]


def check_comparable(runs: Sequence[StrategyRun]) -> None:
    """Raises BenchError: the runs' scores mean different things."""
    names = ", ".join(run.name for run in runs)
    if len({run.name for run in runs}) < len(runs):
        raise BenchError(f"each run is compared once, but got {names}")
    if len({run.measure for run in runs}) > 1:
        raise BenchError(
            f"compared runs must all be on recordings, which are measured, or all on whole spaces, "
            f"which are modelled, but these mix them: {names}"
        )
    if len({run.problem for run in runs}) > 1:
        raise BenchError(
            f"compared runs must have been scored on the same spaces with the same seed programs "
            f"and inspirations, but these differ: {names}"
        )


def answers_to_compare_at(runs: Sequence[StrategyRun], counts: Sequence[int] = ()) -> list[int]:
    """Numbers of answers that all runs have: powers of two and the most, unless some are wanted.

    Raises:
        BenchError: a run has no answers, or fewer than wanted.
    """
    most = min((run.answers for run in runs), default=0)
    if most < max([1, *counts]) or min(counts, default=1) < 1:
        raise BenchError(
            f"runs are compared after answers that all of them have, from 1 to {most} here, but "
            f"got {', '.join(map(str, counts)) or 'none in one of them'}"
        )
    return sorted(set(counts) or {*(2**power for power in range(most.bit_length())), most})


def leaders(
    runs: Sequence[StrategyRun], answers: Sequence[int]
) -> dict[tuple[str, int], Candidate]:
    """The best candidate of each run after each of ``answers``, where one was scored by then."""
    best = {(run.name, count): run.best_after(count) for run in runs for count in answers}
    return {key: candidate for key, candidate in best.items() if candidate is not None}


def training_scores(runs: Sequence[StrategyRun], answers: Sequence[int]) -> Scores:
    """Strategies by the scores that the runs themselves chose by."""
    best = leaders(runs, answers)
    spaces = next((tuple(c.space_p()) for c in best.values()), ())
    rows = [
        RunScore(run.name, run.strategy, count, c.slot, c.p or 0.0, c.standard_error or 0.0)
        for count in answers
        for run in runs
        if (c := best.get((run.name, count))) is not None
    ]
    return scores_of(runs[0].measure, spaces, runs, answers, rows)


def scores_of(
    measure: Measure,
    spaces: Sequence[str],
    runs: Sequence[StrategyRun],
    answers: Sequence[int],
    rows: Sequence[RunScore],
    noise: Mapping[tuple[str, int], FloatArray] | None = None,
) -> Scores:
    """Strategies by the scores of their runs' best.

    ``noise`` are deviations of each score, by run and answers, drawn together (draws,): errors of
    candidates that ran on the same seeds are paired. Without it errors are independent. A strategy
    of which a run has nothing scored after so many answers has no score there.
    """
    members = {s: [r.name for r in runs if r.strategy == s] for s in _strategies(runs)}
    strategy_scores: list[StrategyScore] = []
    for count in answers:
        here = {row.run: row for row in rows if row.answers == count}
        groups = {s: names for s, names in members.items() if all(name in here for name in names)}
        present = [here[name] for names in groups.values() for name in names]
        strategy_scores += _strategy_scores(count, groups, present, _covariance(present, noise))
    return Scores(measure, tuple(spaces), tuple(strategy_scores), tuple(rows))


def costs(runs: Sequence[StrategyRun]) -> tuple[Cost, ...]:
    """Each strategy's, then each run's."""
    alone = [_cost(run) for run in runs]
    together = [
        Cost(
            strategy=strategy,
            run=None,
            runs=len(own),
            answers=sum(cost.answers for cost in own),
            failed_answers=sum(cost.failed_answers for cost in own),
            tokens=sum(cost.tokens for cost in own),
            cpu_s=sum(cost.cpu_s for cost in own),
        )
        for strategy in _strategies(runs)
        if (own := [cost for cost in alone if cost.strategy == strategy])
    ]
    return (*together, *alone)


def _cost(run: StrategyRun) -> Cost:
    written = run.population.written().candidates
    answers = _answers(written)
    return Cost(
        strategy=run.strategy,
        run=run.name,
        runs=1,
        answers=answers,
        failed_answers=answers - sum(c.status != FAILED for c in written),
        tokens=sum(c.tokens for c in written),
        cpu_s=run.cpu_s,
    )


def _answers(candidates: Sequence[Candidate]) -> int:
    """A call that the route lost brought none."""
    return sum(c.attempts - c.is_lost for c in candidates)


def _strategies(runs: Sequence[StrategyRun]) -> list[str]:
    """The reference first, then as they come."""
    return sorted(dict.fromkeys(run.strategy for run in runs), key=lambda name: name != REFERENCE)


def _covariance(
    rows: Sequence[RunScore], noise: Mapping[tuple[str, int], FloatArray] | None
) -> FloatArray:
    if noise is None:
        return np.diag([row.standard_error**2 for row in rows])
    return np.atleast_2d(np.cov([noise[row.run, row.answers] for row in rows]))


def _strategy_scores(
    count: int,
    groups: Mapping[str, Sequence[str]],
    rows: Sequence[RunScore],
    covariance: FloatArray,
) -> list[StrategyScore]:
    values = np.array([row.score for row in rows])
    weights, spreads = {}, {}
    for strategy, names in groups.items():
        own = np.array([row.run in names for row in rows])
        weights[strategy] = own / own.sum()
        # None: one run says nothing about the spread.
        spreads[strategy] = (
            (float(values[own].var(ddof=1)) / len(names), len(names) - 1)
            if len(names) > 1
            else None
        )

    def estimate(weight: FloatArray, parts: Sequence[tuple[float, int] | None]) -> Interval | None:
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        variance = sum(part for part, _ in known) + float(weight @ covariance @ weight)
        uncertain = sum(part**2 / degrees for part, degrees in known)
        degrees = variance**2 / uncertain if uncertain else math.inf
        half_width = float(student_half_width(math.sqrt(variance), degrees))
        middle = float(weight @ values)
        return Interval(middle - half_width, middle + half_width)

    scores = []
    for strategy, names in groups.items():
        weight = weights[strategy]
        compared = REFERENCE in groups and strategy != REFERENCE
        step = weight - weights[REFERENCE] if compared else weight
        both = [spreads[strategy], spreads.get(REFERENCE)]
        scores.append(
            StrategyScore(
                strategy=strategy,
                answers=count,
                runs=len(names),
                score=float(weight @ values),
                interval=estimate(weight, both[:1]),
                difference=float(step @ values) if compared else None,
                difference_interval=estimate(step, both) if compared else None,
            )
        )
    return scores
