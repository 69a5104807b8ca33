"""The bandit finds what pays, minds what it costs, and starves nobody."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
from support.candidates import candidate

from llamea_gpu.evolution.bandit import FLOOR, WINDOW, Pull, draw, draw_model, draw_operator, reward
from llamea_gpu.evolution.candidate import FAILED, PARTIAL, Candidate
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings

SETTINGS = EvolutionSettings(model="m", parents=3, offspring=4)
SLOTS, LAG = 400, 8


def simulate(
    chances: dict[str, float], costs: dict[str, float], cost_weight: float, seed: int
) -> Counter[str]:
    """Arms pulled when answers arrive ``LAG`` pulls late, as those in flight do."""
    rng = np.random.default_rng(seed)
    pulls: list[Pull] = []
    for _ in range(SLOTS):
        known = pulls[: max(0, len(pulls) - LAG)][-WINDOW:]
        arm = draw(dict.fromkeys(chances, 1.0), known, cost_weight, rng)
        gain = float(rng.beta(4 * chances[arm], 4 * (1 - chances[arm])))
        pulls.append(Pull(arm, gain, costs[arm] * rng.uniform(0.8, 1.2)))
    return Counter(pull.arm for pull in pulls)


CHANCES = {"good": 0.6, "fair": 0.4, "poor": 0.2, "bad": 0.1}


@pytest.mark.parametrize("seed", range(3))
def test_the_best_arm_gets_most_and_none_is_starved(seed: int) -> None:
    pulled = simulate(CHANCES, dict.fromkeys(CHANCES, 1.0), 0.5, seed)
    assert pulled.most_common(1)[0][0] == "good"
    assert pulled["good"] > SLOTS / 2
    assert min(pulled.values()) >= 0.5 * FLOOR * SLOTS / len(CHANCES)


@pytest.mark.parametrize("seed", range(3))
def test_a_dear_arm_must_be_better_by_what_it_costs(seed: int) -> None:
    chances, costs = {"dear": 0.6, "cheap": 0.45}, {"dear": 9.0, "cheap": 1.0}
    assert simulate(chances, costs, 0.5, seed).most_common(1)[0][0] == "cheap"
    assert simulate(chances, costs, 0.0, seed).most_common(1)[0][0] == "dear"


def test_a_free_arm_is_not_worth_any_price() -> None:
    chances, costs = {"free": 0.05, "dear": 0.6}, {"free": 0.0, "dear": 1.0}
    assert simulate(chances, costs, 0.5, 1).most_common(1)[0][0] == "dear"


def test_without_knowledge_draws_go_by_weight() -> None:
    rng = np.random.default_rng(1)
    drawn = Counter(draw({"a": 3.0, "b": 1.0, "c": 0.0}, [], 0.5, rng) for _ in range(2000))
    assert set(drawn) == {"a", "b"}
    assert drawn["a"] == pytest.approx(1500, abs=80)


def test_the_same_generator_draws_the_same() -> None:
    pulls = [Pull("a", 0.5, 2.0), Pull("b", 0.4, 1.0)]
    draws = [
        [draw({"a": 1.0, "b": 1.0}, pulls, 0.5, np.random.default_rng([7, n])) for n in range(50)]
        for _ in range(2)
    ]
    assert draws[0] == draws[1]
    assert set(draws[0]) == {"a", "b"}


def scored(slot: int, p: float, error: float = 0.02, **fields: object) -> Candidate:
    return candidate(slot, p, error=error, **fields)


def test_a_reward_is_the_chance_of_being_better_than_the_better_parent() -> None:
    population = Population((scored(0, 0.5), scored(1, 0.3)))
    child = {"generation": 1, "parents": (0, 1)}
    assert reward(scored(4, 0.5, **child), population, SETTINGS) == pytest.approx(0.5)
    # 0.0283 is the error of the difference of two errors of 0.02: one of it is a chance of 84 %.
    one_up = reward(scored(4, 0.52828, **child), population, SETTINGS)
    assert one_up == pytest.approx(0.8413, abs=1e-3)
    assert reward(scored(4, 0.52828, 0.2, **child), population, SETTINGS) < 0.6
    assert reward(scored(4, 0.4, **child), population, SETTINGS) < 0.01


def test_a_failure_brings_nothing() -> None:
    population = Population((scored(0, 0.5),))
    for status in (FAILED, PARTIAL):
        child = dataclasses.replace(scored(4, 0.9, parents=(0,)), status=status)
        assert reward(child, population, SETTINGS) == 0


def test_without_parents_it_takes_what_it_takes_to_breed() -> None:
    before = tuple(scored(slot, 0.1 * slot) for slot in range(4))  # an elite of 3: 0.3, 0.2, 0.1
    fresh = {"generation": 1, "operator": "new"}
    population = Population(before)
    assert reward(scored(4, 0.1, **fresh), population, SETTINGS) == pytest.approx(0.5)
    assert reward(scored(4, 0.2, **fresh), population, SETTINGS) > 0.99


def children(name: str, good: str, bad: str) -> list[Candidate]:
    """Forty children of slot 0, alternately better and worse, with ``name`` good or bad."""
    common = {"parents": (0,), "generation": 1, "tokens": 1000}
    return [
        scored(slot, 0.7 if slot % 2 else 0.3, **{**common, name: good if slot % 2 else bad})
        for slot in range(4, 44)
    ]


def test_the_operator_that_improves_is_asked_for_more() -> None:
    population = Population((scored(0, 0.5), *children("operator", "simplify", "refine")))
    weights = {"refine": 1.0, "simplify": 1.0}
    drawn = Counter(
        draw_operator(weights, population, SETTINGS, np.random.default_rng(n)) for n in range(300)
    )
    assert drawn["simplify"] > 4 * drawn["refine"] > 0


def test_the_model_that_improves_is_asked_more_and_a_lost_route_is_nobodys_fault() -> None:
    settings = SETTINGS.model_copy(update={"further_models": ("m2",)})
    lost = tuple(
        candidate(slot, status=FAILED, kind="transport", asked_model="m2", generation=2)
        for slot in range(50, 80)
    )
    population = Population((scored(0, 0.5), *children("asked_model", "m2", "m"), *lost))
    drawn = Counter(draw_model(population, settings, np.random.default_rng(n)) for n in range(300))
    assert drawn["m2"] > 4 * drawn["m"] > 0


def test_a_dear_model_does_not_make_its_operator_look_dear() -> None:
    """Each operator was used as often with each model: what it costs is the model's doing."""
    judged = []
    for slot in range(4, 68):
        operator, model = ("refine", "simplify")[slot % 2], ("m", "m2")[slot // 2 % 2]
        usd = {"m": 0.001, "m2": 1.0}[model]
        named = {"operator": operator, "asked_model": model, "usd": usd, "tokens": 9}
        judged.append(scored(slot, 0.5, parents=(0,), generation=1, **named))
    population = Population((scored(0, 0.5), *judged))
    drawn = Counter(
        draw_operator(
            {"refine": 1.0, "simplify": 1.0}, population, SETTINGS, np.random.default_rng(n)
        )
        for n in range(400)
    )
    assert drawn["refine"] == pytest.approx(200, abs=60)
