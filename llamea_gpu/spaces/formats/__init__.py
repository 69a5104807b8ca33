"""File formats of recordings: one file a format, found by content, never by name.

Reads: native Parquet, T4 (with an optional T1 file), Kernel Tuner caches (unclosed ones too),
Helion's ``trace.jsonl``, Helion grid files; all but the first may be gzip-compressed. Writes:
native, T4, Kernel Tuner cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from llamea_gpu.errors import SpaceError, SpaceFormatError, UnknownSpaceError
from llamea_gpu.spaces.formats._base import Reader, read_text, write_atomically
from llamea_gpu.spaces.recording import Recording

ExportFormat = Literal["native", "t4", "kernel-tuner"]

_HEAD = 1 << 16


def import_recording(
    path: Path, *, t1: Path | None = None, name: str | None = None
) -> tuple[Recording, tuple[str, ...]]:
    """Read a recording of any format.

    Args:
        path: the file.
        t1: for T4 and Kernel Tuner caches, the T1 file with values and constraints.
        name: overrides the recording's name.

    Returns:
        The recording, and warnings for people (empty when the file was whole).

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: the file cannot be imported as a whole; names position and remedy.
    """
    path = Path(path)
    if _is_parquet(path):
        from llamea_gpu.spaces.formats.native import read_native

        if t1 is not None:
            raise SpaceFormatError(
                path, "the whole file", "the native format takes no T1 file", "Leave it out."
            )
        return read_native(path, name), ()
    text = read_text(path)
    head = text[:_HEAD]
    for reader in _readers():
        if reader.recognises(head):
            return reader.read(path, text, t1, name)
    raise SpaceFormatError(
        path,
        "its beginning",
        "looks like none of native Parquet, T4, Kernel Tuner cache, Helion trace.jsonl, "
        "Helion grid",
        "Give the file that holds the measurements (a T1 file goes with its T4 file as t1).",
    )


def export_recording(recording: Recording, path: Path, fmt: ExportFormat) -> None:
    """Write a recording; the file appears whole or not at all.

    Raises:
        SpaceError: an unknown format, or a recording that the format cannot express.
    """
    path = Path(path)
    if fmt == "native":
        from llamea_gpu.spaces.formats.native import write_native

        write_atomically(path, lambda temporary: write_native(recording, temporary))
        return
    raise SpaceError(f"the format must be one of {get_args(ExportFormat)}, but got {fmt!r}")


def takes_t1(path: Path) -> bool:
    """Whether the file is of a format that a T1 file completes."""
    return not _is_parquet(path) and False


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError as error:
        raise UnknownSpaceError(
            f"a recording must be a readable file, but {path} is not: {error.strerror}"
        ) from error


def _readers() -> tuple[Reader, ...]:
    from llamea_gpu.spaces.formats.grid import GridReader

    return (GridReader(),)
