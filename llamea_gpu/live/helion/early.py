"""A copy of this process from before it used the GPU, from which timing starts at once.

Timing needs a process of its own with torch, Triton and Helion in it. Importing them takes some ten
seconds, forking takes none, but CUDA does not survive a fork. So a copy is made early: when a tuner
is attached to a kernel, which is hardly ever later than the first use of the GPU. It sleeps until
something is tuned, costs next to no memory, and ends with this process. Where it is too late for
one, imports are waited for.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamea_gpu.engine.template import ForkedTemplate
from llamea_gpu.engine.worker import Channel, Worker

_PROBE_S = 10.0


@dataclass(slots=True)
class _Early:
    owner: int
    template: ForkedTemplate
    folder: tempfile.TemporaryDirectory[str]


_early: list[_Early] = []


def fork_early() -> None:
    """Make the copy, unless there is one or this process uses the GPU already."""
    import helion  # noqa: F401 - to be in the copy
    import torch
    import triton  # noqa: F401 - likewise

    cuda: Any = torch.cuda  # not annotated
    if cuda.is_initialized() or (_early and _early[0].owner == os.getpid()):
        return
    _early.clear()  # of a process that this one was forked from
    folder = tempfile.TemporaryDirectory(prefix="llamea-gpu-early-")
    template = ForkedTemplate(Path(folder.name) / "template.log")
    _early.append(_Early(os.getpid(), template, folder))
    atexit.register(_end)


def early_template(log: Path) -> ForkedTemplate | None:
    """The copy, if there is one whose forks can use the GPU."""
    if not _early or _early[0].owner != os.getpid():
        return None
    template = _early[0].template
    if not template.is_alive():  # started again, it would be a copy of what this process is now
        return None
    worker = Worker(_Probe(), log, _PROBE_S, template)
    if worker.connection.poll(_PROBE_S):
        worker.receive()
    worker.stop()
    return template if worker.facts is not None and worker.facts["usable"] else None


@dataclass(frozen=True, slots=True)
class _Probe:
    """Says whether a fork can use the GPU: something may have asked the driver before."""

    def run(self, channel: Channel) -> None:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        import torch

        channel.serve({"usable": not torch.cuda._is_in_bad_fork()}, dict)


def _end() -> None:
    for early in _early:
        if early.owner == os.getpid():
            with contextlib.suppress(OSError):
                early.template.stop()
            early.folder.cleanup()
    _early.clear()
