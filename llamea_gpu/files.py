"""Writes files that are whole or absent, whenever the process dies, and reads files within bounds.

For writing, a temporary neighbour is filled, synced and then renamed. Its name begins with a dot,
so that those who list a folder by pattern skip it. What is read must be a regular file: a pipe
would block, a device may never end. Not here: appending, locking, what the bytes mean.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

MAX_TEXT_BYTES = 1 << 20  # of a program, of settings: far more than anybody writes by hand


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


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """A regular file opened for reading.

    Raises:
        OSError: it cannot be opened, or is a folder, pipe, socket or device.
        ValueError: a NUL character in the path.
    """
    # What was opened is looked at, not what had the name before; opening a pipe does not wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            problem = "not a regular file, but a directory, pipe or device"
            raise OSError(errno.EINVAL, problem, str(path))
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_bytes(path: Path, limit: int) -> bytes:
    """All of a regular file of at most ``limit`` bytes.

    Raises:
        OSError: as `open_regular`, or the file is larger.
        ValueError: a NUL character in the path.
    """
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", str(path))
    return data


def read_text(path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """The same as UTF-8 text, with "\\n" line ends and without a byte order mark.

    Raises:
        OSError: as `read_bytes`.
        ValueError: not UTF-8, or a NUL character in the path.
    """
    text = read_bytes(path, limit).decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _sync_folder(folder: Path) -> None:
    """The new name itself must survive a power cut too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
