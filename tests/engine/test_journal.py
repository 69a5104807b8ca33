"""The journal on a disk that fills up."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from llamea_gpu.engine.journal import open_journal


class Nearly:
    """A file on a disk with room for so many more bytes."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self.room = file, room

    def write(self, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = data[: self.room]
        self.room -= len(taken)
        return int(self._file.write(taken))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("room", [0, 4])
def test_a_line_that_does_not_fit_leaves_the_journal_whole(tmp_path: Path, room: int) -> None:
    path = tmp_path / "journal"
    with open_journal(path, {"of": "this"}) as journal:
        journal.append({"n": 1})
        kept = path.read_bytes()
        journal._file = disk = Nearly(journal._file, room)  # type: ignore[assignment]
        with pytest.raises(OSError, match="No space left"):
            journal.append({"n": 2})
        assert path.read_bytes() == kept
        disk.room = 100
        journal.append({"n": 3})
        assert journal.entries == [{"n": 1}, {"n": 3}]
    with open_journal(path, {"of": "this"}) as journal:
        assert journal.entries == [{"n": 1}, {"n": 3}]
