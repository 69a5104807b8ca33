"""What goes on in a worker process of a node: blocks of runs, by the runner of one machine.

A process opens its sandbox once, and keeps the tasks that it has met. It checks that it is what the
driver expects before anything runs in it: a node may join a cluster at any moment.
"""

from __future__ import annotations

import functools
import pickle
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llamea_gpu.cluster.connection import import_ray
from llamea_gpu.cluster.facts import Examined, Facts, installed, software
from llamea_gpu.errors import SandboxUnavailableError
from llamea_gpu.modelled import AnyTask
from llamea_gpu.runner import Runner
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import Searcher

LEVEL = "sandbox level"
NO_LEVEL = "none"
_KEPT_TASKS = 64


@dataclass(frozen=True, slots=True)
class Isolation:
    """Which sandbox a worker process opens."""

    min_level: int
    unsafe: bool


@dataclass(frozen=True, slots=True)
class Block:
    """Runs of one searcher on one task: one for each of ``seeds``. ``task`` names it by content."""

    searcher: Searcher
    task: str
    seeds: tuple[int, ...]
    limits: Limits | None
    charge_cpu: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a block or a computation, and where.

    ``results`` are in the order of the seeds: traces, and what was raised in the place of one; of a
    computation, its own. ``refused`` says how the node differs from what is expected; nothing was
    run then.
    """

    node: str
    host: str
    results: tuple[Any, ...] = ()
    refused: str = ""


def examine(isolation: Isolation) -> Examined:
    """What the node is on which this is called."""
    problem = ""
    try:
        level = str(_runner(isolation).level)
    except SandboxUnavailableError as error:
        level, problem = NO_LEVEL, str(error)
    node = import_ray().get_runtime_context().get_node_id()
    return Examined(node, socket.gethostname(), {LEVEL: level, **software()}, problem)


def compute(
    function: Callable[..., Any],
    tasks: Mapping[str, Any],
    arguments: Sequence[Any],
    isolation: Isolation,
    expected: Facts,
) -> Report:
    """``function`` of tasks, given as references by name, and arguments."""
    here = examine(isolation)
    if refused := here.unlike(expected):
        return Report(here.node, here.host, refused=refused)
    known = [_task(key, reference) for key, reference in tasks.items()]
    try:
        return Report(here.node, here.host, (function(known, *arguments),))
    except Exception as error:
        return Report(here.node, here.host, (_sendable(error),))


def run_block(block: Block, task: Sequence[Any], isolation: Isolation, expected: Facts) -> Report:
    """Run ``block``; ``task`` holds the reference of its task in the object store."""
    here = examine(isolation)
    if isinstance(block.searcher, LibrarySearcher):
        versions = block.searcher.versions
        here = replace(here, facts={**here.facts, **installed(versions)})
        expected = {**expected, **versions}
    refused = here.unlike(expected)
    if refused:
        return Report(here.node, here.host, refused=refused)
    runner, known = _runner(isolation), _task(block.task, task[0])
    results = []
    for seed in block.seeds:
        run = runner.submit(
            block.searcher, known, seed, limits=block.limits, charge_cpu=block.charge_cpu
        )
        error = run.exception()
        results.append(run.result() if error is None else _sendable(error))
    return Report(here.node, here.host, tuple(results))


@functools.cache
def _runner(isolation: Isolation) -> Runner:
    """This process's own. It ends with the process, as its children do."""
    return Runner.open(1, min_level=isolation.min_level, unsafe=isolation.unsafe)


_tasks: OrderedDict[str, AnyTask] = OrderedDict()


def _task(key: str, reference: Any) -> AnyTask:
    """The task, of which this process builds tables once; its arrays are the object store's."""
    task = _tasks.pop(key, None) or import_ray().get(reference)
    _tasks[key] = task
    if len(_tasks) > _KEPT_TASKS:
        _tasks.popitem(last=False)
    return task


def _sendable(error: BaseException) -> Exception:
    """``error``, or one that says the same where it does not survive being sent."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made in the line itself
    except Exception:
        return RuntimeError(repr(error))
    return error if isinstance(error, Exception) else RuntimeError(repr(error))
