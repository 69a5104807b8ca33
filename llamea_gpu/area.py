"""The score on modelled whole spaces: the area under a searcher's log regret (docs/adr/0005).

What it does: turns runs into loss curves, and losses into a score against a yardstick.

What it does not do: run anything, or the published score of recordings (`llamea_gpu.scoring`).

The loss of a run at a time is log(best so far / best known): 0.01 is one per cent. Until a run has
found something better, its best so far is the kernel's default, which is there without tuning; a
time below the best known counts as the best known. The loss of a searcher is the mean over its
runs, its area the mean over the time axis, and its score 1 - area / (the yardstick's area): 1 is
the best known at once, 0 is the yardstick, Helion's LFBOTreeSearch at full effort under Helion's
own clock, and below 0 is worse than that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.errors import TaskError

FloatArray = NDArray[np.float64]


class Timed(Protocol):
    """A run's visits."""

    @property
    def elapsed_s(self) -> FloatArray:
        """(n,) when each was done."""

    @property
    def cost_ms(self) -> FloatArray:
        """(n,) with inf for a failed one."""


@dataclass(frozen=True, slots=True, eq=False)
class Yardstick:
    """What a score of 0 is, for one space and budget.

    ``searcher`` and ``clock`` are what was run, ``runs`` how often, ``curve`` (1000,) its loss
    along the axis, ``standard_error`` that of the curve's mean. ``best_ms`` and ``default_ms`` are
    what losses were made with; ``fingerprint`` is that of the space's costs.
    """

    searcher: str
    clock: str
    budget_s: float
    runs: int
    best_ms: float
    default_ms: float
    curve: FloatArray
    standard_error: float
    fingerprint: str

    def __post_init__(self) -> None:
        if not (np.isfinite(self.curve).all() and self.area > 0):
            raise TaskError(
                f"a yardstick must leave something to gain, but the area under the loss of "
                f"{self.searcher} is {self.area}"
            )

    @property
    def area(self) -> float:
        """The mean loss."""
        return float(np.mean(self.curve))


def losses(
    runs: Sequence[Timed], axis_s: FloatArray, best_ms: float, default_ms: float
) -> FloatArray:
    """(runs, times) log(best so far / best known) of each run along the axis."""
    found = []
    for run in runs:
        best_so_far_ms = np.minimum.accumulate(np.r_[default_ms, run.cost_ms])
        done = np.searchsorted(run.elapsed_s, axis_s, side="right")
        found.append(np.log(np.maximum(best_so_far_ms[done], best_ms) / best_ms))
    return np.array(found).reshape(len(runs), axis_s.size)


def scores(loss: FloatArray, yardstick: Yardstick) -> FloatArray:
    """The score of each point of loss curves; its mean along the axis is the score."""
    return 1.0 - loss / yardstick.area


def digest(*parts: bytes) -> str:
    """SHA-256 of what a yardstick was made with, in hexadecimal."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
