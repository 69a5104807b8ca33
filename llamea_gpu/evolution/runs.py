"""Runs of a run's programs: from the archive where it has them, else measured and committed.

A run is known by slot, attempt, space and its number there. Which seed it has depends on the run's
seed, the space and the number alone, so that candidates with equal numbers are paired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from llamea_gpu.archive import Archive
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.modelled import AnyTask
from llamea_gpu.programs import Program
from llamea_gpu.runner import BaseRunner
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.searchers.registry import ProgramSearcher
from llamea_gpu.tasks import Trace, run_seed

_T = TypeVar("_T")


class Runs:
    """Runs programs on the tasks of one evolution."""

    def __init__(self, runner: BaseRunner, archive: Archive, settings: EvolutionSettings) -> None:
        self._runner = runner
        self._archive = archive
        self._settings = settings
        self._limits = Limits(cpu_s=settings.cpu_limit_s, memory_bytes=settings.memory_mb << 20)

    def repeats(self, task: AnyTask) -> int:
        """How many runs a candidate has on ``task`` when it is fully scored."""
        return self._settings.repeats_by_space.get(task.name, self._settings.repeats)

    async def own(
        self, slot: int, attempt: int, program: Program, task: AnyTask, repeats: Iterable[int]
    ) -> list[Trace]:
        """The runs with these numbers, which count."""
        known = self._archive.traces(slot, attempt, task.name)
        numbered = [(r, run_seed(self._settings.seed, task.name, r)) for r in repeats]
        return await self._all(slot, attempt, program, task, numbered, known)

    async def trials(
        self,
        slot: int,
        attempt: int,
        program: Program,
        task: AnyTask,
        numbered: Sequence[tuple[int, int]],
    ) -> list[Trace]:
        """Runs by (number, seed) that only tune; their numbers are negative."""
        known = self._archive.traces(slot, attempt, task.name, trials=True)
        return await self._all(slot, attempt, program, task, numbered, known)

    async def compute(
        self, function: Callable[..., _T], tasks: Sequence[AnyTask], *arguments: object
    ) -> _T:
        """``function(tasks, *arguments)``, computed where runs are."""
        computed: Future[_T] = self._runner.compute(function, tasks, *arguments)
        return await asyncio.wrap_future(computed)

    async def _all(
        self,
        slot: int,
        attempt: int,
        program: Program,
        task: AnyTask,
        numbered: Sequence[tuple[int, int]],
        known: dict[int, Trace],
    ) -> list[Trace]:
        async def one(number: int, seed: int) -> Trace:
            if number in known and known[number].batch is not None:  # older runs lack batches
                return known[number]
            run = self._runner.submit(
                ProgramSearcher(program.class_name, program),
                task,
                seed,
                limits=self._limits,
                charge_cpu=self._settings.charge_cpu,
            )
            trace: Trace = await asyncio.wrap_future(run)
            self._archive.record_trace(slot, attempt, task.name, number, trace)
            return trace

        return list(await asyncio.gather(*(one(number, seed) for number, seed in numbered)))
