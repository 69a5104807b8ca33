"""`ClusterPipeline`: the interface of the engine's `Pipeline`, over GPUs of several nodes.

Each GPU has an engine of its own (:mod:`llamea_gpu.cluster.engine`), with its compiling processes
and its timing process on its own node. The driver keeps each supplied with a few tasks more than it
is busy with, and hands on outcomes as they come; journals are its caller's, on the driver. What an
engine had when its node or process was lost is given to others.

All GPUs are of one kind. They are those that the cluster has at the start: an engine that is lost
comes back wherever one of that kind is free, also on a node that joins later.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from llamea_gpu.cluster.connection import import_ray
from llamea_gpu.cluster.engine import KIND, Done, EngineSpec, GpuEngine, Opened
from llamea_gpu.cluster.facts import Facts, software
from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.errors import ClusterError, LlameaGpuError, RecordingError

_ANSWER_S = 0.1  # until an engine without an outcome can be given more
_AHEAD = 4  # tasks of an engine for each of its compiling processes
_LOST_AT_MOST = 3  # engines that one task may take along
_REOPENED_AT_MOST = 20  # times that an engine comes back and is lost before it was ready
_CLOSE_S = 10.0
_TYPE = "accelerator_type:"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of one kind that a cluster has: how many, and the cores a GPU on the poorest node."""

    kind: str
    count: int
    cores: int


def find_gpus(kind: str = "") -> Gpus:
    """The GPUs to use of the cluster we are connected to; ``kind`` as Ray names it (``H100``).

    Raises:
        ClusterError: there is none, or several kinds of which none is chosen.
    """
    nodes_by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for node in import_ray().nodes():
        if node["Alive"] and node["Resources"].get("GPU", 0) >= 1:
            gpu_types = [name for name in node["Resources"] if name.startswith(_TYPE)]
            nodes_by_kind.setdefault(",".join(gpu_types).replace(_TYPE, ""), []).append(node)
    if kind:
        nodes_by_kind = {name: nodes for name, nodes in nodes_by_kind.items() if name == kind}
    if not nodes_by_kind:
        raise ClusterError(
            f"the cluster must have a GPU{f' of kind {kind}' if kind else ''}, but no node of it "
            f"does: start nodes with GPUs ('ray status' lists what there is)"
        )
    if len(nodes_by_kind) > 1:
        kinds = ", ".join(sorted(name or "unknown" for name in nodes_by_kind))
        raise ClusterError(
            f"GPUs that are measured together must be of one kind, but the cluster has {kinds}: "
            f"choose one with --gpu"
        )
    ((kind, nodes),) = nodes_by_kind.items()
    counts = [int(node["Resources"]["GPU"]) for node in nodes]
    cores = [
        int(node["Resources"].get("CPU", 0)) // gpus
        for node, gpus in zip(nodes, counts, strict=True)
    ]
    return Gpus(kind, sum(counts), min(cores))


def run_on(gpus: Gpus, function: Callable[..., _T], *arguments: Any) -> _T:
    """``function(*arguments)`` on a node with one of ``gpus``, which it sees alone.

    Raises:
        LlameaGpuError: what the function raises.
        ClusterError: it raises anything else, or cannot be run there.
    """
    ray = import_ray()
    remote = ray.remote(num_cpus=0, **_wanted(gpus))(function)
    try:
        value: _T = ray.get(remote.remote(*arguments))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LlameaGpuError):
            raise error.cause from None
        raise ClusterError(f"a node of the cluster failed: {error}") from error
    return value


def _wanted(gpus: Gpus) -> dict[str, Any]:
    """What Ray is asked for, for one of them."""
    return {"num_gpus": 1, **({"accelerator_type": gpus.kind} if gpus.kind else {})}


@dataclass(slots=True)
class _Engine:
    actor: Any
    call: Any = None  # the reference of what it is asked to do
    opening: bool = True
    opened: Opened | None = None  # the last time
    tasks: dict[int, Task] = field(default_factory=dict)  # by point
    failures: int = 0


class ClusterPipeline:
    """An engine for each of ``gpus``. A context manager: leaving it ends them all.

    ``compilers`` is how many compiling processes an engine has. For use while
    `llamea_gpu.cluster.connection.connected`.
    """

    def __init__(self, spec: EngineSpec, gpus: Gpus, compilers: int) -> None:
        self._ray = import_ray()
        self._spec = spec
        self._ahead = _AHEAD * (compilers + 1)
        self._expected: Facts = {**software(), **spec.versions}
        cores = min(compilers + 1, gpus.cores)
        actor = self._ray.remote(max_restarts=-1, num_cpus=cores, **_wanted(gpus))(GpuEngine)
        self._engines = [_Engine(actor.remote(spec)) for _ in range(gpus.count)]
        self._queue: deque[Task] = deque()
        self._finished: deque[Outcome] = deque()
        self._losses: Counter[int] = Counter()  # by point
        self._began = monotonic()
        self._idle_since = monotonic()  # since when no engine is ready
        for engine in self._engines:
            self._open(engine)

    def __enter__(self) -> ClusterPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        leaving = [engine.actor.close.remote() for engine in self._engines if not engine.opening]
        if leaving:
            self._ray.wait(leaving, num_returns=len(leaving), timeout=_CLOSE_S)
        for engine in self._engines:
            self._ray.kill(engine.actor, no_restart=True)

    @property
    def pending(self) -> int:
        """Tasks that are on their way."""
        return len(self._queue) + sum(len(e.tasks) for e in self._engines) + len(self._finished)

    @property
    def ready(self) -> int:
        """How many engines are."""
        return sum(not engine.opening for engine in self._engines)

    @property
    def opened(self) -> Mapping[str, Any]:
        """What the stage at the first GPU that is open reported; empty until one is."""
        reports = (engine.opened.facts for engine in self._engines if engine.opened is not None)
        return next(reports, {})

    def facts(self) -> list[Mapping[str, Any]]:
        """What the stage at each GPU reported, once all are open; waits for that.

        Where one has not been placed in the time that starting may take (its node has gone, others
        use its GPU), that of the rest: it takes part as soon as it is there.

        Raises:
            RecordingError: one refuses, or none is ready in time.
        """
        limit_s = self._spec.limits.start_s
        while any(engine.opened is None for engine in self._engines):
            self._step(None)
            if self.ready and monotonic() - self._began > limit_s:
                shortfall = (
                    f"{self.ready} of {len(self._engines)} GPUs are ready after {limit_s:g} s"
                )
                warnings.warn(f"{shortfall}: measuring begins without the others", stacklevel=2)
                break
        return [engine.opened.facts for engine in self._engines if engine.opened is not None]

    def submit(self, tasks: Iterable[Task]) -> None:
        """Queue tasks, after those that are queued already."""
        self._queue.extend(tasks)

    def wait(self, deadline: float | None = None) -> list[Outcome]:
        """As of :meth:`Pipeline.wait`."""
        while not self._finished and self.pending:
            if deadline is not None and monotonic() >= deadline:
                break
            self._step(deadline)
        if self.pending:
            self._hand_out()
        finished = list(self._finished)
        self._finished.clear()
        return finished

    def run(self, tasks: Iterable[Task], deadline: float | None = None) -> Iterator[Outcome]:
        """As of :meth:`Pipeline.run`."""
        self.submit(tasks)
        while outcomes := self.wait(deadline):
            yield from outcomes

    def poll(self) -> None:
        """Hand out work, without waiting."""
        self._hand_out()

    def drop(self) -> list[int]:
        """As of :meth:`Pipeline.drop`."""
        return self._without_tasks(lambda actor: actor.drop.remote())

    def forget(self) -> list[int]:
        """Forget all tasks; what processes are at is finished and of no interest any more."""
        return self._without_tasks(lambda actor: actor.forget.remote())

    def on_one(self, work: Callable[[Pipeline], _T], limit_s: float) -> _T | None:
        """What ``work`` makes of the pipeline of one GPU, while all others stand by.

        All tasks are forgotten. ``work`` is sent to the engine's node, and to another one when that
        is lost meanwhile.

        Returns:
            None where no engine has done it in time.

        Raises:
            RecordingError: no GPU is left.
        """
        self.forget()
        deadline = monotonic() + limit_s
        for engine in [engine for engine in self._engines if not engine.opening]:
            call = engine.actor.do.remote(work)
            left_s = max(0.0, deadline - monotonic())
            if not self._ray.wait([call], timeout=left_s)[0]:
                engine.call = call  # it is at it until it is ended
                return None
            try:
                answer: Done = self._ray.get(call)
            except self._ray.exceptions.RayActorError as error:
                self._lose(engine, error)
                continue
            if not answer.refused:
                result: _T = answer.result
                return result
            self._dismiss(engine, f"{self._place(engine)}: {answer.refused}")
        return None

    def _without_tasks(self, call: Callable[[Any], Any]) -> list[int]:
        """Forget all tasks, here and by that call of each engine; returns their points."""
        dropped = [task.point for task in self._queue]
        self._queue.clear()
        for engine in list(self._engines):
            if engine.tasks and not engine.opening:
                self._hear(engine)  # what it was asked last
            if engine.tasks and not engine.opening:
                engine.call = call(engine.actor)
                self._hear(engine)
            dropped += engine.tasks
            engine.tasks.clear()
        dropped += [task.point for task in self._queue]  # of one that was lost just now
        self._queue.clear()
        return dropped

    def _step(self, deadline: float | None) -> None:
        """Hand out work, wait until something happens, and see to it."""
        self._hand_out()
        until = min(deadline or math.inf, monotonic() + 1.0)
        calls = [engine.call for engine in self._engines if engine.call is not None]
        ready, _ = self._ray.wait(calls, timeout=max(0.0, until - monotonic()))
        for engine in list(self._engines):
            if engine.call in ready:
                self._hear(engine)
        self._check_alive()

    def _check_alive(self) -> None:
        now = monotonic()
        if any(not engine.opening for engine in self._engines):
            self._idle_since = now
        elif now - self._idle_since > self._spec.limits.start_s:
            raise RecordingError(
                f"an engine must be ready within {self._spec.limits.start_s:g} s, but none of "
                f"{len(self._engines)} is: are the cluster's GPUs free ('ray status')?"
            )

    def _hand_out(self) -> None:
        ready = [engine for engine in self._engines if not engine.opening]
        if not ready:
            return
        left = len(self._queue) + sum(len(engine.tasks) for engine in ready)
        share = min(self._ahead, math.ceil(left / len(ready)))  # at the end, all end together
        for engine in ready:
            if engine.call is None:
                room = max(0, share - len(engine.tasks))
                tasks = [self._queue.popleft() for _ in range(min(room, len(self._queue)))]
                engine.tasks.update({task.point: task for task in tasks})
                if engine.tasks:
                    engine.call = engine.actor.work.remote(tasks, _ANSWER_S)

    def _hear(self, engine: _Engine) -> None:
        call, engine.call = engine.call, None
        if call is None:
            return
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayActorError as error:
            self._lose(engine, error)
            return
        if isinstance(answer, Opened):
            self._note_open(engine, answer)
        elif isinstance(answer, Done):  # too late
            return
        elif isinstance(answer, str):
            # The GPU's fault, or, if it befalls all of them, the kernel's.
            self._queue.extendleft(engine.tasks.values())
            self._dismiss(engine, f"{self._place(engine)}: {answer}")
        else:
            for outcome in answer:
                if engine.tasks.pop(outcome.point, None) is not None:  # else it was forgotten
                    self._losses.pop(outcome.point, None)
                    self._finished.append(outcome)

    def _open(self, engine: _Engine) -> None:
        engine.opening = True
        engine.call = engine.actor.open.remote(self._expected)

    def _note_open(self, engine: _Engine, opened: Opened) -> None:
        host = f"{opened.where.host} ({opened.where.node[:8]})"
        if opened.refused:
            # At the start the user mends it; later the others go on without.
            if engine.opened is None:
                raise RecordingError(f"{host}: {opened.refused}")
            self._dismiss(engine, f"{host}: {opened.refused}")
            return
        if KIND not in self._expected:  # the first one; all others are like it
            self._expected = {**self._expected, KIND: opened.where.facts[KIND]}
        if why := opened.where.unlike(self._expected):
            raise RecordingError(
                f"GPUs that are measured together must be alike, but {host}: {why}"
            )
        engine.opened, engine.opening, engine.failures = opened, False, 0

    def _lose(self, engine: _Engine, error: Exception) -> None:
        """Its node or process is gone: others do what it had, and Ray starts it anew."""
        for point, task in engine.tasks.items():
            self._losses[point] += 1
            if self._losses[point] < _LOST_AT_MOST:
                self._queue.appendleft(task)
                continue
            message = f"the engine was lost each of {_LOST_AT_MOST} times: {error}"
            self._finished.append(Outcome(point, "error", 0.0, 0.0, {"message": message}, {}))
        engine.tasks.clear()
        engine.failures += 1
        if engine.failures > _REOPENED_AT_MOST:
            self._dismiss(engine, f"{self._place(engine)} was lost again and again: {error}")
        else:
            self._open(engine)

    def _dismiss(self, engine: _Engine, why: str) -> None:
        self._engines.remove(engine)
        self._ray.kill(engine.actor, no_restart=True)
        if not self._engines:
            raise RecordingError(f"no GPU is left to measure on: {why}")
        warnings.warn(f"a GPU is not used any more: {why}", stacklevel=2)

    def _place(self, engine: _Engine) -> str:
        return engine.opened.where.host if engine.opened is not None else "an engine"
