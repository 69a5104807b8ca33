"""A file is there whole, or as it was before; only regular files are read, up to a limit."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamea_gpu.cli import exchange
from llamea_gpu.errors import LlameaGpuError
from llamea_gpu.evolution.settings import read_file
from llamea_gpu.files import MAX_TEXT_BYTES, read_bytes, read_text, write_atomically, write_text
from llamea_gpu.live.scripts import framework_of
from llamea_gpu.llm.prices import load_prices
from llamea_gpu.llm.replay import load_recording
from llamea_gpu.promotion.card import Card
from llamea_gpu.recording.helion.grid import read_grid
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import load_space


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


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_TEXT_BYTES + 1)


NOT_READ = [_pipe, _socket, Path.mkdir, _endless, _large]


@pytest.mark.parametrize("make", NOT_READ)
def test_what_would_block_or_never_end_is_not_read(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "a.py"
    make(path)
    with pytest.raises(OSError, match=r"a\.py"):
        read_text(path)


def test_a_pipe_that_somebody_writes_to_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, b"text")
    with pytest.raises(OSError, match="not a regular file"):
        read_text(path)
    assert os.read(writer, 4) == b"text"  # nor taken from it
    os.close(writer)


def test_a_file_of_the_most_bytes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_bytes(path, 4)


def test_text_has_plain_line_ends_and_no_mark(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes("\ufeffa\r\nb\rc\n".encode())
    assert read_text(path) == "a\nb\nc\n"


_READERS: dict[str, Callable[[Path], object]] = {
    "a program": lambda path: resolve(str(path)),
    "an OptAlg file": lambda path: resolve(f"optalg:{path}"),
    "settings": read_file,
    "prices": load_prices,
    "a recording of answers": load_recording,
    "a grid": read_grid,
    "a card": Card.load,
    "a space": lambda path: load_space(str(path)),
    "a kernel script": framework_of,
    "an answer": lambda path: exchange.answer(path.parent, "id", path, "model"),
}


@pytest.mark.parametrize("make", [_pipe, _endless])
@pytest.mark.parametrize("what", _READERS)
def test_what_a_user_names_is_read_as_a_regular_file_only(
    tmp_path: Path, what: str, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "a.py"
    make(path)
    with pytest.raises(LlameaGpuError, match="not a regular file"):
        _READERS[what](path)
