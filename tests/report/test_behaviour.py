"""The map of behaviours and their spread; distances are `llamea_gpu.evolution.behaviour`'s."""

from __future__ import annotations

import numpy as np
import pytest
from support.report_material import behaviour, candidate

from llamea_gpu.evolution.population import Population
from llamea_gpu.report.behaviour import classical_scaling, map_behaviour


def population(*steps: float) -> Population:
    """Candidates that search with steps of these sizes, each better than the one before."""
    return Population(
        tuple(
            candidate(slot, 0.1 * slot + 0.1, behaviour=(behaviour("a", step),))
            for slot, step in enumerate(steps)
        )
    )


def test_the_map_keeps_distances_that_fit_into_a_plane() -> None:
    points = np.random.default_rng(1).normal(size=(7, 2))
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    place, explained = classical_scaling(distance)
    assert np.linalg.norm(place[:, None] - place[None], axis=2) == pytest.approx(distance)
    assert explained == pytest.approx(1)


def test_novelty_and_the_spread_of_the_elite() -> None:
    found = map_behaviour(population(0.2, 0.2, 0.8), elite=2)
    assert found is not None
    assert list(found.novelty[:2]) == [1, 0]  # the first is like nobody
    assert found.novelty[2] == found.distance[1, 2] > 0
    # Two make the elite: 0 and 1 are alike, then 1 and 2 are not.
    assert np.isnan(found.elite_spread[0])
    assert list(found.elite_spread[1:]) == [0, found.distance[1, 2]]


def test_candidates_that_were_not_run_are_not_on_the_map() -> None:
    failed = candidate(3)
    found = map_behaviour(Population((*population(0.2, 0.4, 0.8).candidates, failed)), elite=2)
    assert found is not None
    assert [c.slot for c in found.candidates] == [0, 1, 2]
    assert found.place.shape == (3, 2)


def test_two_candidates_make_no_map() -> None:
    assert map_behaviour(population(0.1, 0.9), elite=2) is None
