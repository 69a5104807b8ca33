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

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.errors import TaskError
from llamea_gpu.files import read_text, write_text

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
    what losses were made with.
    """

    searcher: str
    clock: str
    budget_s: float
    runs: int
    best_ms: float
    default_ms: float
    curve: FloatArray
    standard_error: float

    def __post_init__(self) -> None:
        shaped = self.curve.ndim == 1 and np.isfinite(self.curve).all()
        if not (shaped and self.area > 0 and self.best_ms > 0 and self.default_ms > 0):
            raise TaskError(
                f"a yardstick must leave something to gain, but the area under the loss of "
                f"{self.searcher} is {self.area}"
            )

    @property
    def area(self) -> float:
        """The mean loss."""
        return float(np.mean(self.curve))


def yardstick_of(
    runs: Sequence[Timed],
    axis_s: FloatArray,
    best_ms: float,
    default_ms: float,
    *,
    searcher: str,
    clock: str,
    budget_s: float,
) -> Yardstick:
    """The yardstick that the runs of ``searcher`` are.

    Raises:
        TaskError: they leave nothing to gain.
    """
    lost = losses(runs, axis_s, best_ms, default_ms)
    areas = lost.mean(axis=1)
    spread = float(areas.std(ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else 0.0
    curve = lost.mean(axis=0)
    return Yardstick(searcher, clock, budget_s, len(runs), best_ms, default_ms, curve, spread)


def write_yardstick(yardstick: Yardstick, path: Path) -> None:
    """Keep it as JSON; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {**asdict(yardstick), "curve": yardstick.curve.tolist()}
    write_text(path, json.dumps(document) + "\n")


def read_yardstick(path: Path) -> Yardstick | None:
    """What `write_yardstick` kept; None where there is no such file, or no yardstick in it."""
    try:
        document = json.loads(read_text(path))
        curve = np.array(document.pop("curve"), dtype=np.float64)
        return Yardstick(**document, curve=curve)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, TaskError):
        return None


def losses(
    runs: Sequence[Timed], axis_s: FloatArray, best_ms: float, default_ms: float
) -> FloatArray:
    """(runs, times) log(best so far / best known) of each run along the axis."""
    curves = []
    for run in runs:
        best_so_far_ms = np.minimum.accumulate(np.r_[default_ms, run.cost_ms])
        done = np.searchsorted(run.elapsed_s, axis_s, side="right")
        curves.append(np.log(np.maximum(best_so_far_ms[done], best_ms) / best_ms))
    return np.array(curves).reshape(len(runs), axis_s.size)


def scores(loss: FloatArray, yardstick: Yardstick) -> FloatArray:
    """The score of each point of loss curves; its mean along the axis is the score."""
    return 1.0 - loss / yardstick.area
