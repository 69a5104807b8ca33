"""``evaluate`` of the contract inside the hardened child, over the channel.

It needs numpy and the standard library, and protects nothing: see `child`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llamea_gpu.errors import BudgetExhausted, Stalled
from llamea_gpu.sandbox import protocol
from llamea_gpu.sandbox.hardening import CHANNEL_FD

if TYPE_CHECKING:
    from llamea_gpu.sandbox.remote_space import RemoteSpace
    from llamea_gpu.spaces.space import SearchSpace

Configurations = Sequence[Sequence[int]] | npt.NDArray[np.integer[Any]]

_MAX_REPLY_BYTES = max(
    protocol.SPENT.size + 8 * protocol.PART_ROWS,
    protocol.JOB_SIZE.size + protocol.PART_BYTES,
    protocol.SPENT_AND_COUNT.size + protocol.PART_BYTES,
)

# The host, which ends a run that only revisits, never sees a call without a configuration.
_MAX_EMPTY_CALLS = 10_000


def request(packet: bytes) -> bytes:
    """One round trip. The host ends a run by closing the channel, usually with a SIGKILL."""
    try:
        os.write(CHANNEL_FD, packet)
        reply = os.read(CHANNEL_FD, _MAX_REPLY_BYTES)
    except OSError as error:
        raise BudgetExhausted from error
    if not reply:
        raise BudgetExhausted
    return reply


def rest(first: bytes, size: int) -> bytes:
    """The whole of an answer of ``size`` bytes that began with ``first``."""
    parts = [first]
    missing = size - len(first)
    while missing > 0:
        parts.append(request(protocol.KIND.pack(protocol.NEXT)))
        missing -= len(parts[-1])
    return b"".join(parts)


class Evaluate:
    """``evaluate`` of the contract: configurations in, costs in ms out, in the same order.

    Or `submit` configurations, and `wait` for those that are done. ``spent`` is the share of the
    budget used, as of the last answer; ``parallel`` is how many configurations are worth having on
    their way.
    """

    __slots__ = ("_empty_calls", "_max_pending", "_parallel", "_pending", "_space", "_spent")

    def __init__(
        self, space: SearchSpace | RemoteSpace, parallel: int, max_pending: int, spent: float
    ) -> None:
        self._space = space
        self._parallel = parallel
        self._max_pending = max_pending
        self._pending = 0
        self._spent = spent
        self._empty_calls = 0  # in a row

    @property
    def spent(self) -> float:
        """Share of the budget used, 0 to 1."""
        return self._spent

    @property
    def parallel(self) -> int:
        """How many configurations are worth having on their way."""
        return self._parallel

    @property
    def pending(self) -> int:
        """How many submitted configurations no `wait` has handed out yet."""
        return self._pending

    def __call__(self, configurations: Configurations) -> list[float]:
        """Costs in ms to minimise, inf for a configuration that fails to compile or run.

        Raises:
            ValueError: a configuration that is not valid in this space (nothing is charged).
            BudgetExhausted: the budget is used up.
        """
        rows = self._rows(configurations)
        if len(rows) == 1:
            reply = request(protocol.KIND_AND_WORD.pack(protocol.ASK, rows[0]))
            self._spent, cost = protocol.SPENT_AND_COST.unpack(reply)
            return [cost]
        if not rows:
            self._nothing()
            return []
        reply = self._send(protocol.ASK, rows)
        costs = rest(reply[protocol.SPENT.size :], 8 * len(rows))
        return list(struct.unpack(f"={len(rows)}d", costs))

    def submit(self, configurations: Configurations) -> None:
        """Queue configurations, each to be handed out once by `wait`.

        Raises:
            ValueError: a configuration that is not valid in this space, or too many on their way
                (nothing is queued).
            BudgetExhausted: the budget is used up.
        """
        rows = self._rows(configurations)
        if self._pending + len(rows) > self._max_pending:
            raise ValueError(
                f"at most {self._max_pending} configurations may be on their way, but got "
                f"{len(rows)} more to {self._pending}: wait for some first"
            )
        if rows:
            self._send(protocol.SUBMIT, rows)
            self._pending += len(rows)
        else:
            self._nothing()

    def wait(self) -> list[tuple[tuple[int, ...], float]]:
        """Submitted configurations and their costs in ms, in the order in which they were done.

        Those that are done by now, if any are, else the next; empty when nothing is pending.

        Raises:
            BudgetExhausted: the budget ends before anything more is done.
        """
        if not self._pending:
            self._nothing()
            return []
        reply = request(protocol.KIND.pack(protocol.WAIT))
        self._spent, count = protocol.SPENT_AND_COUNT.unpack_from(reply)
        payload = rest(reply[protocol.SPENT_AND_COUNT.size :], 12 * count)
        numbers = struct.unpack(f"={count}i{count}d", payload)
        self._pending -= count
        return list(zip(self._handed_out(numbers[:count]), numbers[count:], strict=True))

    def _handed_out(self, rows: Sequence[int]) -> list[tuple[int, ...]]:
        """What was submitted as these rows."""
        return list(map(self._space.configuration, rows))

    def _rows(self, configurations: Configurations) -> list[int]:
        rows: list[int]
        if isinstance(configurations, np.ndarray) and configurations.ndim == 2:
            rows = self._space.rows(configurations).tolist()
        else:
            configurations = list(configurations)
            rows = list(map(self._space.row, configurations))
        return self._checked(configurations, rows)

    def _checked(
        self, configurations: Sequence[Any] | npt.NDArray[Any], rows: list[int]
    ) -> list[int]:
        if rows:
            self._empty_calls = 0
            if min(rows) < 0:
                raise ValueError(self._complaint(configurations, rows.index(-1)))
        return rows

    def _nothing(self) -> None:
        self._empty_calls += 1
        if self._empty_calls > _MAX_EMPTY_CALLS:
            raise Stalled(f"evaluate was called {_MAX_EMPTY_CALLS} times in a row with nothing")

    def _send(self, kind: int, rows: list[int]) -> bytes:
        """Rows in as many packets as they need: the reply to the last, which begins with spent."""
        count = len(rows)
        if count > protocol.MAX_BATCH_ROWS:
            raise ValueError(
                f"a batch must hold at most {protocol.MAX_BATCH_ROWS} configurations, "
                f"but got {count}"
            )
        packed = struct.pack(f"={count}i", *rows)
        size = 4 * protocol.PART_ROWS
        last = (len(packed) - 1) // size * size
        for start in range(0, last, size):
            request(protocol.KIND.pack(protocol.MORE) + packed[start : start + size])
        reply = request(protocol.KIND.pack(kind) + packed[last:])
        (self._spent,) = protocol.SPENT.unpack_from(reply)
        return reply

    def _complaint(self, configurations: Sequence[Any] | npt.NDArray[Any], position: int) -> str:
        """Why the configuration at ``position`` was refused, for the model that wrote the code."""
        wrong = configurations[position]
        if isinstance(wrong, (int, float, np.number)):
            return f"evaluate needs a list of configurations, but got {configurations!r:.200}"
        if isinstance(wrong, np.ndarray):
            wrong = tuple(wrong.tolist())
        try:
            length = len(wrong)
        except TypeError:
            return f"a configuration must be a tuple of value indices, but got {wrong!r:.200}"
        dimension = self._space.dimension
        if length != dimension:
            return f"a configuration must have {dimension} value indices, but got {wrong!r:.200}"
        return (
            f"configurations must be valid in this space, but {wrong!r:.200} (number {position} of "
            f"{len(configurations)}) is not: check with space.contains or use space.repair"
        )
