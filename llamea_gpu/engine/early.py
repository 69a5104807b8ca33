"""A copy of this process from before it used the GPU, whose forks start at once and may use it.

What measures needs a process of its own with torch, Helion or Kernel Tuner in it. Importing them
takes some ten seconds, forking takes none, but CUDA does not survive a fork. So a copy is made
early: when a tuner is attached to a kernel, which is hardly ever later than the first use of the
GPU. It sleeps until something is tuned, costs next to no memory, and ends with this process. Where
it is too late for one, imports are waited for.

`inherited` lets forks of this process run a stage that is in its memory and cannot be pickled.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llamea_gpu.engine.nvidia import cuda_in_use
from llamea_gpu.engine.template import ForkedTemplate
from llamea_gpu.engine.worker import Channel, Stage

_early: list[_Early] = []
_stages: dict[int, Stage] = {}
_numbers = itertools.count()


@dataclass(slots=True)
class _Early:
    owner: int
    template: ForkedTemplate
    folder: tempfile.TemporaryDirectory[str]


def fork_early() -> None:
    """Make the copy, unless there is one or this process uses CUDA already."""
    if cuda_in_use() or (_early and _early[0].owner == os.getpid()):
        return
    _early.clear()  # of a process that this one was forked from
    folder = tempfile.TemporaryDirectory(prefix="llamea-gpu-early-")
    template = ForkedTemplate(Path(folder.name) / "template.log")
    _early.append(_Early(os.getpid(), template, folder))
    atexit.register(_end)


def early_template() -> ForkedTemplate | None:
    """The copy, if there is one."""
    if not _early or _early[0].owner != os.getpid():
        return None
    template = _early[0].template
    # Started again, it would be a copy of what this process is now.
    return template if template.is_alive() else None


def _end() -> None:
    for early in _early:
        if early.owner == os.getpid():
            with contextlib.suppress(OSError):
                early.template.stop()
            early.folder.cleanup()
    _early.clear()


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
