"""Recordings small enough for a test, with costs whose optimum is known."""

from __future__ import annotations

import itertools

import numpy as np

from llamea_gpu.spaces.recording import Recording, RecordingInfo

NAMES = ("block", "warps", "stages", "mode")
VALUES = ((16, 32, 64, 128, 256), (1, 2, 4, 8), (1, 2, 3), ("flat", "persistent"))


def small_recording(name: str = "small", *, seed: int = 0, workers: int = 1) -> Recording:
    """120 configurations, one optimum, one failure in twelve, compile times of about a second."""
    rng = np.random.default_rng(seed)
    grid = np.array(list(itertools.product(*(range(len(values)) for values in VALUES))))
    target = np.array([2, 1, 1, 0])
    time_ms = 1.0 + 0.3 * np.abs(grid - target).sum(axis=1) + rng.uniform(0, 0.05, len(grid))
    failed = rng.random(len(grid)) < 1 / 12
    failed[np.flatnonzero((grid == target).all(axis=1))] = False
    time_ms[failed] = np.inf
    return Recording.from_rows(
        names=NAMES,
        values=VALUES,
        configurations=grid,
        time_ms=time_ms,
        compile_s=rng.uniform(0.5, 1.5, len(grid)),
        benchmark_s=np.where(failed, 0.0, 0.07),
        status=np.where(failed, 1, 0).astype(np.uint8),
        info=RecordingInfo(
            name=name,
            kernel="toy",
            device="test device",
            framework="test",
            default_configuration=None,
            references_ms={},
            parallel_workers=workers,
            provenance={},
            exhaustive=True,
        ),
    )
