"""The virtual clocks: when each measurement of a batch begins and is done, in simulated seconds.

What it does: charges recorded compile and benchmark seconds as Kernel Tuner (`SequentialClock`) and
Helion (`ParallelClock`) spend them, and says what that makes of one evaluation in the formulas.

What it does not do: read a real clock. A run depends on its seed alone, never on the host.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.errors import TaskError

if TYPE_CHECKING:
    from llamea_gpu.spaces.recording import Recording

FloatArray = NDArray[np.float64]


class Clock(Protocol):
    """A rule by which measurements take simulated time."""

    @property
    def name(self) -> str:
        """The spec that `make_clock` turns back into this clock."""

    @property
    def workers(self) -> int:
        """How many configurations compile side by side: a searcher's ``evaluate.parallel``."""

    def schedule(
        self, start_s: float, compile_s: Sequence[float], benchmark_s: Sequence[float]
    ) -> list[tuple[float, float]]:
        """(begin, finish) of each item; one that begins after the budget's end is not measured."""


@dataclass(frozen=True, slots=True)
class SequentialClock:
    """Kernel Tuner's rule: one configuration after another, each charged compile + benchmark."""

    @property
    def name(self) -> str:
        """``"sequential"``."""
        return "sequential"

    @property
    def workers(self) -> int:
        """1."""
        return 1

    def schedule(
        self, start_s: float, compile_s: Sequence[float], benchmark_s: Sequence[float]
    ) -> list[tuple[float, float]]:
        """Item i begins when item i - 1 is done, so a batch is charged like its items alone."""
        now = start_s
        times = []
        for compiling, benchmarking in zip(compile_s, benchmark_s, strict=True):
            begin = now
            now = begin + (compiling + benchmarking)
            times.append((begin, now))
        return times


@dataclass(frozen=True, slots=True)
class ParallelClock:
    """Helion's rule: a batch compiles on ``workers`` cores, then each item is timed on the GPU.

    A compilation goes, in the order of the batch, to the worker that is free first; the benchmarks
    begin when the last compilation is done and run one after another, in the same order.
    """

    workers: int

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise TaskError(f"a parallel clock must have at least 1 worker, but got {self.workers}")

    @property
    def name(self) -> str:
        """``"parallel(w)"``."""
        return f"parallel({self.workers})"

    def schedule(
        self, start_s: float, compile_s: Sequence[float], benchmark_s: Sequence[float]
    ) -> list[tuple[float, float]]:
        """An item begins with its benchmark: compiling beyond the budget's end measures nothing."""
        now = start_s + _makespan(compile_s, self.workers)
        times = []
        for benchmarking in benchmark_s:
            begin = now
            now = begin + benchmarking
            times.append((begin, now))
        return times


def _makespan(durations_s: Sequence[float], workers: int) -> float:
    """When list scheduling on ``workers`` machines has finished all of ``durations_s``."""
    if len(durations_s) <= workers:
        return max(durations_s, default=0.0)
    free_at = list(durations_s[:workers])
    heapq.heapify(free_at)
    for duration in durations_s[workers:]:
        heapq.heapreplace(free_at, free_at[0] + duration)
    return max(free_at)


def make_clock(spec: str) -> Clock:
    """The clock that ``spec`` names: ``sequential`` or ``parallel(16)``.

    Raises:
        TaskError: it names none.
    """
    if spec == "sequential":
        return SequentialClock()
    parallel = re.fullmatch(r"parallel\((\d{1,6})\)", spec)
    if parallel is None:
        raise TaskError(
            f"a clock must be 'sequential' or 'parallel(WORKERS)', such as 'parallel(16)', "
            f"but got {spec!r}"
        )
    return ParallelClock(int(parallel[1]))


def default_clock(recording: Recording) -> Clock:
    """The clock that fits how the recording's tuner works (``info.parallel_workers``)."""
    workers = recording.info.parallel_workers
    return ParallelClock(workers) if workers > 1 else SequentialClock()
