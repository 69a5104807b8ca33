"""What a run is made of: limits, and a candidate with the task, seed and limits to run it under.

Data only. `llamea_gpu.sandbox.pool` runs jobs; `llamea_gpu.tasks.Trace` is what comes back.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from llamea_gpu.errors import SandboxError
from llamea_gpu.modelled import PlacedSpace
from llamea_gpu.programs.program import Program
from llamea_gpu.spaces.space import SearchSpace
from llamea_gpu.tasks import MAX_PENDING, Task, TimedTask, Trace

# The child's own interpreter and libraries take up to 0.7 GB of address space.
_LEAST_MEMORY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use.

    ``cpu_s`` is the candidate's own CPU seconds. The wall limit only catches a candidate that
    waits: it is ``wall_factor * cpu_s``, but at least ``wall_floor_s``, so that a loaded machine
    does not end honest runs. ``memory_bytes`` is address space, interpreter and libraries included.

    Raises:
        SandboxError: a limit that no run could keep.
    """

    cpu_s: float = 10.0
    wall_factor: float = 5.0
    memory_bytes: int = 2 << 30
    wall_floor_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("cpu_s", "wall_factor", "wall_floor_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SandboxError(f"{name} must be a positive number, but got {value}")
        if self.memory_bytes < _LEAST_MEMORY_BYTES:
            raise SandboxError(
                f"memory_bytes must be at least {_LEAST_MEMORY_BYTES} (interpreter and libraries "
                f"count), but got {self.memory_bytes}"
            )

    @property
    def wall_s(self) -> float:
        """Seconds of real time after which a run is ended."""
        return max(self.wall_factor * self.cpu_s, self.wall_floor_s)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One run of ``program`` on ``task`` with ``seed``.

    A run that asks ``max_idle_asks`` times without a new visit is stalled; ``charge_cpu`` adds the
    candidate's own CPU seconds to the task's clock. With ``start``, a trace of this task, the run
    goes on where that one ended: its visits are free, and the candidate's samples begin with them,
    best first. ``places`` is the space of a task that has no recording: a new one for each run.
    """

    program: Program
    task: TimedTask
    seed: int
    limits: Limits = field(default_factory=Limits)
    max_idle_asks: int = 10_000
    charge_cpu: bool = False
    start: Trace | None = None
    places: PlacedSpace | None = None

    @property
    def listed(self) -> SearchSpace | None:
        """The space that the child has; None where the host has to be asked."""
        return self.task.recording.space if isinstance(self.task, Task) else None

    def to_bytes(self, parallel: int, spent: float) -> bytes:
        """What the child is told: JSON. The task is not in it.

        Raises:
            SandboxError: a hyperparameter or seed that JSON cannot carry.
        """
        body = {
            "source": self.program.source,
            "class_name": self.program.class_name,
            "hyperparameters": self.program.settings,
            "space": None if self.listed is None else self.listed.fingerprint,
            "whole": None if self.places is None else self.places.parameters(),
            "seed": self.seed,
            "parallel": parallel,
            "spent": spent,
            "max_pending": MAX_PENDING,
            "measured": self._measured(),
        }
        try:
            return json.dumps(body).encode("utf-8")
        except (TypeError, ValueError) as error:
            # Not the values: an integer that JSON cannot carry cannot be shown either.
            got = {"seed": self.seed, **self.program.settings}
            types = ", ".join(f"{name}: {type(value).__name__}" for name, value in got.items())
            raise SandboxError(
                f"seed and hyperparameters must be plain numbers, strings or bools, but got "
                f"({types}): {error}"
            ) from error

    def _measured(self) -> list[Any]:
        """An order of what the run may ask for at no cost, as rows or as configurations.

        No measurement is told.
        """
        if self.start is None:
            return []
        rows = self.start.rows_best_first
        if self.start.configurations is None:
            return rows
        configurations_best_first: list[Any] = self.start.configurations[rows].tolist()
        return configurations_best_first
