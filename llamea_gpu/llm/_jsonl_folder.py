"""Follows a folder of JSON-lines files that somebody else is still writing.

An unchanged file costs one ``stat`` a poll; one that has changed is read again. A last line without
a line break is taken when it is a complete object and left for the next poll when it is not. Lines
that are no objects with a ``custom_id`` are reported once, with file and line.

Not here: what the records mean.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_MAX_WARNINGS = 100


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


class JsonlFolder(Generic[T]):
    """The records of every ``*.jsonl`` in ``folder``, in order of file name and line.

    ``interpret`` turns a line's object into what a record holds; it must not raise.
    """

    def __init__(self, folder: Path, interpret: Callable[[dict[str, Any]], T]) -> None:
        self.folder = folder
        self._interpret = interpret
        # By name: inode, size and time of change of what was read, and what it held.
        self._files: dict[str, tuple[tuple[int, int, int], tuple[Record[T], ...]]] = {}
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
            yield from self._files[name][1]

    def _read_new(self, name: str) -> bool:
        path = self.folder / name
        try:
            status = path.stat()
            identity = (status.st_ino, status.st_size, status.st_mtime_ns)
            if name in self._files and self._files[name][0] == identity:
                return False
            with path.open("rb") as file:
                lines = file.read().split(b"\n")
        except OSError as error:  # removed meanwhile, or unreadable: say so and look again later
            self.warn(f"{path}: cannot be read: {error.strerror}")
            return False
        self._files[name] = identity, tuple(self._taken(path, lines))
        return True

    def _taken(self, path: Path, lines: list[bytes]) -> Iterator[Record[T]]:
        """A record for each line but those that are none; the last one may still be written."""
        for number, raw in enumerate(lines, start=1):
            if not raw.strip():
                continue
            parsed = _parse(raw)
            if isinstance(parsed, dict):
                yield Record(path, number, parsed["custom_id"], self._interpret(parsed))
            elif number < len(lines):
                self.warn(f"{path}, line {number}: {parsed}; the line is ignored")


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
