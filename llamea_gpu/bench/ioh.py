"""A recording as an IOHexperimenter problem: any algorithm written for ``ioh`` runs on it.

What it does: `problem` gives an integer problem whose variables are value indices.

What it does not do: keep a budget or a clock. IOHexperimenter counts calls, so a configuration that
is asked for twice counts twice, and compile times play no part; `llamea-gpu bench` has both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamea_gpu.errors import SpaceError
from llamea_gpu.searchers.library import require
from llamea_gpu.spaces.catalogue import load_space, search_path_from_environment
from llamea_gpu.spaces.recording import Recording

if TYPE_CHECKING:
    from ioh.iohcpp.problem import IntegerSingleObjective


def problem(space: str | Recording, search_path: Sequence[Path] = ()) -> IntegerSingleObjective:
    """The recording as an ``ioh`` problem to minimise: kernel time in ms.

    ``space`` is a recording, or what names one (a shipped name, a file, or a name under
    ``search_path`` or ``LLAMEA_GPU_SPACES``). Variable j lies in 0..cardinality_j - 1. A
    configuration that is not valid, or that fails, costs ``inf``. The optimum is the recording's,
    so that ``state.final_target_found`` says when it is reached.

    Raises:
        SpaceError: nothing in the recording works.
        UnknownSpaceError: nothing answers to ``space``.
        SearcherError: ``ioh`` is not installed; the message names the extra.
    """
    require("ioh", "ioh", "an IOHexperimenter problem")
    import ioh

    if isinstance(space, Recording):
        recording = space
    else:
        recording = load_space(space, (*search_path, *search_path_from_environment()))
    configurations = recording.space
    time_ms = recording.time_ms
    if not math.isfinite(recording.optimum_ms):
        raise SpaceError(f"{recording.info.name}: a problem needs a configuration that works")
    best = list(configurations.configuration(int(time_ms.argmin())))

    def cost(x: Sequence[int]) -> float:
        row = configurations.row(tuple(x))
        return float(time_ms[row]) if row >= 0 else math.inf

    def optimum(_instance: int, _dimension: int) -> tuple[list[int], float]:
        return best, recording.optimum_ms

    wrap: Any = ioh.wrap_problem  # annotated narrower than what it takes
    made: IntegerSingleObjective = wrap(
        cost,
        name=recording.info.name,
        problem_class=ioh.ProblemClass.INTEGER,
        dimension=configurations.dimension,
        lb=0,
        ub=max(configurations.cardinalities) - 1,
        calculate_objective=optimum,
    )
    made.bounds.ub = [cardinality - 1 for cardinality in configurations.cardinalities]
    return made
