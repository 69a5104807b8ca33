"""The native format: one Parquet file a space.

One row a configuration: a column for each parameter's value index, then ``time_ms`` (inf where it
failed), ``compile_s``, ``benchmark_s`` and ``status``. Everything else is one JSON object in the
schema's metadata under ``llamea_gpu``, with a format version. A cloud is the same with ``kind`` in
that object and a row a measurement; without ``recipe`` in it, it is of version 2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from llamea_gpu.errors import SpaceError, SpaceFormatError
from llamea_gpu.spaces.cloud import MOST_LETTERS, MOST_MEASUREMENTS, Cloud
from llamea_gpu.spaces.formats._base import MAX_ROWS, Fields, format_errors, parse_json
from llamea_gpu.spaces.formats._files import MAX_TEXT_BYTES, decoded, open_file
from llamea_gpu.spaces.formats._info import (
    info_from_json,
    parameters_from_json,
    parameters_to_json,
)
from llamea_gpu.spaces.parquet import open_parquet
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.recording import STATUSES, Recording
from llamea_gpu.spaces.space import Configuration

FORMAT_VERSION = 1
_COMPRESSION = 19  # of zstd: files are written once and shipped often
_KEY = b"llamea_gpu"
_MEASUREMENTS = ("time_ms", "compile_s", "benchmark_s")
_RESERVED = (*_MEASUREMENTS, "status")
STRINGS, FLOATS, INTEGERS = "strings", "float64", "integers"
_IS_TYPE = {
    STRINGS: pa.types.is_string,
    FLOATS: pa.types.is_float64,
    INTEGERS: pa.types.is_integer,
}
_MAX_CELLS = 1 << 26  # 512 MiB as int64: the numbers of all columns together


KIND = "cloud"
_UNNAMED_RECIPE = 2  # of clouds from before they named one
_NUMBERS = ("times_ms", "low_ms", "high_ms", "compile_s", "benchmark_s", "control_ms", "at_s")
_WORDS = ("source", "how")
_RULES = {
    **dict.fromkeys(_NUMBERS, FLOATS),
    "run": INTEGERS,
    **dict.fromkeys(_WORDS, STRINGS),
    "status": STRINGS,
}


def read_native(path: Path, name: str | None = None) -> Recording:
    """Read a native recording.

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: not Parquet, not a recording, of another version, a missing column, an
            index out of range, or measurements that break the rules of :class:`Recording`.
    """
    file, header = open_native(path, ("status",))
    if header.get("kind") is not None:
        raise header.error(
            f"this is a {quoted(header.get('kind'))} and no recording: it does not hold the whole"
            f" space",
            "See it with 'spaces show'.",
        )
    names, values = parameters_from_json(header)
    info = info_from_json(header, name)
    rules = {
        **dict.fromkeys(names, INTEGERS),
        **dict.fromkeys(_MEASUREMENTS, FLOATS),
        "status": STRINGS,
    }
    table = read_columns(path, file, rules)
    columns = {name: numbers(table.column(name)) for name in (*names, *_MEASUREMENTS)}
    status = status_codes(path, table.column("status"))
    with format_errors(path):
        return Recording.from_rows(
            names,
            values,
            np.stack([columns[n] for n in names], axis=1) if names else np.empty((0, 0), int),
            columns["time_ms"],
            columns["compile_s"],
            columns["benchmark_s"],
            status,
            info,
        )


def write_native(recording: Recording, path: Path) -> None:
    """Write a native recording to ``path`` (not atomically: see ``export_recording``).

    Raises:
        SpaceError: a parameter bears the name of a measurement column.
    """
    space = recording.space
    check_column_names(space.names, _RESERVED)
    header = {
        **asdict(recording.info),
        "parameters": parameters_to_json(space.names, space.values),
    }
    columns: dict[str, Any] = {
        name: np.ascontiguousarray(space.configurations[:, j]) for j, name in enumerate(space.names)
    }
    columns.update({name: getattr(recording, name) for name in _MEASUREMENTS})
    columns["status"] = status_words(recording.status)
    write_table(columns, header, path)


@contextmanager
def parquet_errors(path: Path, position: str) -> Iterator[None]:
    """What pyarrow raises for damaged bytes, as an error about the file."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
        raise SpaceFormatError(
            path, position, f"not a whole Parquet file ({str(error)[:400]})", "Get the file again."
        ) from error


def open_native(path: Path, words: Sequence[str]) -> tuple[pq.ParquetFile, Fields]:
    """A native file of any kind, and the JSON object in its metadata.

    Args:
        path: the file.
        words: columns of texts, which stay dictionaries: written out, one long word in such a
            column would fill the memory.

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: too large, not Parquet, not one of ours, or of another version.
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
    with parquet_errors(path, "the Parquet footer"):
        present = open_parquet(data).metadata.schema.names
        file = open_parquet(data, read_dictionary=[name for name in words if name in present])
        raw = (file.schema_arrow.metadata or {}).get(_KEY)
    return file, _header(path, raw)


def read_columns(
    path: Path, file: pq.ParquetFile, rules: Mapping[str, str], most_rows: int = MAX_ROWS
) -> pa.Table:
    """The columns that ``rules`` names, each whole and of STRINGS, FLOATS or INTEGERS.

    Raises:
        SpaceFormatError: one is missing, of another type or has empty cells; or too many rows.
    """
    expected = list(rules)
    present = file.schema_arrow.names
    missing = [name for name in expected if present.count(name) != 1]
    if missing:
        raise SpaceFormatError(
            path,
            "the columns",
            f"each of {quoted(expected)} must be there once, but {quoted(missing)} are not",
            "Get the file again, or write it with export_recording.",
        )
    rows = min(most_rows, _MAX_CELLS // len(expected))
    if file.metadata.num_rows > rows:
        raise SpaceFormatError(
            path,
            "the rows",
            f"at most {rows} configurations in {len(expected)} columns are read, but there are "
            f"{file.metadata.num_rows}",
            "Split the recording.",
        )
    for name, rule in rules.items():
        _check_type(path, name, file.schema_arrow.field(name).type, rule)
    with parquet_errors(path, "the column data"):
        table = file.read(columns=expected)
        table.validate(full=True)
    for name in expected:
        if table.column(name).null_count:
            raise SpaceFormatError(path, f"column {quoted(name)}", "has empty cells", "Fill them.")
    return table


def numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Numbers without empty cells. pyarrow's own ``to_numpy`` takes half a second to import pandas.

    ``column`` may have no rows.
    """
    parts = [np.from_dlpack(chunk) for chunk in column.chunks]
    return np.concatenate(parts or [np.empty(0, column.type.to_pandas_dtype())])


def write_table(columns: Mapping[str, Any], header: Mapping[str, Any], path: Path) -> None:
    """Write columns and the JSON object that `open_native` gives back."""
    metadata = {_KEY: json.dumps({"format_version": FORMAT_VERSION, **header}).encode()}
    pq.write_table(
        pa.table(dict(columns)).replace_schema_metadata(metadata),
        path,
        compression="zstd",
        compression_level=_COMPRESSION,
        row_group_size=MAX_ROWS,
        write_page_checksum=True,
    )


def check_column_names(names: Sequence[str], reserved: Sequence[str]) -> None:
    """SpaceError when a parameter bears the name of a measurement column."""
    clashes = sorted(set(names) & set(reserved))
    if clashes:
        raise SpaceError(
            f"a parameter must not be named like a column of the native format, but {clashes} are: "
            f"rename them"
        )


def status_words(codes: npt.NDArray[np.unsignedinteger[Any]]) -> pa.DictionaryArray:
    """Statuses as a column of words."""
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(STATUSES))


def status_codes(path: Path, column: pa.ChunkedArray) -> npt.NDArray[np.generic]:
    """Inverse of `status_words`.

    Raises:
        SpaceFormatError: a word is no status.
    """
    parts = [np.empty(0, dtype=np.uint8)]
    for dictionary, indices in _dictionaries(column):
        words = dictionary.to_pylist()
        unknown = [word for word in words if word not in STATUSES]
        if unknown:
            raise SpaceFormatError(
                path,
                "column 'status'",
                f"must be one of {STATUSES}, but is {quoted(unknown[0])} somewhere",
                "Rename that status.",
            )
        codes = np.array([STATUSES.index(word) for word in words], dtype=np.uint8)
        parts.append(codes[indices])
    return np.concatenate(parts)


def _dictionaries(column: pa.ChunkedArray) -> Iterator[tuple[pa.Array, npt.NDArray[Any]]]:
    """The words of each chunk of a column of texts, and which of them its rows have."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    for chunk in column.chunks:
        yield chunk.dictionary, np.from_dlpack(chunk.indices)


def _header(path: Path, raw: bytes | None) -> Fields:
    if raw is None:
        raise SpaceFormatError(
            path,
            "the schema's metadata",
            f"has no entry {_KEY.decode()!r}: this Parquet file is not a recording",
            "Convert a recording with import_recording and export_recording.",
        )
    position = f"the schema's metadata entry {_KEY.decode()!r}"
    header = Fields(path, position, parse_json(path, decoded(path, raw, position), within=position))
    version = header.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise header.error(
            f"format_version must be {FORMAT_VERSION}, but is {quoted(version)}",
            "Convert the file again with this version of llamea_gpu, or update llamea_gpu.",
        )
    return header


def _check_type(path: Path, name: str, kind: pa.DataType, rule: str) -> None:
    plain = kind.value_type if pa.types.is_dictionary(kind) and rule == STRINGS else kind
    if not _IS_TYPE[rule](plain):
        raise SpaceFormatError(
            path,
            f"column {quoted(name)}",
            f"must hold {rule}, but holds {str(kind)[:120]}",
            "Convert the column.",
        )


def is_cloud(path: Path) -> bool:
    """Whether a native file holds a cloud.

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: it is no native file.
    """
    _, header = open_native(path, ("status", *_WORDS))
    return bool(header.get("kind") == KIND)


def read_native_cloud(path: Path, name: str | None = None) -> Cloud:
    """Read a native cloud.

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: not Parquet, not a cloud, of another version, a missing column, or
            measurements that break the rules of :class:`~llamea_gpu.spaces.cloud.Cloud`.
    """
    file, header = open_native(path, ("status", *_WORDS))
    if header.get("kind") != KIND:
        raise header.error(
            f"this is not a cloud (kind {quoted(header.get('kind'))})",
            "A recording is read by import_recording.",
        )
    names, values = parameters_from_json(header)
    info = info_from_json(header, name)
    with format_errors(path):
        check_column_names(names, tuple(_RULES))
    rules = {**dict.fromkeys(names, INTEGERS), **_RULES}
    table = read_columns(path, file, rules, MOST_MEASUREMENTS)
    columns: dict[str, Any] = {n: numbers(table.column(n)) for n in (*_NUMBERS, "run")}
    columns |= {n: _words(path, n, table.column(n)) for n in _WORDS}
    cells = [numbers(table.column(n)) for n in names]
    with format_errors(path):
        return Cloud(
            info=info,
            script=header.text("script"),
            shape=header.text("shape"),
            names=tuple(names),
            values=tuple(map(tuple, values)),
            ordinal=tuple(header.sequence("ordinal")),
            default=_default(header),
            starts=tuple(_indices(header, start) for start in header.sequence("starts")),
            runs=tuple(_run(header, run) for run in header.sequence("runs")),
            configurations=np.stack(cells, axis=1) if names else np.empty((0, 0), dtype=np.int64),
            statuses=status_codes(path, table.column("status")),  # type: ignore[arg-type]
            recipe=header.get("recipe") if "recipe" in header else _UNNAMED_RECIPE,
            **columns,
        )


def write_native_cloud(cloud: Cloud, path: Path) -> None:
    """Write a native cloud to ``path`` (not atomically: see ``export_cloud``).

    Raises:
        SpaceError: a parameter bears the name of a measurement column.
    """
    check_column_names(cloud.names, tuple(_RULES))
    header = {
        "kind": KIND,
        **asdict(cloud.info),
        "script": cloud.script,
        "shape": cloud.shape,
        "parameters": parameters_to_json(cloud.names, cloud.values),
        "ordinal": cloud.ordinal,
        "default": cloud.default,
        "starts": cloud.starts,
        "runs": cloud.runs,
        "recipe": cloud.recipe,
    }
    columns: dict[str, Any] = {
        name: cloud.configurations[:, j].astype(np.int32) for j, name in enumerate(cloud.names)
    }
    columns |= {name: getattr(cloud, name) for name in (*_NUMBERS, "run")}
    columns |= {name: pa.array(getattr(cloud, name).tolist(), pa.string()) for name in _WORDS}
    columns["status"] = status_words(cloud.statuses)
    write_table(columns, header, path)


def _words(path: Path, name: str, column: pa.ChunkedArray) -> npt.NDArray[np.str_]:
    import pyarrow.compute as pc  # takes a tenth of a second, and recordings do not need it

    parts = [np.empty(0, dtype="<U1")]
    for dictionary, indices in _dictionaries(column):
        longest = pc.max(pc.binary_length(dictionary)).as_py() or 0
        if longest > 4 * MOST_LETTERS:  # bytes of UTF-8
            raise SpaceFormatError(
                path,
                f"column {quoted(name)}",
                f"a word may have at most {MOST_LETTERS} letters, but one has {longest} bytes",
                "Shorten it.",
            )
        parts.append(np.array(dictionary.to_pylist(), dtype=np.str_)[indices])
    return np.concatenate(parts)


def _default(header: Fields) -> Configuration | None:
    default = header.get("default")
    return None if default is None else _indices(header, default)


def _indices(header: Fields, indices: object) -> Configuration:
    if not isinstance(indices, list) or not all(
        type(i) is int and abs(i) < 1 << 31 for i in indices
    ):
        raise header.error(f"a configuration must be value indices, but is {quoted(indices)}")
    return tuple(indices)


def _run(header: Fields, run: object) -> Mapping[str, str]:
    if not isinstance(run, dict) or not all(isinstance(v, str) for v in run.values()):
        raise header.error(f"a run must map names to texts, but is {quoted(run)}")
    return run
