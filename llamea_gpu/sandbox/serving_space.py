"""The trusted side of a whole space: answers what a child asks about configurations.

What comes in is data, checked as in `serving`; what goes out are configurations and their rows,
never a cost. Samples are drawn around the best so far, which the host knows: as on a live kernel,
that is all that shows of costs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from llamea_gpu.modelled import PlacedSpace
from llamea_gpu.sandbox import protocol
from llamea_gpu.spaces.space import Configuration

SPACE_KINDS = frozenset(
    (protocol.PLACE, protocol.SAMPLE, protocol.POOL, protocol.NEIGHBORS, protocol.REPAIR)
)
_COUNT = struct.Struct("=q")
_TWO_WORDS = struct.Struct("=ii")


class SpaceService:
    """The space of one run."""

    def __init__(self, places: PlacedSpace) -> None:
        self._places = places
        self._packed = struct.Struct(f"={len(places.space.names)}H")
        self._answers: dict[int, Callable[[bytes], Sequence[Configuration]]] = {
            protocol.SAMPLE: lambda body: places.space.sample(self._count(body)),
            protocol.POOL: lambda body: list(
                map(tuple, places.space.pool(self._count(body)).tolist())
            ),
            protocol.NEIGHBORS: self._neighbors,
            protocol.REPAIR: self._repair,
        }

    def answer(self, kind: int, body: bytes) -> tuple[bytes, bytes]:
        """Head and body of the reply to one of `SPACE_KINDS`.

        Raises:
            ValueError: the request breaks the protocol.
            PlacesFull: the run has looked at too many configurations.
        """
        places = self._places
        if kind == protocol.PLACE:
            if not body or len(body) > protocol.PLACE_BYTES:
                raise ValueError(f"configurations in {len(body)} bytes")
            rows = [places.row(config) for config in self._configurations(body)]
            return b"", struct.pack(f"={len(rows)}i", *rows)
        found = self._answers[kind](body)
        rows = [places.place(config) for config in found]
        packed = b"".join(self._packed.pack(*config) for config in found)
        return protocol.COUNT.pack(len(rows)), struct.pack(f"={len(rows)}i", *rows) + packed

    def _configurations(self, body: bytes) -> list[Configuration]:
        if len(body) % self._packed.size:
            raise ValueError(f"configurations of {self._packed.size} bytes in {len(body)}")
        return list(self._packed.iter_unpack(body))

    def _count(self, body: bytes) -> int:
        if len(body) != _COUNT.size:
            raise ValueError(f"a count in {len(body)} bytes")
        return max(int(_COUNT.unpack(body)[0]), 0)

    def _neighbors(self, body: bytes) -> list[Configuration]:
        if len(body) != _TWO_WORDS.size:
            raise ValueError(f"a row and a kind in {len(body)} bytes")
        row, adjacent = _TWO_WORDS.unpack(body)
        if not 0 <= row < len(self._places) or adjacent not in (0, 1):
            raise ValueError(f"neighbours of row {row}, kind {adjacent}")
        home = self._places.configuration(row)
        return self._places.space.neighbors(home, "adjacent" if adjacent else "hamming")

    def _repair(self, body: bytes) -> list[Configuration]:
        configurations = self._configurations(body)
        if len(configurations) != 1:
            raise ValueError(f"{len(configurations)} configurations to repair")
        return [self._places.space.repair(configurations[0])]
