"""One run of a trusted optimizer in this process: the host's `Evaluator` behind the contract.

What it does: hands out ``evaluate`` and a space that is described (`RecordedSpace`, `WholeSpace`),
seeds the process, limits and measures the optimizer's CPU time, and turns however the run ends into
a trace.

What it does not do: protect anything. Code that is not trusted runs in `llamea_gpu.sandbox`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.contract import (
    Configuration,
    Configurations,
    KernelFacts,
    MeasuresStarts,
    Optimizer,
    Space,
    Value,
    trouble_of,
)
from llamea_gpu.errors import BudgetExhausted, Stalled
from llamea_gpu.frameworks.helion.kernel_script import notes_on
from llamea_gpu.frameworks.helion.whole import BoundSpace
from llamea_gpu.modelled import PlacedSpace, Run, WholeTask, begin
from llamea_gpu.searchers.library import DescribedSpace
from llamea_gpu.seeding import seed_process
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.spaces.space import SpaceView
from llamea_gpu.tasks import Evaluator, Task, Trace

_FRAMES_SHOWN = 12


class CpuLimitReached(BaseException):
    """The optimizer used up its CPU seconds."""


class RowedSpace(Protocol):
    """The space as far as ``evaluate`` needs it."""

    def row(self, config: Any, /) -> int:
        """The row that stands for a configuration; -1 where it is not valid."""


class LocalEvaluate:
    """``evaluate`` of the contract, answered in this process.

    ``cpu_s`` is what the optimizer itself has used: the time spent in here is not counted.
    """

    def __init__(self, space: RowedSpace, evaluator: Evaluator) -> None:
        self._space = space
        self._evaluator = evaluator
        self._submitted: dict[int, deque[Configuration]] = {}
        self._left_at = time.process_time()
        self.cpu_s = 0.0

    @property
    def spent(self) -> float:
        """Share of the budget used, 0 to 1."""
        return self._evaluator.spent

    @property
    def parallel(self) -> int:
        """How many configurations are worth having on their way."""
        return self._evaluator.parallel

    @property
    def pending(self) -> int:
        """How many submitted configurations no `wait` has handed out yet."""
        return self._evaluator.pending

    @property
    def now_s(self) -> float:
        """The simulated time. Beyond the contract, like what follows: for trusted searchers."""
        return self._evaluator.now_s

    def wait_until(self, moment_s: float) -> None:
        """Let simulated time pass with nothing measured."""
        self._evaluator.wait_until(moment_s)

    def failure(self, config: Configuration) -> str | None:
        """How a configuration that was measured failed; None for one that works or was not."""
        row = self._space.row(config)
        return self._evaluator.failure(row) if row >= 0 else None

    def __call__(self, configs: Configurations) -> list[float]:
        """Costs in ms, inf for a configuration that fails.

        Raises:
            ValueError: a configuration that is not valid in this space (nothing is charged).
            BudgetExhausted: the budget is used up.
        """
        with self._not_counting():
            costs: list[float] = self._evaluator.ask(self._rows(configs)).tolist()
            return costs

    def submit(self, configs: Configurations) -> None:
        """Queue configurations, each to be handed out once by `wait`.

        Raises:
            ValueError: a configuration that is not valid in this space, or more than
                `llamea_gpu.tasks.MAX_PENDING` on their way (nothing is queued).
            BudgetExhausted: the budget is used up.
        """
        with self._not_counting():
            configurations = list(configs)
            rows = self._rows(configurations)
            self._evaluator.submit(rows)
            for row, config in zip(rows.tolist(), configurations, strict=True):
                self._submitted.setdefault(row, deque()).append(tuple(map(int, config)))

    def wait(self) -> list[tuple[Configuration, float]]:
        """Submitted configurations and their costs in ms, in the order in which they were done.

        Raises:
            BudgetExhausted: the budget ends before anything more is done.
        """
        with self._not_counting():
            rows, costs_ms = self._evaluator.wait()
            configurations = [self._submitted[row].popleft() for row in rows.tolist()]
            return list(zip(configurations, costs_ms.tolist(), strict=True))

    def stop_counting(self) -> None:
        """Count what the optimizer has used since it was last answered."""
        used_s = time.process_time() - self._left_at
        self.cpu_s += used_s
        self._evaluator.charge(used_s)

    @contextlib.contextmanager
    def _not_counting(self) -> Iterator[None]:
        self.stop_counting()
        try:
            yield
        finally:
            self._left_at = time.process_time()

    def _rows(self, configs: Configurations) -> NDArray[np.int64]:
        configurations: list[Any] = list(configs)
        rows = [self._space.row(configuration) for configuration in configurations]
        if rows and min(rows) < 0:
            wrong = configurations[rows.index(-1)]
            raise ValueError(
                f"configurations must be valid in this space, but {wrong!r:.200} is not: check "
                "with space.contains or use space.repair"
            )
        return np.array(rows, dtype=np.int64)


def run_optimizer(
    build: Callable[[], Optimizer],
    task: Task | WholeTask,
    seed: int,
    *,
    cpu_s: float | None,
    charge_cpu: bool = False,
) -> Trace:
    """Run ``build()``, an `Optimizer`, on ``task``; its faults are in the trace.

    ``cpu_s`` needs the process's main thread, whose timer signal ends the run; None sets no limit.
    """
    if isinstance(task, Task):
        evaluator = Evaluator(task, charge_cpu=charge_cpu)
        space = partial(RecordedSpace, task.recording)
        return _run(build, evaluator, task.recording.space, space, seed, cpu_s)
    with task.opened(seed) as run:
        evaluator = Evaluator(task, charge_cpu=charge_cpu, costs=run.places)
        return _run(build, evaluator, run.places, partial(WholeSpace, task, run), seed, cpu_s)


def _run(
    build: Callable[[], Optimizer],
    evaluator: Evaluator,
    rows: RowedSpace,
    make_space: Callable[[np.random.Generator], Space],
    seed: int,
    cpu_s: float | None,
) -> Trace:
    seed_process(seed)  # a constructor may draw
    optimizer = build()
    rng = seed_process(seed)  # again: a library draws entropy when it is first imported
    evaluate = LocalEvaluate(rows, evaluator)
    outcome, error = "finished", None
    try:
        if isinstance(rows, PlacedSpace) and not isinstance(optimizer, MeasuresStarts):
            begin(evaluator, rows, None)
        with _cpu_limit(cpu_s), _quiet():
            optimizer(evaluate, make_space(rng), rng)
    except BudgetExhausted:
        outcome = "budget"
    except Stalled:
        outcome = "stalled"
    except CpuLimitReached:
        outcome, error = "timeout", f"the run's limit of {cpu_s:g} CPU seconds is reached"
    except MemoryError:
        outcome, error = "memory", "MemoryError"
    except Exception as fault:
        outcome, error = "error", _described(fault)
    evaluate.stop_counting()
    # What a searcher went on in spite of, such as a model that could not be reached.
    error = error or trouble_of(optimizer) or None
    return evaluator.trace(outcome=outcome, seed=seed, cpu_s=evaluate.cpu_s, error=error)


@contextlib.contextmanager
def _cpu_limit(cpu_s: float | None) -> Iterator[None]:
    if cpu_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise CpuLimitReached

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Libraries print their progress and warn of their own code: neither is the user's."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):
        warnings.simplefilter("ignore")
        yield


def _described(fault: Exception) -> str:
    """The end of the traceback, innermost frames last."""
    frames = traceback.extract_tb(fault.__traceback__)[1:]
    lines = [f"  {frame.name}: {frame.line}" for frame in frames[-_FRAMES_SHOWN:]]
    return "\n".join([*lines, "".join(traceback.format_exception_only(fault)).rstrip()])


class RecordedSpace(SpaceView):
    """A `SpaceView` of a recording's space.

    ``facts`` say where the recording comes from, without its reference times. Their default is the
    valid configuration nearest to the one that the recorded tuner starts from; None when the
    recording names none, or one with a categorical value that the space does not hold.
    """

    __slots__ = ("facts",)

    def __init__(self, recording: Recording, rng: np.random.Generator) -> None:
        super().__init__(recording.space, rng)
        self.facts = KernelFacts(
            replace(recording.info, references_ms={}), _default_configuration(recording)
        )


class WholeSpace(DescribedSpace):
    """The whole space of a modelled task, in one run."""

    def __init__(self, task: WholeTask, run: Run, rng: np.random.Generator) -> None:  # noqa: ARG002
        space = run.places.space
        facts = KernelFacts(
            info=replace(task.info, references_ms={}),
            default=task.cloud.default,
            notes=notes_on(space.names),
            bound=BoundSpace(run.kernel, space),
        )
        super().__init__(space, facts)


def _default_configuration(recording: Recording) -> Configuration | None:
    space, default_values = recording.space, recording.info.default_configuration
    if default_values is None or not set(space.names) <= set(default_values):
        return None
    indices = []
    for name, values, ordinal in zip(space.names, space.values, space.ordinal, strict=True):
        index = _nearest(values, ordinal, default_values[name])
        if index is None:
            return None
        indices.append(index)
    return space.configuration(space.repair_row(indices))


def _nearest(values: Sequence[Value], ordinal: bool, target: Value) -> int | None:
    """Index of ``target``, or of the number nearest to it in an ordinal parameter."""
    if target in values:
        return values.index(target)
    if ordinal and type(target) in (int, float):
        with contextlib.suppress(OverflowError):  # an integer that no double holds
            distances = [abs(cast("float", value) - cast("float", target)) for value in values]
            return distances.index(min(distances))
    return None
