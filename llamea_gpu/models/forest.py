"""Trees that scikit-learn has grown, as flat arrays: several ensembles walked at once, quickly.

A call of scikit-learn's ``predict`` takes 5 to 20 ms whatever it is asked, and a search on a model
asks thousands of times for one row. Here a step takes every tree one node down, in a few numpy
calls; trees that have arrived are dropped from time to time, since depths differ. The values of
leaves are rounded to multiples of 2 ** -32, so that their sum is exact in any order, and one row's
answer the same alone and among others: the result is scikit-learn's to 1e-9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
Features = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.NDArray[Any]]

_STEPS = 6  # between two looks at which trees have arrived
_MOST_CELLS = 1 << 20  # rows times trees walked at once
_FRACTION = 2.0**32  # sums of 2 ** 11 values below 2 ** 10 fit a double


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """T trees of N nodes in all, with K outputs; an answer is the mean over trees.

    A node's right child follows its left one. A leaf is its own left child, and nothing is above
    its threshold.

    Attributes:
        roots: (T,) nodes.
        feature: (N,) feature that the node splits on; threshold: (N,) at most which goes left.
        left: (N,) left child.
        value: (N, K) outputs of leaves.
    """

    roots: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    value: Floats

    @classmethod
    def of_trees(cls, trees: Sequence[Any]) -> Ensemble:
        """The trees of a fitted forest: ``tree_`` of each of scikit-learn's ``estimators_``."""
        parts = [_flattened(tree) for tree in trees]
        sizes = [len(part["left"]) for part in parts]
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        joined["left"] += np.repeat(roots, sizes)
        return cls(roots=roots, **joined)

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Ensemble:
        """What `arrays` gave."""
        return cls(**{name: arrays[name].astype(wide) for name, (_, wide) in _DTYPES.items()})

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name, in the small types of a file."""
        return {name: getattr(self, name).astype(small) for name, (small, _) in _DTYPES.items()}


_DTYPES: dict[str, tuple[npt.DTypeLike, npt.DTypeLike]] = {
    "roots": (np.int32, np.intp),
    "feature": (np.int16, np.intp),
    "threshold": (np.float64, np.float64),
    "left": (np.int32, np.intp),
    "value": (np.float64, np.float64),
}


class Forest:
    """Ensembles that are asked together: one walk, one answer of each."""

    def __init__(self, ensembles: Sequence[Ensemble]) -> None:
        nodes = np.cumsum([0, *(len(e.left) for e in ensembles)])
        trees = np.cumsum([0, *(len(e.roots) for e in ensembles)])
        self._roots = np.concatenate(
            [e.roots + first for e, first in zip(ensembles, nodes, strict=False)]
        )
        self._left = np.concatenate(
            [e.left + first for e, first in zip(ensembles, nodes, strict=False)]
        )
        self._feature = np.concatenate([e.feature for e in ensembles])
        self._threshold = np.concatenate([e.threshold for e in ensembles])
        self._parts = [
            (slice(int(trees[i]), int(trees[i + 1])), int(nodes[i]), e.value)
            for i, e in enumerate(ensembles)
        ]

    def one(self, features: Features) -> list[Floats]:
        """Each ensemble's outputs, (K,), for one row of features, (F,)."""
        leaves = self._leaves(features)
        return [
            value.take(leaves[t] - first, axis=0).mean(axis=0) for t, first, value in self._parts
        ]

    def many(self, features: Features) -> list[Floats]:
        """Each ensemble's outputs, (n, K), for (n, F) features."""
        step = max(1, _MOST_CELLS // len(self._roots))
        blocks = [self._block(features[i : i + step]) for i in range(0, len(features), step)]
        if not blocks:
            return [np.empty((0, value.shape[1])) for _, _, value in self._parts]
        return [np.concatenate(outputs) for outputs in zip(*blocks, strict=True)]

    def _leaves(self, features: Features) -> Ints:
        feature, threshold, left = self._feature, self._threshold, self._left
        end: Ints = self._roots.copy()
        walking = np.arange(len(end))
        node = end
        while len(walking):
            for _ in range(_STEPS):
                right = features.take(feature.take(node)) > threshold.take(node)
                node = left.take(node) + right
            end[walking] = node
            inner = left.take(node) != node
            walking, node = walking[inner], node[inner]
        return end

    def _block(self, features: Features) -> list[Floats]:
        rows, trees = len(features), len(self._roots)
        end = np.tile(self._roots, rows)
        base = np.repeat(np.arange(rows) * features.shape[1], trees)
        flat = np.ascontiguousarray(features).ravel()
        walking = np.arange(rows * trees)
        while len(walking):
            node, begin = end[walking], base[walking]
            for _ in range(_STEPS):
                right = flat.take(begin + self._feature.take(node)) > self._threshold.take(node)
                node = self._left.take(node) + right
            end[walking] = node
            walking = walking[self._left.take(node) != node]
        leaves = end.reshape(rows, trees)
        return [
            value.take(leaves[:, t] - first, axis=0).mean(axis=1) for t, first, value in self._parts
        ]


def _flattened(tree: Any) -> dict[str, npt.NDArray[Any]]:
    """The arrays of one tree, its nodes in an order in which right children follow left ones."""
    leaf = tree.children_left < 0
    order = _siblings_together(tree.children_left, tree.children_right)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    left = np.where(leaf, np.arange(len(leaf)), tree.children_left)
    value = tree.value.reshape(len(leaf), -1)
    return {
        "feature": np.where(leaf, 0, tree.feature)[order].astype(np.intp),
        "threshold": np.where(leaf, np.inf, tree.threshold)[order],
        "left": place[left[order]],
        "value": np.rint(value[order] * _FRACTION) / _FRACTION,
    }


def _siblings_together(left: Ints, right: Ints) -> Ints:
    """Nodes level by level, each right child just after the left one."""
    levels = [np.zeros(1, dtype=np.intp)]
    while len(levels[-1]):
        inner = levels[-1][left[levels[-1]] >= 0]
        levels.append(np.stack([left[inner], right[inner]], axis=1).ravel())
    return np.concatenate(levels)
