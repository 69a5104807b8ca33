"""Row -> configuration and configuration -> row for spaces too large to keep a tuple a row.

It is not used below that size, where a list and a dictionary of tuples are faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class TupleStore(Protocol):
    """Row -> configuration."""

    def __getitem__(self, row: int, /) -> tuple[int, ...]: ...


class RowLookup(Protocol):
    """Configuration -> row; a TypeError when it is not hashable."""

    def get(self, configuration: Any, default: int, /) -> int:
        """Row, or ``default`` when the configuration is not valid."""


class TuplesOnDemand:
    """Row -> configuration, made when asked for."""

    __slots__ = ("_configurations",)

    def __init__(self, configurations: npt.NDArray[np.unsignedinteger[Any]]) -> None:
        self._configurations = configurations

    def __getitem__(self, row: int, /) -> tuple[int, ...]:
        return tuple(self._configurations[row].tolist())


class SortedLookup:
    """Configuration -> row by binary search among the rows."""

    __slots__ = ("_cardinalities", "_rows")

    def __init__(
        self,
        cardinalities: tuple[int, ...],
        rows: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int32]],
    ) -> None:
        self._cardinalities = cardinalities
        self._rows = rows

    def get(self, configuration: Any, default: int, /) -> int:
        """Row, or ``default`` when the configuration is not valid."""
        hash(configuration)  # the same TypeError that a dictionary would raise
        if not isinstance(configuration, tuple) or len(configuration) != len(self._cardinalities):
            return default
        for index, cardinality in zip(configuration, self._cardinalities, strict=True):
            if not isinstance(index, int | float | np.number) or index not in range(cardinality):
                return default
        return int(self._rows(np.array([configuration]).astype(np.int64))[0])
