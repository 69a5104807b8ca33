"""The trusted side of one run: answers a child's requests and decides how the run ended.

Costs, memory of visits, budget and clock are the Evaluator's, in this process. Whatever the child
sends is data: exact lengths, rows in range, one request at a time, nothing unpickled, no ancillary
data taken, no send that could block. Of a whole space it answers with configurations and their
rows, never a cost; samples are drawn around the best so far, as on a live kernel: that is all that
shows of costs. It does not fork or harden (`process`, `zygote`).
"""

from __future__ import annotations

import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.errors import BudgetExhausted, SandboxError, Stalled
from llamea_gpu.modelled import PlacedSpace, PlacesFull, begin
from llamea_gpu.sandbox import protocol
from llamea_gpu.sandbox.concealment import without_paths
from llamea_gpu.sandbox.jobs import Job
from llamea_gpu.sandbox.process import Child, Ending, ZygoteDied, ZygoteProcess
from llamea_gpu.spaces.space import Configuration
from llamea_gpu.tasks import Evaluator, Trace

# How often a silent child's CPU and wall time are looked at.
_TICK_S = 0.05
# The kernel closes a dying process's files last of all; one that lives on has closed its channel.
_LAST_BREATH_S = 0.3
_TIMEVAL = struct.pack("@ll", 0, int(_TICK_S * 1e6))
_SINGLE_BYTES = protocol.KIND_AND_WORD.size
_Rows = NDArray[np.int32]
_T = TypeVar("_T")


SPACE_KINDS = frozenset(
    (protocol.PLACE, protocol.SAMPLE, protocol.POOL, protocol.NEIGHBORS, protocol.REPAIR)
)


@dataclass(frozen=True, slots=True)
class _End:
    """Why the host stopped serving. ``outcome`` is empty when only the exit status tells."""

    outcome: str
    error: str | None = None


class _Over(Exception):  # noqa: N818 - carries the end of the run out of the loop
    def __init__(self, outcome: str, error: str | None = None) -> None:
        self.end = _End(outcome, error)


def run_job(zygote: ZygoteProcess, job: Job) -> Trace:
    """One job on one fresh child, from fork to trace.

    Raises:
        ZygoteDied: the zygote went away; nothing of the run counts.
        SandboxError: the child could not harden itself; no candidate code ran.
    """
    evaluator = Evaluator(job.task, job.max_idle_asks, job.charge_cpu, job.start, job.places)
    try:
        begin(evaluator, job.places, job.start)
    except BudgetExhausted:
        return evaluator.trace(outcome="budget", seed=job.seed, cpu_s=0.0)
    job_bytes = job.to_bytes(evaluator.parallel, evaluator.spent)
    with zygote.fork(job.listed, job.limits) as child:
        end = _Service(child, job, job_bytes, evaluator).serve()
        child.kill()
        ending = child.wait()
    if not end.outcome:
        end = _judge(ending, job)
    return evaluator.trace(outcome=end.outcome, seed=job.seed, cpu_s=ending.cpu_s, error=end.error)


def _judge(ending: Ending, job: Job) -> _End:
    """A child that ended without saying so: what the kernel says of it."""
    if ending.cpu_s >= job.limits.cpu_s:
        return _End("timeout", _cpu_text(job))
    signalled = ending.status & 0x7F
    if signalled == signal.SIGKILL:
        return _End("memory", "the kernel killed the process: most likely memory ran out")
    if signalled:
        names = {known.value: known.name for known in signal.Signals}
        name = names.get(signalled, f"signal {signalled}")  # real-time signals have no name
        return _End("crashed", f"the process was ended by {name}")
    return _End("crashed", f"the process left with exit status {ending.status >> 8}")


def _cpu_text(job: Job) -> str:
    return f"the run's limit of {job.limits.cpu_s:g} CPU seconds is used up"


class _Service:
    """The loop over one child's requests."""

    def __init__(self, child: Child, job: Job, job_bytes: bytes, evaluator: Evaluator) -> None:
        self._child = child
        self._channel = child.channel
        self._job = job
        self._job_bytes = job_bytes
        self._evaluator = evaluator
        self._space = None if job.places is None else SpaceService(job.places)
        self._started = False
        self._parts: list[_Rows] = []  # of a batch that is still coming
        self._batch_rows = 0
        self._pending: list[bytes] = []  # parts of an answer that are still to be fetched, reversed
        self._charged_s = 0.0
        self._deadline = time.perf_counter() + job.limits.wall_s
        self._next_check = 0.0

    def serve(self) -> _End:
        """Until the run is over for the host, whatever the child may still want."""
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL)
        receive = self._channel.recv
        try:
            while True:
                try:
                    packet = receive(protocol.MAX_REQUEST_BYTES + 1)  # one more shows excess
                except BlockingIOError:
                    self._check_limits()
                    continue
                except ConnectionResetError:
                    packet = b""
                if not packet:
                    return self._gone()
                if time.perf_counter() >= self._next_check:
                    self._check_limits()
                self._answer(packet)
        except _Over as over:
            return over.end
        except BudgetExhausted:
            return _End("budget")
        except Stalled as stalled:
            return _End("stalled", f"{stalled}")

    def _gone(self) -> _End:
        if not self._started:
            raise ZygoteDied("the child ended before it was hardened")
        if self._child.ended(_LAST_BREATH_S):
            return _End("")
        return _End("protocol", "the channel was closed, or an empty request was sent")

    def _check_limits(self) -> None:
        now = time.perf_counter()
        self._next_check = now + _TICK_S
        cpu_s = self._child.cpu_s()
        if cpu_s is not None and cpu_s >= self._job.limits.cpu_s:
            raise _Over("timeout", _cpu_text(self._job))
        if now >= self._deadline:
            limit = self._job.limits.wall_s
            raise _Over("timeout", f"the run's limit of {limit:g} s of real time is used up")

    def _answer(self, packet: bytes) -> None:
        """One request, one reply; raises to end the run."""
        if len(packet) == _SINGLE_BYTES and self._started and not self._parts:
            kind, row = protocol.KIND_AND_WORD.unpack(packet)
            if kind == protocol.ASK and not self._pending:
                costs = self._granted(self._evaluator.ask, np.array((row,), dtype=np.int32))
                self._reply(protocol.SPENT_AND_COST.pack(self._evaluator.spent, costs[0]))
                return
        if not protocol.KIND.size <= len(packet) <= protocol.MAX_REQUEST_BYTES:
            raise _Over("protocol", f"a request of {len(packet)} bytes")
        (kind,) = protocol.KIND.unpack_from(packet)
        body = packet[protocol.KIND.size :]
        if not self._started:
            self._start(kind, body)
        elif kind == protocol.NEXT and self._pending and not body:
            self._reply(self._pending.pop())
        elif self._pending:
            raise _Over("protocol", "a request before the last answer was fetched")
        elif kind in (protocol.MORE, protocol.ASK, protocol.SUBMIT):
            self._take_rows(kind, body)
        elif kind == protocol.WAIT and not body and not self._parts:
            self._wait()
        elif self._space is not None and kind in SPACE_KINDS and not self._parts:
            self._tell(self._space, kind, body)
        else:
            self._finish(kind, body)

    def _start(self, kind: int, body: bytes) -> None:
        if kind == protocol.UNHARDENED:
            raise SandboxError(f"a child could not harden itself: {protocol.clean_text(body)}")
        if kind != protocol.READY or body:
            raise SandboxError(f"a child must report that it is hardened, but sent kind {kind}")
        self._started = True
        self._charged_s = self._child.cpu_s() or 0.0
        head = protocol.JOB_SIZE.pack(len(self._job_bytes))
        self._reply_in_parts(head, self._job_bytes, protocol.PART_BYTES)

    def _take_rows(self, kind: int, body: bytes) -> None:
        if not body or len(body) % 4 or len(body) > 4 * protocol.PART_ROWS:
            raise _Over("protocol", f"rows in {len(body)} bytes")
        rows = np.frombuffer(body, dtype=np.int32)
        self._batch_rows += rows.size
        if self._batch_rows > protocol.MAX_BATCH_ROWS:
            raise _Over("protocol", f"a batch of more than {protocol.MAX_BATCH_ROWS} rows")
        self._parts.append(rows)
        if kind == protocol.MORE:
            self._reply(protocol.SPENT.pack(self._evaluator.spent))
            return
        if len(self._parts) > 1:
            rows = np.concatenate(self._parts)
        self._parts, self._batch_rows = [], 0
        if kind == protocol.SUBMIT:
            self._granted(self._evaluator.submit, rows)
            self._reply(protocol.SPENT.pack(self._evaluator.spent))
            return
        costs = self._granted(self._evaluator.ask, rows)
        head = protocol.SPENT.pack(self._evaluator.spent)
        self._reply_in_parts(head, costs.tobytes(), 8 * protocol.PART_ROWS)

    def _granted(self, request: Callable[[_Rows], _T], rows: _Rows) -> _T:
        self._charge()
        try:
            return request(rows)
        except ValueError as error:
            raise _Over("protocol", f"{error}") from error

    def _wait(self) -> None:
        self._charge()
        rows, costs = self._evaluator.wait()
        head = protocol.SPENT_AND_COUNT.pack(self._evaluator.spent, rows.size)
        self._reply_in_parts(head, rows.tobytes() + costs.tobytes(), protocol.PART_BYTES)

    def _tell(self, space: SpaceService, kind: int, body: bytes) -> None:
        try:
            head, reply_body = space.answer(kind, body)
        except ValueError as error:
            raise _Over("protocol", f"{error}") from error
        except PlacesFull as full:
            raise _Over("memory", f"{full}") from full
        self._reply_in_parts(head, reply_body, protocol.PART_BYTES)

    def _charge(self) -> None:
        if self._job.charge_cpu:
            used_s = self._child.cpu_s() or self._charged_s
            self._evaluator.charge(used_s - self._charged_s)
            self._charged_s = used_s

    def _finish(self, kind: int, body: bytes) -> None:
        if kind == protocol.DONE and not body:
            raise _Over("finished")
        if kind == protocol.FAILED and len(body) >= 4:
            (reason,) = protocol.KIND.unpack_from(body)
            if 0 <= reason < len(protocol.REASONS):
                text = without_paths(protocol.clean_text(body[4:]))
                raise _Over(protocol.REASONS[reason], text)
        raise _Over("protocol", f"a request of kind {kind} with {len(body)} bytes")

    def _reply_in_parts(self, head: bytes, body: bytes, size: int) -> None:
        """Send the first part; the child fetches the others, so that no send ever has to wait."""
        self._reply(head + body[:size])
        self._pending = [body[i : i + size] for i in range(size, len(body), size)][::-1]

    def _reply(self, packet: bytes) -> None:
        try:
            self._channel.send(packet, socket.MSG_DONTWAIT)
        except BlockingIOError:
            raise _Over("protocol", "requests without reading the answers") from None
        except (BrokenPipeError, ConnectionResetError):
            return  # it ended meanwhile: the next receive says so


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
        configurations = self._answers[kind](body)
        rows = [places.place(config) for config in configurations]
        packed = b"".join(self._packed.pack(*config) for config in configurations)
        return protocol.COUNT.pack(len(rows)), struct.pack(f"={len(rows)}i", *rows) + packed

    def _configurations(self, body: bytes) -> list[Configuration]:
        if len(body) % self._packed.size:
            raise ValueError(f"configurations of {self._packed.size} bytes in {len(body)}")
        return list(self._packed.iter_unpack(body))

    def _count(self, body: bytes) -> int:
        if len(body) != protocol.COUNT.size:
            raise ValueError(f"a count in {len(body)} bytes")
        return max(int(protocol.COUNT.unpack(body)[0]), 0)

    def _neighbors(self, body: bytes) -> list[Configuration]:
        if len(body) != protocol.TWO_WORDS.size:
            raise ValueError(f"a row and a kind in {len(body)} bytes")
        row, adjacent = protocol.TWO_WORDS.unpack(body)
        if not 0 <= row < len(self._places) or adjacent not in (0, 1):
            raise ValueError(f"neighbours of row {row}, kind {adjacent}")
        home = self._places.configuration(row)
        return self._places.space.neighbors(home, "adjacent" if adjacent else "hamming")

    def _repair(self, body: bytes) -> list[Configuration]:
        configurations = self._configurations(body)
        if len(configurations) != 1:
            raise ValueError(f"{len(configurations)} configurations to repair")
        return [self._places.space.repair(configurations[0])]
