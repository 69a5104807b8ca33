"""How a candidate searches, read from its traces: a descriptor a space, and distances between them.

Two programs may look alike and search differently, or the other way round; what counts for
diversity is what they do. A descriptor says *how* (``style``: steps, distance from the best so far,
batches, spread of values, each early, midway and late) and *where* (``places``: how often each
value of each parameter was visited). Every number lies in [0, 1] and none looks at costs beyond
where the best so far was, so that it is not a second score.

It does not decide who breeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.modelled import AnyTask
from llamea_gpu.tasks import Trace

FloatArray = NDArray[np.float64]

PHASES = 3
PHASE_NAMES = ("step", "from_best", "batch", "novel_values", "improvements")
STYLE_NAMES = (
    *(f"{name}_{phase}" for name in PHASE_NAMES for phase in ("early", "midway", "late")),
    *("revisits", "failures", "evenness"),
)
LARGEST_BATCH = 256  # of one batch; more first visits count as so many
DIGITS = 4  # as stored: far below what differs between seeds
# A feature's spread within a population counts as at least this, or noise would pass for style.
SMALLEST_SCALE = 0.05
FARTHEST = 3.0  # scaled difference of one feature beyond which it counts no more


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a candidate searches one space: means over its runs.

    Attributes:
        space: the space's name.
        style: one number in [0, 1] for each of ``STYLE_NAMES``.
        places: for each parameter in turn, the share of visits at each of its values.
        cardinalities: number of values of each parameter, to cut ``places``.
    """

    space: str
    style: tuple[float, ...]
    places: tuple[float, ...]
    cardinalities: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = (*self.style, *self.places)
        if (
            len(self.style) != len(STYLE_NAMES)
            or len(self.places) != sum(self.cardinalities)
            or min(self.cardinalities, default=0) < 1
            or not all(0 <= number <= 1 for number in numbers)
        ):
            raise ValueError(
                f"a behaviour must have {len(STYLE_NAMES)} style numbers and a place for each "
                f"value, all from 0 to 1, but that on {self.space!r} has {len(self.style)} and "
                f"{len(self.places)}"
            )


def describe(task: AnyTask, traces: Sequence[Trace]) -> Behaviour | None:
    """The behaviour that ``traces`` of ``task`` show; None when none of them has two visits."""
    seen = [trace for trace in traces if len(trace.rows) > 1]
    if not seen:
        return None
    configurations = [task.visited(trace) for trace in seen]
    style = [
        _style(task, trace, visited) for trace, visited in zip(seen, configurations, strict=True)
    ]
    pooled = np.concatenate(configurations)
    places = [
        np.bincount(pooled[:, column], minlength=n) / len(pooled)
        for column, n in enumerate(task.cardinalities)
    ]
    return Behaviour(
        space=task.name,
        style=_stored(np.mean(style, axis=0)),
        places=_stored(np.concatenate(places)),
        cardinalities=task.cardinalities,
    )


def distances(behaviours: Sequence[Sequence[Behaviour]]) -> FloatArray:
    """Distances between candidates by their behaviours, (n, n) in [0, 1].

    The mean over spaces that both were run on of (style + places) / 2; 1 without a common space.
    Style: the mean difference of the features, each divided by its spread among the candidates
    (interquartile range) and cut at ``FARTHEST``. Places: the mean Hellinger distance of the
    parameters' value frequencies.
    """
    n = len(behaviours)
    by_space: dict[tuple[str, tuple[int, ...]], dict[int, Behaviour]] = {}
    for index, own in enumerate(behaviours):
        for behaviour in own:
            key = behaviour.space, behaviour.cardinalities
            by_space.setdefault(key, {})[index] = behaviour
    total, common = np.zeros((n, n)), np.zeros((n, n))
    for present in by_space.values():
        pairs = np.ix_(list(present), list(present))
        total[pairs] += _space_distances(list(present.values()))
        common[pairs] += 1
    mean: FloatArray = np.divide(total, common, out=np.ones((n, n)), where=common > 0)
    np.fill_diagonal(mean, 0.0)
    return mean


def novelty(behaviours: Mapping[int, Sequence[Behaviour]]) -> dict[int, float]:
    """By slot: the distance to the nearest earlier slot that has a behaviour; 1 for the first."""
    slots = sorted(slot for slot, own in behaviours.items() if own)
    distance = distances([behaviours[slot] for slot in slots])
    return {slot: float(distance[i, :i].min(initial=1.0)) for i, slot in enumerate(slots)}


def _space_distances(behaviours: Sequence[Behaviour]) -> FloatArray:
    style = np.array([behaviour.style for behaviour in behaviours])
    low, high = np.percentile(style, [25, 75], axis=0)
    scaled = style / np.maximum(high - low, SMALLEST_SCALE)
    roots = np.sqrt([behaviour.places for behaviour in behaviours])
    starts = np.cumsum([0, *behaviours[0].cardinalities])[:-1]
    rows = []
    for own_style, own_roots in zip(scaled, roots, strict=True):
        style_distance = np.abs(scaled - own_style).clip(max=FARTHEST).mean(axis=1) / FARTHEST
        squared = np.add.reduceat((roots - own_roots) ** 2, starts, axis=1) / 2
        place_distance = np.sqrt(squared.clip(max=1)).mean(axis=1)
        rows.append((style_distance + place_distance) / 2)
    return np.array(rows)


def _style(task: AnyTask, trace: Trace, visited: NDArray[np.int64]) -> FloatArray:
    """Features of one run, in the order of ``STYLE_NAMES``; ``visited`` is (n, d) value indices."""
    n = len(visited)
    best_before = _best_before(trace.cost_ms)
    step = np.r_[0.0, (visited[1:] != visited[:-1]).mean(axis=1)]
    from_best = np.where(best_before < 0, 1.0, (visited != visited[best_before]).mean(axis=1))
    number = batch_numbers(task, trace)
    batch = np.log2(np.bincount(number)[number]) / np.log2(LARGEST_BATCH)
    best_ms = np.minimum.accumulate(trace.cost_ms)
    improved = np.r_[np.isfinite(best_ms[:1]), best_ms[1:] < best_ms[:-1]].astype(float)
    novel = _novel_values(visited)
    phases = np.array_split(np.arange(n), PHASES)
    by_phase = [
        float(values[phase].mean()) if phase.size else float(values[-1])
        for values in (step, from_best, batch.clip(0, 1), novel, improved)
        for phase in phases
    ]
    failures = float(np.mean(~np.isfinite(trace.cost_ms)))
    return np.array(
        [*by_phase, trace.revisits / max(trace.asks, 1), failures, _evenness(task, visited)]
    )


def _best_before(cost_ms: FloatArray) -> NDArray[np.int64]:
    """For each visit the index of the best one before it; -1 while nothing has worked."""
    best = np.full(len(cost_ms), -1, dtype=np.int64)
    leader, lowest = -1, np.inf
    for index, cost in enumerate(cost_ms.tolist()):
        best[index] = leader
        if cost < lowest:
            leader, lowest = index, cost
    return best


def batch_numbers(task: AnyTask, trace: Trace) -> NDArray[np.int32]:
    """The number of the batch that each visit came in, (n,), from 0.

    The sequential clock measures one after the other, whatever was asked for together: each visit
    is a batch of its own, as it is where the trace does not have its batches.
    """
    if task.clock.serial or trace.batch is None:
        return np.arange(len(trace.rows), dtype=np.int32)
    return trace.batch


def _novel_values(visited: NDArray[np.int64]) -> FloatArray:
    """For each visit the share of parameters at a value that no visit before it had."""
    novel = np.zeros(visited.shape)
    for column in range(visited.shape[1]):
        _, first = np.unique(visited[:, column], return_index=True)
        novel[first, column] = 1.0
    return np.asarray(novel.mean(axis=1), dtype=np.float64)


def _evenness(task: AnyTask, visited: NDArray[np.int64]) -> float:
    """Mean entropy of the parameters' values, as a share of its maximum: 1 for even coverage."""
    shares = []
    for column, n in enumerate(task.cardinalities):
        if n > 1:
            p = np.bincount(visited[:, column], minlength=n) / len(visited)
            p = p[p > 0]
            shares.append(float(-(p * np.log(p)).sum() / np.log(n)))
    return float(np.mean(shares)) if shares else 0.0


def _stored(values: FloatArray) -> tuple[float, ...]:
    return tuple(round(float(value), DIGITS) for value in values)
