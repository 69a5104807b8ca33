"""The wire between host and child: one request, one reply, each a SOCK_SEQPACKET packet.

A request starts with an int32 kind; what follows is fixed by the kind and checked by the host.

    READY                     hardened, no candidate code has run; reply: the job, first part
    UNHARDENED text           hardening failed (only ever accepted in place of READY)
    MORE rows                 a part of a batch or submission; reply: a bare ``spent``
    ASK rows                  the last or only part of a batch; reply: ``spent`` and costs
    SUBMIT rows               the last or only part of a submission; reply: a bare ``spent``
    WAIT                      reply: ``spent``, how many are done, their rows, their costs
    NEXT                      reply: the next part of what did not fit the last reply
    FAILED reason text        the candidate raised; reason is an index into REASONS
    DONE                      the candidate returned

On a whole space, which only the host can work out (`whole`), also

    PLACE configurations      reply: the row of each, -1 where it is not valid
    SAMPLE n, POOL n          reply: how many there are, their rows, their configurations
    NEIGHBORS row adjacent    reply: the same
    REPAIR configuration      reply: the same, of one

Configurations are value indices, uint16. Rows are int32, costs and ``spent`` float64, all native:
both ends run on one machine. Nothing is ever pickled. This module holds constants and text cleaning
only, and needs the standard library.
"""

from __future__ import annotations

import re
import struct

READY, UNHARDENED, MORE, ASK, NEXT, FAILED, DONE, SUBMIT, WAIT = range(9)
PLACE, SAMPLE, POOL, NEIGHBORS, REPAIR = range(9, 14)

REASONS = ("error", "memory", "stalled")

# Rows a packet carries. 16 KiB of rows and 32 KiB of costs fit the smallest usual socket buffer.
PART_ROWS = 4096
# Configurations in one call or submission. A bound on what one request can cost the host: no
# budget is that large, and this many rows take the Evaluator some milliseconds.
MAX_BATCH_ROWS = 1 << 16
# Bytes of a job that one packet carries.
PART_BYTES = 32768
MAX_TEXT_BYTES = 6000
# Configurations to be placed that a packet carries, in bytes: some 100 to 300 of them, which take
# the host up to 0.1 s.
PLACE_BYTES = 16384
MAX_REQUEST_BYTES = 8 + max(4 * PART_ROWS, MAX_TEXT_BYTES)

KIND = struct.Struct("=i")
KIND_AND_WORD = struct.Struct("=ii")  # ASK of one row; FAILED's reason
SPENT_AND_COST = struct.Struct("=dd")
SPENT = struct.Struct("=d")
SPENT_AND_COUNT = struct.Struct("=dq")  # precedes what is done: rows, then costs
JOB_SIZE = struct.Struct("=q")  # precedes the first part of the job
COUNT = struct.Struct("=q")  # of SAMPLE and POOL; precedes rows and configurations
KIND_AND_COUNT = struct.Struct("=iq")
TWO_WORDS = struct.Struct("=ii")  # of NEIGHBORS
KIND_AND_TWO_WORDS = struct.Struct("=iii")


_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")


def clean_text(raw: bytes, limit: int = MAX_TEXT_BYTES) -> str:
    """Text from untrusted bytes: decoded, without control characters, addresses masked, bounded.

    Masked addresses make the text of a failing run the same each time.
    """
    text = raw[:limit].decode("utf-8", errors="replace")
    text = "".join(c if c == "\n" or c.isprintable() else "�" for c in text)
    return _ADDRESS.sub("0x…", text)
