"""The child's end of the channel: one request, one reply.

It needs the standard library only, and protects nothing: see `child`.
"""

from __future__ import annotations

import os

from llamea_gpu.errors import BudgetExhausted
from llamea_gpu.sandbox import protocol
from llamea_gpu.sandbox.hardening import CHANNEL_FD

_MAX_REPLY_BYTES = max(
    protocol.SPENT.size + 8 * protocol.PART_ROWS,
    protocol.JOB_SIZE.size + protocol.PART_BYTES,
    protocol.SPENT_AND_COUNT.size + protocol.PART_BYTES,
)


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
