"""Bytes of recordings: reading text within bounds.

Text is bounded in bytes, and in the arrays, objects, values and lines that it can turn into,
before anything parses it. What the text means is no matter here.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from llamea_gpu.errors import SpaceFormatError, UnknownSpaceError
from llamea_gpu.files import open_regular
from llamea_gpu.spaces.quoting import quoted

# The largest public recording (117,000 configurations) is 0.4 GB of JSON text.
MAX_TEXT_BYTES = 1 << 30
# Public recordings have an array or object every 25 bytes at the most, usually every 250, and a
# comma every 8. Far more of them than that in 1 GiB would take many times the text's own memory.
_MAX_CONTAINERS = 8_000_000
_MAX_SEPARATORS = 40_000_000  # commas, and line breaks
# Recordings shrink to a fifth or a tenth under gzip; beyond the floor, far more is a bomb.
_MAX_RATIO = 200
_RATIO_FLOOR = 1 << 24
_CHUNK = 1 << 20
_HEAD = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"


def read_text(path: Path) -> str:
    """A file's text, decompressed when it is gzip, at most 1 GiB (see :func:`decoded`).

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: gzip that ends early, is damaged or swells without measure, too much
            text, or not UTF-8.
    """
    return decoded(path, b"".join(_bounded(path, _text_chunks(path))))


def decoded(path: Path, data: bytes, within: str = "") -> str:
    """UTF-8 text that will not grow beyond measure when it is parsed.

    Raises:
        SpaceFormatError: not UTF-8; more than 8 million arrays and objects, or more than 40
            million commas or lines.
    """
    counts = (
        ("arrays and objects", data.count(b"[") + data.count(b"{"), _MAX_CONTAINERS),
        ("commas", data.count(b","), _MAX_SEPARATORS),
        ("lines", data.count(b"\n"), _MAX_SEPARATORS),
    )
    for name, count, limit in counts:
        if count > limit:
            raise SpaceFormatError(
                path,
                within or "the whole file",
                f"a recording may hold at most {limit} {name}, but this has {count}",
                "Split it, or convert it to the native format elsewhere.",
            )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpaceFormatError(
            path,
            f"{within}, byte {error.start}".removeprefix(", "),
            "not UTF-8 text",
            "Convert it with 'iconv -t UTF-8'.",
        ) from error


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """A regular file opened for reading: a pipe or a device could block or never end.

    Raises:
        UnknownSpaceError: there is no such file, or it cannot be read.
    """
    rule = "a recording must be a readable file, but"
    name = str(path) if len(str(path)) <= 1000 else quoted(str(path))
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        raise UnknownSpaceError(f"{rule} {name} is not: {error.strerror}") from error
    except ValueError as error:  # a NUL character in the path
        raise UnknownSpaceError(f"{rule} {quoted(str(path))} is not: {error}") from error


def read_head(path: Path) -> str:
    """The first 64 kB of a file's text, enough to recognise its format.

    Raises:
        UnknownSpaceError: there is no such file.
    """
    return next(_text_chunks(path), b"")[:_HEAD].decode("utf-8", errors="replace")


def _bounded(path: Path, chunks: Iterator[bytes]) -> Iterator[bytes]:
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > MAX_TEXT_BYTES:
            raise SpaceFormatError(
                path,
                f"byte {total} of its text",
                f"a recording may hold at most {MAX_TEXT_BYTES} bytes of text",
                "Split it, or convert it to the native format elsewhere.",
            )
        yield chunk


def _text_chunks(path: Path) -> Iterator[bytes]:
    """A file's bytes in pieces, decompressed when it is gzip."""
    with open_file(path) as file:
        compressed = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        plain = iter(lambda: file.read(_CHUNK), b"")
        yield from _inflate(path, file) if compressed else plain


def _inflate(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """Decompress gzip members in pieces of bounded size."""
    unpacked = gzip.GzipFile(fileobj=file)
    text_bytes = 0

    def refusal(problem: str, remedy: str) -> SpaceFormatError:
        position = f"compressed byte {file.tell()}, text byte {text_bytes}"
        return SpaceFormatError(path, position, problem, remedy)

    while True:
        try:
            piece = unpacked.read1(_CHUNK)
        except EOFError as error:
            raise refusal(
                "the gzip data end early: the file is truncated",
                "Get the whole file again and compare its size or checksum with the source.",
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise refusal(f"damaged gzip data ({error})", "Get the file again.") from error
        if not piece:
            return
        text_bytes += len(piece)
        if text_bytes > max(_RATIO_FLOOR, _MAX_RATIO * file.tell()):
            raise refusal(
                f"gzip data that swell more than {_MAX_RATIO}-fold are no recording",
                "Get the file again, or decompress it yourself.",
            )
        yield piece
