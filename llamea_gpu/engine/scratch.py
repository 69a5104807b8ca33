"""Where processes of one machine share large data: memory rather than a disk, if there is room.

The folder goes with its owner: what a killed one has left, the next one removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108 - private folders are made in it
_PREFIX = "llamea-gpu-tune-"
_OWNED = "owned"  # a file that the owner has locked: not its forks, as `flock` would


@contextlib.contextmanager
def scratch_folder(needed_bytes: int) -> Iterator[Path]:
    """A private folder, in memory where there is room for that and much else.

    Raises:
        OSError: it cannot be made.
    """
    base, own_prefix = Path(tempfile.gettempdir()), f"{_PREFIX}{os.getpid()}-"
    for place in filter(Path.is_dir, (_MEMORY, base)):
        _remove_ownerless(place, own_prefix)
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 * needed_bytes + (1 << 28):
        base = _MEMORY
    with (
        tempfile.TemporaryDirectory(prefix=own_prefix, dir=base) as name,
        (Path(name) / "draft").open("w") as owned,
    ):
        fcntl.lockf(owned, fcntl.LOCK_EX)
        (Path(name) / "draft").rename(Path(name) / _OWNED)  # from now on it is looked at
        yield Path(name)


def _remove_ownerless(place: Path, own_prefix: str) -> None:
    """Remove folders whose owner has ended."""
    for lock in place.glob(f"{_PREFIX}*/{_OWNED}"):
        if lock.parent.name.startswith(own_prefix):  # a process may lock again what it has locked
            continue
        with contextlib.suppress(OSError), lock.open("a") as file:  # somebody else's
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
