"""A copy of this process with Helion in it; see :mod:`llamea_gpu.engine.early`."""

from __future__ import annotations

from llamea_gpu.engine import early


def fork_early() -> None:
    """Make the copy, unless there is one or this process uses the GPU already."""
    import helion  # noqa: F401 - to be in the copy
    import torch  # noqa: F401 - likewise
    import triton  # noqa: F401 - likewise

    early.fork_early()
