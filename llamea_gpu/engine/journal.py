"""An append-only journal of measurements: what is killed, recorder or tuner, loses nothing.

JSON lines: the first identifies what is measured, each further one is one measurement. A line cut
short by a crash is dropped when the journal is opened again. It knows nothing of frameworks.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from time import monotonic
from typing import Any

from llamea_gpu.errors import RecordingError
from llamea_gpu.spaces.quoting import quoted

_SYNC_EVERY_S = 1.0


class Journal:
    """An open journal. ``entries`` are the measurements of earlier runs and of this one."""

    def __init__(self, file: FileIO, entries: list[dict[str, Any]]) -> None:
        self._file = file
        self._synced_at = monotonic()
        self.entries = entries

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one measurement; on disk at the latest with the first one a second later.

        Raises:
            OSError: there is no room, or the disk fails. The journal holds what it held before.
        """
        _append(self._file, entry)  # survives this process; the disk's turn comes with fsync
        self.entries.append(dict(entry))
        if monotonic() - self._synced_at >= _SYNC_EVERY_S:
            self.sync()

    def sync(self) -> None:
        """Have everything on disk."""
        os.fsync(self._file.fileno())
        self._synced_at = monotonic()


def journal_path(output: Path) -> Path:
    """Where the journal of what becomes ``output`` lies: beside it."""
    return output.with_name(output.name + ".journal")


@contextmanager
def open_journal(
    path: Path, identity: Mapping[str, Any], may_differ: Collection[str] = ()
) -> Iterator[Journal]:
    """Open or begin the journal of what ``identity`` (JSON values) describes.

    ``may_differ`` are keys of it that are written and not compared.

    Raises:
        RecordingError: the journal is of something else, is damaged in the middle, is in use, or
            cannot be written.
    """
    try:
        opened = path.open("a+b", buffering=0)
    except OSError as error:
        raise RecordingError(
            f"a journal must be a file that can be written, but {path}: {error}"
        ) from error
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RecordingError(
                f"one process may write a journal, but another one has {path} open: wait for it"
            ) from error
        lines = _whole_lines(file)
        if lines:
            _check_identity(path, lines[0], identity, may_differ)
        else:
            _append(file, identity)
        journal = Journal(file, lines[1:])
        journal.sync()
        try:
            yield journal
        finally:
            journal.sync()


def is_number(value: Any, least: float, most: float) -> bool:
    """Whether an entry's value is a number from ``least`` to ``most``."""
    return type(value) in (int, float) and least <= value <= most


def unsound(entry: Mapping[str, Any], path: Path, number: int) -> RecordingError:
    """The error of a tuning's journal whose line of that number no run would have written."""
    return RecordingError(
        f"a journal must hold configurations of its space with status, times and seconds, but "
        f"line {number} of {path} is {quoted(dict(entry))}: remove the line, or the file to begin "
        f"anew"
    )


def _append(file: FileIO, entry: Mapping[str, Any]) -> None:
    """Write a line, or nothing."""
    line = json.dumps(entry).encode() + b"\n"
    end = file.seek(0, os.SEEK_END)
    try:
        written = 0
        while written < len(line):  # a disk that is nearly full takes a part of it
            written += file.write(line[written:])
    except OSError:
        file.truncate(end)
        raise


def _whole_lines(file: FileIO) -> list[dict[str, Any]]:
    """Parse the journal and cut off a last line that was never finished."""
    file.seek(0)
    data = file.read()
    end = data.rfind(b"\n") + 1
    file.truncate(end)
    file.seek(end)
    lines = []
    for number, line in enumerate(data[:end].splitlines(), start=1):
        try:
            parsed = json.loads(line)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise RecordingError(
                f"a journal must hold one JSON object a line, but line {number} of {file.name} "
                f"does not: remove the file to begin anew"
            )
        lines.append(parsed)
    return lines


def _check_identity(
    path: Path, header: Mapping[str, Any], expected: Mapping[str, Any], may_differ: Collection[str]
) -> None:
    # What JSON makes of it, so that tuples equal lists.
    expected = json.loads(json.dumps(expected))
    compared = {*header, *expected}.difference(may_differ)
    differing = sorted(key for key in compared if header.get(key) != expected.get(key))
    if differing:
        key = differing[0]
        raise RecordingError(
            f"a journal continues with what it began with, but {path} differs in "
            f"{', '.join(differing)} ({key}: {quoted(header.get(key))}, now "
            f"{quoted(expected.get(key))}): restore that, name another file, or "
            f"remove the journal to begin anew"
        )
