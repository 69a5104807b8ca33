"""What every file format shares: parsing JSON, positions in errors, rows to recordings.

Files come from strangers. Nothing is ever evaluated or unpickled, and a file either becomes a
whole recording or a :class:`SpaceFormatError` that names the file, the position, the problem and
the remedy. :mod:`llamea_gpu.spaces.formats._files` bounds what is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from llamea_gpu.errors import SpaceError, SpaceFormatError
from llamea_gpu.spaces.parameters import checked_names
from llamea_gpu.spaces.quoting import quoted, shortened
from llamea_gpu.spaces.recording import STATUSES, Recording, RecordingInfo
from llamea_gpu.spaces.space import Value

MAX_ROWS = 4_000_000
_MAX_DEPTH = 100
_T = TypeVar("_T")


class Reader(Protocol):
    """A module that recognises and reads one text format."""

    TAKES_T1: bool

    def recognises(self, head: str) -> bool:
        """Whether a text that begins with ``head`` (64 kB at most) is of this format."""

    def read(
        self, path: Path, text: str, t1: Path | None, name: str | None
    ) -> tuple[Recording, tuple[str, ...]]:
        """The recording and warnings for people.

        Raises:
            SpaceFormatError: the text cannot be imported as a whole.
        """


def parse_json(path: Path, text: str, line: int = 1, within: str = "") -> Any:
    """Parse JSON; for messages, ``line`` numbers its first line and ``within`` is the part of the
    file that it is, when not the file itself.

    Raises:
        SpaceFormatError: malformed, too deeply nested, or an object repeats a key.
    """

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise _RepeatedKeyError(key)
                seen.add(key)
        return mapping

    prefix = f"{within}, " if within else ""
    try:
        document = json.loads(text, object_pairs_hook=distinct)
        if _deeper_than(document, _MAX_DEPTH):
            raise RecursionError
        return document
    except json.JSONDecodeError as error:
        position = f"{prefix}line {line + error.lineno - 1} column {error.colno}"
        ended = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        problem = "the JSON text ends early" if ended else f"malformed JSON ({error.msg})"
        remedy = "Get the whole file again." if ended else "Mend that place or get the file again."
        raise SpaceFormatError(path, position, problem, remedy) from error
    except _RepeatedKeyError as error:
        raise SpaceFormatError(
            path,
            f"{prefix}key {quoted(error.args[0])}",
            "appears twice in one object",
            "Keep one of the two entries.",
        ) from error
    except (RecursionError, ValueError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SpaceFormatError(
            path,
            f"{prefix}from line {line}",
            problem,
            "No recording needs that: get the file again.",
        ) from error


class Fields:
    """Typed access to a parsed JSON object, with the position for errors."""

    __slots__ = ("_mapping", "path", "position")

    def __init__(self, path: Path, position: str, mapping: object) -> None:
        self.path = path
        self.position = position
        if not isinstance(mapping, dict):
            raise self.error(f"must be a JSON object, but is {_kind(mapping)}")
        self._mapping: dict[str, Any] = mapping

    def error(self, problem: str, remedy: str = "Mend that entry.") -> SpaceFormatError:
        """A SpaceFormatError at this position."""
        return SpaceFormatError(self.path, self.position, problem, remedy)

    def __contains__(self, key: str) -> bool:
        return key in self._mapping

    def get(self, key: str) -> Any:
        """The value, None when missing."""
        return self._mapping.get(key)

    def mapping(self, key: str) -> dict[str, Any]:
        """A required object."""
        return self._typed(key, dict, "a JSON object")

    def sequence(self, key: str) -> list[Any]:
        """A required array."""
        return self._typed(key, list, "a JSON array")

    def text(self, key: str, default: str | None = None) -> str:
        """A string; required unless a default is given."""
        if default is not None and self._mapping.get(key) is None:
            return default
        return self._typed(key, str, "a string")

    def duration(self, key: str, default: float | None = None) -> float:
        """A finite number >= 0; required unless a default is given."""
        if default is not None and self._mapping.get(key) is None:
            return default
        return self.checked_duration(key, self._mapping.get(key))

    def checked_duration(self, key: str, value: object) -> float:
        """``value`` as a finite float >= 0."""
        number = as_number(value)
        if number is None or not number >= 0 or math.isinf(number):
            raise self.error(f"{key} must be a finite number >= 0, but is {_kind(value)}")
        return number

    def _typed(self, key: str, kind: type[_T], described: str) -> _T:
        if key not in self._mapping:
            raise self.error(f"{quoted(key)} is missing")
        value: object = self._mapping[key]
        if not isinstance(value, kind):
            raise self.error(f"{quoted(key)} must be {described}, but is {_kind(value)}")
        return value


class RowCollector:
    """Gathers measured configurations one by one, then makes the recording."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path = path
        with format_errors(path, "the parameters"):
            self._names = checked_names(names)
        self._positions: list[str] = []
        self._configurations: list[tuple[Value, ...]] = []
        self._columns: list[tuple[float, float, float, int]] = []

    def __len__(self) -> int:
        return len(self._configurations)

    def add(
        self,
        fields: Fields,
        configuration: Mapping[str, Any],
        time_ms: float,
        seconds: tuple[float, float],
        status: str,
    ) -> None:
        """One row; ``seconds`` are those to compile and those to benchmark."""
        if len(self._configurations) >= MAX_ROWS:
            raise fields.error(f"more than {MAX_ROWS} configurations", "Split the recording.")
        try:
            row = tuple([configuration[name] for name in self._names])
            hash(row)
        except KeyError as error:
            raise fields.error(f"the parameter {quoted(error.args[0])} has no value") from None
        except TypeError:
            raise fields.error("a parameter's value is a list or an object") from None
        if len(configuration) > len(self._names):
            extra = sorted(set(configuration) - set(self._names))
            raise fields.error(f"has parameters that the space does not have: {quoted(extra)}")
        self._positions.append(fields.position)
        self._configurations.append(row)
        self._columns.append((time_ms, *seconds, STATUSES.index(status)))

    def position(self, row: int) -> str:
        """Where in the file the row came from."""
        return self._positions[row]

    def derived_values(self) -> tuple[tuple[Value, ...], ...]:
        """Each parameter's values as they occur, in canonical order."""
        columns = zip(*self._configurations, strict=True)
        return tuple(canonical_order(set(column)) for column in columns)

    def indices(self, values: Sequence[Sequence[Value]]) -> list[list[int]]:
        """Rows as value indices; SpaceFormatError for a value that is not in ``values``."""
        places = [{v: i for i, v in enumerate(vs)} for vs in values]
        try:
            return [
                [place[v] for place, v in zip(places, row, strict=True)]
                for row in self._configurations
            ]
        except KeyError:
            pass
        for position, row in zip(self._positions, self._configurations, strict=True):
            for name, place, value in zip(self._names, places, row, strict=True):
                if value not in place:
                    raise SpaceFormatError(
                        self.path,
                        position,
                        f"{shortened(name)} = {quoted(value)} is not among the declared values",
                        "Declare it or leave the configuration out.",
                    )
        raise AssertionError("a value was missing a moment ago")

    def build(self, values: Sequence[Sequence[Value]], info: RecordingInfo) -> Recording:
        """The recording of everything added."""
        if not self._configurations:
            raise SpaceFormatError(
                self.path, "the whole file", "no configuration was measured", "Record some first."
            )
        seen: dict[tuple[Value, ...], int] = {}
        for i, row in enumerate(self._configurations):
            if seen.setdefault(row, i) != i:
                raise SpaceFormatError(
                    self.path,
                    self._positions[i],
                    f"the same configuration as {self._positions[seen[row]]}",
                    "Keep one of the two.",
                )
        time_ms, compile_s, benchmark_s, status = zip(*self._columns, strict=True)
        with format_errors(self.path):
            return Recording.from_rows(
                self._names,
                values,
                self.indices(values),
                time_ms,
                compile_s,
                benchmark_s,
                status,
                info,
            )


@contextmanager
def format_errors(path: Path, position: str = "the whole file") -> Iterator[None]:
    """Turn a SpaceError about content into a SpaceFormatError about a file."""
    try:
        yield
    except SpaceFormatError:
        raise
    except SpaceError as error:
        raise SpaceFormatError(path, position, str(error), "Mend the file.") from error


def canonical_order(values: set[Value]) -> tuple[Value, ...]:
    """None, then bools, numbers ascending, strings: the order when a file declares none."""

    def rank(value: Value) -> tuple[int, float, str]:
        if value is None:
            return (0, 0.0, "")
        if isinstance(value, bool):
            return (1, float(value), "")
        if isinstance(value, int | float):
            return (2, value, "")
        return (3, 0.0, str(value))

    return tuple(sorted(values, key=rank))


def as_number(value: object) -> float | None:
    """A JSON number as a float; None for anything else, NaN included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    return None if math.isnan(number) else number


def default_name(path: Path) -> str:
    """Folder and stem: ``convolution/A100_T4.json.gz`` is called ``convolution-A100``."""
    stem = path.name
    for suffix in (".gz", ".jsonl", ".json", ".trace", "_T4"):
        stem = stem.removesuffix(suffix)
    folder = path.resolve().parent.name
    return f"{folder}-{stem}" if folder else stem


class _RepeatedKeyError(Exception):
    """Carries the key out of the JSON decoder."""


def _kind(value: object) -> str:
    return f"{type(value).__name__} {quoted(value)}"


def _deeper_than(document: object, limit: int) -> bool:
    """Whether arrays and objects nest more than ``limit`` levels deep; level by level."""
    level = [document] if isinstance(document, list | dict) else []
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, list | dict)
        ]
        if not level:
            return False
    return True
