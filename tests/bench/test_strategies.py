"""Strategies side by side: intervals by hand and by simulation, and candidates measured again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t
from support.candidates import candidate
from support.programs import climber_program, random_program
from support.recordings import small_recording

from llamea_gpu.bench.plan import BenchSettings
from llamea_gpu.bench.rescoring import SEED, rescore
from llamea_gpu.bench.results import BenchResults
from llamea_gpu.bench.strategies import (
    RunScore,
    StrategyRun,
    answers_to_compare_at,
    check_comparable,
    costs,
    scores_of,
    training_scores,
)
from llamea_gpu.errors import BenchError
from llamea_gpu.evolution.candidate import FAILED, LOST, PARTIAL
from llamea_gpu.evolution.population import Population
from llamea_gpu.programs import admit
from llamea_gpu.runner import Runner
from llamea_gpu.scoring import MEASURED, MODELLED, Measure
from llamea_gpu.tasks import build_tasks, run_seed


def run(
    name: str,
    *ps: float,
    strategy: str = "evolution",
    attempts: int = 1,
    problem: str = "x",
    measure: Measure = MEASURED,
    error: float = 0.01,
) -> StrategyRun:
    candidates = [candidate(-1, 0.99, operator="a")]
    candidates += [
        candidate(slot, p, attempts=attempts, tokens=10, error=error) for slot, p in enumerate(ps)
    ]
    return StrategyRun(name, strategy, problem, measure, Population(tuple(candidates)), 2.0)


def test_runs_are_compared_at_the_same_number_of_answers() -> None:
    runs = [run("a", 0.2, 0.5, 0.3, 0.9), run("b", 0.4, attempts=3)]
    answers = answers_to_compare_at(runs)
    assert answers == [1, 2, 3]
    found = training_scores(runs, answers)
    assert [(row.run, row.answers, row.slot) for row in found.runs] == [
        ("a", 1, 0),
        ("a", 2, 1),  # not the seed program, which is better
        ("a", 3, 1),  # not the fourth
        ("b", 3, 0),  # its program took three answers
    ]
    # Where a run of a strategy has nothing yet, the strategy has no mean.
    assert [(row.answers, row.score) for row in found.strategies] == [(3, pytest.approx(0.45))]
    with pytest.raises(BenchError, match=r"from 1 to 3 here, but got 4"):
        answers_to_compare_at(runs, [4])


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (run("b", 0.4, problem="y"), "same spaces"),
        (run("b", 0.4, measure=MODELLED), "these mix them"),
        (run("a", 0.4), "compared once"),
    ],
)
def test_runs_whose_scores_mean_different_things_are_refused(other: StrategyRun, why: str) -> None:
    with pytest.raises(BenchError, match=why):
        check_comparable([run("a", 0.2), other])


def test_an_interval_is_of_the_runs_and_of_their_candidates_errors() -> None:
    runs = [run(f"e{i}", p, error=0.1) for i, p in enumerate((0.5, 0.7, 0.9))]
    runs += [
        run(f"i{i}", p, strategy="independent", error=0.02) for i, p in enumerate((0.4, 0.5, 0.6))
    ]
    reference, found = training_scores(runs, [1]).strategies
    assert (reference.strategy, reference.difference) == ("independent", None)
    assert (found.runs, found.score) == (3, pytest.approx(0.7))
    spread = 0.04 / 3
    variance = spread + 0.01 / 3
    half = t.ppf(0.975, variance**2 / (spread**2 / 2)) * math.sqrt(variance)
    assert found.interval is not None
    assert found.interval.high == pytest.approx(0.7 + half)
    others = 0.01 / 3
    variance += others + 0.0004 / 3
    half = t.ppf(0.975, variance**2 / (spread**2 / 2 + others**2 / 2)) * math.sqrt(variance)
    assert found.difference == pytest.approx(0.2)
    assert found.difference_interval is not None
    assert found.difference_interval.low == pytest.approx(0.2 - half)


def test_errors_on_the_same_seeds_cancel_in_differences() -> None:
    runs = [run(f"e{i}", 0.5) for i in range(2)]
    runs += [run(f"i{i}", 0.5, strategy="independent") for i in range(2)]
    rows = [RunScore(r.name, r.strategy, 1, 0, 0.5, 0.1) for r in runs]
    shared = np.random.default_rng(0).normal(0, 0.1, 200)
    _, found = scores_of(
        MEASURED, ["s"], runs, [1], rows, {(r.name, 1): shared for r in runs}
    ).strategies
    assert found.interval is not None
    assert found.interval.high - found.interval.low == pytest.approx(2 * 1.96 * 0.1, rel=0.1)
    assert found.difference_interval is not None
    assert found.difference_interval.high == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_intervals_hold_what_they_promise_with_three_runs(noise: float) -> None:
    """Strategies that are equal, 600 times: runs differ by .05, measurements by ``noise``."""
    rng = np.random.default_rng(3)
    names = [f"{s}{i}" for s in ("independent", "evolution") for i in range(3)]
    runs = [run(name, 0.0, strategy=name[:-1]) for name in names]
    held = {"interval": 0, "difference": 0}
    for _ in range(600):
        scores = rng.normal(0, 0.05, 6) + rng.normal(0, noise, 6)
        rows = [
            RunScore(r.name, r.strategy, 1, 0, float(x), noise)
            for r, x in zip(runs, scores, strict=True)
        ]
        _, found = scores_of(MEASURED, ["s"], runs, [1], rows).strategies
        for name, interval in (
            ("interval", found.interval),
            ("difference", found.difference_interval),
        ):
            assert interval is not None
            held[name] += interval.low <= 0 <= interval.high
    # 95 % of 600 are 570, with a standard deviation of 5.3; errors counted twice hold more.
    assert all(count >= 555 for count in held.values())


def test_costs_count_answers_that_came_to_nothing() -> None:
    population = Population(
        (
            candidate(-1, 0.9, operator="a"),
            candidate(0, 0.5, tokens=10, attempts=2),
            candidate(1, status=FAILED, program=None, tokens=20, attempts=2),
            candidate(2, 0.1, status=PARTIAL, tokens=5),
            candidate(3, status=FAILED, kind=LOST, attempts=1),
        )
    )
    one = StrategyRun("a", "evolution", "x", MEASURED, population, 3.0)
    together, alone = costs([one])
    assert (together.run, alone.run) == (None, "a")
    assert (alone.answers, alone.failed_answers, alone.tokens, alone.cpu_s) == (5, 3, 35, 3.0)
    assert alone.failed_share == 0.6


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner.open(workers=2) as opened:
        yield opened


def test_the_best_are_measured_again_on_seeds_of_their_own(runner: Runner, tmp_path: Path) -> None:
    """Training says that the random ones are better; measured again they are not."""

    def of(name: str, strategy: str, p: float, source: str) -> StrategyRun:
        written = candidate(0, p, program=admit(source))
        return StrategyRun(name, strategy, "x", MEASURED, Population((written,)), 0.0)

    runs = [
        of("i0", "independent", 0.9, random_program(3)),
        of("i1", "independent", 0.9, random_program(3)),
        of("e0", "evolution", 0.5, climber_program(2)),
        of("e1", "evolution", 0.5, climber_program(4)),
    ]
    tasks = build_tasks([small_recording("held", seed=9)])
    told: list[tuple[int, int]] = []
    settings = BenchSettings(seed=SEED)
    for _ in range(2):
        found = rescore(
            runs,
            [1],
            tasks,
            runner,
            repeats=8,
            settings=settings,
            folder=tmp_path / "kept",
            progress=lambda done, total: told.append((done, total)),
        )
    assert told[0] == (0, 24)  # three programs, for two of the four are the same
    assert told[25:] == [(24, 24)]  # the second time nothing is left to run
    independent, evolution = found.scores.strategies
    assert evolution.difference is not None
    assert evolution.difference > 0.1
    assert independent.score == found.scores.runs[0].score == found.scores.runs[1].score
    kept = BenchResults.load(tmp_path / "kept")
    used = {run_seed(seed, "held", repeat) for seed in range(100) for repeat in range(10)}
    assert used.isdisjoint(trace.seed for trace in kept.runs.values())
    assert found.near_best == ()
    with pytest.raises(BenchError, match="5 times or more"):
        rescore(runs, [1], tasks, runner, repeats=4, settings=settings)
