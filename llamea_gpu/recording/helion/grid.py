"""Grids over named slots of a Helion configuration: what a recording measures.

A slot is an entry of a configuration: ``num_warps``; one element of a list, ``block_sizes[1]``; or
a whole list whose elements are all set alike, ``indexing``. A grid gives each of some slots its
values; everything else stays as in the kernel's default configuration. Grids are TOML files::

    [slots]
    "block_sizes[0]" = [64, 128, 256]
    num_warps = [4, 8]
    "reduction_loops[0]" = ["None", 1024]   # TOML has no null: "None" stands for Python's
    "loop_orders[0]" = [[0, 1], [1, 0]]

or proposed from a kernel's ConfigSpec. Points are numbered with the last slot fastest.

It does not know which points Helion accepts: a grid is dense, and points that do not compile are
recorded as such.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamea_gpu import toml
from llamea_gpu.errors import RecordingError
from llamea_gpu.files import read_text
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.space import Value

MAX_POINTS = 1_000_000
_NONE = "None"
_ELEMENT = re.compile(r"(\w+)\[(\d+)\]")
_MAX_VALUES = 64  # of a slot, listed for proposals and descriptions
_MAX_PERMUTED = 3  # elements whose orders are all listed


@dataclass(frozen=True, slots=True)
class Slot:
    """An entry of a kernel's configuration.

    Attributes:
        name: as in a grid.
        values: what Helion's search would try, in the slot's own order; empty when too many.
        default: its value in the kernel's default configuration.
    """

    name: str
    values: tuple[Any, ...]
    default: Any


@dataclass(frozen=True, slots=True)
class Grid:
    """Slots and their values. Lists (orders of loops) are held as tuples."""

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    def __post_init__(self) -> None:
        if not self.names:
            raise RecordingError("a grid must have at least one slot, but has none")
        for name, values in zip(self.names, self.values, strict=True):
            if not values or len(set(map(repr, values))) < len(values):
                raise RecordingError(
                    f"a slot must have at least one value and all distinct, but {quoted(name)} "
                    f"has {quoted(values)}"
                )
        if self.size > MAX_POINTS:
            raise RecordingError(
                f"a grid may have at most {MAX_POINTS} points, but this one has {self.size}: take "
                f"values out"
            )

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(map(len, self.values))

    def indices(self, point: int) -> tuple[int, ...]:
        """Value indices of a point."""
        indices = []
        for values in reversed(self.values):
            point, index = divmod(point, len(values))
            indices.append(index)
        return tuple(reversed(indices))

    def config(self, point: int, default: Mapping[str, Any]) -> dict[str, Any]:
        """A whole Helion configuration: ``default`` with the point's values in it.

        Raises:
            RecordingError: the default configuration has no such slot.
        """
        config = copy.deepcopy(dict(default))
        for name, values, index in zip(self.names, self.values, self.indices(point), strict=True):
            _set(config, name, values[index])
        return config

    def shown_values(self) -> tuple[tuple[Value, ...], ...]:
        """Values as a recording holds them: an order of loops as text, ``"[1, 0]"``."""
        return tuple(tuple(map(_shown, values)) for values in self.values)

    def default_point(self, default: Mapping[str, Any]) -> dict[str, Value]:
        """The default configuration's values of the slots, which need not be on the grid.

        A slot that stands for a whole list is read from the list's first element.
        """
        return {name: _shown(_get(default, name)) for name in self.names}

    def to_toml(self) -> str:
        """The text that :func:`read_grid` reads."""
        lines = ["[slots]"]
        for name, values in zip(self.names, self.values, strict=True):
            lines.append(f"{json.dumps(name)} = {json.dumps([_to_toml(v) for v in values])}")
        return "\n".join(lines) + "\n"


def read_grid(path: Path) -> Grid:
    """Read a grid file.

    Raises:
        RecordingError: not TOML, or not slots with arrays of values.
    """
    try:
        document = toml.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise RecordingError(f"a grid must be a TOML file, but {path} is not: {error}") from error
    slots = document.get("slots")
    if not isinstance(slots, dict) or set(document) != {"slots"}:
        raise RecordingError(
            f"a grid must be one table, [slots], but {path} has {quoted(sorted(document))}"
        )
    for name, values in slots.items():
        if not isinstance(values, list) or not all(map(_is_entry, values)):
            raise RecordingError(
                f"a slot's values must be an array of integers, strings, booleans or arrays of "
                f"integers, but {quoted(name)} of {path} has {quoted(values)}"
            )
    return Grid(tuple(slots), tuple(tuple(map(_from_toml, vs)) for vs in slots.values()))


def slots_of(bound: Any) -> tuple[Slot, ...]:
    """The slots of a bound kernel in the order of Helion's flat configuration.

    A list whose elements Helion treats alike (``indexing``) is one slot.

    Raises:
        RecordingError: a Helion whose search space cannot be listed (before 1.5).
    """
    spec = bound.config_spec
    default = dict(spec.default_config().config)
    generation = spec.create_config_generation()
    placed = getattr(generation, "_key_to_flat_indices", None)
    if placed is None:
        raise RecordingError("listing a kernel's slots needs helion>=1.5: update it")
    slots = []
    for key, (positions, is_sequence) in placed.items():
        for i, position in enumerate(positions):
            name = f"{key}[{i}]" if is_sequence else key
            values = _searched(generation.flat_spec[position])
            if key not in default:  # it matters for other values of other slots only
                slots.append(Slot(name, values, generation.flat_spec[position].default()))
            elif (value := _get(default, name)) is not _ABSENT:
                slots.append(Slot(name, values, _from_toml(value)))
    return tuple(slots)


# What to vary first, and to how many values, step by step: block sizes, warps and program order
# explain most of the variance of recorded kernels; unrolling and flattening little.
_STEPS = (
    ("block_sizes", 3),
    ("num_warps", 3),
    ("pid_type", 2),
    ("num_stages", 2),
    ("reduction_loops", 3),
    ("indexing", 2),
    ("l2_groupings", 2),
    ("load_eviction_policies", 2),
    ("num_stages", 3),
    ("block_sizes", 4),
    ("num_warps", 4),
    ("reduction_loops", 5),
    ("loop_orders", 2),
    ("range_multi_buffers", 2),
    ("l2_groupings", 3),
    ("load_eviction_policies", 3),
    ("block_sizes", 6),
    ("num_warps", 6),
    ("num_stages", 5),
    ("pid_type", 3),
    ("range_unroll_factors", 2),
    ("range_flattens", 2),
    ("range_num_stages", 2),
)


def propose_grid(slots: Sequence[Slot], size: int) -> Grid:
    """A grid of at most ``size`` points around the default configuration.

    Slots take values in the order of how much they matter, those nearest to the default first, as
    long as the product stays within ``size``.

    Raises:
        RecordingError: ``size`` is below 2, or no slot can vary.
    """
    if not 2 <= size <= MAX_POINTS:
        raise RecordingError(f"2 <= size <= {MAX_POINTS} must hold for a grid, but got {size}")
    ordered = {slot.name: _outwards(slot) for slot in slots}
    counts = dict.fromkeys(ordered, 1)
    for key, target in _STEPS:
        for name in (n for n in ordered if _key(n) == key):
            more = min(target, len(ordered[name]))
            grown = {**counts, name: max(more, counts[name])}
            if math.prod(grown.values()) <= size:
                counts = grown
    names = tuple(name for name, count in counts.items() if count > 1)
    if not names:
        raise RecordingError(
            f"a proposed grid must vary some slot, but none of {quoted(list(ordered))} can within "
            f"{size} points: give a grid file"
        )
    own_order = {slot.name: slot.values for slot in slots}
    return Grid(names, tuple(_sorted(ordered[n][: counts[n]], own_order[n]) for n in names))


# Where neighbours of the default are not what to try next.
_PREFERRED = {
    "l2_groupings": (1, 8, 4, 16, 32, 2, 64),
    "pid_type": ("flat", "persistent_interleaved", "persistent_blocked"),
}
_USUAL_BLOCK = 64


_ABSENT = object()  # an element that a configuration does not have


def _key(name: str) -> str:
    return name.partition("[")[0]


def _outwards(slot: Slot) -> list[Any]:
    """Its values, the default first, then by distance in the slot's own order, higher first."""
    values = list(slot.values)
    preferred = [v for v in _PREFERRED.get(_key(slot.name), ()) if v in values]
    if preferred:
        return [slot.default, *(v for v in preferred if v != slot.default)]
    if _key(slot.name) == "block_sizes" and values[:1] == [slot.default] and slot.default > 1:
        # The least that a matrix unit takes: Helion had no better idea.
        middle = float(sum(v < _USUAL_BLOCK for v in values))
    elif slot.default in values:
        middle = float(values.index(slot.default))
    elif slot.default is None or not values:
        middle = float(len(values))  # a loop that is not cut up comes after its longest pieces
    else:
        comparable = [v for v in values if type(v) is type(slot.default)]
        middle = sum(v < slot.default for v in comparable) - 0.5 if comparable else 0.0
    rest = [v for v in values if v != slot.default]
    return [slot.default, *sorted(rest, key=lambda v: _distance(values.index(v), middle))]


def _distance(index: int, middle: float) -> tuple[float, bool]:
    return abs(index - middle), index < middle


def _sorted(chosen: Sequence[Any], own_order: Sequence[Any]) -> tuple[Any, ...]:
    """In the slot's own order; what is not in it (a default outside its range) by value or last."""
    if all(type(v) is int for v in chosen):
        return tuple(sorted(chosen))
    places = {repr(v): i for i, v in enumerate(own_order)}
    return tuple(sorted(chosen, key=lambda v: places.get(repr(v), len(places))))


def _searched(fragment: Any) -> tuple[Any, ...]:
    """What Helion's search would try for a fragment; empty when that cannot be listed."""
    inner = getattr(fragment, "inner", None)
    if inner is not None:  # a list; its elements are set alike
        return _searched(inner) if fragment.length else ()
    length = getattr(fragment, "length", None)
    if length is not None:  # an order
        return tuple(itertools.permutations(range(length))) if length <= _MAX_PERMUTED else ()
    listed = getattr(fragment, "search_values", lambda _: None)(_MAX_VALUES)
    return tuple(listed or ())


def _get(config: Mapping[str, Any], name: str) -> Any:
    match = _ELEMENT.fullmatch(name)
    key, place = (match.group(1), int(match.group(2))) if match else (name, None)
    value = config.get(key, _ABSENT)
    if isinstance(value, list | tuple) and key != name:
        return value[place] if place is not None and place < len(value) else _ABSENT
    if isinstance(value, list | tuple):
        return value[0] if value else _ABSENT
    return value


def _set(config: dict[str, Any], name: str, value: Any) -> None:
    match = _ELEMENT.fullmatch(name)
    config_value = list(value) if isinstance(value, tuple) else value
    if match is None:
        current = config.get(name)
        config[name] = [config_value] * len(current) if isinstance(current, list) else config_value
        return
    key, place = match.group(1), int(match.group(2))
    elements = config.get(key)
    if not isinstance(elements, list) or place >= len(elements):
        raise RecordingError(
            f"a grid's slots must be in the kernel's configuration, but {name} is not; it has "
            f"{', '.join(sorted(config))}"
        )
    elements[place] = config_value


def _shown(value: Any) -> Value:
    if isinstance(value, tuple | list):
        return json.dumps(list(value))
    return None if value is _ABSENT else value


def _to_toml(value: Any) -> Any:
    return _NONE if value is None else list(value) if isinstance(value, tuple) else value


def _from_toml(value: Any) -> Any:
    return None if value == _NONE else tuple(value) if isinstance(value, list) else value


def _is_entry(value: object) -> bool:
    if isinstance(value, list):
        return all(type(v) is int for v in value)
    return isinstance(value, int | str)
