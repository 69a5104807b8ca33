"""File formats of recordings and clouds: one file a format, found by content, never by name.

Reads: native Parquet, T4 (with an optional T1 file), Kernel Tuner caches (unclosed ones too),
Helion's ``trace.jsonl``; all but the first may be gzip-compressed. Writes:
native, T4, Kernel Tuner cache. Clouds have a native format of their own, and JSON lines to read.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from llamea_gpu.errors import SpaceError, SpaceFormatError
from llamea_gpu.files import write_atomically
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.formats._base import Reader
from llamea_gpu.spaces.formats._files import open_file, read_head, read_text
from llamea_gpu.spaces.recording import Recording

T1_NAME = "T1.json"
ExportFormat = Literal["native", "t4", "kernel-tuner"]


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
    reader = None if _is_parquet(path) else _reader(path)
    if t1 is not None and (reader is None or not reader.TAKES_T1):
        raise SpaceFormatError(
            path, "the whole file", "its format takes no T1 file", "Leave the T1 file out."
        )
    if reader is None:
        from llamea_gpu.spaces.formats.native import read_native

        return read_native(path, name), ()
    return reader.read(path, read_text(path), t1, name)


def export_recording(recording: Recording, path: Path, fmt: ExportFormat) -> None:
    """Write a recording; the file appears whole or not at all.

    The two text formats are compressed when the name ends with ``.gz``.

    Raises:
        SpaceError: an unknown format, or a recording that the format cannot express.
    """
    path = Path(path)
    write: Callable[[Recording, Path], None]
    if fmt == "native":
        from llamea_gpu.spaces.formats.native import write_native as write
    elif fmt == "t4":
        from llamea_gpu.spaces.formats.t4 import write_t4 as write
    elif fmt == "kernel-tuner":
        from llamea_gpu.spaces.formats.kernel_tuner_cache import write_kernel_tuner_cache as write
    else:
        raise SpaceError(f"the format must be one of {get_args(ExportFormat)}, but got {fmt!r}")

    def written(temporary: Path) -> None:
        write(recording, temporary)
        if path.suffix == ".gz" and fmt != "native":  # equal recordings, equal bytes
            temporary.write_bytes(gzip.compress(temporary.read_bytes(), mtime=0))

    write_atomically(path, written)


def import_cloud(path: Path, *, name: str | None = None) -> tuple[Cloud, tuple[str, ...]]:
    """Read a cloud: native, or JSON lines (gzip-compressed or not).

    Returns:
        The cloud, and warnings for people (empty when the file was whole).

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: the file cannot be imported as a whole; names position and remedy.
    """
    path = Path(path)
    if _is_parquet(path):
        from llamea_gpu.spaces.formats.native import read_native_cloud

        return read_native_cloud(path, name), ()
    from llamea_gpu.spaces.formats.cloud_lines import read_cloud_lines, recognises

    if not recognises(read_head(path)):
        raise SpaceFormatError(
            path,
            "its beginning",
            "looks like no cloud: a native one, or JSON lines of which the first names parameters",
            "Give the file that holds the measurements.",
        )
    return read_cloud_lines(path, read_text(path), name)


def export_cloud(cloud: Cloud, path: Path) -> None:
    """Write a cloud in the native format; the file appears whole or not at all.

    Raises:
        SpaceError: a parameter bears the name of a measurement column.
    """
    from llamea_gpu.spaces.formats.native import write_native_cloud

    write_atomically(Path(path), lambda temporary: write_native_cloud(cloud, temporary))


def holds_cloud(path: Path) -> bool:
    """Whether a file holds a cloud, and no recording.

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: it is damaged.
    """
    path = Path(path)
    if _is_parquet(path):
        from llamea_gpu.spaces.formats.native import is_cloud

        return is_cloud(path)
    from llamea_gpu.spaces.formats.cloud_lines import recognises

    return recognises(read_head(path))


def t1_beside(path: Path) -> Path | None:
    """The T1 file that lies beside a file of a format which it completes.

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: it is of no known format.
    """
    beside = path.parent / T1_NAME
    completes = beside.is_file() and not _is_parquet(path) and _reader(path).TAKES_T1
    return beside if completes else None


def _is_parquet(path: Path) -> bool:
    with open_file(path) as file:
        return file.read(4) == b"PAR1"


def _reader(path: Path) -> Reader:
    from llamea_gpu.spaces.formats import helion_trace, kernel_tuner_cache, t4
    from llamea_gpu.spaces.formats.cloud_lines import recognises as recognises_cloud

    # The most particular first: "results" alone is enough for T4.
    readers: tuple[Reader, ...] = (helion_trace, kernel_tuner_cache, t4)
    head = read_head(path)
    if recognises_cloud(head):
        raise SpaceFormatError(
            path,
            "its beginning",
            "this is a cloud of a whole space, and no recording: it does not hold the whole space",
            "Convert it with 'spaces import', or see it with 'spaces show'.",
        )
    for reader in readers:
        if reader.recognises(head):
            return reader
    raise SpaceFormatError(
        path,
        "its beginning",
        "looks like none of native Parquet, T4, Kernel Tuner cache, Helion trace.jsonl",
        "Give the file that holds the measurements (a T1 file goes with its T4 file as t1).",
    )
