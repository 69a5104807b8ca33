"""Configurations that somebody wants measured: JSON lines, as clouds are written in.

The first line has ``names`` and ``values`` of the parameters, ``script`` and ``shape`` of the
kernel; each further one ``c``, value indices, and ``how``, whose idea it was. Further keys are left
out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llamea_gpu.spaces.cloud import MOST_LETTERS, MOST_MEASUREMENTS
from llamea_gpu.spaces.formats._base import Fields, parse_json
from llamea_gpu.spaces.formats._files import read_text
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.space import Configuration, Value

POINT = "point"  # where nobody is named


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
    given = fields.sequence("c")
    within = len(given) == len(cardinalities) and all(
        type(i) is int and 0 <= i < count for i, count in zip(given, cardinalities, strict=True)
    )
    if not within:
        raise fields.error(f"'c' must be value indices of the parameters, but is {quoted(given)}")
    return tuple(given), fields.text("how", POINT)[:MOST_LETTERS]
