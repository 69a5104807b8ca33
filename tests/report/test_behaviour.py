"""Distances of behaviour, by hand; the map."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.report_material import candidate, trace

from llamea_gpu.evolution.population import Population
from llamea_gpu.report.behaviour import behaviour, classical_scaling, visit_distance
from llamea_gpu.report.run import Run


def visits(run: Run, rows: dict[int, dict[str, list[list[int]]]]) -> Run:
    """``run`` with candidates that visit these rows, a list a repeat, by slot and space."""
    candidates = tuple(candidate(slot, 0.1 * slot + 0.1) for slot in rows)
    traces = {
        slot: {
            space: tuple(trace(found, [1.0] * len(found)) for found in repeats)
            for space, repeats in spaces.items()
        }
        for slot, spaces in rows.items()
    }
    return replace(run, population=Population(candidates), traces=traces)


def test_distance_is_hellingers_between_visit_frequencies(run: Run) -> None:
    made = visits(run, {0: {"a": [[1, 2], [1, 3]]}, 1: {"a": [[1, 2]]}, 2: {"a": [[8, 9]]}})
    distance = visit_distance(made, made.population.candidates)
    # p = (1/2, 1/4, 1/4) on rows 1, 2, 3; q = (1/2, 1/2) on 1, 2.
    overlap = np.sqrt(1 / 2 * 1 / 2) + np.sqrt(1 / 4 * 1 / 2)
    assert distance[0, 1] == pytest.approx(np.sqrt(1 - overlap))
    assert distance[0, 2] == distance[1, 2] == 1
    assert np.array_equal(distance, distance.T)
    assert not distance.diagonal().any()


def test_distance_is_the_mean_over_common_spaces(run: Run) -> None:
    made = visits(run, {0: {"a": [[1]], "b": [[1]]}, 1: {"a": [[1]], "b": [[2]]}, 2: {"a": [[2]]}})
    distance = visit_distance(made, made.population.candidates)
    assert distance[0, 1] == pytest.approx(0.5)
    assert distance[0, 2] == 1


def test_runs_without_a_visit_are_as_far_as_can_be(run: Run) -> None:
    made = visits(run, {0: {"a": [[]]}, 1: {"a": [[1]]}, 2: {"a": [[1]]}})
    distance = visit_distance(made, made.population.candidates)
    assert distance[0, 1] == 1
    assert distance[1, 2] == 0


def test_the_map_keeps_distances_that_fit_into_a_plane() -> None:
    points = np.random.default_rng(1).normal(size=(7, 2))
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    place, explained = classical_scaling(distance)
    assert np.linalg.norm(place[:, None] - place[None], axis=2) == pytest.approx(distance)
    assert explained == pytest.approx(1)


def test_novelty_and_the_spread_of_the_elite(run: Run) -> None:
    made = visits(run, {0: {"a": [[1]]}, 1: {"a": [[1]]}, 2: {"a": [[2]]}})
    found = behaviour(made)
    assert found is not None
    assert np.isnan(found.novelty[0])
    assert list(found.novelty[1:]) == [0, 1]
    # Two parents breed (settings of the run): 0 and 1 are alike, then 1 and 2 are not.
    assert np.isnan(found.elite_spread[0])
    assert list(found.elite_spread[1:]) == [0, 1]


def test_two_candidates_make_no_map(run: Run) -> None:
    assert behaviour(visits(run, {0: {"a": [[1]]}, 1: {"a": [[2]]}})) is None
