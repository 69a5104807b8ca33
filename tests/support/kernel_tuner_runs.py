"""Kernel Tuner itself, in simulation mode, on one of our recordings: what it visits, in order."""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from llamea_gpu.clocks import SequentialClock
from llamea_gpu.seeding import seed_process
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.spaces.recording import Recording, RecordingInfo
from llamea_gpu.tasks import Task

NAMES = ("block", "warps", "rate", "mode", "stages")
VALUES = ((16, 32, 64, 128, 256), (1, 2, 4, 8), (0.5, 1.0, 2.0), ("flat", "deep", "wide"), (1, 2))
RESTRICTION = "block * warps <= 1024"


def constrained_recording() -> Recording:
    """342 of 360 configurations (`RESTRICTION`): integers, floats, texts; one in ten fails."""
    rng = np.random.default_rng(5)
    grid = np.stack(np.meshgrid(*(range(len(v)) for v in VALUES), indexing="ij"), -1).reshape(-1, 5)
    blocks, warps = (np.array(VALUES[j])[grid[:, j]] for j in (0, 1))
    grid = grid[blocks * warps <= 1024]
    time_ms = 1.0 + np.abs(grid - [3, 1, 2, 1, 0]) @ np.array([0.3, 0.2, 0.1, 0.4, 0.1])
    time_ms *= rng.uniform(1, 1.1, len(grid))
    failed = rng.random(len(grid)) < 0.1
    time_ms[failed] = np.inf
    return Recording.from_rows(
        names=NAMES,
        values=VALUES,
        configurations=grid,
        time_ms=time_ms,
        compile_s=rng.uniform(0.5, 1.5, len(grid)),
        benchmark_s=np.where(failed, 0.0, 0.125),
        status=np.where(failed, 1, 0).astype(np.uint8),
        info=RecordingInfo(name="constrained", kernel="toy", device="test", framework="test"),
    )


def budgeted(recording: Recording, evaluations: int) -> Task:
    """A task whose budget holds about so many evaluations."""
    task = Task.build(recording, SequentialClock())
    object.__setattr__(task, "budget_s", evaluations * task.evaluation_s)
    return task


class KernelTuner:
    """``tune_kernel`` on a recording that was exported for it."""

    def __init__(self, recording: Recording, restrictions: list[str], folder: Path) -> None:
        self._recording = recording
        self._restrictions = restrictions
        self._cache = folder / "cache.json"
        export_recording(recording, self._cache, "kernel-tuner")

    def visits(
        self, strategy: Any, options: Mapping[str, Any], *, budget_s: float, seed: int
    ) -> list[int]:
        """Rows of the space in the order of their first visits, as one run of it makes them."""
        from kernel_tuner import interface, tune_kernel, util

        space = self._recording.space
        rng = seed_process(seed)
        # Simulation mode adds the host's time to the simulated: leave that out, and nothing else.
        with (
            mock.patch.object(util.Timer, "get", return_value=0.0),
            mock.patch.object(interface, "perf_counter", return_value=0.0),
            quiet(),
        ):
            results, _ = tune_kernel(
                self._recording.info.kernel,
                "",
                (1,),
                [],
                {name: list(v) for name, v in zip(space.names, space.values, strict=True)},
                restrictions=list(self._restrictions),
                lang="CUDA",
                cache=str(self._cache),
                simulation_mode=True,
                quiet=True,
                strategy=strategy,
                strategy_options={
                    **options,
                    "time_limit": budget_s,
                    # In the order of the values: that of the default solver depends on the text of
                    # the restrictions, which a recording does not have.
                    "searchspace_construction_options": {"framework": "bruteforce"},
                },
                seed=int(rng.integers(2**32)),
            )
        lookups = [{value: i for i, value in enumerate(values)} for values in space.values]
        rows = [
            space.row(tuple(index[r[n]] for n, index in zip(space.names, lookups, strict=True)))
            for r in results
        ]
        return list(dict.fromkeys(row for row in rows if row >= 0))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Kernel Tuner prints and warns while it works."""
    importlib.import_module("scipy.stats.qmc")  # draws entropy when it is first imported
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
