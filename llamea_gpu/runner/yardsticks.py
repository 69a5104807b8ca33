"""The yardstick of modelled whole spaces, simulated: Helion's LFBOTreeSearch on Helion's clock.

What it does: runs it once for each space, model and budget, with seeds of its own, and keeps what
came of it in the cache folder (`llamea_gpu.models.model.cache_folder`). Some ship, beside the
clouds: each takes one to two CPU minutes.

What it does not do: say what is made of it (`llamea_gpu.area`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from llamea_gpu.area import Yardstick, read_yardstick, write_yardstick, yardstick_of
from llamea_gpu.clocks import ParallelClock
from llamea_gpu.errors import TaskError
from llamea_gpu.modelled import AnyTask, WholeTask
from llamea_gpu.models.model import cache_folder
from llamea_gpu.resources import resource_dir
from llamea_gpu.runner._base import BaseRunner
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import YARDSTICK_SUFFIX
from llamea_gpu.tasks import Trace, run_seed

SEARCHER = "helion:LFBOTreeSearch?effort=full"
RUNS = 12
_SEED = 0x1FB0  # runs of no bench


def with_yardsticks(tasks: Sequence[AnyTask], runner: BaseRunner) -> tuple[AnyTask, ...]:
    """``tasks``, those on whole spaces with their yardsticks: kept ones, or simulated now.

    Raises:
        TaskError: the search that is the yardstick fails.
    """
    missing = [task for task in tasks if isinstance(task, WholeTask) and task.yardstick is None]
    stored = {
        task: read_yardstick(_shipped(task)) or read_yardstick(_file(task)) for task in missing
    }
    yardsticks = {task: yardstick for task, yardstick in stored.items() if yardstick is not None}
    runs = {task: _submit(task, runner) for task in missing if task not in yardsticks}
    for task, futures in runs.items():
        yardsticks[task] = _of_runs(task, [future.result() for future in futures])
        with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
            write_yardstick(yardsticks[task], _file(task))
    return tuple(
        replace(task, yardstick=yardsticks[task])
        if isinstance(task, WholeTask) and task in yardsticks
        else task
        for task in tasks
    )


def _submit(task: WholeTask, runner: BaseRunner) -> list[Future[Trace]]:
    searcher, timed = resolve(SEARCHER), _under_helions_clock(task)
    seeds = [run_seed(_SEED, task.name, number) for number in range(RUNS)]
    return [runner.submit(searcher, timed, seed) for seed in seeds]


def _of_runs(task: WholeTask, traces: Sequence[Trace]) -> Yardstick:
    fault = next((trace for trace in traces if trace.is_faulty), None)
    if fault is not None:
        raise TaskError(f"{task.name}: {SEARCHER} must run, but: {fault.error}")
    return yardstick_of(
        traces,
        task.axis_s,
        task.optimum_ms,
        task.default_ms,
        searcher=SEARCHER,
        clock=_under_helions_clock(task).clock.name,
        budget_s=task.budget_s,
    )


def _under_helions_clock(task: WholeTask) -> WholeTask:
    return replace(task, clock=ParallelClock(max(task.cloud.info.parallel_workers, 1)))


def _shipped(task: WholeTask) -> Path:
    name = f"{_file(task).stem}{YARDSTICK_SUFFIX}"
    return resource_dir("tuning_spaces") / "clouds" / "yardsticks" / name


def _file(task: WholeTask) -> Path:
    clock = _under_helions_clock(task).clock.name
    present = importlib.util.find_spec("helion") is not None
    version = importlib.metadata.version("helion") if present else ""
    parts = (task.fingerprint, task.name, f"{task.budget_s:g}", SEARCHER, clock, RUNS, version)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    return cache_folder() / f"yardstick-{key}.json"
