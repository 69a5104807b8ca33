"""Clouds as JSON lines: what a recorder's journal and that of a live tuning hold.

The first line says what is measured: ``kernel``, ``script``, ``shape``, ``arguments``, ``names``,
``values``, ``ordinal``, ``default``, ``starts``, and where known ``name``, ``device``,
``framework``, ``kernel_source``, ``compilers``, ``facts`` and ``provenance``. Each further one is a
measurement: ``c`` (value indices), ``how``, ``status``, ``ms``, ``lo`` and ``hi`` (quartiles),
``compile_s``, ``bench_s``, ``source`` (hash of the generated code), ``at`` (seconds), ``message``,
``control`` (the default's time right after it). Decisions:

- ``default`` is a list of value indices, or the framework's own configuration: then it is the first
  of ``starts`` that has its values wherever they are on a parameter's list.
- A line with ``run`` in place of ``c`` begins another measuring run, and says what is known of it;
  one with ``facts`` adds to that.
- Further keys, and lines with neither, are left out. So is a last line cut short by a kill, with a
  warning.
- Measurements of a status that has no time keep none; messages are not kept.
- Lines name no recipe of models: it is the newest.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu.spaces.cloud import MOST_LETTERS, MOST_MEASUREMENTS, MOST_RUNS, RECIPES, Cloud
from llamea_gpu.spaces.formats._base import (
    Fields,
    as_number,
    default_name,
    format_errors,
    parse_json,
)
from llamea_gpu.spaces.formats._files import read_text
from llamea_gpu.spaces.parameters import is_value
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.recording import STATUSES, RecordingInfo
from llamea_gpu.spaces.space import Configuration, Value

UNKNOWN = "unknown"
_NOTHING = object()
_NAME = re.compile(r"(\w+)(?:\[(\d{1,4})\])?(?:\.(\d{1,4}))?")
_KEYS = ('"names"', '"values"', '"starts"')
_TIMES = {"ms": "times_ms", "lo": "low_ms", "hi": "high_ms", "control": "control_ms"}
_SECONDS = {"compile_s": "compile_s", "bench_s": "benchmark_s", "at": "at_s"}


POINT = "point"  # where nobody is named


def recognises(head: str) -> bool:
    """Whether a text that begins with ``head`` is a cloud's: an object of its keys in a line."""
    line = head.split("\n", 1)[0]
    return line.startswith("{") and all(key in line for key in _KEYS)


def read_cloud_lines(path: Path, text: str, name: str | None) -> tuple[Cloud, tuple[str, ...]]:
    """The cloud, and warnings for people.

    Raises:
        SpaceFormatError: a line is malformed, an entry of it is of another type or range, or
            nothing was measured.
    """
    lines = text.splitlines()
    header = Fields(path, "line 1", parse_json(path, lines[0], 1))
    rows = _Rows(header)
    notes: list[str] = []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        if number == len(lines) and not text.endswith("\n") and _cut_short(line):
            notes.append(f"line {number} is cut short and was left out")
            continue
        rows.add(Fields(path, f"line {number}", parse_json(path, line, number)))
    return rows.build(name), tuple(notes)


def _cut_short(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


class _Rows:
    """Gathers measurements line by line, then makes the cloud."""

    def __init__(self, header: Fields) -> None:
        self._header = header
        self._names = header.sequence("names")
        self._runs = [self._run_of(header, header.get("facts"))]
        self._facts: dict[str, Any] = header.get("facts") or {}
        self._columns: dict[str, list[Any]] = {
            name: [] for name in ("configurations", "statuses", "source", "how", "run")
        } | {name: [] for name in (*_TIMES.values(), *_SECONDS.values())}

    def add(self, fields: Fields) -> None:
        """One line after the first."""
        if "c" in fields:
            self._add_measurement(fields)
        elif isinstance(fields.get("run"), dict):
            if len(self._runs) >= MOST_RUNS:
                raise fields.error(f"more than {MOST_RUNS} runs", "Split the cloud.")
            if not self._columns["run"]:  # line 1 is not of a run of its own
                self._runs.clear()
            self._runs.append(self._run_of(fields, fields.get("run")))
        elif isinstance(fields.get("facts"), dict):
            self._facts = self._facts or fields.mapping("facts")
            self._runs[-1] |= self._run_of(fields, fields.get("facts"))

    def build(self, name: str | None) -> Cloud:
        """The cloud of everything added."""
        header, rows = self._header, self._columns
        if not rows["statuses"]:
            raise header.error("no configuration was measured", "Record some first.")
        values = header.sequence("values")
        starts = tuple(self._indices(header, start) for start in header.sequence("starts"))
        names = self._names
        default = self._default(header, values, starts)
        with format_errors(header.path, header.position):
            cloud = Cloud(
                info=self._info(name),
                script=header.text("script", ""),
                shape=header.text("shape", ""),
                names=tuple(names),
                values=tuple(_column(header, column) for column in values),
                ordinal=tuple(header.sequence("ordinal")),
                default=default,
                starts=starts,
                runs=tuple(self._runs),
                recipe=RECIPES[-1],
                **{key: np.array(column) for key, column in rows.items()},
            )
            if default is None:
                return cloud
            shown = cloud.value_dict(default)
            return replace(cloud, info=replace(cloud.info, default_configuration=shown))

    # -- lines ------------------------------------------------------------------------------

    def _add_measurement(self, fields: Fields) -> None:
        columns = self._columns
        if len(columns["statuses"]) >= MOST_MEASUREMENTS:
            raise fields.error(f"more than {MOST_MEASUREMENTS} measurements", "Split the cloud.")
        status = fields.text("status")
        if status not in STATUSES:
            raise fields.error(f"status must be one of {STATUSES}, but is {quoted(status)}")
        columns["configurations"].append(self._indices(fields, fields.get("c")))
        columns["statuses"].append(STATUSES.index(status))
        columns["run"].append(len(self._runs) - 1)
        source = fields.text("source", "")
        if len(source) > MOST_LETTERS:
            raise fields.error(f"source must have at most {MOST_LETTERS} letters")
        columns["source"].append(source)
        columns["how"].append(fields.text("how", "")[:MOST_LETTERS])
        for key, column in _TIMES.items():
            timed = status == "ok" or key == "control"
            columns[column].append(_time(fields, key) if timed else math.nan)
        for key, column in _SECONDS.items():
            columns[column].append(fields.duration(key))

    def _indices(self, fields: Fields, indices: object) -> tuple[int, ...]:
        if not isinstance(indices, list) or not all(type(i) is int for i in indices):
            raise fields.error(f"a configuration must be value indices, but is {quoted(indices)}")
        if len(indices) != len(self._names) or not all(0 <= i < 1 << 31 for i in indices):
            raise fields.error(
                f"a configuration must be {len(self._names)} value indices, but is "
                f"{quoted(indices)}"
            )
        return tuple(indices)

    # -- the first line ---------------------------------------------------------------------

    def _run_of(self, fields: Fields, facts: object) -> dict[str, str]:
        """What is said of a run, as texts."""
        run = {"file": fields.path.name}
        if facts is not None:
            if not isinstance(facts, dict):
                raise fields.error(f"the facts of a run must be an object, but are {quoted(facts)}")
            run |= {key: str(value) for key, value in facts.items() if is_value(value)}
        return run

    def _info(self, name: str | None) -> RecordingInfo:
        header = self._header
        facts = self._facts
        pairs = (("torch", facts.get("reference_ms")), ("helion_default", facts.get("default_ms")))
        references = {key: as_number(value) for key, value in pairs}
        arguments = header.sequence("arguments")
        if not all(isinstance(argument, dict) for argument in arguments):
            raise header.error("'arguments' must be an array of objects")
        kernel = header.text("kernel")
        compilers = header.get("compilers")
        return RecordingInfo(
            name=name or header.text("name", "") or default_name(header.path),
            kernel=kernel,
            device=header.text("device", UNKNOWN),
            framework=header.text("framework", UNKNOWN),
            kernel_source=header.text("kernel_source", ""),
            arguments=tuple(arguments),
            references_ms={k: v for k, v in references.items() if v is not None},
            parallel_workers=1 if compilers is None else compilers,
            provenance={"source": f"imported from {header.path.name}"} | self._provenance(),
        )

    def _provenance(self) -> dict[str, str]:
        provenance = self._header.get("provenance") or {}
        if not isinstance(provenance, dict) or not all(
            isinstance(v, str) for v in provenance.values()
        ):
            raise self._header.error("'provenance' must map names to strings")
        return provenance

    def _default(
        self, header: Fields, values: Sequence[Any], starts: Sequence[tuple[int, ...]]
    ) -> tuple[int, ...] | None:
        default = header.get("default")
        if default is None or isinstance(default, list):
            return None if default is None else self._indices(header, default)
        if not isinstance(default, dict):
            raise header.error(
                f"'default' must be value indices or a configuration, but is {quoted(default)}"
            )
        pairs = zip(self._names, values, strict=False)
        places = [_place(column, _entry(default, name)) for name, column in pairs]
        return next((start for start in starts if _agrees(start, places)), None)


def _column(header: Fields, column: object) -> tuple[Value, ...]:
    if not isinstance(column, list):
        raise header.error(f"a parameter's values must be an array, but are {quoted(column)}")
    return tuple(column)


def _time(fields: Fields, key: str) -> float:
    value = fields.get(key)
    number = math.nan if value is None else as_number(value)
    if number is None:
        raise fields.error(f"{key} must be a number or null, but is {quoted(value)}")
    return number


def _entry(config: Mapping[str, Any], name: object) -> object:
    """The value of ``block_sizes[1]`` or ``loop_orders[0].1`` in a Helion configuration.

    Of an order it is the rank of the element at that place among those that are left.
    """
    match = _NAME.fullmatch(str(name))
    if match is None:
        return _NOTHING
    key, element, place = match.groups()
    value: Any = config.get(key, _NOTHING)
    for i in (element, place):
        if i is None:
            continue
        if not isinstance(value, list) or int(i) >= len(value):
            return _NOTHING
        if i is place:
            later = value[int(i) :]
            value = sum(map(value[int(i)].__gt__, later)) if _are_ints(later) else _NOTHING
        else:
            value = value[int(i)]
    return value


def _are_ints(values: Sequence[object]) -> bool:
    return all(type(value) is int for value in values)


def _place(column: object, value: object) -> int | None:
    """Where a value is on a parameter's list; None where it is not. True is not 1."""
    texts = [repr(v) for v in column] if isinstance(column, list) else []
    return texts.index(repr(value)) if repr(value) in texts else None


def _agrees(start: Sequence[int], places: Sequence[int | None]) -> bool:
    return all(i is None or i == j for i, j in zip(places, start, strict=False))


@dataclass(frozen=True, slots=True)
class Points:
    """Configurations to measure, in order, each with its ``how``.

    ``names`` and ``values`` say what the indices mean; script and shape may be empty.
    """

    script: str
    shape: str
    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    rows: tuple[tuple[Configuration, str], ...]


def read_points(path: Path) -> Points:
    """Read such a file.

    Raises:
        UnknownSpaceError: there is no such file.
        SpaceFormatError: a line is malformed, or holds no configuration of these parameters.
    """
    lines = read_text(path).splitlines()
    header = Fields(path, "line 1", parse_json(path, lines[0] if lines else "", 1))
    names, values = header.sequence("names"), header.sequence("values")
    if len(values) != len(names) or not all(isinstance(column, list) for column in values):
        raise header.error("'values' must have an array for each of 'names'")
    rows: list[tuple[Configuration, str]] = []
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            fields = Fields(path, f"line {number}", parse_json(path, line, number))
            rows.append(_row(fields, [len(column) for column in values]))
    if not 1 <= len(rows) <= MOST_MEASUREMENTS:
        raise header.error(f"1 to {MOST_MEASUREMENTS} configurations must follow, not {len(rows)}")
    return Points(
        header.text("script", ""),
        header.text("shape", ""),
        tuple(names),
        tuple(map(tuple, values)),
        tuple(rows),
    )


def _row(fields: Fields, cardinalities: list[int]) -> tuple[Configuration, str]:
    indices = fields.sequence("c")
    within = len(indices) == len(cardinalities) and all(
        type(i) is int and 0 <= i < count for i, count in zip(indices, cardinalities, strict=True)
    )
    if not within:
        raise fields.error(f"'c' must be value indices of the parameters, but is {quoted(indices)}")
    return tuple(indices), fields.text("how", POINT)[:MOST_LETTERS]
