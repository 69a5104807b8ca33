"""`Sandbox`: a pool of threads, each serving one hardened child at a time.

It opens the best level that verifies, keeps a zygote for each set of libraries that candidates ask
for, and replaces one that dies. A killed, crashed or stuck child costs its own run and no other.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from llamea_gpu.errors import SandboxError
from llamea_gpu.sandbox.jobs import Job
from llamea_gpu.sandbox.launch import find_installation
from llamea_gpu.sandbox.levels import Ingredients, Level
from llamea_gpu.sandbox.opening import FIRST_LIBRARY, open_best, start_verified
from llamea_gpu.sandbox.preload import library_for
from llamea_gpu.sandbox.process import ZygoteDied, ZygoteProcess
from llamea_gpu.sandbox.report import SandboxReport
from llamea_gpu.sandbox.serving import run_job
from llamea_gpu.tasks import Trace

_ATTEMPTS = 3  # at a run whose zygote dies
_CLOSED = "a sandbox must be open to run a job, but it was closed"


class Sandbox:
    """Runs jobs. A context manager; thread-safe. Make one with `Sandbox.open`."""

    def __init__(
        self, ingredients: Ingredients, level: Level, report: SandboxReport, workers: int
    ) -> None:
        self._ingredients = ingredients
        self._level = level
        self.report = report
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="sandbox")
        self._zygotes: dict[str, ZygoteProcess] = {}  # by library set
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def open(
        cls,
        workers: int | None = None,
        min_level: int = 1,
        unsafe: bool = False,
        level: int | None = None,
    ) -> Sandbox:
        """Verify isolation by attacking it, and start the pool.

        Args:
            workers: candidates that run at the same time; all cores when None.
            min_level: the least level to accept.
            unsafe: run without isolation, on purpose: level 0.
            level: exactly this level instead of the best.

        Raises:
            SandboxUnavailableError: no such level verifies; the message says why and what to do.
        """
        workers = workers or len(os.sched_getaffinity(0))
        ingredients = Ingredients.find(find_installation())
        chosen, zygote, report = open_best(ingredients, min_level, level, unsafe)
        sandbox = cls(ingredients, chosen, report, workers)
        sandbox._zygotes[FIRST_LIBRARY] = zygote
        return sandbox

    @property
    def level(self) -> int:
        """3, 2 or 1; 0 is unsafe."""
        return self._level.number

    def submit(self, job: Job) -> Future[Trace]:
        """Run ``job`` on the next free worker.

        The future raises SandboxError when the sandbox, not the candidate, fails.

        Raises:
            SandboxError: the sandbox is closed.
        """
        if self._closed:
            raise SandboxError(_CLOSED)
        return self._executor.submit(self._run, job)

    def run(self, job: Job) -> Trace:
        """Run ``job`` and wait for it."""
        return self.submit(job).result()

    def close(self) -> None:
        """End every run in progress (its future gets a SandboxError) and every process."""
        with self._lock:
            self._closed = True
            zygotes = list(self._zygotes.values())
            self._zygotes.clear()
        for zygote in zygotes:
            zygote.close()
        self._executor.shutdown(cancel_futures=True)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, job: Job) -> Trace:
        library = library_for(job.program.source)
        problem = ""
        for _ in range(_ATTEMPTS):
            zygote = self._zygote(library)
            try:
                return run_job(zygote, job)
            except ZygoteDied as death:
                problem = str(death)
                self._discard(library, zygote)
        raise SandboxError(f"the zygote died in each of {_ATTEMPTS} attempts at a run: {problem}")

    def _zygote(self, library: str) -> ZygoteProcess:
        with self._lock:
            if self._closed:
                raise SandboxError(_CLOSED)
            if library not in self._zygotes:
                zygote, _ = start_verified(self._ingredients, self._level, library)
                self._zygotes[library] = zygote
            return self._zygotes[library]

    def _discard(self, library: str, zygote: ZygoteProcess) -> None:
        with self._lock:
            if self._zygotes.get(library) is zygote:
                del self._zygotes[library]
        zygote.close()
