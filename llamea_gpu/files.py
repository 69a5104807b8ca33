"""Writes files that are whole or absent, whenever the process dies.

A temporary neighbour is filled, synced and then renamed. Its name begins with a dot, so that those
who list a folder by pattern skip it. Not here: appending, locking, reading.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: Path, fill: Callable[[Path], None], *, overwrite: bool = True) -> None:
    """Let ``fill`` write a temporary file beside ``path``, then give it that name.

    Raises:
        FileExistsError: something has the name, and ``overwrite`` is False.
        OSError: the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # Created as any file is, so that the umask decides who may read it.
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    try:
        fill(temporary)
        os.fsync(handle)
        if overwrite:
            temporary.replace(path)
        else:
            os.link(temporary, path)  # unlike a rename, it fails where the name is taken
        _sync_folder(path.parent)
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, overwrite: bool = True) -> None:
    """Write ``text`` as UTF-8, its line ends as they are; raises what `write_atomically` does."""
    data = text.encode()

    def fill(temporary: Path) -> None:
        temporary.write_bytes(data)

    write_atomically(path, fill, overwrite=overwrite)


def _sync_folder(folder: Path) -> None:
    """The new name itself must survive a power cut too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
