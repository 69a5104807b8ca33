"""Configurations as numbers that trees can split on: one recipe for every space.

Every feature is a sum over parameters of a number that belongs to the parameter's value, so that
features of a configuration are one lookup and one sum. They are made from names, values and order
alone:

- a parameter with an order, or with two values: the logarithm to base 2 where all values are
  positive numbers, else the index;
- any other parameter: one indicator for each value, and its index where the values but the first
  are numbers (``None``, 32, 64, …);
- parameters of one list (``indexing[0]``, ``indexing[1]``, …) with the same few values: how many
  of them have each value;
- sizes (parameters whose name begins with ``block_size`` or ``tile_size``): the product of all, and
  of any two, and their quotient; the same with the number of warps and of stages.

It does not know the kernel, nor which parameters are without effect beside which others: the trees
have to find that out.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from llamea_gpu.spaces.space import Value

_SIZES = re.compile(r"(block|tile)_size")
_BESIDE_SIZES = ("num_warps", "num_stages")
_MOST_COUNTED = 4  # values of a list's elements that are counted
_FRACTION = 4096  # logarithms are rounded to its multiples: their sums are exact in any order


class FeatureTable:
    """Turns value indices into features.

    Attributes:
        labels: one text a feature, for people.
    """

    def __init__(
        self, names: Sequence[str], values: Sequence[Sequence[Value]], ordinal: Sequence[bool]
    ) -> None:
        columns = _Columns(values)
        logs = {j: log for j in range(len(names)) if (log := _logarithms(values[j])) is not None}
        for j, name in enumerate(names):
            _own(columns, j, name, ordinal=ordinal[j], log=logs.get(j))
        _counts(columns, names)
        _products(columns, names, logs)
        self.labels = tuple(columns.labels)
        self._offsets = columns.offsets
        self._table = np.array(columns.arrays, dtype=np.float64).T.copy()

    def one(self, configuration: Sequence[int]) -> npt.NDArray[np.float32]:
        """Features of one configuration, (F,)."""
        rows = self._table.take(np.add(configuration, self._offsets), axis=0)
        features: npt.NDArray[np.float32] = rows.sum(axis=0).astype(np.float32)
        return features

    def many(self, configurations: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Features of (n, d) value indices, (n, F)."""
        indices = np.asarray(configurations, dtype=np.intp).reshape(-1, len(self._offsets))
        total = np.zeros((len(indices), self._table.shape[1]))
        for j, offset in enumerate(self._offsets):
            total += self._table[indices[:, j] + offset]
        return total.astype(np.float32)


class _Columns:
    """Features under construction: for each, a number for each value of each parameter."""

    def __init__(self, values: Sequence[Sequence[Value]]) -> None:
        self.values = values
        ends = np.cumsum([len(v) for v in values])
        self.offsets = np.concatenate([[0], ends[:-1]]).astype(np.intp)
        self._rows = int(ends[-1])
        self.arrays: list[npt.NDArray[np.float64]] = []
        self.labels: list[str] = []

    def add(self, label: str, terms: Mapping[int, Iterable[float]]) -> None:
        """The feature that is the sum of ``terms``: parameter to a number for each value."""
        array = np.zeros(self._rows)
        for j, numbers in terms.items():
            begin = self.offsets[j]
            array[begin : begin + len(self.values[j])] = list(numbers)
        self.arrays.append(array)
        self.labels.append(label)


def _logarithms(values: Sequence[Value]) -> list[float] | None:
    """Base 2, in steps of 1/4096; None unless all of two values or more are positive numbers."""
    if len(values) < 2:
        return None
    logs = []
    for value in values:
        if isinstance(value, (bool, str)) or value is None or value <= 0:
            return None
        logs.append(round(math.log2(value) * _FRACTION) / _FRACTION)
    return logs


def _own(columns: _Columns, j: int, name: str, *, ordinal: bool, log: list[float] | None) -> None:
    values = columns.values[j]
    if ordinal or log is not None or len(values) <= 2:
        columns.add(name, {j: range(len(values)) if log is None else log})
        return
    for i, value in enumerate(values):
        columns.add(f"{name} = {value}", {j: [float(k == i) for k in range(len(values))]})
    if _logarithms(values[1:]) is not None:
        columns.add(name, {j: range(len(values))})


def _counts(columns: _Columns, names: Sequence[str]) -> None:
    lists: dict[str, list[int]] = {}
    for j, name in enumerate(names):
        lists.setdefault(name.partition("[")[0], []).append(j)
    for stem, members in lists.items():
        values = columns.values[members[0]]
        alike = all(columns.values[j] == values for j in members)
        if len(members) < 2 or not alike or len(values) > _MOST_COUNTED:
            continue
        for i, value in enumerate(values):
            hits = [float(k == i) for k in range(len(values))]
            columns.add(f"{stem}: how many {value}", dict.fromkeys(members, hits))


def _products(columns: _Columns, names: Sequence[str], logs: Mapping[int, Sequence[float]]) -> None:
    sizes = [j for j in logs if _SIZES.match(names[j])]
    beside = [j for j in logs if names[j] in _BESIDE_SIZES]
    if len(sizes) > 2:
        columns.add("sizes", {j: logs[j] for j in sizes})
    for a, b in itertools.combinations([*sizes, *beside], 2):
        columns.add(f"{names[a]} * {names[b]}", {a: logs[a], b: logs[b]})
        columns.add(f"{names[a]} / {names[b]}", {a: logs[a], b: [-x for x in logs[b]]})
    for b in beside if len(sizes) > 1 else []:
        terms = {j: logs[j] for j in sizes}
        columns.add(f"sizes * {names[b]}", {**terms, b: logs[b]})
        columns.add(f"sizes / {names[b]}", {**terms, b: [-x for x in logs[b]]})
