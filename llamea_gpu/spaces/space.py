"""A search space as integer arrays: parameters, their values, and the valid configurations.

A configuration is a tuple of value indices, one for each parameter. Valid configurations are rows
of an (N, d) array in lexicographic order, so the same space gives the same rows whatever format it
came from. Membership costs a dictionary lookup; neighbours are a slice of a table built once.

It holds no costs (see :mod:`llamea_gpu.spaces.recording`) and reads no files. It needs numpy and
the standard library only, because the sandboxed child imports it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.neighborhood import NeighborTable, build_neighbor_table
from llamea_gpu.spaces.parameters import (
    Value,
    checked_names,
    checked_values,
    is_ordinal,
    radix_weights,
)
from llamea_gpu.spaces.quoting import quoted

__all__ = ["Configuration", "SearchSpace", "SpaceView", "Value"]

Configuration = tuple[int, ...]

_KINDS = ("hamming", "adjacent")
_MAGIC = b"llamea-space-1\n"
# Above this many rows, tuples are made when asked for instead of being kept (about 250 bytes each).
_MAX_CACHED_ROWS = 300_000
# Above this many (row, neighbour) pairs (64 MiB), neighbours are computed for each query.
_MAX_TABLE_EDGES = 1 << 24


class SearchSpace:
    """Parameters and valid configurations; immutable.

    Attributes:
        names: parameter names, distinct.
        values: for each parameter its distinct values, in the order the indices refer to.
        cardinalities: number of values of each parameter.
        ordinal: for each parameter whether its values are numbers (not bool), at least two,
            strictly rising or falling.
        configurations: (N, d) value indices, read-only, in the smallest unsigned dtype that fits
            (convert before subtracting).
        size: N; dimension: d.
    """

    __slots__ = (
        "_fingerprint",
        "_keys",
        "_lookup",
        "_strides",
        "_tables",
        "_tuples",
        "cardinalities",
        "configurations",
        "dimension",
        "names",
        "ordinal",
        "size",
        "values",
    )

    def __init__(
        self,
        names: Sequence[str],
        values: Sequence[Sequence[Value]],
        configurations: npt.ArrayLike,
    ) -> None:
        """Check and sort.

        Args:
            names: d parameter names.
            values: d sequences of values.
            configurations: (N, d) integers: value indices, in any order.

        Raises:
            SpaceError: an empty space, a repeated name, value or configuration, an index out of
                range, a value that is not a finite number, a string, a bool or None.
        """
        self.names: tuple[str, ...] = checked_names(names)
        if len(values) != len(self.names):
            raise SpaceError(
                f"each parameter needs its values, but got {len(self.names)} names and "
                f"{len(values)} lists of values"
            )
        self.values: tuple[tuple[Value, ...], ...] = tuple(
            checked_values(name, vs) for name, vs in zip(self.names, values, strict=True)
        )
        self.cardinalities: tuple[int, ...] = tuple(len(vs) for vs in self.values)
        self.ordinal: tuple[bool, ...] = tuple(is_ordinal(vs) for vs in self.values)
        self.dimension: int = len(self.names)
        self._strides = radix_weights(self.cardinalities)
        array = self._checked_indices(configurations)
        keys = self._keys_of(array)
        order = np.argsort(keys, kind="stable")
        keys, array = keys[order], array[order]
        self._refuse_duplicates(keys, array)
        array.setflags(write=False)
        self.configurations: npt.NDArray[np.unsignedinteger[Any]] = array
        self.size: int = len(array)
        self._keys = keys
        self._tuples: list[Configuration] | None = None
        self._lookup: dict[Configuration, int] | None = None
        self._tables: dict[str, NeighborTable | None] = {}
        self._fingerprint: str | None = None

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.cardinalities))
        return f"SearchSpace({self.size} of {shape} configurations of {', '.join(self.names)})"

    def __reduce__(self) -> tuple[Callable[[bytes], SearchSpace], tuple[bytes]]:
        # Tables and lookups are left behind: they cost more to move than to build.
        return SearchSpace.from_bytes, (self.to_bytes(),)

    # -- membership -------------------------------------------------------------------------

    def row(self, configuration: object) -> int:
        """Row of a configuration, or -1 when it is not valid (wrong length or type included).

        A number equal to an index counts as that index (``2.0``, a numpy integer).
        """
        if self.size > _MAX_CACHED_ROWS:
            return self._searched(configuration)
        lookup = self._lookup or self._build_lookup()
        try:
            return lookup.get(cast("Configuration", configuration), -1)
        except TypeError:  # unhashable: a list or an array instead of a tuple
            pass
        try:
            return lookup.get(tuple(cast("Sequence[int]", configuration)), -1)
        except TypeError:
            return -1

    def rows(self, configurations: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Rows of n configurations: (n,) int32, -1 where invalid; fast for integer arrays."""
        try:
            array = np.asarray(configurations)
        except ValueError:  # configurations of different lengths
            array = np.empty(0, dtype=object)
        if array.ndim != 2 or array.shape[1] != self.dimension or array.dtype.kind not in "iu":
            each = [self.row(c) for c in cast("Sequence[object]", configurations)]
            return np.array(each, dtype=np.int32)
        inside = np.all((array >= 0) & (array < np.array(self.cardinalities)), axis=1)
        keys = self._keys_of(np.where(inside[:, None], array, 0))
        position = np.minimum(np.searchsorted(self._keys, keys), self.size - 1)
        valid = inside & (self._keys[position] == keys)
        return np.where(valid, position, -1).astype(np.int32)

    def configuration(self, row: int) -> Configuration:
        """The configuration of a row, as a tuple of Python ints."""
        if self.size > _MAX_CACHED_ROWS:
            return tuple(self.configurations[row].tolist())
        return self.tuples[row]

    @property
    def tuples(self) -> list[Configuration]:
        """All configurations by row; kept."""
        if self._tuples is None:
            self._tuples = list(map(tuple, self.configurations.tolist()))
        return self._tuples

    def tuples_of(self, rows: list[int]) -> list[Configuration]:
        """The configurations of several rows."""
        if self.size > _MAX_CACHED_ROWS:
            return list(map(tuple, self.configurations[rows].tolist()))
        tuples = self.tuples
        return [tuples[row] for row in rows]

    # -- neighbours -------------------------------------------------------------------------

    def neighbor_rows(self, row: int, kind: str = "hamming") -> npt.NDArray[np.int32]:
        """Rows next to ``row``: (k,) int32, by parameter, then by value index.

        ``hamming``: valid configurations that differ in exactly one parameter. ``adjacent``: the
        same, but along an ordinal parameter only the nearest valid value down and up.

        Raises:
            SpaceError: an unknown kind.
        """
        try:
            table = self._tables[kind]
        except KeyError:
            table = self.neighbor_table(kind)
        if table is not None:
            return table.of(row)
        return self._query_neighbors(row, kind)

    def neighbor_table(self, kind: str = "hamming") -> NeighborTable | None:
        """All neighbours of all rows, built on first use; None when it would exceed 64 MiB."""
        if kind not in _KINDS:
            raise SpaceError(f"the neighbour kind must be one of {_KINDS}, but got {kind!r}")
        if kind not in self._tables:
            self._tables[kind] = build_neighbor_table(
                keys_without=self._keys_without,
                varying=[j for j, c in enumerate(self.cardinalities) if c > 1],
                nearest_only=[kind == "adjacent" and o for o in self.ordinal],
                size=self.size,
                max_edges=_MAX_TABLE_EDGES,
            )
        return self._tables[kind]

    def prepare(self) -> None:
        """Build everything lazy now, e.g. before forking the processes that will use it."""
        if self.size <= _MAX_CACHED_ROWS:
            self._build_lookup()
        for kind in _KINDS:
            self.neighbor_table(kind)

    def repair_row(self, configuration: Sequence[float]) -> int:
        """Row of the nearest valid configuration; ties go to the lowest row.

        Distance: a differing categorical parameter counts 1, an ordinal one |Δindex|/(values - 1).
        Fractions and indices out of range are allowed: what a continuous optimizer proposes.

        Raises:
            SpaceError: the wrong number of indices, or one that is not a finite number.
        """
        row = self.row(configuration)
        if row >= 0:
            return row
        # Clipped: beyond the range distances only grow, until doubles tell them apart no more. A
        # categorical index out of range equals no value, and must not come to equal one.
        beyond = (~np.array(self.ordinal)).astype(np.int64)
        try:
            unclipped = checked_target(configuration, self.dimension)
        except ValueError as error:
            raise SpaceError(str(error)) from None
        target = np.clip(unclipped, -beyond, np.array(self.cardinalities) - 1 + beyond)
        distance = np.zeros(self.size)
        for j, cardinality in enumerate(self.cardinalities):
            if cardinality == 1:
                continue
            indices = np.arange(cardinality)
            if self.ordinal[j]:
                by_index = np.abs(indices - target[j]) / (cardinality - 1)
            else:
                by_index = (indices != np.rint(target[j])).astype(float)
            distance += by_index.take(self.configurations[:, j])
        # Sums that are equal on paper may differ in the last bits.
        return int(np.argmax(distance <= distance.min() + 1e-9))

    # -- other views ------------------------------------------------------------------------

    def encode(self, configurations: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Indices scaled to [0, 1]: (n, d) float64, index/(values - 1), 0 for a single value.

        Raises:
            ValueError: not (n, d) indices, nor one configuration of d, nor empty.
        """
        return encoded(configurations, self.cardinalities)

    def value_dict(self, configuration: Sequence[int]) -> dict[str, Value]:
        """Parameter names to the values that the indices stand for."""
        return {
            name: values[i]
            for name, values, i in zip(self.names, self.values, configuration, strict=True)
        }

    def to_bytes(self) -> bytes:
        """JSON header and raw little-endian array; the same bytes for the same space."""
        array = self.configurations.astype(self.configurations.dtype.newbyteorder("<"))
        header = {"names": self.names, "values": self.values, "dtype": array.dtype.str}
        return _MAGIC + json.dumps(header).encode() + b"\n" + array.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> SearchSpace:
        """Inverse of :meth:`to_bytes`.

        Raises:
            SpaceError: the bytes are not those of a space.
        """
        try:
            if not data.startswith(_MAGIC):
                raise ValueError("another magic line")
            end = data.index(b"\n", len(_MAGIC))
            header = json.loads(data[len(_MAGIC) : end])
            flat = np.frombuffer(data, dtype=header["dtype"], offset=end + 1)
            return cls(header["names"], header["values"], flat.reshape(-1, len(header["names"])))
        except (ValueError, KeyError, TypeError) as error:
            raise SpaceError(
                f"a serialised space must be what SearchSpace.to_bytes wrote, but got: {error}"
            ) from error

    @property
    def fingerprint(self) -> str:
        """SHA-256 of names, values and valid configurations, in hexadecimal."""
        if self._fingerprint is None:
            self._fingerprint = hashlib.sha256(self.to_bytes()).hexdigest()
        return self._fingerprint

    # -- private ----------------------------------------------------------------------------

    def _build_lookup(self) -> dict[Configuration, int]:
        if self._lookup is None:
            self._lookup = dict(zip(self.tuples, range(self.size), strict=True))
        return self._lookup

    def _searched(self, configuration: object) -> int:
        """`row` by binary search, where a dictionary would take too much memory."""
        try:
            indices = tuple(cast("Sequence[Any]", configuration))
        except TypeError:
            return -1
        fitting = len(indices) == self.dimension and all(
            isinstance(index, int | float | np.number) and index in range(cardinality)
            for index, cardinality in zip(indices, self.cardinalities, strict=True)
        )
        return int(self.rows(np.array([indices]).astype(np.int64))[0]) if fitting else -1

    def _keys_of(self, array: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.generic]:
        """(n, d) indices in range -> (n,) keys that sort and compare as the rows do."""
        if self._strides is not None:
            return np.asarray(array.astype(np.int64) @ self._strides)
        # More than 2**62 combinations: big-endian bytes compare like the rows they spell.
        wide = np.ascontiguousarray(array, dtype=">u4")
        return wide.view(f"S{4 * self.dimension}").ravel()

    def _keys_without(self, parameter: int) -> npt.NDArray[np.generic]:
        flattened = self.configurations.copy()
        flattened[:, parameter] = 0
        return self._keys_of(flattened)

    def _query_neighbors(self, row: int, kind: str) -> npt.NDArray[np.int32]:
        center = self.configurations[row].astype(np.int64)
        neighbors: list[npt.NDArray[np.int32]] = []
        for j, cardinality in enumerate(self.cardinalities):
            line = np.repeat(center[None, :], cardinality, axis=0)
            line[:, j] = np.arange(cardinality)
            rows = self.rows(line)
            below, above = rows[: center[j]], rows[center[j] + 1 :]
            below, above = below[below >= 0], above[above >= 0]
            if kind == "adjacent" and self.ordinal[j]:
                below, above = below[-1:], above[:1]
            neighbors += [below, above]
        return np.concatenate(neighbors)

    def _checked_indices(
        self, configurations: npt.ArrayLike
    ) -> npt.NDArray[np.unsignedinteger[Any]]:
        array = np.asarray(configurations)
        if array.ndim != 2 or array.shape[1] != self.dimension or array.dtype.kind not in "iu":
            raise SpaceError(
                f"configurations must be an (N, {self.dimension}) array of integers, but got "
                f"shape {array.shape} of {array.dtype}"
            )
        if len(array) == 0:
            raise SpaceError("a search space must have at least one valid configuration")
        outside = (array < 0) | (array >= np.array(self.cardinalities))
        if outside.any():
            row, j = (int(i) for i in np.argwhere(outside)[0])
            raise SpaceError(
                f"0 <= index < {self.cardinalities[j]} must hold for {quoted(self.names[j])}, but "
                f"configuration {row} has {array[row, j]}"
            )
        return array.astype(np.min_scalar_type(max(self.cardinalities) - 1))

    def _refuse_duplicates(
        self, keys: npt.NDArray[np.generic], array: npt.NDArray[np.unsignedinteger[Any]]
    ) -> None:
        repeated = np.flatnonzero(keys[1:] == keys[:-1])
        if len(repeated):
            example = self.value_dict(array[repeated[0]].tolist())
            raise SpaceError(
                f"configurations must be distinct, but {len(repeated)} are repeated, e.g. "
                f"{quoted(example)}"
            )


def checked_target(configuration: object, dimension: int) -> npt.NDArray[np.float64]:
    """A configuration to repair, (d,); ValueError unless it is so many finite numbers."""
    try:
        target = np.asarray(configuration, dtype=np.float64)
    except (TypeError, ValueError):
        target = np.empty(0)
    if target.shape != (dimension,) or not np.isfinite(target).all():
        raise ValueError(
            f"a configuration to repair must be {dimension} finite numbers, but got "
            f"{quoted(configuration)}"
        )
    return target


def encoded(configurations: npt.ArrayLike, cardinalities: Sequence[int]) -> npt.NDArray[np.float64]:
    """See `SearchSpace.encode`."""
    dimension = len(cardinalities)
    array = np.asarray(configurations, dtype=np.float64)
    if array.size and array.shape[-1:] != (dimension,):
        raise ValueError(f"encode needs (n, {dimension}) indices, but got shape {array.shape}")
    scaled: npt.NDArray[np.float64] = array.reshape(-1, dimension) / np.maximum(
        np.array(cardinalities) - 1, 1
    )
    return scaled


def require_neighbors(row: int, configuration: object, kind: str) -> None:
    """ValueError unless there is such a row (-1: none) and such a kind of neighbours."""
    if row < 0:
        raise ValueError(
            f"neighbors needs a valid configuration, but got {quoted(configuration)}: use "
            f"repair() first"
        )
    if kind not in _KINDS:
        raise ValueError(f"kind must be one of {_KINDS}, but got {kind!r}")


class SpaceView:
    """What an optimizer sees as ``space``: the valid configurations, and a run's randomness.

    ``size`` is the number of valid configurations. Every array handed out is a fresh int64 or
    float64 copy, so that arithmetic on it neither wraps nor reaches the space.
    """

    __slots__ = ("_rng", "_space", "cardinalities", "names", "ordinal", "size", "values")

    def __init__(self, space: SearchSpace, rng: np.random.Generator) -> None:
        self._space = space
        self._rng = rng
        self.names = space.names
        self.values = space.values
        self.cardinalities = space.cardinalities
        self.ordinal = space.ordinal
        self.size = space.size

    def sample(self, n: int) -> list[Configuration]:
        """``n`` distinct random configurations; all of them, shuffled, when n >= size."""
        return self._space.tuples_of(self._sample_rows(n))

    def pool(self, n: int) -> npt.NDArray[np.int64]:
        """(m, d) indices: every valid configuration if there are at most n, else n random ones."""
        configurations = self._space.configurations
        if n >= self.size:
            return configurations.astype(np.int64)
        return configurations[self._sample_rows(n)].astype(np.int64)

    def neighbors(self, config: Sequence[int], kind: str = "hamming") -> list[Configuration]:
        """Valid configurations that differ in one parameter.

        ``adjacent`` keeps, along an ordinal parameter, only the nearest valid value down and up.

        Raises:
            ValueError: ``config`` is not valid, or the kind is unknown.
        """
        space = self._space
        row = space.row(config)
        require_neighbors(row, config, kind)
        return space.tuples_of(space.neighbor_rows(row, kind).tolist())

    def contains(self, config: Sequence[int]) -> bool:
        """Whether the configuration is valid."""
        return self._space.row(config) >= 0

    def repair(self, config: Sequence[float]) -> Configuration:
        """The nearest valid configuration (see :meth:`SearchSpace.repair_row`).

        Raises:
            ValueError: the wrong number of indices, or one that is not a finite number.
        """
        try:
            return self._space.configuration(self._space.repair_row(config))
        except SpaceError as error:
            raise ValueError(str(error)) from None

    def encode(
        self, configs: Sequence[Sequence[int]] | npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """Indices scaled to [0, 1]: (n, d) float64."""
        return self._space.encode(configs)

    def _sample_rows(self, n: int) -> list[int]:
        size, rng = self.size, self._rng
        if n >= size:
            return cast("list[int]", rng.permutation(size).tolist())
        if n == 1:
            return [int(rng.integers(size))]
        # Draw again while something repeats: uniform, and much faster than choice() for small n.
        while n * n <= size:
            rows = rng.integers(0, size, n).tolist()
            if len(set(rows)) == n:
                return cast("list[int]", rows)
        return cast("list[int]", rng.choice(size, n, replace=False).tolist())
