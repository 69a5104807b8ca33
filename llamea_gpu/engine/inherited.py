"""Stages that cannot be pickled: a :class:`ForkedTemplate`'s forks have them in memory already."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llamea_gpu.engine.worker import Channel, Stage

_stages: dict[int, Stage] = {}
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Inherited:
    """A stage that stands in for one of the process that this one was forked from."""

    number: int

    def run(self, channel: Channel) -> None:
        """Run the stage itself; see :class:`llamea_gpu.engine.worker.Stage`."""
        _stages[self.number].run(channel)


@contextmanager
def inherited(stage: Stage) -> Iterator[Inherited]:
    """A stand-in for ``stage`` in forks of this process that are made inside the ``with`` block."""
    number = next(_numbers)
    _stages[number] = stage
    try:
        yield Inherited(number)
    finally:
        del _stages[number]
