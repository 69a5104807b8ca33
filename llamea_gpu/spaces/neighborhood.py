"""Neighbour tables of a search space, built for all rows at once.

Two rows are Hamming-1 neighbours when they differ in exactly one parameter, so rows that agree on
every *other* parameter form a group in which all are neighbours. Sorting the rows once a parameter
finds the groups; everything else is index arithmetic on arrays.

It does not decide when a table is worth its memory (the caller passes a limit), and it knows
nothing of values or costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NeighborTable:
    """Neighbours in compressed sparse rows: those of row i are ``indices[start[i]:start[i + 1]]``.

    ``start`` is a list because Python indexes a list several times faster than an array.
    """

    start: list[int]
    indices: npt.NDArray[np.int32]

    def of(self, row: int) -> npt.NDArray[np.int32]:
        """Neighbours of ``row``: (k,) int32, a read-only view."""
        return self.indices[self.start[row] : self.start[row + 1]]


@dataclass(frozen=True)
class _Groups:
    """The rows of one parameter's groups, side by side, in ascending order of that parameter."""

    order: IntArray  # (n,) position -> row
    start: IntArray  # (n,) position -> first position of its group
    size: IntArray  # (n,) position -> rows in its group
    nearest_only: bool  # neighbours are the next valid value down and up, not the whole group

    def degrees(self) -> IntArray:
        """Neighbours along this parameter: (n,) by position."""
        if not self.nearest_only:
            return self.size - 1
        position = np.arange(len(self.order))
        lower = position > self.start
        upper = position < self.start + self.size - 1
        count: IntArray = lower.astype(np.int64) + upper.astype(np.int64)
        return count

    def targets(self) -> IntArray:
        """Neighbouring rows, grouped by position, ascending in the parameter's value index."""
        position = np.arange(len(self.order))
        if self.nearest_only:
            pairs = np.stack([position - 1, position + 1], axis=1)
            first, stop = self.start[:, None], (self.start + self.size)[:, None]
            nearest: IntArray = self.order[pairs[(pairs >= first) & (pairs < stop)]]
            return nearest
        target = np.repeat(self.start, self.size) + _ramps(self.size)
        others: IntArray = self.order[target[target != np.repeat(position, self.size)]]
        return others


def build_neighbor_table(
    keys_without: Callable[[int], npt.NDArray[np.generic]],
    varying: Sequence[int],
    nearest_only: Sequence[bool],
    size: int,
    max_edges: int,
) -> NeighborTable | None:
    """The neighbours of every row, by parameter, then by value index; None above ``max_edges``.

    Args:
        keys_without: parameter -> (size,) keys, equal exactly where two rows agree on all other
            parameters. Rows must be in lexicographic order.
        varying: the parameters that have more than one value.
        nearest_only: by parameter: only the nearest valid value down and up counts.
        size: number of rows.
        max_edges: largest number of (row, neighbour) pairs worth storing.
    """
    groups = [_group(keys_without(j), nearest_only[j]) for j in varying]
    degree = np.zeros(size, dtype=np.int64)
    for group in groups:
        degree[group.order] += group.degrees()
    edges = int(degree.sum())
    if edges > max_edges:
        return None
    start = np.concatenate([[0], np.cumsum(degree)])
    indices = np.empty(edges, dtype=np.int32)
    offset = start[:-1].copy()
    for group in groups:
        counts = group.degrees()
        slots = np.repeat(offset[group.order], counts) + _ramps(counts)
        indices[slots] = group.targets()
        offset[group.order] += counts
    indices.setflags(write=False)
    return NeighborTable(start.tolist(), indices)


def _group(keys: npt.NDArray[np.generic], nearest_only: bool) -> _Groups:
    # A stable sort keeps lexicographic order inside a group, i.e. ascending value indices.
    order = np.argsort(keys, kind="stable").astype(np.int64)
    ordered = keys[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    size = np.diff(np.concatenate([first, [len(keys)]]))
    return _Groups(order, np.repeat(first, size), np.repeat(size, size), nearest_only)


def _ramps(counts: IntArray) -> IntArray:
    """0..counts[0]-1, 0..counts[1]-1, … as one array."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)
