"""A cost-aware bandit: which operator, and which model, deserves the next slot.

Thompson sampling on the chance that an answer beats the better of its parents, over the latest
``WINDOW`` candidates (what helps early may not help late), divided by what an answer costs to the
power ``cost_weight``: a slot and its evaluation cost the same whoever answers. While little is
known, draws go by the weights of the settings instead, and later one in five still does, so that
nothing is ever starved.

Operators and models are judged apart, each over all of the other: a run of forty candidates could
not learn fifteen pairs.

It does not choose parents. It depends on the settled candidates and a generator, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from llamea_gpu.evolution.candidate import SCORED, Candidate
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings

WINDOW = 64  # candidates
FLOOR = 0.2  # share of draws that go by weight, however much is known
WARM_UP = 2  # answers an arm after which every second draw goes by weight
SMALLEST_ERROR = 1e-3  # of a difference of two P
CHEAPEST = 0.1  # of the mean cost: a free answer still takes a slot


@dataclass(frozen=True, slots=True)
class Pull:
    """One answer of an arm: the chance that it was an improvement, and its cost in some unit."""

    arm: str
    reward: float
    cost: float


def draw(
    weights: Mapping[str, float],
    pulls: Sequence[Pull],
    cost_weight: float,
    rng: np.random.Generator,
) -> str:
    """An arm with a positive weight, by what ``pulls`` say of each."""
    arms = [arm for arm, weight in weights.items() if weight > 0]
    share = np.array([weights[arm] for arm in arms])
    warm_up = WARM_UP * len(arms)
    if rng.random() < max(FLOOR, warm_up / (warm_up + len(pulls))):
        return arms[rng.choice(len(arms), p=share / share.sum())]
    overall = float(np.mean([pull.cost for pull in pulls])) if pulls else 1.0
    promise = []
    for arm in arms:
        own = [pull for pull in pulls if pull.arm == arm]
        gained = sum(pull.reward for pull in own)
        chance = rng.beta(1 + gained, 1 + len(own) - gained)
        # One imagined answer of average cost: a single cheap one is no bargain yet.
        cost = (overall + sum(pull.cost for pull in own)) / (1 + len(own))
        promise.append(chance / max(cost / overall, CHEAPEST) ** cost_weight)
    return arms[int(np.argmax(promise))]


def draw_operator(
    weights: Mapping[str, float],
    population: Population,
    settings: EvolutionSettings,
    rng: np.random.Generator,
) -> str:
    """The operator of the next slot; ``weights`` are those that can be used now."""
    answered = population.answered().candidates
    chosen = [c for c in answered if c.generation > 0 or c.operator != "new"]
    latest = [c for c in chosen if c.operator in weights][-WINDOW:]
    typical = _typical_costs(latest)
    pulls = [
        Pull(c.operator, reward(c, population, settings), _cost(c, latest) / typical[c.asked_model])
        for c in latest
    ]
    return draw(weights, pulls, settings.cost_weight, rng)


def draw_model(
    population: Population, settings: EvolutionSettings, rng: np.random.Generator
) -> str:
    """The model that is asked for the next slot."""
    if len(settings.models) == 1:
        return settings.model
    weights = dict.fromkeys(settings.models, 1.0)
    latest = [c for c in population.answered().candidates if c.asked_model in weights][-WINDOW:]
    pulls = [Pull(c.asked_model, reward(c, population, settings), _cost(c, latest)) for c in latest]
    return draw(weights, pulls, settings.cost_weight, rng)


def reward(candidate: Candidate, population: Population, settings: EvolutionSettings) -> float:
    """The chance, by the standard errors, that ``candidate`` is better than its better parent.

    One without parents is compared with what it takes to breed: the last of the elite of the
    generations before it. Failed and stopped early: 0.
    """
    if candidate.status != SCORED or candidate.p is None:
        return 0.0
    rivals = [c for c in population.candidates if c.slot in candidate.parents and c.p is not None]
    if not rivals:
        before = [c for c in population.candidates if c.generation < candidate.generation]
        rivals = Population(tuple(before)).elite(settings.parents)[-1:]
    rival = max(rivals, key=lambda c: c.p or 0.0, default=None)
    if rival is None:
        return 0.5
    error = math.hypot(candidate.standard_error or 0.0, rival.standard_error or 0.0)
    z = (candidate.p - (rival.p or 0.0)) / max(error, SMALLEST_ERROR)
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def _cost(candidate: Candidate, among: Sequence[Candidate]) -> float:
    """Dollars where all of ``among`` have a price (not only free ones), else tokens, else 1."""
    if any(c.usd for c in among) and all(c.usd is not None for c in among):
        return candidate.usd or 0.0
    return float(candidate.tokens) if all(c.tokens for c in among) else 1.0


def _typical_costs(candidates: Sequence[Candidate]) -> dict[str, float]:
    """Mean cost of an answer by model: a dear model is not the operator's doing."""
    by_model: dict[str, list[float]] = {}
    for candidate in candidates:
        by_model.setdefault(candidate.asked_model, []).append(_cost(candidate, candidates))
    return {model: float(np.mean(costs)) for model, costs in by_model.items()}
