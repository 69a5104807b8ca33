"""The grid files that recording a Helion kernel exhaustively writes: one JSON object a space.

``parameters`` maps names to values, ``rows`` holds [grid index, status, time_ms, compile_s] with
the last parameter fastest. The import keeps the default configuration, the reference times and
the number of compilations that ran side by side. There is no export to this format.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llamea_gpu.errors import SpaceFormatError
from llamea_gpu.spaces.formats._base import (
    Fields,
    RowCollector,
    as_number,
    format_errors,
    parse_json,
)
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.recording import Recording, RecordingInfo
from llamea_gpu.spaces.space import Value

_STATUS = {"ok": "ok", "error": "error", "timeout": "timeout"}
# The files give no benchmark time a row, only that one takes about this long.
_BENCHMARK_S = 0.07
_MAX_GRID = 1 << 40


class GridReader:
    """Reads a grid file."""

    takes_t1 = False

    def recognises(self, head: str) -> bool:
        """A grid file names its space, its framework and its parameters."""
        return all(f'"{key}"' in head for key in ("space", "framework", "parameters"))

    def read(
        self, path: Path, text: str, t1: Path | None, name: str | None
    ) -> tuple[Recording, tuple[str, ...]]:
        """The recording; a warning when grid points are missing."""
        if t1 is not None:
            raise SpaceFormatError(
                path, "the whole file", "a grid file takes no T1 file", "Leave the T1 file out."
            )
        fields = Fields(path, "the top level", parse_json(path, text))
        parameters = fields.mapping("parameters")
        values = _checked_values(fields, parameters)
        size = math.prod(len(v) for v in values)
        if not 0 < size <= _MAX_GRID:
            raise fields.error(f"a grid must have 1 to {_MAX_GRID} points, but has {quoted(size)}")
        rows = RowCollector(path, list(parameters))
        for i, entry in enumerate(fields.sequence("rows")):
            _add_row(rows, Fields(path, f"rows[{i}]", {"row": entry}), list(parameters), values)
        missing = size - len(rows)
        info = _info(fields, name, exhaustive=missing == 0)
        warnings = (f"{missing} of {size} grid points were not recorded",) if missing else ()
        return rows.build(values, info), warnings


def _checked_values(fields: Fields, parameters: Mapping[str, Any]) -> list[list[Value]]:
    for name, values in parameters.items():
        if not isinstance(values, list) or any(isinstance(v, list | dict) for v in values):
            raise fields.error(f"parameters[{quoted(name)}] must be an array of single values")
    return list(parameters.values())


def _add_row(
    rows: RowCollector, fields: Fields, names: Sequence[str], values: Sequence[Sequence[Value]]
) -> None:
    row = fields.sequence("row")
    if len(row) != 4:
        raise fields.error(
            f"must be [grid index, status, time_ms, compile_s], but is {quoted(row)}"
        )
    point, status, time_ms, compile_s = row
    if not isinstance(status, str) or status not in _STATUS:
        raise fields.error(f"status must be one of {sorted(_STATUS)}, but is {quoted(status)}")
    time = as_number(time_ms)
    if status == "ok" and (time is None or not 0 < time < math.inf):
        raise fields.error(f"time_ms must be a number > 0 when ok, but is {quoted(time_ms)}")
    if status != "ok" and time_ms is not None:
        raise fields.error(f"time_ms must be null when not ok, but is {quoted(time_ms)}")
    rows.add(
        fields,
        dict(zip(names, _grid_point(fields, point, values), strict=True)),
        math.inf if time is None else time,
        (
            0.0 if compile_s is None else fields.checked_duration("compile_s", compile_s),
            _BENCHMARK_S if status == "ok" else 0.0,
        ),
        _STATUS[status],
    )


def _grid_point(fields: Fields, point: object, values: Sequence[Sequence[Value]]) -> list[Value]:
    size = math.prod(len(v) for v in values)
    if not isinstance(point, int) or isinstance(point, bool) or not 0 <= point < size:
        raise fields.error(f"0 <= grid index < {size} must hold, but it is {quoted(point)}")
    chosen = []
    for options in reversed(values):
        point, index = divmod(point, len(options))
        chosen.append(options[index])
    return chosen[::-1]


def _info(fields: Fields, name: str | None, exhaustive: bool) -> RecordingInfo:
    space = fields.text("space")
    source = fields.text("kernel_source", "")
    found = re.search(r"^def (\w+)\(", source, re.MULTILINE)
    default = fields.get("default_config")
    references = {
        key: number
        for key, field in (("torch", "torch_reference_ms"), ("helion_default", "helion_default_ms"))
        if (number := as_number(fields.get(field))) is not None
    }
    workers = fields.get("parallel_compile_jobs")
    with format_errors(fields.path, fields.position):
        return RecordingInfo(
            name=name or space,
            kernel=found.group(1) if found else space.split("-")[0],
            device=fields.text("device"),
            framework=fields.text("framework"),
            kernel_source=source,
            arguments=_arguments(fields),
            default_configuration=_default_point(default, list(fields.mapping("parameters"))),
            references_ms=references,
            parallel_workers=workers if type(workers) is int and workers > 0 else 1,
            provenance=_provenance(fields),
            exhaustive=exhaustive,
        )


def _arguments(fields: Fields) -> tuple[Mapping[str, object], ...]:
    arguments = fields.get("arguments") or []
    try:
        return tuple({"shape": list(shape), "dtype": str(dtype)} for shape, dtype in arguments)
    except (TypeError, ValueError):
        raise fields.error("'arguments' must be an array of [shape, dtype]") from None


def _default_point(config: object, names: Sequence[str]) -> dict[str, Value] | None:
    """Helion's default configuration in the grid's parameters; its values need not be on the grid.

    The grid's parameters stand for these entries of a Helion configuration; one that the grid sets
    for several loads at once is read from the first.
    """
    if not isinstance(config, dict):
        return None
    blocks = [n for n in ("block_m", "block_n", "block_k") if n in names]
    sizes = config.get("block_sizes")
    sizes = sizes[-len(blocks) :] if isinstance(sizes, list) else []
    entries: dict[str, Any] = dict(zip(blocks, sizes, strict=False))
    listed = {
        "indexing": ("indexing", 0),
        "l2_grouping": ("l2_groupings", 0),
        "reduction_loop": ("reduction_loops", 0),
        "multi_buffer": ("range_multi_buffers", -1),
        "eviction": ("load_eviction_policies", 0),
        "evict_first_pass": ("load_eviction_policies", 0),
        "evict_second_pass": ("load_eviction_policies", 1),
    }
    for name in names:
        if name in listed:
            key, place = listed[name]
            with_values = config.get(key)
            if isinstance(with_values, list) and -len(with_values) <= place < len(with_values):
                entries[name] = with_values[place]
        elif name in config:
            entries[name] = config[name]
    complete = all(name in entries for name in names)
    single = not any(isinstance(v, list | dict) for v in entries.values())
    return {name: entries[name] for name in names} if complete and single else None


def _provenance(fields: Fields) -> dict[str, str]:
    provenance = {
        "benchmark_s": f"not recorded a row: taken as {_BENCHMARK_S} where ok and 0 elsewhere",
    }
    if fields.get("default_config") is not None:
        provenance["default_config"] = json.dumps(fields.get("default_config"))
    for key in (
        "torch",
        "multiprocessors",
        "objective",
        "relative_error_of_default",
        "recording_seconds",
        "compile_timeout_s",
        "note",
    ):
        if fields.get(key) is not None:
            provenance[key] = str(fields.get(key))
    return provenance
