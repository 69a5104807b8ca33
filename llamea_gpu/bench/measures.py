"""What one run is worth besides P: when it came near the optimum, and what failed.

What it does not do: average over runs (`llamea_gpu.bench.analysis` does).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llamea_gpu.bench.plan import SpaceInfo
from llamea_gpu.tasks import Trace

TARGETS_PERCENT = (10, 5, 1)  # above the optimum


@dataclass(frozen=True, slots=True)
class Hit:
    """The first configuration within a target: the how many-th evaluation, and when it was done."""

    evaluations: int
    elapsed_s: float


def first_hit(space: SpaceInfo, trace: Trace, percent: float) -> Hit | None:
    """When ``trace`` first came within ``percent`` % of the optimum; None if it never did."""
    near = trace.cost_ms <= space.optimum_ms * (1 + percent / 100)
    if not near.any():
        return None
    first = int(np.argmax(near))
    return Hit(first + 1, float(trace.elapsed_s[first]))


def failed_evaluations(trace: Trace) -> int:
    """How many configurations were tried that do not work."""
    return int(np.count_nonzero(np.isinf(trace.cost_ms)))
