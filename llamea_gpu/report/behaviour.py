"""The map of a run's behaviours, and how they spread while it went on.

Distances are those that selection uses (`llamea_gpu.evolution.behaviour`). It does not look at
code, costs or scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.evolution.behaviour import distances, novelty
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.population import Population

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class BehaviourMap:
    """Distances of the ``candidates`` that have a behaviour, and a map of them.

    ``distance`` is (n, n); ``place`` (n, 2) is classical scaling of it, ``explained`` the share of
    the positive squared spread that the two axes hold. ``novelty`` (n,) is the distance to the
    nearest earlier candidate, ``elite_spread`` (n,) the mean distance within the elite when the
    candidate was settled (nan while it has fewer than two members).
    """

    candidates: tuple[Candidate, ...]
    distance: FloatArray
    place: FloatArray
    explained: float
    novelty: FloatArray
    elite_spread: FloatArray


def map_behaviour(population: Population, elite: int) -> BehaviourMap | None:
    """The map, with an elite of that size; None with fewer than three candidates that were run."""
    candidates = tuple(c for c in population.candidates if c.behaviour)
    if len(candidates) < 3:
        return None
    distance = distances([c.behaviour for c in candidates])
    place, explained = classical_scaling(distance)
    by_slot = novelty({c.slot: c.behaviour for c in candidates})
    return BehaviourMap(
        candidates=candidates,
        distance=distance,
        place=place,
        explained=explained,
        novelty=np.array([by_slot[c.slot] for c in candidates]),
        elite_spread=_elite_spread(candidates, distance, elite),
    )


def classical_scaling(distance: FloatArray) -> tuple[FloatArray, float]:
    """Torgerson's classical scaling into the plane: (n, 2) and the share of spread it holds.

    Each axis points to where its largest coordinate is, so that the map does not flip.
    """
    n = len(distance)
    centre = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centre @ distance**2 @ centre)
    order = np.argsort(values)[::-1][:2]
    kept = np.clip(values[order], 0, None)
    place = vectors[:, order] * np.sqrt(kept)
    peaks = place[np.argmax(np.abs(place), axis=0), np.arange(place.shape[1])]
    place = place * np.where(peaks < 0, -1.0, 1.0)
    spread = float(values[values > 0].sum())
    return place, float(kept.sum() / spread) if spread > 0 else 1.0


def _elite_spread(candidates: Sequence[Candidate], distance: FloatArray, size: int) -> FloatArray:
    index = {candidate.slot: i for i, candidate in enumerate(candidates)}
    population = Population()
    spread = []
    for candidate in candidates:
        population = population.with_candidate(candidate)
        elite = [index[c.slot] for c in population.elite(size)]
        pairs = distance[np.ix_(elite, elite)][np.triu_indices(len(elite), 1)]
        spread.append(float(pairs.mean()) if pairs.size else np.nan)
    return np.array(spread)
