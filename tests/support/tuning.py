"""Real ``tune_kernel`` calls in simulation mode on recordings, and our simulator's twin of them."""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from constraint import FunctionConstraint
from kernel_tuner import tune_kernel

from llamea_gpu.clocks import SequentialClock
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.spaces.space import SearchSpace
from llamea_gpu.tasks import Task

_names = itertools.count()


def tune_params(space: SearchSpace) -> dict[str, list[Any]]:
    """What ``tune_kernel`` wants to know of the parameters."""
    return {name: list(values) for name, values in zip(space.names, space.values, strict=True)}


def only_valid(space: SearchSpace) -> list[FunctionConstraint]:
    """A restriction that leaves exactly the configurations of ``space``, failing ones included."""
    valid = {
        tuple(values[i] for values, i in zip(space.values, row, strict=True))
        for row in space.configurations.tolist()
    }
    return [FunctionConstraint(lambda *values: values in valid)]


class Simulation:
    """A recording as Kernel Tuner's simulation mode sees it: a cache file and its arguments."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        self.recording = recording
        self._cache = folder / f"{recording.info.name.replace('/', '_')}.json"
        export_recording(recording, self._cache, "kernel-tuner")

    def tune(
        self, strategy: Any, evaluations: int, options: Mapping[str, Any] | None = None, **more: Any
    ) -> list[dict[str, Any]]:
        """The results of ``tune_kernel``: one dictionary a measurement, in order."""
        results, _ = tune_kernel(
            self.recording.info.kernel,
            "",
            1,
            [],
            tune_params(self.recording.space),
            restrictions=only_valid(self.recording.space),
            cache=str(self._cache),
            simulation_mode=True,
            strategy=strategy,
            strategy_options={"max_fevals": evaluations, **(options or {})},
            **{"quiet": True, **more},
        )
        return list(results)

    def rows(self, results: list[dict[str, Any]]) -> list[int]:
        """The rows of the recording's space that were measured, in order."""
        space = self.recording.space
        return [
            space.row(
                tuple(
                    values.index(result[name])
                    for name, values in zip(space.names, space.values, strict=True)
                )
            )
            for result in results
        ]


def counted_task(recording: Recording, evaluations: int) -> Task:
    """A task whose budget is a number of evaluations: each takes one second."""
    count = recording.space.size
    even = replace(recording, compile_s=np.ones(count), benchmark_s=np.zeros(count))
    built = Task.build(recording, SequentialClock())
    return replace(built, recording=even, budget_s=float(evaluations))


def load_module(path: Path) -> ModuleType:
    """The module in a file, under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"loaded_{next(_names)}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        spec.loader.exec_module(module)
    return module
