"""Islands: populations that breed apart and pass their best on, round a ring.

A slot belongs to an island by its number; seed programs and inspirations belong to all. After every
``migration_interval`` generations each island gets the best ``migrants`` of the one before it, by
reference: nothing is evaluated again, and who left stays where it was.

It keeps no state: membership is worked out from the settled candidates alone.
"""

from __future__ import annotations

from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings


def island_of(slot: int, settings: EvolutionSettings) -> int:
    """The island that ``slot`` is settled on."""
    return slot % settings.islands


def island_population(
    population: Population, island: int, settings: EvolutionSettings
) -> Population:
    """Who lives on ``island``: natives, migrants so far, and all seed programs; by slot."""
    if settings.islands == 1:
        return population
    members = island_members(population, settings)[island]
    return Population(tuple(c for c in population.candidates if c.slot < 0 or c.slot in members))


def island_members(population: Population, settings: EvolutionSettings) -> list[set[int]]:
    """Slots of each island's natives and migrants. Migration b happens before slot b settles."""
    ring = range(settings.islands)
    members: list[set[int]] = [set() for _ in ring]
    written = {c.slot: c for c in population.candidates if c.slot >= 0}
    interval = settings.migration_interval * settings.offspring
    for slot in range(max(written, default=-1) + 2):
        if slot and slot % interval == 0:
            leaving = [
                Population(tuple(written[s] for s in sorted(slots))).elite(settings.migrants)
                for slots in members
            ]
            for island in ring:
                members[island].update(migrant.slot for migrant in leaving[island - 1])
        if slot in written:
            members[island_of(slot, settings)].add(slot)
    return members
