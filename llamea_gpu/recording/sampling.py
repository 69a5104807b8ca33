"""A stratified sample of a search space: which configurations to measure when all are too many.

Each value of each parameter comes in about the share that it has among the valid configurations,
and at least once. Costs play no part: nothing has been measured yet.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llamea_gpu.errors import RecordingError
from llamea_gpu.spaces.space import SearchSpace

_CANDIDATES = 64


def stratified_rows(
    space: SearchSpace, count: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """``count`` distinct rows of ``space``, ascending; all rows when there are no more.

    First a greedy cover: the configuration with the most values not yet seen, until none is left.
    Then the one of 64 random configurations whose values lag most behind their share, repeatedly
    (Mitchell's best candidate, with the lag in place of a distance). Deterministic for a seed.

    Raises:
        RecordingError: ``count`` is too small to have each value once.
    """
    if count >= space.size:
        return np.arange(space.size)
    offsets = np.concatenate(([0], np.cumsum(space.cardinalities)[:-1]))
    # One column a parameter: the number of its value among all values of all parameters.
    strata = space.configurations.astype(np.int64) + offsets
    population = np.bincount(strata.ravel(), minlength=sum(space.cardinalities))
    chosen = _cover(strata, population, count, rng)
    chosen_mask = np.zeros(space.size, dtype=bool)
    chosen_mask[chosen] = True
    target_counts = population * (count / space.size)
    got = np.bincount(strata[chosen].ravel(), minlength=len(population)).astype(float)
    free = rng.permutation(np.flatnonzero(~chosen_mask))
    while len(chosen) < count:
        picks = rng.choice(len(free), size=min(_CANDIDATES, len(free)), replace=False)
        lag = (got[strata[free[picks]]] / target_counts[strata[free[picks]]]).sum(axis=1)
        pick = int(picks[np.argmin(lag)])
        chosen.append(int(free[pick]))
        got[strata[free[pick]]] += 1
        free[pick] = free[-1]
        free = free[:-1]
    return np.sort(np.array(chosen, dtype=np.int64))


def _cover(
    strata: npt.NDArray[np.int64],
    population: npt.NDArray[np.int64],
    count: int,
    rng: np.random.Generator,
) -> list[int]:
    """Rows that together have every value which any row has."""
    unseen = population > 0
    order = rng.permutation(len(strata))  # ties go to a random row
    chosen: list[int] = []
    while unseen.any():
        row = int(order[np.argmax(unseen[strata[order]].sum(axis=1))])
        chosen.append(row)
        unseen[strata[row]] = False
    if len(chosen) > count:
        raise RecordingError(
            f"a sample must have each value of each parameter once, which takes {len(chosen)} "
            f"configurations here, but got {count}: ask for more"
        )
    return chosen
