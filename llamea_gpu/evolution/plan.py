"""What the next slot does: which operator, on which parents, asked of which model.

Every choice is a function of the run's seed, the slot and the candidates settled before it, so
that a continued run decides as an uninterrupted one. It does not talk to a model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llamea_gpu.evolution.bandit import draw_model, draw_operator
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.parents import (
    Pool,
    breeding_pool,
    complement,
    draw_first,
    draw_mate,
    ranked_draw,
)
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.prompting import OPERATORS, Operator


@dataclass(frozen=True, slots=True)
class Plan:
    """What a slot does: which operator, on which parents, asked of whom."""

    slot: int
    generation: int
    operator: Operator
    parents: tuple[Candidate, ...]
    model: str = ""


def plan_slot(slot: int, population: Population, settings: EvolutionSettings) -> Plan:
    """Choose operator, parents and model of ``slot`` from what was settled before it."""
    generation = slot // settings.offspring
    # Turn and turn about: each model shows what it can.
    in_turn = settings.models[slot % len(settings.models)]
    begun = population.answered().candidates if settings.inspirations_shown else population.tried()
    if settings.strategy == "sequential" and begun:
        best = population.best_beside_seeds()
        return Plan(slot, generation, "sequential", (best,) if best else (), in_turn)
    pool = breeding_pool(population, settings)
    rng = np.random.default_rng([settings.seed, slot])
    breeds = settings.strategy == "evolution" and pool.elite
    if not breeds or _starts_afresh(slot, population, settings):
        return Plan(slot, generation, "new", _shown(population, settings), in_turn)
    operator = _draw_operator(population, pool, settings, rng)
    parents = _draw_parents(operator, pool, settings, rng)
    if operator == "crossover" and len(parents) < 2:  # nobody to cross with
        operator = "refine"
    model = draw_model(population, settings, rng)
    return Plan(slot, generation, operator, parents, model)


def _starts_afresh(slot: int, population: Population, settings: EvolutionSettings) -> bool:
    """Whether the slot is of the first generation.

    Where inspirations are, and first questions do not show them, half of it breeds.
    """
    if slot >= settings.offspring:
        return False
    if settings.inspirations_shown:
        return True
    inspired = any(c.inspiration for c in population.candidates)
    return not inspired or slot % 2 == 0


def _shown(population: Population, settings: EvolutionSettings) -> tuple[Candidate, ...]:
    """The best of the inspirations, for a first question; the same for every strategy."""
    brought = [c for c in population.scored() if c.inspiration]
    return tuple(brought[: settings.inspirations_shown or 0])


def _draw_operator(
    population: Population, pool: Pool, settings: EvolutionSettings, rng: np.random.Generator
) -> Operator:
    weights: dict[str, float] = {
        name: settings.operators[name] for name in OPERATORS if settings.operators.get(name, 0) > 0
    }
    if settings.operator_choice == "bandit":
        if len(pool.members) < 2 and len(weights) > 1:
            weights.pop("crossover", None)
        drawn = draw_operator(weights, population, settings, rng)
        return next(name for name in OPERATORS if name == drawn)
    names = [name for name in OPERATORS if name in settings.operators]
    shares = np.array([settings.operators[name] for name in names])
    return names[rng.choice(len(names), p=shares / shares.sum())]


def _draw_parents(
    operator: Operator, pool: Pool, settings: EvolutionSettings, rng: np.random.Generator
) -> tuple[Candidate, ...]:
    if operator == "new":
        return ()
    if settings.parent_choice == "elite":
        first = ranked_draw(pool.elite, rng)
        if operator != "crossover" or len(pool.elite) < 2:
            return (first,)
        return (first, complement(first, pool.elite))
    first = draw_first(pool, rng)
    mate = draw_mate(first, pool, rng) if operator == "crossover" else None
    return (first,) if mate is None else (first, mate)
