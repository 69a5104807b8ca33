"""The best of a search, read again side by side at one device, while nothing compiles.

A timing stage that can do so takes a task with ``paths`` of compiled code and ``seconds``, and
answers with ``standings``: those of :class:`llamea_gpu.engine.side_by_side.Standing`, as lists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import starmap
from time import monotonic
from typing import Any

from llamea_gpu.engine.pipeline import Pipeline, Task
from llamea_gpu.engine.side_by_side import Standing

LEAST_READING_S = 0.5
_PATIENCE_S = 5.0  # beyond what it was told to take
_UNREAD = Standing(math.inf, math.inf, math.inf, 0)


def standings_of(pipeline: Pipeline, paths: Sequence[str], seconds: float) -> list[Standing] | None:
    """How compiled code stands; one for each path, None where it did not work.

    ``paths`` may be empty where there is no code, and the same where code is equal.

    Raises:
        RecordingError: the pipeline cannot go on.
    """
    known = list(dict.fromkeys(filter(None, paths)))
    answer = pipeline.alone({"paths": known, "seconds": seconds}, seconds + _PATIENCE_S)
    if answer is None:
        return None
    standings = dict(zip(known, starmap(Standing, answer["standings"]), strict=True))
    return [standings.get(path, _UNREAD) for path in paths]


def compiled_and_read(
    payloads: Sequence[Mapping[str, Any]], seconds: float, pipeline: Pipeline
) -> list[Standing] | None:
    """The same of configurations that this pipeline may have to compile first.

    ``seconds`` are for both, and at least `LEAST_READING_S` for reading.

    Raises:
        RecordingError: the pipeline cannot go on.
    """
    until = monotonic() + seconds
    tasks = {-2 - place: payload for place, payload in enumerate(payloads)}  # points of no others
    paths = {
        outcome.point: str(outcome.details["path"])
        for outcome in pipeline.run([Task(point, payload) for point, payload in tasks.items()])
        if outcome.point in tasks and outcome.status == "ok"
    }
    left_s = max(LEAST_READING_S, until - monotonic())
    return standings_of(pipeline, [paths.get(point, "") for point in tasks], left_s)
