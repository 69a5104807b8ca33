"""Runs a bench: everything of a plan that is not there yet, on all cores, resumable.

What it does: `run_bench` submits the missing runs of a plan and returns them all. With a folder,
each run is appended to a journal as soon as it ends, so that a process that is killed loses only
the runs in flight; the same command goes on where it stopped, one with more searchers or repeats
adds them, and one with other settings is refused.

What it does not do: say what the runs mean (`llamea_gpu.bench.analysis` does).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

import numpy as np

from llamea_gpu.bench.analysis import analyse
from llamea_gpu.bench.plan import (
    MAX_RUNS,
    BenchSettings,
    Plan,
    RunKey,
    describe_searcher,
    describe_space,
)
from llamea_gpu.bench.results import SUMMARY, BenchResults
from llamea_gpu.bench.tables import cells_of, checked_trace
from llamea_gpu.errors import BenchError, SearcherDiedError
from llamea_gpu.modelled import AnyTask
from llamea_gpu.runner import BaseRunner
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.searchers.registry import Searcher
from llamea_gpu.tasks import Trace

_JOURNAL = "bench.jsonl"
# Runs that are submitted ahead, for each that goes on at a time: a cluster's runner makes blocks
# of what is queued.
_AHEAD = 16

_MAX_BYTES = 1 << 30

Progress = Callable[[int, int], None]


def make_plan(
    searchers: Sequence[Searcher], tasks: Sequence[AnyTask], repeats: int, settings: BenchSettings
) -> Plan:
    """The plan of ``repeats`` runs of each of ``searchers`` on each of ``tasks``.

    Raises:
        BenchError: none of either, or one that is named twice.
    """
    plan = Plan(
        settings,
        repeats,
        tuple(describe_searcher(searcher) for searcher in searchers),
        tuple(describe_space(task) for task in tasks),
    )
    for kind, items in (("searcher", plan.searchers), ("space", plan.spaces)):
        names = [item.name for item in items]
        if not names or len(set(names)) < len(names):
            raise BenchError(
                f"a bench must name at least one {kind}, and each once, but got {names!r:.400}"
            )
    if plan.size > MAX_RUNS:
        raise BenchError(f"a bench must have at most {MAX_RUNS} runs, but got {plan.size}")
    return plan


def run_bench(
    plan: Plan,
    searchers: Sequence[Searcher],
    tasks: Sequence[AnyTask],
    runner: BaseRunner,
    *,
    folder: Path | None = None,
    baseline: BenchResults | None = None,
    command: Sequence[str] = (),
    progress: Progress | None = None,
) -> BenchResults:
    """All runs of ``plan``, and of the bench that ``folder`` already holds; analysed and saved.

    ``searchers`` and ``tasks`` are those that ``plan`` was made of. What the folder holds besides
    is kept; searchers of it that lack runs, and all spaces of it, must be named too. Runs of
    ``baseline``, of the same settings and spaces, count as done. ``progress`` is told
    (runs done, runs in all).

    Raises:
        BenchError: the folder holds a bench of other settings, spaces or searchers, or another
            process writes to it.
    """
    runs: dict[RunKey, Trace] = {}
    requested_names = {searcher.name for searcher in plan.searchers}
    if baseline is not None:
        plan, runs = _with_baseline(plan, baseline)
    known = {searcher.name for searcher in plan.searchers} - requested_names
    with contextlib.ExitStack() as stack:
        journal = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            journal = stack.enter_context(open_journal(folder / _JOURNAL))
            plan, runs = _continued(folder, plan, runs, journal)
        by_name = {task.name: task for task in tasks}
        _refuse_unnamed("space", [space.name for space in plan.spaces], by_name)
        chosen = {searcher.name: searcher for searcher in searchers}
        missing = [key for key in plan.runs() if key not in runs]
        _refuse_unnamed("searcher", [key.searcher for key in missing], chosen)
        if folder is not None and journal is not None:
            _keep(BenchResults(plan, runs), folder, journal)
        total = len(missing) + len(runs)
        if progress is not None:
            progress(len(runs), total)
        for key, trace in _run_all(runner, plan, missing, chosen, by_name):
            runs[key] = trace
            if journal is not None:
                append_run(journal, key, trace)
            if progress is not None:
                progress(len(runs), total)
        analysis = analyse(plan, by_name, runs, known=known)
        results = BenchResults(plan, runs, analysis, tuple(command))
        if folder is not None and journal is not None:
            _keep(results, folder, journal)
    return results


def _with_baseline(plan: Plan, baseline: BenchResults) -> tuple[Plan, dict[RunKey, Trace]]:
    """``plan`` with the searchers of ``baseline`` that it does not name, and their runs."""
    missing = {space.name for space in plan.spaces} - {s.name for s in baseline.plan.spaces}
    if missing:
        raise BenchError(
            f"a baseline must have every space of the bench, but this one lacks "
            f"{sorted(missing)!r:.400}: it has {[s.name for s in baseline.plan.spaces]!r:.400}"
        )
    if plan.repeats > baseline.plan.repeats:
        raise BenchError(
            f"a bench must have no more repeats than its baseline ({baseline.plan.repeats}), but "
            f"asks for {plan.repeats}"
        )
    searcher_names = {searcher.name for searcher in plan.searchers}
    space_names = {space.name for space in plan.spaces}
    others = replace(
        baseline.plan,
        repeats=plan.repeats,
        searchers=tuple(s for s in baseline.plan.searchers if s.name not in searcher_names),
        spaces=tuple(space for space in baseline.plan.spaces if space.name in space_names),
    )
    try:
        joint = plan.joined(others)
    except BenchError as error:
        raise BenchError(f"the baseline does not fit: {error}") from error
    return joint, {key: baseline.runs[key] for key in others.runs()}


def _continued(
    folder: Path, plan: Plan, runs: Mapping[RunKey, Trace], journal: BinaryIO
) -> tuple[Plan, dict[RunKey, Trace]]:
    """``plan`` and ``runs`` with what the folder and its journal hold."""
    joint, completed = plan, dict(runs)
    if (folder / SUMMARY).exists():
        before = BenchResults.load_unfinished(folder)
        joint = before.plan.joined(plan)
        completed |= {**before.runs, **read_journal(journal, before.plan)}
    elif _lines(journal):
        raise BenchError(f"{folder} must hold {SUMMARY} beside its journal: use another folder")
    return joint, completed


def _keep(results: BenchResults, folder: Path, journal: BinaryIO) -> None:
    results.save(folder)
    journal.truncate(0)


def _refuse_unnamed(kind: str, needed: Sequence[str], command_names: Container[str]) -> None:
    unnamed = sorted({name for name in needed if name not in command_names})
    if unnamed:
        raise BenchError(
            f"each {kind} of the folder for which there is work must be named in the command, "
            f"but {unnamed!r:.400} is not: name it too, or use another folder"
        )


def _run_all(
    runner: BaseRunner,
    plan: Plan,
    keys: Sequence[RunKey],
    searchers: Mapping[str, Searcher],
    tasks: Mapping[str, AnyTask],
) -> Iterator[tuple[RunKey, Trace]]:
    """Each run as it ends, in any order."""
    cpu_s = plan.settings.cpu_limit_s
    limits = Limits(cpu_s=cpu_s) if cpu_s else None

    def submit(key: RunKey) -> Future[Trace]:
        return runner.submit(
            searchers[key.searcher],
            tasks[key.space],
            plan.seed_of(key),
            limits=limits,
            charge_cpu=plan.settings.charge_cpu,
        )

    waiting = list(reversed(keys))
    flying: dict[Future[Trace], RunKey] = {}
    completed: SimpleQueue[Future[Trace]] = SimpleQueue()
    suspects = []
    while waiting or flying:
        while waiting and len(flying) < _AHEAD * runner.width:
            key = waiting.pop()
            future = submit(key)
            flying[future] = key
            future.add_done_callback(completed.put)
        future = completed.get()
        key = flying.pop(future)
        if _lost_its_process(future):
            suspects.append(key)
        else:
            yield key, future.result()
    # A process that dies takes the runs beside it along; alone, a run can only blame itself.
    for key in suspects:
        future = submit(key)
        lost = _lost_its_process(future)
        yield key, _crashed(plan.seed_of(key), future) if lost else future.result()


def _lost_its_process(future: Future[Trace]) -> bool:
    return isinstance(future.exception(), SearcherDiedError)


def _crashed(seed: int, future: Future[Trace]) -> Trace:
    """A run of which nothing is left but that it took its process down."""
    nothing = np.empty(0)
    return Trace(
        rows=nothing.astype(np.int32),
        elapsed_s=nothing,
        cost_ms=nothing,
        outcome="crashed",
        asks=0,
        revisits=0,
        seed=seed,
        error=str(future.exception()),
    )


@contextmanager
def open_journal(path: Path) -> Iterator[BinaryIO]:
    """The journal at ``path``, which is made if need be, for this process alone.

    Raises:
        BenchError: another process has it.
    """
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BenchError(
                f"a bench's folder is for one process, but another one writes to {path.parent}: "
                f"wait for it, or use another folder"
            ) from None
        yield file


def append_run(journal: BinaryIO, key: RunKey, trace: Trace) -> None:
    """Write one run; it survives the death of this process."""
    line = json.dumps(cells_of(key, trace), default=np.ndarray.tolist)
    journal.write(line.encode() + b"\n")
    journal.flush()


def _lines(journal: BinaryIO) -> list[bytes]:
    """The whole lines; the end of a torn one is cut off.

    Raises:
        BenchError: there is far too much.
    """
    journal.seek(0)
    data = journal.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise BenchError(f"{journal.name} must have at most {_MAX_BYTES} bytes, but has more")
    whole = data.rfind(b"\n") + 1
    journal.truncate(whole)
    return data[:whole].splitlines()


def read_journal(journal: BinaryIO, plan: Plan) -> dict[RunKey, Trace]:
    """The journal's runs, checked.

    Raises:
        BenchError: a line is no run of ``plan``.
    """
    plan_keys = set(plan.runs())
    spaces = {space.name: space for space in plan.spaces}
    runs: dict[RunKey, Trace] = {}
    for number, line in enumerate(_lines(journal), start=1):
        try:
            cells: dict[str, Any] = json.loads(line)
            key = RunKey(cells["searcher"], cells["space"], cells["repeat"])
            if key not in plan_keys:
                raise BenchError(f"a run must be of this bench, but {key!r:.200} is not")
            runs[key] = checked_trace(cells, spaces[key.space], plan.seed_of(key))
        except (
            *(ValueError, TypeError, LookupError, OverflowError, RecursionError),
            BenchError,
        ) as error:
            raise BenchError(
                f"{journal.name}: line {number}: a line must be a run, but: {error!s:.400}"
            ) from error
    return runs
