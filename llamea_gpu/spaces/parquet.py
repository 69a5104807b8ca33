"""Opening Parquet files from elsewhere: the footer is bounded before anything parses it."""

from __future__ import annotations

import io
from typing import Any

import pyarrow.parquet as pq

# The footers of the recordings that ship have 32 kB. A parsed one takes several times its length.
MAX_FOOTER_BYTES = 1 << 24
_MAX_ITEMS = 1 << 16  # of any list in it: columns, row groups, entries of metadata
_TAIL = 8  # the footer's length, and four letters


def open_parquet(data: bytes, **options: Any) -> pq.ParquetFile:
    """The Parquet file in ``data``; ``options`` are those of ``pyarrow.parquet.ParquetFile``.

    Raises:
        ValueError: the footer is too large.
        OSError: not a whole Parquet file, or a list or text in the footer is too long.
    """
    footer = int.from_bytes(data[-_TAIL:][:4], "little")
    if len(data) > _TAIL and footer > MAX_FOOTER_BYTES:
        raise ValueError(
            f"a footer has at most {MAX_FOOTER_BYTES:,} bytes, but this one {footer:,}"
        )
    return pq.ParquetFile(
        io.BytesIO(data),
        page_checksum_verification=True,
        thrift_string_size_limit=MAX_FOOTER_BYTES,
        thrift_container_size_limit=_MAX_ITEMS,
        **options,
    )
