from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from support.candidates import candidate

from llamea_gpu.errors import ArchiveError
from llamea_gpu.evolution.candidate import FAILED, PARTIAL, Candidate
from llamea_gpu.evolution.planning import plan_slot
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings

SETTINGS = EvolutionSettings(model="m", parents=3, offspring=4)


def test_document_round_trip() -> None:
    before = candidate(3, 0.5, 0.25)
    assert Candidate.from_document(before.to_document()) == before


def test_elite_is_the_best_fully_scored_and_ties_go_to_the_earlier() -> None:
    population = Population(
        (candidate(0, 0.4), candidate(1, 0.9, status=PARTIAL), candidate(2, 0.6), candidate(3, 0.6))
    )
    assert [c.slot for c in population.elite(2)] == [2, 3]


def test_of_programs_as_good_the_shorter_comes_first() -> None:
    long = candidate(0, 0.604)
    program = dataclasses.replace(long.program, source="x\n" * 50)
    long = dataclasses.replace(long, program=program)
    population = Population((long, candidate(1, 0.601), candidate(2, 0.59)))
    assert [c.slot for c in population.elite(3)] == [1, 0, 2]


def test_a_seed_program_breeds_until_it_is_beaten() -> None:
    seed = candidate(-1, 0.9, operator="random_search")
    population = Population((seed, candidate(0, 0.1)))
    assert population.elite(1) == [seed]


def test_references_are_the_best_seed_on_each_space() -> None:
    population = Population(
        (
            candidate(-2, 0.1, 0.5, operator="a"),
            candidate(-1, 0.3, 0.2, operator="b"),
            candidate(0, 0.9, 0.9),
        )
    )
    assert population.references() == {"s0": ("b", 0.3), "s1": ("a", 0.5)}


def test_the_first_generation_is_new_and_without_parents() -> None:
    population = Population((candidate(-1, 0.5, operator="a"),))
    plans = [plan_slot(slot, population, SETTINGS) for slot in range(4)]
    assert {(plan.operator, plan.parents) for plan in plans} == {("new", ())}


def test_a_plan_depends_on_seed_and_slot_alone() -> None:
    population = Population(tuple(candidate(i, 0.1 * i, 0.5) for i in range(4)))
    plans = [plan_slot(slot, population, SETTINGS) for slot in range(4, 60)]
    assert plans == [plan_slot(slot, population, SETTINGS) for slot in range(4, 60)]
    other = SETTINGS.model_copy(update={"seed": 2})
    assert plans != [plan_slot(slot, population, other) for slot in range(4, 60)]


def test_operators_are_drawn_by_weight_and_better_parents_more_often() -> None:
    population = Population(tuple(candidate(i, 0.1 * i, 0.5 - 0.001 * i) for i in range(4)))
    plans = [plan_slot(slot, population, SETTINGS) for slot in range(4, 2004)]
    operators = Counter(plan.operator for plan in plans)
    assert set(operators) == set(SETTINGS.operators)
    assert operators["refine"] > 1.5 * operators["crossover"] > 1.5 * operators["simplify"]
    firsts = Counter(plan.parents[0].slot for plan in plans)
    assert firsts[3] > firsts[2] > firsts[1]
    assert 0 not in firsts


def test_without_the_front_the_mate_is_the_strongest_where_the_first_is_weak() -> None:
    update = {"operators": {"crossover": 1.0}, "parent_choice": "elite"}
    settings = SETTINGS.model_copy(update=update)
    population = Population(
        (candidate(0, 0.8, 0.1), candidate(1, 0.7, 0.1), candidate(2, 0.1, 0.65))
    )
    for slot in range(4, 40):
        plan = plan_slot(slot, population, settings)
        first, mate = (c.slot for c in plan.parents)
        assert mate == (2 if first != 2 else 0)


def test_crossover_without_a_mate_refines() -> None:
    settings = SETTINGS.model_copy(update={"operators": {"crossover": 1.0}})
    plan = plan_slot(4, Population((candidate(0, 0.8),)), settings)
    assert (plan.operator, len(plan.parents)) == ("refine", 1)


def test_the_control_never_has_parents() -> None:
    settings = SETTINGS.model_copy(update={"control": "best-of-n"})
    population = Population(tuple(candidate(i, 0.1 * i) for i in range(4)))
    assert all(plan_slot(slot, population, settings).operator == "new" for slot in range(4, 50))


@pytest.mark.parametrize("status", [PARTIAL, FAILED])
def test_a_candidate_that_is_not_fully_scored_has_no_p(status: str) -> None:
    assert candidate(0, 0.9, status=status).p is None


@pytest.mark.parametrize("damage", [{"slot": "first"}, {"feedback": {"p": "high"}}, {"program": 7}])
def test_a_foreign_document_is_refused(damage: dict[str, object]) -> None:
    document = {**candidate(3, 0.5).to_document(), **damage}
    with pytest.raises(ArchiveError, match="foreign"):
        Candidate.from_document(document)
