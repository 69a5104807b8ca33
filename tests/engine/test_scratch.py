"""Folders for large data: one's own, and what a killed process has left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from llamea_gpu.engine import scratch


def test_what_a_killed_owner_left_is_removed_and_what_is_owned_is_not() -> None:
    reading, writing = os.pipe()
    owner = os.fork()
    if not owner:
        with scratch.scratch_folder(0) as mine:
            os.write(writing, str(mine).encode())
            signal.pause()
    theirs = Path(os.read(reading, 1000).decode())
    try:
        with scratch.scratch_folder(0) as first, scratch.scratch_folder(0) as second:
            assert len({first, second, theirs}) == 3
            assert all(folder.is_dir() for folder in (first, second, theirs))
    finally:
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
        os.close(reading)
        os.close(writing)
    assert theirs.is_dir()
    with scratch.scratch_folder(0):
        assert not theirs.exists()
    assert not first.exists()


def test_what_does_not_fit_into_memory_is_on_the_disk(tmp_path: Path) -> None:
    with scratch.scratch_folder(1 << 60) as folder:
        assert folder.parent != scratch._MEMORY
