"""Where processes of one machine share large data: memory rather than a disk, if there is room."""

from __future__ import annotations

import shutil
from pathlib import Path


def memory_folder(needed_bytes: int) -> str | None:
    """A folder in memory with room for that and much else; None where there is none."""
    memory = Path("/dev/shm")  # noqa: S108 - a private folder is made in it
    if memory.is_dir() and shutil.disk_usage(memory).free > 4 * needed_bytes + (1 << 28):
        return str(memory)
    return None
