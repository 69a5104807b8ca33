"""Islands breed apart, pass their best on round a ring, and follow from what was settled."""

from __future__ import annotations

import random

import pytest
from support.candidates import candidate

from llamea_gpu.evolution.candidate import FAILED
from llamea_gpu.evolution.islands import island_members, island_of, island_population
from llamea_gpu.evolution.plan import plan_slot
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings

SETTINGS = EvolutionSettings(
    model="m", parents=2, offspring=6, islands=3, migration_interval=2, migrants=1
)
BOUNDARY = 12  # slots: two generations of six


def population(n: int, seed: int = 0) -> Population:
    rng = random.Random(seed)
    seeds = (candidate(-2, 0.1, operator="a"), candidate(-1, 0.2, operator="b"))
    return Population((*seeds, *(candidate(slot, rng.random(), rng.random()) for slot in range(n))))


def prefix(whole: Population, n: int) -> Population:
    return Population(tuple(c for c in whole.candidates if c.slot < n))


def test_before_the_first_migration_islands_hold_their_own() -> None:
    members = island_members(population(BOUNDARY - 1), SETTINGS)
    assert [sorted(slots) for slots in members] == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8]]


def test_the_best_of_each_island_goes_to_the_next_one() -> None:
    before = population(BOUNDARY)
    members = island_members(before, SETTINGS)
    natives = [{s for s in range(BOUNDARY) if s % 3 == island} for island in range(3)]
    for island in range(3):
        neighbours = Population(
            tuple(c for c in before.candidates if c.slot in natives[island - 1])
        )
        assert members[island] == natives[island] | {neighbours.best().slot}


def test_migrants_travel_on() -> None:
    """A candidate that is best everywhere reaches every island, one island a migration."""
    whole = population(4 * BOUNDARY)
    star = candidate(0, 1.0, 1.0)
    whole = Population(tuple(star if c.slot == 0 else c for c in whole.candidates))
    homes = [
        [0 in slots for slots in island_members(prefix(whole, n), SETTINGS)]
        for n in (BOUNDARY - 1, BOUNDARY, 2 * BOUNDARY)
    ]
    assert homes == [[True, False, False], [True, True, False], [True, True, True]]


def test_nothing_is_copied_or_lost() -> None:
    whole = population(5 * BOUNDARY)
    everyone = {c.slot: c for c in whole.candidates}
    seen = set()
    for island in range(3):
        for member in island_population(whole, island, SETTINGS).candidates:
            assert member is everyone[member.slot]
            seen.add(member.slot)
    assert seen == set(everyone)


@pytest.mark.parametrize("n", [1, 5, BOUNDARY, 30])
def test_what_was_settled_later_changes_no_earlier_membership(n: int) -> None:
    early = island_members(prefix(population(60), n), SETTINGS)
    late = island_members(population(60), SETTINGS)
    assert all(before <= after for before, after in zip(early, late, strict=True))


def test_seed_programs_live_everywhere_and_never_migrate() -> None:
    poor = Population(
        (
            candidate(-1, 0.9, operator="a"),
            *(candidate(slot, 0.1) for slot in range(BOUNDARY)),
        )
    )
    assert all(min(slots) >= 0 for slots in island_members(poor, SETTINGS))
    for island in range(3):
        assert island_population(poor, island, SETTINGS).best().slot == -1


def test_only_scored_candidates_migrate() -> None:
    failed = Population(tuple(candidate(slot, status=FAILED) for slot in range(BOUNDARY)))
    assert [len(slots) for slots in island_members(failed, SETTINGS)] == [4, 4, 4]


def test_parents_come_from_the_slots_own_island() -> None:
    whole = population(40)
    for slot in range(46, 100):
        plan = plan_slot(slot, whole, SETTINGS)
        living = island_population(whole, island_of(slot, SETTINGS), SETTINGS).candidates
        assert plan.island == slot % 3
        assert all(parent in living for parent in plan.parents)


def test_one_island_is_the_whole_population() -> None:
    whole = population(20)
    assert island_population(whole, 0, SETTINGS.model_copy(update={"islands": 1})) is whole
