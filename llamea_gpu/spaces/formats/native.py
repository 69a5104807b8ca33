"""The native format: one Parquet file a space.

One row a configuration: a column for each parameter's value index, then ``time_ms`` (inf where it
failed), ``compile_s``, ``benchmark_s`` and ``status``. Everything else is one JSON object in the
schema's metadata under ``llamea_gpu``, with a format version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from llamea_gpu.errors import SpaceError, SpaceFormatError
from llamea_gpu.spaces.formats._base import MAX_ROWS, Fields, format_errors, parse_json
from llamea_gpu.spaces.formats._files import MAX_TEXT_BYTES, decoded, open_file
from llamea_gpu.spaces.formats._info import (
    info_from_json,
    info_to_json,
    parameters_from_json,
    parameters_to_json,
)
from llamea_gpu.spaces.parquet import open_parquet
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.recording import STATUSES, Recording

FORMAT_VERSION = 1
_KEY = b"llamea_gpu"
_MEASUREMENTS = ("time_ms", "compile_s", "benchmark_s")
_RESERVED = (*_MEASUREMENTS, "status")
_MAX_CELLS = 1 << 26  # 512 MiB as int64: the numbers of all columns together


def read_native(path: Path, name: str | None = None) -> Recording:
    """Read a native recording.

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: not Parquet, not a recording, of another version, a missing column, an
            index out of range, or measurements that break the rules of :class:`Recording`.
    """
    with open_file(path) as opened:
        # Read by Python: a file that another process replaces meanwhile cannot tear the read.
        data = opened.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise SpaceFormatError(
            path,
            "the whole file",
            f"a recording may hold at most {MAX_TEXT_BYTES} bytes",
            "Split the recording.",
        )
    with _parquet_errors(path, "the Parquet footer"):
        present = open_parquet(data).metadata.schema.names
        # Status words stay a dictionary: written out, one long word in it would fill the memory.
        dictionaries = [name for name in ("status",) if name in present]
        file = open_parquet(data, read_dictionary=dictionaries)
        raw = (file.schema_arrow.metadata or {}).get(_KEY)
    header = _header(path, raw)
    names, values = parameters_from_json(header)
    info = info_from_json(header, name)
    columns = _columns(path, file, names)
    with format_errors(path):
        return Recording.from_rows(
            names,
            values,
            np.stack([columns[n] for n in names], axis=1) if names else np.empty((0, 0), int),
            columns["time_ms"],
            columns["compile_s"],
            columns["benchmark_s"],
            columns["status"],
            info,
        )


def write_native(recording: Recording, path: Path) -> None:
    """Write a native recording to ``path`` (not atomically: see ``export_recording``).

    Raises:
        SpaceError: a parameter bears the name of a measurement column.
    """
    space = recording.space
    taken = sorted(set(space.names) & set(_RESERVED))
    if taken:
        raise SpaceError(
            f"a parameter must not be named like a column of the native format, but {taken} are: "
            f"rename them"
        )
    header = {
        "format_version": FORMAT_VERSION,
        **info_to_json(recording.info),
        "parameters": parameters_to_json(space.names, space.values),
    }
    columns: dict[str, Any] = {
        name: np.ascontiguousarray(space.configurations[:, j]) for j, name in enumerate(space.names)
    }
    columns.update({name: getattr(recording, name) for name in _MEASUREMENTS})
    codes = pa.array(recording.status.astype(np.int8))
    columns["status"] = pa.DictionaryArray.from_arrays(codes, pa.array(STATUSES))
    table = pa.table(columns).replace_schema_metadata({_KEY: json.dumps(header).encode()})
    pq.write_table(
        table, path, compression="zstd", row_group_size=MAX_ROWS, write_page_checksum=True
    )


@contextmanager
def _parquet_errors(path: Path, position: str) -> Iterator[None]:
    """What pyarrow raises for damaged bytes, as an error about the file."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
        raise SpaceFormatError(
            path, position, f"not a whole Parquet file ({str(error)[:400]})", "Get the file again."
        ) from error


def _header(path: Path, raw: bytes | None) -> Fields:
    if raw is None:
        raise SpaceFormatError(
            path,
            "the schema's metadata",
            f"has no entry {_KEY.decode()!r}: this Parquet file is not a recording",
            "Convert a recording with import_recording and export_recording.",
        )
    where = f"the schema's metadata entry {_KEY.decode()!r}"
    header = Fields(path, where, parse_json(path, decoded(path, raw, where), within=where))
    version = header.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise header.error(
            f"format_version must be {FORMAT_VERSION}, but is {quoted(version)}",
            "Convert the file again with this version of llamea_gpu, or update llamea_gpu.",
        )
    return header


def _columns(
    path: Path, file: pq.ParquetFile, names: list[str]
) -> dict[str, npt.NDArray[np.generic]]:
    expected = (*names, *_RESERVED)
    present = file.schema_arrow.names
    missing = [name for name in expected if present.count(name) != 1]
    if missing:
        raise SpaceFormatError(
            path,
            "the columns",
            f"each of {quoted(list(expected))} must be there once, but {quoted(missing)} are not",
            "Get the file again, or write it with export_recording.",
        )
    rows = min(MAX_ROWS, _MAX_CELLS // len(expected))
    if file.metadata.num_rows > rows:
        raise SpaceFormatError(
            path,
            "the rows",
            f"at most {rows} configurations of {len(names)} parameters are read, but there are "
            f"{file.metadata.num_rows}",
            "Split the recording.",
        )
    for name in expected:
        _check_type(path, name, file.schema_arrow.field(name).type)
    with _parquet_errors(path, "the column data"):
        table = file.read(columns=list(expected))
        table.validate(full=True)
    for name in expected:
        if table.column(name).null_count:
            raise SpaceFormatError(path, f"column {quoted(name)}", "has empty cells", "Fill them.")
    columns = {name: table.column(name).to_numpy() for name in (*names, *_MEASUREMENTS)}
    columns["status"] = _status_codes(path, table.column("status"))
    return columns


def _check_type(path: Path, name: str, kind: pa.DataType) -> None:
    if name == "status":
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        good, rule = pa.types.is_string(plain), "strings"
    elif name in _MEASUREMENTS:
        good, rule = pa.types.is_float64(kind), "float64"
    else:
        good, rule = pa.types.is_integer(kind), "integers"
    if not good:
        raise SpaceFormatError(
            path,
            f"column {quoted(name)}",
            f"must hold {rule}, but holds {str(kind)[:120]}",
            "Convert the column.",
        )


def _status_codes(path: Path, column: pa.ChunkedArray) -> npt.NDArray[np.generic]:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    parts = [np.empty(0, dtype=np.uint8)]
    for chunk in column.chunks:
        words = chunk.dictionary.to_pylist()
        unknown = [word for word in words if word not in STATUSES]
        if unknown:
            raise SpaceFormatError(
                path,
                "column 'status'",
                f"must be one of {STATUSES}, but is {quoted(unknown[0])} somewhere",
                "Rename that status.",
            )
        codes = np.array([STATUSES.index(word) for word in words], dtype=np.uint8)
        parts.append(codes[chunk.indices.to_numpy(zero_copy_only=False)])
    return np.concatenate(parts)
