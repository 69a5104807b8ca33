"""Runs of a run's programs: from the archive where it has them, else measured and committed.

A run is known by slot, attempt, space and its number there. Which seed it has depends on the run's
seed, the space and the number alone, so that candidates with equal numbers are paired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
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


def fault_in(runs: Sequence[Sequence[Trace]]) -> Trace | None:
    """The first run that a fault of the program ended."""
    return next((trace for traces in runs for trace in traces if trace.is_faulty), None)


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

    def seed(self, task: AnyTask, number: int) -> int:
        """That of a run on ``task``."""
        return run_seed(self._settings.seed, task.name, number)

    async def of(
        self, slot: int, attempt: int, program: Program, task: AnyTask, seeds: Mapping[int, int]
    ) -> list[Trace]:
        """The runs with these numbers and seeds; those that only tune have negative numbers."""
        known = self._archive.traces(slot, attempt, task.name, trials=min(seeds) < 0)

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

        return list(await asyncio.gather(*(one(number, seed) for number, seed in seeds.items())))

    async def compute(
        self, function: Callable[..., _T], tasks: Sequence[AnyTask], *arguments: object
    ) -> _T:
        """``function(tasks, *arguments)``, computed where runs are."""
        computed: Future[_T] = self._runner.compute(function, tasks, *arguments)
        return await asyncio.wrap_future(computed)
