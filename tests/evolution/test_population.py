from __future__ import annotations

import dataclasses
from collections import Counter
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from support.candidates import candidate

from llamea_gpu.errors import ArchiveError
from llamea_gpu.evolution.candidate import FAILED, PARTIAL, Candidate
from llamea_gpu.evolution.evaluation import Cascade
from llamea_gpu.evolution.plan import plan_slot
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


def test_independent_asking_never_has_parents() -> None:
    settings = SETTINGS.model_copy(update={"strategy": "independent"})
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


def test_in_the_first_generation_every_model_is_asked() -> None:
    update = {"further_models": ("m2", "m3"), "offspring": 12}
    settings = SETTINGS.model_copy(update=update)
    population = Population((candidate(-1, 0.5, operator="a"),))
    plans = [plan_slot(slot, population, settings) for slot in range(12)]
    assert Counter(plan.model for plan in plans) == {"m": 4, "m2": 4, "m3": 4}


def test_later_generations_ask_every_model_too() -> None:
    settings = SETTINGS.model_copy(update={"further_models": ("m2",)})
    population = Population(tuple(candidate(i, 0.1 * i, 0.5) for i in range(4)))
    plans = [plan_slot(slot, population, settings) for slot in range(4, 104)]
    assert set(Counter(plan.model for plan in plans)) == {"m", "m2"}


def test_independent_asking_asks_models_in_turn() -> None:
    update = {"strategy": "independent", "further_models": ("m2",)}
    settings = SETTINGS.model_copy(update=update)
    population = Population(tuple(candidate(i, 0.1 * i) for i in range(9)))
    models = [plan_slot(slot, population, settings).model for slot in range(9, 15)]
    assert models == ["m2", "m"] * 3


class Score(NamedTuple):
    p: float
    standard_error: float


def cascade_of(spaces: int, settings: EvolutionSettings) -> Cascade:
    """One that can decide, but not measure."""
    tasks = [SimpleNamespace(name=f"s{i}") for i in range(spaces)]
    return Cascade(tasks, None, None, settings)


@pytest.mark.parametrize(
    ("s0", "s1", "choice", "stopped"),
    [
        (0.10, 0.10, "front", True),  # two errors above are still behind everyone
        (0.29, 0.85, "front", False),  # could reach the elite
        (0.25, 0.10, "front", False),  # could not, but leads on s0 within the errors
        (0.25, 0.10, "elite", True),  # and that counts only where leading suffices to breed
    ],
)
def test_who_may_lead_somewhere_is_not_stopped_early(
    s0: float, s1: float, choice: str, stopped: bool
) -> None:
    settings = SETTINGS.model_copy(update={"parents": 2, "parent_choice": choice})
    population = Population(tuple(candidate(slot, 0.3, 0.9, 0.9, 0.9) for slot in range(2)))
    scores = {"s0": Score(s0, 0.03), "s1": Score(s1, 0.03)}
    reason = cascade_of(4, settings)._out_of_reach(scores, population)
    assert bool(reason) == stopped
