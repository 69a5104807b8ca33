"""The native format of clouds: one Parquet file, as of recordings, called ``NAME.cloud.parquet``.

One row a measurement, in the order of measurement: a column for each parameter's value index, then
the arrays of :class:`~llamea_gpu.spaces.cloud.Cloud` under their own names, the status in words.
Everything else is in the JSON object under ``llamea_gpu``, whose ``kind`` is "cloud".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from llamea_gpu.errors import SpaceFormatError
from llamea_gpu.spaces.cloud import MOST_LETTERS, MOST_MEASUREMENTS, Cloud
from llamea_gpu.spaces.formats._base import Fields, format_errors
from llamea_gpu.spaces.formats._info import (
    info_from_json,
    info_to_json,
    parameters_from_json,
    parameters_to_json,
)
from llamea_gpu.spaces.formats.native import (
    FLOATS,
    INTEGERS,
    STRINGS,
    check_column_names,
    open_native,
    read_columns,
    status_codes,
    status_words,
    write_table,
)
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.space import Configuration

KIND = "cloud"
_NUMBERS = ("times_ms", "low_ms", "high_ms", "compile_s", "benchmark_s", "control_ms", "at_s")
_WORDS = ("source", "how")
_RULES = {
    **dict.fromkeys(_NUMBERS, FLOATS),
    "run": INTEGERS,
    **dict.fromkeys(_WORDS, STRINGS),
    "status": STRINGS,
}


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
    columns: dict[str, Any] = {n: table.column(n).to_numpy() for n in (*_NUMBERS, "run")}
    columns |= {n: _words(path, n, table.column(n)) for n in _WORDS}
    cells = [table.column(n).to_numpy() for n in names]
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
        **info_to_json(cloud.info),
        "script": cloud.script,
        "shape": cloud.shape,
        "parameters": parameters_to_json(cloud.names, cloud.values),
        "ordinal": cloud.ordinal,
        "default": cloud.default,
        "starts": cloud.starts,
        "runs": cloud.runs,
    }
    columns: dict[str, Any] = {
        name: cloud.configurations[:, j].astype(np.int32) for j, name in enumerate(cloud.names)
    }
    columns |= {name: getattr(cloud, name) for name in (*_NUMBERS, "run")}
    columns |= {name: pa.array(getattr(cloud, name).tolist(), pa.string()) for name in _WORDS}
    columns["status"] = status_words(cloud.statuses)
    write_table(columns, header, path)


def _words(path: Path, name: str, column: pa.ChunkedArray) -> npt.NDArray[np.str_]:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    parts = [np.empty(0, dtype="<U1")]
    for chunk in column.chunks:
        longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0
        if longest > 4 * MOST_LETTERS:  # bytes of UTF-8
            raise SpaceFormatError(
                path,
                f"column {quoted(name)}",
                f"a word may have at most {MOST_LETTERS} letters, but one has {longest} bytes",
                "Shorten it.",
            )
        words = np.array(chunk.dictionary.to_pylist(), dtype=np.str_)
        parts.append(words[chunk.indices.to_numpy(zero_copy_only=False)])
    return np.concatenate(parts)


def _default(header: Fields) -> Configuration | None:
    given = header.get("default")
    return None if given is None else _indices(header, given)


def _indices(header: Fields, given: object) -> Configuration:
    if not isinstance(given, list) or not all(type(i) is int and abs(i) < 1 << 31 for i in given):
        raise header.error(f"a configuration must be value indices, but is {quoted(given)}")
    return tuple(given)


def _run(header: Fields, given: object) -> Mapping[str, str]:
    if not isinstance(given, dict) or not all(isinstance(v, str) for v in given.values()):
        raise header.error(f"a run must map names to texts, but is {quoted(given)}")
    return given
