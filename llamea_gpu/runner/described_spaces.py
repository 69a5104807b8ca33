"""``space`` of the contract for a library's searcher, with what a tuner knows of a live kernel.

Its default configuration and a description, but no measurement. A sandboxed candidate gets neither:
it sees the plain `SpaceView`, or of a whole space what `llamea_gpu.sandbox.remote_space` asks for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from llamea_gpu.contract import Configuration, KernelFacts, Value
from llamea_gpu.frameworks.helion.notes import notes_on
from llamea_gpu.frameworks.helion.whole import BoundSpace
from llamea_gpu.modelled import Run, WholeTask
from llamea_gpu.searchers.described import DescribedSpace
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.spaces.space import SpaceView


class RecordedSpace(SpaceView):
    """A `SpaceView` of a recording's space.

    ``facts`` say where the recording comes from, without its reference times. Their default is the
    valid configuration nearest to the one that the recorded tuner starts from; None when the
    recording names none, or one with a categorical value that the space does not hold.
    """

    __slots__ = ("facts",)

    def __init__(self, recording: Recording, rng: np.random.Generator) -> None:
        super().__init__(recording.space, rng)
        self.facts = KernelFacts(
            replace(recording.info, references_ms={}), _default_configuration(recording)
        )


class WholeSpace(DescribedSpace):
    """The whole space of a modelled task, in one run."""

    def __init__(self, task: WholeTask, run: Run, rng: np.random.Generator) -> None:  # noqa: ARG002
        space = run.places.space
        facts = KernelFacts(
            info=replace(task.info, references_ms={}),
            default=task.cloud.default,
            notes=notes_on(space.names),
            bound=BoundSpace(run.kernel, space),
        )
        super().__init__(space, facts)


def _default_configuration(recording: Recording) -> Configuration | None:
    space, named = recording.space, recording.info.default_configuration
    if named is None or not set(space.names) <= set(named):
        return None
    indices = []
    for name, values, ordinal in zip(space.names, space.values, space.ordinal, strict=True):
        index = _nearest(values, ordinal, named[name])
        if index is None:
            return None
        indices.append(index)
    return space.configuration(space.repair_row(indices))


def _nearest(values: Sequence[Value], ordinal: bool, wanted: Value) -> int | None:
    """Index of ``wanted``, or of the number nearest to it in an ordinal parameter."""
    if wanted in values:
        return values.index(wanted)
    if ordinal and type(wanted) in (int, float):
        with contextlib.suppress(OverflowError):  # an integer that no double holds
            distances = [abs(cast("float", value) - cast("float", wanted)) for value in values]
            return distances.index(min(distances))
    return None
