"""What evolution, benches and promotion ask of a runner, wherever it runs searchers.

`llamea_gpu.runner.Runner` runs them on this machine, `llamea_gpu.cluster` on the nodes of a
cluster. A trace depends on searcher, task, seed and limits alone, but for CPU seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from llamea_gpu.modelled import AnyTask
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.searchers.registry import Searcher
from llamea_gpu.tasks import Trace

_T = TypeVar("_T")
_Runner = TypeVar("_Runner", bound="BaseRunner")


class BaseRunner(ABC):
    """Runs searchers on tasks. A context manager; thread-safe."""

    @property
    @abstractmethod
    def level(self) -> int:
        """Of the sandbox: 3, 2 or 1; 0 is unsafe."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many runs go on at the same time; of a cluster, as of now."""

    @abstractmethod
    def submit(
        self,
        searcher: Searcher,
        task: AnyTask,
        seed: int,
        *,
        limits: Limits | None = None,
        charge_cpu: bool = False,
    ) -> Future[Trace]:
        """Run ``searcher`` on ``task`` with ``seed``, after what was submitted before.

        ``limits`` default to those of a sandboxed run, or to `LIBRARY_LIMITS`. A fault of the
        searcher is in its trace. The future raises SandboxError when the sandbox fails,
        SearcherDiedError when a library's searcher takes its process down, ClusterError when a
        cluster gives the run up. A future that was cancelled before its run began is not run.
        """

    @abstractmethod
    def compute(
        self, function: Callable[..., _T], tasks: Sequence[AnyTask], *arguments: object
    ) -> Future[_T]:
        """``function(tasks, *arguments)``, our own code: what scores runs, beside those that go on.

        Function, arguments and result are picklable, and the result depends on nothing else.
        """

    @abstractmethod
    def close(self) -> None:
        """Drop what has not begun, end what runs, and every process of it, wherever it is."""

    def run(
        self,
        searcher: Searcher,
        task: AnyTask,
        seed: int,
        *,
        limits: Limits | None = None,
        charge_cpu: bool = False,
    ) -> Trace:
        """Submit and wait."""
        return self.submit(searcher, task, seed, limits=limits, charge_cpu=charge_cpu).result()

    def __enter__(self: _Runner) -> _Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
