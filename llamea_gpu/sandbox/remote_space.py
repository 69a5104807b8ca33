"""``space`` and ``evaluate`` of the contract in the hardened child, where the space is a whole one.

What it does: asks the host for what only the framework's own rules tell (which configurations are
valid, what they are normalised to, samples), and remembers the answers.

What it does not do: protect anything; see `child`. It needs numpy and the standard library.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from llamea_gpu.sandbox import protocol
from llamea_gpu.sandbox.evaluate import Configurations, Evaluate, request, rest
from llamea_gpu.spaces.space import (
    Configuration,
    Value,
    checked_target,
    encoded,
    require_neighbors,
)

_MOST = (1 << 63) - 1


class RemoteSpace:
    """A whole space: its parameters, and the rows of what the host was asked about."""

    def __init__(
        self,
        names: Sequence[str],
        values: Sequence[Sequence[Value]],
        ordinal: Sequence[bool],
    ) -> None:
        self.names = tuple(names)
        self.values = tuple(map(tuple, values))
        self.ordinal = tuple(ordinal)
        self.cardinalities = tuple(map(len, self.values))
        self.dimension = len(self.names)
        self._packed = struct.Struct(f"={self.dimension}H")
        self._rows: dict[Configuration, int] = {}
        self._configurations: dict[int, Configuration] = {}
        self._neighbors: dict[tuple[int, str], list[Configuration]] = {}
        self._repaired: dict[Configuration, Configuration] = {}

    def row(self, configuration: object) -> int:
        """Row of what the configuration is normalised to, -1 when it is not valid."""
        return self.placed([configuration])[0]

    def rows(self, configurations: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Rows of n configurations."""
        if isinstance(configurations, np.ndarray):
            configurations = configurations.tolist()
        return np.array(self.placed(cast("Iterable[object]", configurations)), dtype=np.int32)

    def configuration(self, row: int) -> Configuration:
        """The configuration under which a row was first known here."""
        return self._configurations[row]

    def placed(self, configurations: Iterable[object]) -> list[int]:
        """Rows of configurations, -1 where one is not valid; the unknown ones are asked for."""
        keys = [self._key(configuration) for configuration in configurations]
        known = self._rows
        new = list(dict.fromkeys(key for key in keys if key is not None and key not in known))
        size = protocol.PLACE_BYTES // self._packed.size
        for start in range(0, len(new), size):
            part = new[start : start + size]
            packed = b"".join(self._packed.pack(*key) for key in part)
            reply = request(protocol.KIND.pack(protocol.PLACE) + packed)
            for key, row in zip(part, struct.unpack(f"={len(part)}i", reply), strict=True):
                self._note(key, row)
        return [-1 if key is None else known[key] for key in keys]

    def fetch(self, packet: bytes) -> list[Configuration]:
        """The configurations that the host answers a request with."""
        reply = request(packet)
        (count,) = protocol.COUNT.unpack_from(reply)
        whole = rest(reply[protocol.COUNT.size :], count * (4 + self._packed.size))
        rows = struct.unpack_from(f"={count}i", whole)
        configurations = list(self._packed.iter_unpack(whole[4 * count :]))
        for configuration, row in zip(configurations, rows, strict=True):
            self._note(configuration, row)
        return configurations

    def neighbors(self, row: int, kind: str) -> list[Configuration]:
        """Those of a row."""
        if (row, kind) not in self._neighbors:
            adjacent = int(kind == "adjacent")
            packet = protocol.KIND_AND_TWO_WORDS.pack(protocol.NEIGHBORS, row, adjacent)
            self._neighbors[row, kind] = self.fetch(packet)
        return self._neighbors[row, kind]

    def repair(self, indices: Configuration) -> Configuration:
        """The valid configuration that indices in range are repaired to."""
        if indices not in self._repaired:
            packet = protocol.KIND.pack(protocol.REPAIR) + self._packed.pack(*indices)
            (self._repaired[indices],) = self.fetch(packet)
        return self._repaired[indices]

    def _note(self, configuration: Configuration, row: int) -> None:
        self._rows[configuration] = row
        if row >= 0:
            self._configurations.setdefault(row, configuration)

    def _key(self, configuration: object) -> Configuration | None:
        """As plain integers; None for what is no tuple of indices in range."""
        try:
            indices = tuple(cast("Sequence[int]", configuration))
            key = tuple(map(int, indices))
            pairs = zip(key, self.cardinalities, strict=True)
            valid = key == indices and all(0 <= index < count for index, count in pairs)
        except (TypeError, ValueError, OverflowError):
            return None
        return key if valid else None


class RemoteView:
    """What an optimizer sees as ``space``; see `llamea_gpu.contract.Space`.

    ``size`` is None: the configurations cannot be counted. Samples are drawn by the host, around
    the best so far, as on a live kernel.
    """

    size = None

    def __init__(self, space: RemoteSpace) -> None:
        self._space = space
        self.names, self.values = space.names, space.values
        self.cardinalities, self.ordinal = space.cardinalities, space.ordinal

    def sample(self, n: int) -> list[Configuration]:
        """``n`` distinct configurations, at most 1,024: the kernel's default and seeds first."""
        return self._space.fetch(_count(protocol.SAMPLE, n))

    def pool(self, n: int) -> npt.NDArray[np.int64]:
        """(m, d) indices, at most 2,048 rows: around the best so far, then random ones."""
        configurations = self._space.fetch(_count(protocol.POOL, n))
        return np.array(configurations, dtype=np.int64).reshape(
            len(configurations), len(self.names)
        )

    def neighbors(self, config: Sequence[int], kind: str = "hamming") -> list[Configuration]:
        """What a change in one parameter leads to.

        Raises:
            ValueError: ``config`` is not valid, or the kind is unknown.
        """
        row = self._space.row(config)
        require_neighbors(row, config, kind)
        return list(self._space.neighbors(row, kind))

    def contains(self, config: Sequence[int]) -> bool:
        """Whether the configuration is valid, as it is or normalised."""
        return self._space.row(config) >= 0

    def repair(self, config: Sequence[float]) -> Configuration:
        """The valid configuration that is made of the nearest indices.

        Raises:
            ValueError: the wrong number of indices, or one that is not a finite number.
        """
        target = checked_target(config, len(self.names))
        highest = np.array(self.cardinalities, dtype=np.float64) - 1
        return self._space.repair(tuple(np.clip(np.rint(target), 0, highest).astype(int).tolist()))

    def encode(
        self, configs: Sequence[Sequence[int]] | npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """Indices scaled to [0, 1]: (n, d) float64.

        Raises:
            ValueError: not (n, d) indices, nor one configuration of d, nor empty.
        """
        return encoded(configs, self.cardinalities)


class WholeEvaluate(Evaluate):
    """`Evaluate` where several configurations may mean the same: `wait` hands out what was
    submitted.
    """

    __slots__ = ("_submitted", "_whole")

    def __init__(self, space: RemoteSpace, parallel: int, max_pending: int, spent: float) -> None:
        super().__init__(space, parallel, max_pending, spent)
        self._whole = space
        self._submitted: dict[int, deque[Configuration]] = {}

    def submit(self, configurations: Configurations) -> None:
        """As of every ``evaluate``."""
        configurations = list(configurations)
        super().submit(configurations)
        for row, configuration in zip(
            self._whole.placed(configurations), configurations, strict=True
        ):
            self._submitted.setdefault(row, deque()).append(tuple(map(int, configuration)))

    def _handed_out(self, rows: Sequence[int]) -> list[Configuration]:
        return [self._submitted[row].popleft() for row in rows]

    def _rows(self, configurations: Configurations) -> list[int]:
        configurations = list(configurations)
        return self._checked(configurations, self._whole.placed(configurations))


def _count(kind: int, n: int) -> bytes:
    return protocol.KIND_AND_COUNT.pack(kind, min(max(int(n), 0), _MOST))
