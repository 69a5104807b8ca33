"""A file is there whole, or as it was before."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamea_gpu.files import write_atomically, write_text


def test_text_is_written_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "ä\r\nb\n")
    assert path.read_bytes() == "ä\r\nb\n".encode()
    write_text(path, "other")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "other"


def test_what_fails_midway_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fill(temporary: Path) -> None:
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fill)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_that_is_taken_stays_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "first", overwrite=False)
    with pytest.raises(FileExistsError):
        write_text(path, "second", overwrite=False)
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    write_text(tmp_path / "a", "")
    assert (tmp_path / "a").stat().st_mode == other.stat().st_mode
