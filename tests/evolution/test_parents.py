"""Who breeds: an elite that is not a family of clones, whoever leads somewhere, mates that help."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.candidates import candidate

from llamea_gpu.evolution.behaviour import STYLE_NAMES, Behaviour
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.parents import (
    Pool,
    breeding_pool,
    diverse_elite,
    draw_first,
    draw_mate,
    pareto_front,
)
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings

SETTINGS = EvolutionSettings(model="m", parents=3, offspring=4)


def at(place: float) -> tuple[Behaviour, ...]:
    """A behaviour of which every feature is ``place``."""
    return (Behaviour("s0", (place,) * len(STYLE_NAMES), (place, 1 - place), (2,)),)


def slots(candidates: list[Candidate]) -> list[int]:
    return [c.slot for c in candidates]


@pytest.mark.parametrize("seed", range(20))
def test_without_errors_the_front_is_what_nobody_dominates(seed: int) -> None:
    scores = np.random.default_rng(seed).random((30, 4))
    candidates = [candidate(slot, *p, error=0.0) for slot, p in enumerate(scores)]
    expected = [
        slot
        for slot, p in enumerate(scores)
        if not any((q >= p).all() and (q > p).any() for q in scores)
    ]
    assert slots(pareto_front(candidates)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_best_by_mean_is_on_the_front_and_errors_only_shrink_it(seed: int) -> None:
    scores = np.random.default_rng(seed).random((30, 4))
    fronts = []
    for error in (0.0, 0.05, 0.2, 5.0):
        candidates = [candidate(slot, *p, error=error) for slot, p in enumerate(scores)]
        fronts.append(set(slots(pareto_front(candidates))))
    best = int(np.argmax(scores.mean(axis=1)))
    assert all(best in front for front in fronts)
    assert fronts[0] >= fronts[1] >= fronts[2] >= fronts[3] == {best}


def test_a_specialist_breeds_although_its_mean_is_low() -> None:
    good = [candidate(slot, 0.6, 0.6, 0.6) for slot in range(4)]
    specialist = candidate(4, 0.0, 0.0, 0.9)
    pool = breeding_pool(Population((*good, specialist)), SETTINGS)
    assert specialist not in pool.elite
    assert specialist in pool.front
    drawn = Counter(draw_first(pool, np.random.default_rng(n)).slot for n in range(1000))
    assert 0.05 < drawn[4] / 1000 < 0.2  # its space is one of three, drawn three times in ten


def test_a_lead_within_the_errors_is_none() -> None:
    better = candidate(0, 0.60, 0.60, error=0.05)
    other = candidate(1, 0.62, 0.50, error=0.05)
    assert slots(pareto_front([better, other])) == [0]


def test_a_copy_waits_until_nobody_else_is_left() -> None:
    ranked = [
        candidate(0, 0.80, behaviour=at(0.5)),
        candidate(1, 0.80, behaviour=at(0.5)),
        candidate(2, 0.70, behaviour=at(0.9)),
        candidate(3, 0.60, behaviour=at(0.1)),
    ]
    assert slots(diverse_elite(ranked, 3)) == [0, 2, 3]
    assert slots(diverse_elite(ranked, 4)) == [0, 1, 2, 3]


def test_same_behaviour_with_a_clearly_better_score_is_no_copy() -> None:
    ranked = [candidate(0, 0.8, behaviour=at(0.5)), candidate(1, 0.7, behaviour=at(0.5))]
    ranked.append(candidate(2, 0.6, behaviour=at(0.9)))
    assert slots(diverse_elite(ranked, 2)) == [0, 1]


def test_within_the_errors_the_more_novel_stays() -> None:
    ranked = [
        candidate(0, 0.800, behaviour=at(0.5)),
        candidate(1, 0.700, behaviour=at(0.45)),
        candidate(2, 0.695, behaviour=at(0.9)),
        candidate(3, 0.500, behaviour=at(0.0)),
    ]
    assert slots(diverse_elite(ranked, 2)) == [0, 2]  # 3 is more novel yet, but clearly worse


def test_without_behaviours_the_elite_is_the_best() -> None:
    ranked = [candidate(slot, 0.9 - 0.001 * slot) for slot in range(6)]
    assert slots(diverse_elite(ranked, 3)) == [0, 1, 2]


def test_a_mate_is_drawn_by_what_it_adds_where_the_first_is_weak() -> None:
    first = candidate(0, 0.8, 0.1)
    helps, hardly, worse = candidate(1, 0.3, 0.7), candidate(2, 0.7, 0.2), candidate(3, 0.7, 0.05)
    pool = Pool((first, helps, hardly, worse))
    mates = [draw_mate(first, pool, np.random.default_rng(n)) for n in range(700)]
    drawn = Counter(mate.slot for mate in mates if mate)
    assert set(drawn) == {1, 2}
    assert drawn[1] == pytest.approx(600, abs=40)  # 0.6 and 0.1 are added on s1


def test_nobody_to_gain_from_is_no_mate() -> None:
    first = candidate(0, 0.8, 0.8)
    pool = Pool((first, candidate(1, 0.7, 0.7)))
    assert draw_mate(first, pool, np.random.default_rng(1)) is None


def test_the_pool_of_earlier_versions_is_the_elite_alone() -> None:
    settings = SETTINGS.model_copy(update={"parent_choice": "elite"})
    population = Population(tuple(candidate(i, 0.1 * i, 1 - 0.2 * i) for i in range(5)))
    pool = breeding_pool(population, settings)
    assert (list(pool.elite), pool.front) == (population.elite(3), ())
