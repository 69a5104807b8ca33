"""Follows a folder of JSON-lines files that somebody else is still writing.

A poll reads only what is new: an unchanged file costs one ``stat``. A last line without a line
break is taken when it is a complete object and left for the next poll when it is not. A file that
was replaced, cut or rewritten is read again from its start, and what it held before is forgotten.
Lines that are no objects with a ``custom_id`` are reported once, with file and line.

Not here: what the records mean.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_MAX_WARNINGS = 100
_TAIL_BYTES = 256


@dataclass(frozen=True, slots=True)
class Record(Generic[T]):
    """One line: where it stands, whom it concerns and what it says."""

    path: Path
    line: int
    custom_id: str
    value: T

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.path}, line {self.line}"


@dataclass(slots=True)
class _Followed(Generic[T]):
    """How far one file has been read."""

    identity: tuple[int, int, int] = (0, 0, 0)  # inode, size, time of change at the last read
    offset: int = 0
    lines: int = 0
    tail: bytes = b""  # what stood before offset: a rewritten file has something else there
    records: list[Record[T]] = field(default_factory=list)


class JsonlFolder(Generic[T]):
    """The records of every ``*.jsonl`` in ``folder``, in order of file name and line.

    ``interpret`` turns a line's object into what a record holds; it must not raise.
    """

    def __init__(self, folder: Path, interpret: Callable[[dict[str, Any]], T]) -> None:
        self.folder = folder
        self._interpret = interpret
        self._files: dict[str, _Followed[T]] = {}
        self._warnings: dict[str, None] = {}  # an ordered set

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was wrong with lines; the first hundred, then how many more there were."""
        shown = tuple(self._warnings)[:_MAX_WARNINGS]
        more = len(self._warnings) - len(shown)
        return (*shown, f"{more} more warnings about {self.folder}") if more else shown

    def warn(self, warning: str) -> None:
        """Add a warning, once."""
        self._warnings[warning] = None

    def poll(self) -> bool:
        """Read what is new; True when there was anything.

        Raises:
            OSError: the folder cannot be listed.
        """
        with os.scandir(self.folder) as entries:
            present = sorted(entry.name for entry in entries if _is_data(entry))
        gone = self._files.keys() - set(present)
        for name in gone:
            del self._files[name]
        changed = [name for name in present if self._read_new(name)]
        return bool(gone or changed)

    def records(self) -> Iterator[Record[T]]:
        """All records read so far."""
        for name in sorted(self._files):
            yield from self._files[name].records

    def _read_new(self, name: str) -> bool:
        path = self.folder / name
        followed = self._files.setdefault(name, _Followed())
        try:
            status = path.stat()
            identity = (status.st_ino, status.st_size, status.st_mtime_ns)
            if identity == followed.identity:
                return False
            with path.open("rb") as handle:
                handle.seek(max(0, followed.offset - len(followed.tail)))
                if handle.read(len(followed.tail)) != followed.tail:
                    followed = self._files[name] = _Followed()
                    handle.seek(0)
                for raw in handle:
                    if not self._take(path, followed, raw):
                        break
        except OSError as error:  # removed meanwhile, or unreadable: say so and look again later
            self.warn(f"{path}: cannot be read: {error.strerror}")
            return False
        followed.identity = identity
        return True

    def _take(self, path: Path, followed: _Followed[T], raw: bytes) -> bool:
        """Take one line; False when it is still being written."""
        ended = raw.endswith(b"\n")
        if raw.strip():
            parsed = _parse(raw)
            if isinstance(parsed, dict):
                followed.records.append(
                    Record(path, followed.lines + 1, parsed["custom_id"], self._interpret(parsed))
                )
            elif ended:
                self.warn(f"{path}, line {followed.lines + 1}: {parsed}; the line is ignored")
            else:
                return False
        followed.offset += len(raw)
        followed.lines += ended
        followed.tail = (followed.tail + raw)[-_TAIL_BYTES:]
        return True


def _is_data(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(".jsonl") and not entry.name.startswith(".") and entry.is_file()


def _parse(raw: bytes) -> dict[str, Any] | str:
    """The object of a line, or what is wrong with it."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(data, dict) or not isinstance(data.get("custom_id"), str):
        return "not an object with a custom_id"
    return data
