"""Recordings whose every number a test chooses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llamea_gpu.spaces.recording import STATUSES, Recording, RecordingInfo


def line_recording(
    costs_ms: Sequence[float],
    *,
    compile_s: float | Sequence[float] = 0.75,
    benchmark_s: float | Sequence[float] = 0.25,
    workers: int = 1,
) -> Recording:
    """One parameter with a value for each cost: row i costs ``costs_ms[i]``, inf is a failure."""
    count = len(costs_ms)
    failed = np.isinf(np.array(costs_ms))
    return Recording.from_rows(
        names=("x",),
        values=(tuple(range(count)),),
        configurations=np.arange(count)[:, None],
        time_ms=costs_ms,
        compile_s=np.broadcast_to(compile_s, count),
        benchmark_s=np.broadcast_to(benchmark_s, count),
        status=np.where(failed, STATUSES.index("compile_error"), 0).astype(np.uint8),
        info=RecordingInfo(
            name="line",
            kernel="toy",
            device="none",
            framework="none",
            parallel_workers=workers,
            exhaustive=True,
        ),
    )
