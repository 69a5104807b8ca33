"""How differently candidates behave: which configurations they visit, whatever they score.

The distance of two candidates on a space is the Hellinger distance between their visit frequencies
(first visits, all repeats pooled): 0 for the same configurations equally often, 1 for none in
common; then the mean over the spaces that both were run on. Repeats have paired seeds, so the same
program has distance 0 from itself, and shared random samples count as shared behaviour.

It does not look at code, costs or scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.population import Population
from llamea_gpu.report.run import Run

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Behaviour:
    """Distances of the ``candidates`` that have traces, and a map of them.

    ``distance`` is (n, n); ``place`` (n, 2) is classical scaling of it, ``explained`` the share of
    the positive squared spread that the two axes hold. ``novelty`` (n,) is the distance to the
    nearest earlier candidate (nan for the first), ``elite_spread`` (n,) the mean distance within
    the elite when the candidate was settled (nan while it has fewer than two members).
    """

    candidates: tuple[Candidate, ...]
    distance: FloatArray
    place: FloatArray
    explained: float
    novelty: FloatArray
    elite_spread: FloatArray


def behaviour(run: Run) -> Behaviour | None:
    """The behaviour of a run's candidates; None with fewer than three that were run."""
    candidates = tuple(c for c in run.population.candidates if run.traces.get(c.slot))
    if len(candidates) < 3:
        return None
    distance = visit_distance(run, candidates)
    place, explained = classical_scaling(distance)
    novelty = [
        float(np.min(distance[i, :i], initial=np.inf)) if i else np.nan
        for i in range(len(candidates))
    ]
    return Behaviour(
        candidates=candidates,
        distance=distance,
        place=place,
        explained=explained,
        novelty=np.array(novelty),
        elite_spread=_elite_spread(candidates, distance, run.settings.parents),
    )


def visit_distance(run: Run, candidates: Sequence[Candidate]) -> FloatArray:
    """Mean Hellinger distance of visit frequencies over common spaces, (n, n); 1 without any."""
    from scipy.sparse import csr_array

    n = len(candidates)
    total = np.zeros((n, n))
    common = np.zeros((n, n))
    for space in dict.fromkeys(space for c in candidates for space in run.traces[c.slot]):
        who, rows, root = [], [], []
        present = np.zeros(n)
        for index, candidate in enumerate(candidates):
            visits = [trace.rows for trace in run.traces[candidate.slot].get(space, ())]
            visited, times = np.unique(np.concatenate([[], *visits]), return_counts=True)
            if visited.size:
                present[index] = 1
                who.append(np.full(visited.size, index))
                rows.append(visited.astype(np.int64))
                root.append(np.sqrt(times / times.sum()))
        if not who:
            continue
        columns = np.unique(np.concatenate(rows), return_inverse=True)[1]
        shape = (n, int(columns.max()) + 1)
        entries = (np.concatenate(root), (np.concatenate(who), columns))
        roots = csr_array(entries, shape=shape)
        overlap = np.clip((roots @ roots.T).toarray(), 0, 1)
        both = np.outer(present, present)
        total += both * np.sqrt(1 - overlap)
        common += both
    mean = np.divide(total, common, out=np.ones((n, n)), where=common > 0)
    np.fill_diagonal(mean, 0.0)
    # Rounding in the overlap of equal distributions would show as a distance of 1e-8.
    mean[mean < 1e-6] = 0.0
    symmetric: FloatArray = (mean + mean.T) / 2
    return symmetric


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
    found = []
    for candidate in candidates:
        population = population.with_candidate(candidate)
        elite = [index[c.slot] for c in population.elite(size)]
        pairs = distance[np.ix_(elite, elite)][np.triu_indices(len(elite), 1)]
        found.append(float(pairs.mean()) if pairs.size else np.nan)
    return np.array(found)
