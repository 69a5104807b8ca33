"""A cloud of a kernel that is a formula: a model's answers can be compared with the truth."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.recording import STATUSES
from support.clouds import small_cloud

NAMES = (
    "block_sizes[0]",
    "block_sizes[1]",
    "num_warps",
    "num_stages",
    "indexing[0]",
    "indexing[1]",
)
VALUES: tuple[tuple[Any, ...], ...] = (
    (16, 32, 64, 128, 256),
    (16, 32, 64, 128, 256),
    (1, 2, 4, 8, 16),
    (1, 2, 3, 4),
    ("pointer", "tensor_descriptor"),
    ("pointer", "tensor_descriptor"),
)
FAILS = STATUSES.index("runtime_error")


def truth(c: Any) -> tuple[int, float, float]:
    """Status, time in ms and seconds to compile: tiles too large for shared memory fail."""
    tile = c[0] + c[1]
    if tile + c[3] > 9:
        return FAILS, math.inf, 1.5
    time_ms = 0.1 * math.exp(0.3 * abs(tile - 5) + 0.2 * abs(c[2] - tile / 2) + 0.1 * c[3])
    return 0, time_ms * (0.95 if c[4] else 1.0), 0.2 + 0.1 * tile


def formula_cloud(rows: int = 400, *, noise: float = 0.003, runs: int = 1, seed: int = 0) -> Cloud:
    """Measurements of random configurations; each has the code of its twin in ``indexing[1]``.

    Runs after the first are slower by 1 % each.
    """
    rng = np.random.default_rng(seed)
    cells = np.stack([rng.integers(len(v), size=rows) for v in VALUES], axis=1)
    found = [truth(c) for c in cells]
    run = np.arange(rows) * runs // rows
    status = np.array([f[0] for f in found])
    factor = np.exp(noise * rng.standard_normal(rows)) * 1.01**run
    times = np.where(status == 0, [f[1] for f in found] * factor, np.nan)
    codes = ["" if f[0] else str(tuple(c[:5].tolist())) for f, c in zip(found, cells, strict=True)]
    cloud = small_cloud()
    return replace(
        cloud,
        info=replace(cloud.info, name="formula", default_configuration=None),
        names=NAMES,
        values=VALUES,
        ordinal=(True, True, True, True, False, False),
        default=None,
        starts=((0,) * 6,),
        runs=({},) * runs,
        configurations=cells,
        statuses=status,
        times_ms=times,
        low_ms=times * 0.998,
        high_ms=times * 1.002,
        compile_s=np.array([f[2] for f in found]),
        benchmark_s=np.where(status == 0, 0.03, 0.0),
        control_ms=np.full(rows, np.nan),
        source=np.array(codes),
        how=np.array(["random", "near", "cross"])[np.arange(rows) % 3],
        run=run,
        at_s=np.arange(rows) / 10.0,
    )
