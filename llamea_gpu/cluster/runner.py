"""`ClusterRunner`: a `BaseRunner` whose runs are tasks of a Ray cluster.

What is submitted waits in a queue; one thread hands it to Ray, two tasks for each core, so that
none is idle. While cores are free a task is one run. Where four runs and more wait for each core, a
task is a block of runs of the same searcher on the same task: what Ray and the driver do for each
is then shared, and the blocks are short beside the queue.

Ray repeats a block whose node or worker process is lost, and nothing else: what a searcher does is
in its trace. The driver alone holds results.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from llamea_gpu.cluster.connection import connect, disconnect, import_ray
from llamea_gpu.cluster.nodes import Nodes
from llamea_gpu.cluster.worker import Block, Isolation, Report, compute, run_block
from llamea_gpu.errors import ClusterError
from llamea_gpu.modelled import AnyTask
from llamea_gpu.runner import BaseRunner
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.searchers.registry import Searcher
from llamea_gpu.tasks import Trace

_LOST_AT_MOST = 20  # times that one block may lose its node or process
_AHEAD = 2  # blocks with Ray for each core
_LONGEST_BLOCK = 16
_COUNT_EVERY_S = 2.0
_END_WITHIN_S = 30.0
_CLOSED = "a runner must be open to run anything, but it was closed"
_T = TypeVar("_T")


@dataclass(slots=True)
class _Run:
    seed: int
    future: Future[Any]


@dataclass(slots=True)
class _Group:
    """Runs that may share a block."""

    searcher: Searcher
    task: AnyTask
    limits: Limits | None
    charge_cpu: bool
    runs: deque[_Run] = field(default_factory=deque)


@dataclass(slots=True)
class _Computation:
    function: Callable[..., Any]
    tasks: Sequence[AnyTask]
    arguments: tuple[object, ...]
    future: Future[Any]


@dataclass(slots=True)
class _Flight:
    """A task of Ray's; ``futures`` are those of its results."""

    name: str
    remote: Any
    arguments: tuple[Any, ...]
    futures: Sequence[Future[Any]]
    reference: Any = None


class ClusterRunner(BaseRunner):
    """Runs searchers on the nodes of a cluster. Make one with `ClusterRunner.open`."""

    def __init__(
        self, nodes: Nodes, isolation: Isolation, workers: int | None, *, owned: bool
    ) -> None:
        self._ray = import_ray()
        self._nodes = nodes
        self._isolation = isolation
        self._workers = workers
        self._owned = owned
        remote = self._ray.remote(num_cpus=1, max_retries=_LOST_AT_MOST)
        self._run_block, self._compute = remote(run_block), remote(compute)
        self._tasks: dict[AnyTask, tuple[str, Any]] = {}
        self._groups: OrderedDict[Hashable, _Group] = OrderedDict()
        self._queued = 0
        self._computations: deque[_Computation] = deque()
        self._flying: dict[Future[Report], _Flight] = {}
        self._landed: deque[Future[Report]] = deque()
        self._counted_at = monotonic()
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="cluster-runner", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        address: str,
        workers: int | None = None,
        *,
        min_level: int = 1,
        unsafe: bool = False,
    ) -> ClusterRunner:
        """Connect, and see what the nodes are; see `llamea_gpu.cluster.open_runner`."""
        owned = connect(address)
        try:
            isolation = Isolation(min_level, unsafe)
            nodes = Nodes(isolation)
            nodes.examine_all()
            return cls(nodes, isolation, workers, owned=owned)
        except BaseException:
            if owned:
                disconnect()
            raise

    @property
    def level(self) -> int:
        """Of the sandbox, on every node."""
        return self._nodes.level

    @property
    def width(self) -> int:
        """How many runs go on at the same time, as of now."""
        cpus = max(1, self._nodes.cpus)
        return min(self._workers or cpus, cpus)

    def submit(
        self,
        searcher: Searcher,
        task: AnyTask,
        seed: int,
        *,
        limits: Limits | None = None,
        charge_cpu: bool = False,
    ) -> Future[Trace]:
        """Run ``searcher`` on ``task`` with ``seed`` on some node.

        Raises:
            ClusterError: the runner is closed.
        """
        future: Future[Trace] = Future()
        # By content: whoever submits may make a searcher anew for each run.
        name = hashlib.sha256(pickle.dumps(searcher)).digest()
        key = (name, task, limits, charge_cpu)
        with self._changed:
            if self._closed:
                raise ClusterError(_CLOSED)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(searcher, task, limits, charge_cpu)
            group.runs.append(_Run(seed, future))
            self._queued += 1
            self._changed.notify()
        return future

    def compute(
        self, function: Callable[..., _T], tasks: Sequence[AnyTask], *arguments: object
    ) -> Future[_T]:
        """On some node, before runs that wait: somebody waits for it to ask for more of them."""
        future: Future[_T] = Future()
        with self._changed:
            if self._closed:
                raise ClusterError(_CLOSED)
            self._computations.append(_Computation(function, tasks, arguments, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Drop what has not begun, and end what runs on the nodes; traces of it are lost."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        for group in self._groups.values():
            for run in group.runs:
                run.future.cancel()
        self._groups.clear()
        for computation in self._computations:
            computation.future.cancel()
        for flight in self._flying.values():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(flight.reference, force=True)
            _fail(flight.futures, ClusterError("the runner was closed while this run went on"))
        if self._owned:
            disconnect()
        elif self._flying:
            references = [flight.reference for flight in self._flying.values()]
            self._ray.wait(references, num_returns=len(references), timeout=_END_WITHIN_S)
        self._flying.clear()

    def _work(self) -> None:
        """Until the runner is closed: take results in, hand runs out."""
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work, _COUNT_EVERY_S)
                if self._closed:
                    return
                landed = [self._landed.popleft() for _ in range(len(self._landed))]
            try:
                for future in landed:
                    self._take_in(future)
                if monotonic() - self._counted_at > _COUNT_EVERY_S:
                    self._nodes.count()
                    self._counted_at = monotonic()
                self._hand_out()
            except Exception as error:
                self._give_up(error)

    def _has_work(self) -> bool:
        waiting = bool(self._queued) and self._room() > 0
        return self._closed or bool(self._landed or self._computations) or waiting

    def _room(self) -> int:
        """How many more blocks Ray may hold."""
        blocks = sum(flight.remote is self._run_block for flight in self._flying.values())
        return (self._workers or _AHEAD * max(1, self._nodes.cpus)) - blocks

    def _hand_out(self) -> None:
        while self._computations:
            with self._changed:
                computation = self._computations.popleft()
            if computation.future.set_running_or_notify_cancel():
                self._launch_or_fail(partial(self._computation, computation), [computation.future])
        while self._room() > 0:
            with self._changed:
                next_block = self._take()
            if next_block is None:
                return
            group, runs = next_block
            runs = [run for run in runs if run.future.set_running_or_notify_cancel()]
            if runs:
                self._launch_or_fail(partial(self._block, group, runs), [r.future for r in runs])

    def _block(self, group: _Group, runs: Sequence[_Run]) -> _Flight:
        key, reference = self._stored(group.task)
        seeds = tuple(run.seed for run in runs)
        block = Block(group.searcher, key, seeds, group.limits, group.charge_cpu)
        name = f"{group.searcher.name} on {group.task.name}, seed {seeds[0]}"
        # In a list, Ray hands on the reference: a worker that has the task does not fetch it.
        futures = [run.future for run in runs]
        return _Flight(name, self._run_block, (block, [reference]), futures)

    def _computation(self, computation: _Computation) -> _Flight:
        tasks = dict(map(self._stored, computation.tasks))
        name = f"{computation.function.__name__} on {computation.tasks[0].name}"
        arguments = (computation.function, tasks, computation.arguments)
        return _Flight(name, self._compute, arguments, [computation.future])

    def _launch_or_fail(self, make: Callable[[], _Flight], futures: Sequence[Future[Any]]) -> None:
        try:
            self._launch(make())
        except Exception as error:
            _fail(futures, _lost(error))
            raise

    def _take(self) -> tuple[_Group, list[_Run]] | None:
        """The runs of the next block, of those that have waited longest."""
        key = next(iter(self._groups), None)
        if key is None:
            return None
        group = self._groups[key]
        most = max(1, min(_LONGEST_BLOCK, self._queued // (_AHEAD * self.width)))
        runs = [group.runs.popleft() for _ in range(min(most, len(group.runs)))]
        self._queued -= len(runs)
        if not group.runs:
            del self._groups[key]
        return group, runs

    def _stored(self, task: AnyTask) -> tuple[str, Any]:
        """Name and reference of a task in the object store, where it is put once."""
        if task not in self._tasks:
            key = hashlib.sha256(pickle.dumps(task)).hexdigest()
            self._tasks[task] = key, self._ray.put(task)
        return self._tasks[task]

    def _launch(self, flight: _Flight) -> None:
        remote = flight.remote.options(name=flight.name, label_selector=self._nodes.selector)
        flight.reference = remote.remote(*flight.arguments, self._isolation, self._nodes.expected)
        future = flight.reference.future()
        self._flying[future] = flight
        future.add_done_callback(self._land)

    def _land(self, future: Future[Report]) -> None:
        """In a thread of Ray's."""
        with self._changed:
            self._landed.append(future)
            self._changed.notify()

    def _take_in(self, future: Future[Report]) -> None:
        flight = self._flying.pop(future)
        error = future.exception()
        if error is not None:
            self._take_in_failure(flight, error)
            return
        report = future.result()
        if report.refused:
            self._refuse(flight, report)
            return
        for waiting, result in zip(flight.futures, report.results, strict=True):
            if isinstance(result, Exception):
                waiting.set_exception(result)
            else:
                waiting.set_result(result)

    def _refuse(self, flight: _Flight, report: Report) -> None:
        try:
            self._nodes.refuse(report.node, report.host, report.refused)
        except ClusterError as error:
            _fail(flight.futures, error)
        else:
            self._launch(flight)

    def _take_in_failure(self, flight: _Flight, error: BaseException) -> None:
        lost = self._ray.exceptions.RayTaskError
        try:
            # A node that has joined may be unable even to begin a block.
            if isinstance(error, lost) and self._nodes.refuse_unfit():
                self._launch(flight)
                return
        except ClusterError as refused:
            error = refused
        text = f"a lost node or process is made up for {_LOST_AT_MOST} times"
        _fail(
            flight.futures,
            ClusterError(f"{flight.name}: the cluster gives this up ({text}): {error}"),
        )

    def _give_up(self, error: Exception) -> None:
        """The cluster itself is gone, or a fault of this module: nobody is left waiting."""
        lost = _lost(error)
        with self._changed:
            waiting = [run.future for group in self._groups.values() for run in group.runs]
            waiting += [computation.future for computation in self._computations]
            self._groups.clear()
            self._computations.clear()
            self._queued = 0
        _fail([future for future in waiting if future.set_running_or_notify_cancel()], lost)
        for flight in self._flying.values():
            _fail([future for future in flight.futures if not future.done()], lost)
        self._flying.clear()
        self._landed.clear()


def _fail(futures: Iterable[Future[Any]], error: ClusterError) -> None:
    for future in futures:
        future.set_exception(error)


def _lost(error: Exception) -> ClusterError:
    lost = ClusterError(f"the cluster is lost: {error!r}")
    lost.__cause__ = error
    return lost
