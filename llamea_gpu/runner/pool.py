"""`Runner`: runs searchers on tasks on this machine, a given number at the same time.

Source text goes to the `Sandbox`; a library's searcher goes to a worker process of its own pool,
which starts when the first one is asked for. Workers have one fixed hash seed and one numeric
thread, so that a run depends on its seed alone.

On a whole space everything runs in these workers, since working it out takes the framework, which
holds the process to one pretended GPU and one run at a time: source text in a sandbox that the
worker has of its own, of the same level.
"""

from __future__ import annotations

import gc
import os
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from time import sleep
from typing import TypeVar

from loky import ProcessPoolExecutor
from loky.process_executor import BrokenProcessPool

from llamea_gpu.errors import SearcherDiedError
from llamea_gpu.modelled import AnyTask, WholeTask
from llamea_gpu.runner._base import BaseRunner
from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.sandbox.jobs import Job, Limits
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import Searcher
from llamea_gpu.tasks import Trace, run_seed

# A library's searcher is known to end; some of them model in pure Python for a minute.
LIBRARY_LIMITS = Limits(cpu_s=3600.0)
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
}
_KEPT_TASKS = 64
_GARBAGE = 50_000  # objects between two looks for it
_T = TypeVar("_T")


class Runner(BaseRunner):
    """Runs searchers on tasks. Make one with `Runner.open`."""

    def __init__(self, sandbox: Sandbox, workers: int) -> None:
        self.sandbox = sandbox
        self._workers = workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="runner")
        self._computing = ThreadPoolExecutor(workers, thread_name_prefix="computing")
        self._processes: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()
        self._pickled: dict[AnyTask, bytes] = {}

    @classmethod
    def open(
        cls, workers: int | None = None, *, min_level: int = 1, unsafe: bool = False
    ) -> Runner:
        """A runner with its own sandbox. ``workers`` runs at a time: all cores when None.

        ``min_level`` is the least isolation to accept.

        Raises:
            SandboxUnavailableError: no isolation level verifies.
        """
        workers = workers or len(os.sched_getaffinity(0))
        return cls(Sandbox.open(workers, min_level, unsafe), workers)

    @property
    def level(self) -> int:
        """Of the sandbox: 3, 2 or 1; 0 is unsafe."""
        return self.sandbox.level

    @property
    def width(self) -> int:
        """How many runs go on at the same time."""
        return self._workers

    def submit(
        self,
        searcher: Searcher,
        task: AnyTask,
        seed: int,
        *,
        limits: Limits | None = None,
        charge_cpu: bool = False,
    ) -> Future[Trace]:
        """Run ``searcher`` on ``task`` with ``seed`` as soon as a worker is free."""
        return self._threads.submit(self._run, searcher, task, seed, limits, charge_cpu)

    def compute(
        self, function: Callable[..., _T], tasks: Sequence[AnyTask], *arguments: object
    ) -> Future[_T]:
        """In a thread of this process: the runs have processes of their own."""
        return self._computing.submit(function, tasks, *arguments)

    def close(self) -> None:
        """Drop what has not begun, end what runs, and end every process."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._computing.shutdown(wait=False, cancel_futures=True)
        self.sandbox.close()
        with self._lock:
            processes, self._processes = self._processes, None
        if processes is not None:
            processes.shutdown(wait=True, kill_workers=True)
        self._threads.shutdown(wait=True)
        self._computing.shutdown(wait=True)

    def _run(
        self, searcher: Searcher, task: AnyTask, seed: int, limits: Limits | None, charge_cpu: bool
    ) -> Trace:
        if isinstance(searcher, LibrarySearcher):
            return self._run_library(searcher, task, seed, limits or LIBRARY_LIMITS, charge_cpu)
        start = None
        if searcher.first is not None:
            start = self._run_library(
                searcher.first, task, seed, limits or LIBRARY_LIMITS, charge_cpu
            )
            if start.is_faulty or start.outcome == "budget":
                return start
        make_job = partial(
            Job,
            program=searcher.program,
            # Not the first one's random numbers again.
            seed=seed if start is None else run_seed(seed, task.name, 1),
            limits=limits or Limits(),
            charge_cpu=charge_cpu,
            start=start,
        )
        if isinstance(task, WholeTask):
            work = partial(_run_in_workers_sandbox, make_job, self.sandbox.level)
            trace = self._run_in_worker(searcher.name, work, task, seed)
        else:
            trace = self.sandbox.run(make_job(task=task))
        return trace if start is None else _joined(start, trace)

    def _run_library(
        self, searcher: LibrarySearcher, task: AnyTask, seed: int, limits: Limits, charge_cpu: bool
    ) -> Trace:
        work = partial(_run_library, searcher, seed, limits.cpu_s, charge_cpu)
        return self._run_in_worker(searcher.name, work, task, seed)

    def _run_in_worker(
        self, name: str, work: Callable[[AnyTask], Trace], task: AnyTask, seed: int
    ) -> Trace:
        with self._lock:
            if task not in self._pickled:
                self._pickled[task] = pickle.dumps(task)
            packed = self._pickled[task]
        while True:
            processes = self._open_processes()
            try:
                future = processes.submit(_on_task, work, packed)
                break
            except BrokenProcessPool:  # by another run, before this one began
                self._discard(processes)
        try:
            trace: Trace = future.result()
        except BrokenProcessPool as error:
            self._discard(processes)
            raise SearcherDiedError(
                f"{name} ended its worker process on {task.name} (seed {seed}): {error}"
            ) from error
        return trace

    def _open_processes(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._processes is None:
                self._processes = ProcessPoolExecutor(
                    self._workers, env=_ENVIRONMENT, initializer=_begin
                )
            return self._processes

    def _discard(self, processes: ProcessPoolExecutor) -> None:
        with self._lock:
            if self._processes is processes:
                self._processes = None


def _joined(first: Trace, whole: Trace) -> Trace:
    """``whole`` as the trace of both: the searcher that went on has told of itself alone."""
    cpu_s = (first.cpu_s or 0.0) + (whole.cpu_s or 0.0)
    return replace(whole, seed=first.seed, cpu_s=cpu_s, error=whole.error or first.error)


_tasks: OrderedDict[bytes, AnyTask] = OrderedDict()  # a worker's own, so that tables are built once


def _begin() -> None:
    """In a worker, before anything else."""
    # Importing Helion makes objects that stay: to look for garbage among them takes a second.
    gc.set_threshold(_GARBAGE)
    _end_with_parent()


def _end_with_parent() -> None:
    """In a worker: end when the process that started it is gone, killed outright included.

    A library's searcher may compute for an hour; nobody would wait for it any more.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _on_task(work: Callable[[AnyTask], Trace], packed: bytes) -> Trace:
    # Only ever bytes of the process that started this worker.
    task = _tasks.pop(packed, None) or pickle.loads(packed)  # noqa: S301
    _tasks[packed] = task
    if len(_tasks) > _KEPT_TASKS:
        _tasks.popitem(last=False)
    return work(task)


def _run_library(
    searcher: LibrarySearcher, seed: int, cpu_s: float, charge_cpu: bool, task: AnyTask
) -> Trace:
    return run_optimizer(searcher.build, task, seed, cpu_s=cpu_s, charge_cpu=charge_cpu)


_sandboxes: dict[int, Sandbox] = {}  # a worker's own, by level


def _run_in_workers_sandbox(make_job: Callable[..., Job], level: int, task: AnyTask) -> Trace:
    if not isinstance(task, WholeTask):
        raise TypeError(f"a task with a recording runs in the host's sandbox, but got {task.name}")
    job = make_job(task=task)
    if level not in _sandboxes:
        _sandboxes[level] = Sandbox.open(1, level=level, unsafe=level == 0)
    with task.opened(job.seed) as run:
        return _sandboxes[level].run(replace(job, places=run.places))
