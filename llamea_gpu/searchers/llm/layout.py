"""The fields in which a model writes configurations, over the parameters that a space has.

A space's parameters are flat. Those that a framework names as elements of a list (``indexing[0]``,
``indexing[1]``) are one field whose value is a JSON list; every other one is a field of its own.
Parameters with a single value are fixed: they are told once and need not be written.

Not here: which text holds the configurations (`reading`), and what becomes of them (`proposals`).
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.contract import Configuration, Space, Value
from llamea_gpu.prompting.proposer import Parameter, SpaceDescription
from llamea_gpu.searchers.llm.values import whole

_ELEMENT = re.compile(r"^(.+)\[(\d+)\]$")
_MOST_RULES = 12
_MOST_ROWS = 200_000  # that are looked at for rules
_MOST_COMBINATIONS = 2_000_000
_MOST_CHOICES = 400  # values that a JSON schema lists: servers have limits


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a written configuration; ``places`` are the parameters that it holds."""

    name: str
    places: tuple[int, ...]
    is_list: bool


class Layout:
    """The fields of ``space``, those that vary in ``fields`` and by name in ``by_name``."""

    def __init__(self, space: Space) -> None:
        self.space = space
        fields = _fields(space.names)
        varies = [any(space.cardinalities[i] > 1 for i in field.places) for field in fields]
        self.fields = tuple(f for f, v in zip(fields, varies, strict=True) if v)
        self.fixed = tuple(f for f, v in zip(fields, varies, strict=True) if not v)
        self.by_name = {field.name: field for field in fields}
        self.by_plain_name = {plain(field.name): field for field in fields}

    def written(self, config: Configuration, field: Field) -> Any:
        """The field's value in ``config``: a value or a list of values."""
        values = [self.space.values[i][config[i]] for i in field.places]
        return values if field.is_list else values[0]

    def as_object(self, config: Configuration) -> dict[str, Any]:
        """``config`` as a model should write it."""
        return {field.name: self.written(config, field) for field in self.fields}

    def as_json(self, config: Configuration) -> str:
        """The same on one line."""
        return json.dumps(self.as_object(config), ensure_ascii=False)

    def change(self, config: Configuration, base: Configuration | None) -> str:
        """What distinguishes ``config`` from ``base``: ``block_m 64 → 128, num_warps 4 → 8``."""
        if base is None:
            return self.as_json(config)
        parts = [
            f"{field.name} {whole(self.written(base, field))} → "
            f"{whole(self.written(config, field))}"
            for field in self.fields
            if any(config[i] != base[i] for i in field.places)
        ]
        return ", ".join(parts) or "the best itself"

    def describe(self, default: Configuration | None) -> SpaceDescription:
        """The space for a prompt, with its rules as far as they can be read off its rows."""
        space = self.space
        example = default or _any_configuration(space)
        return SpaceDescription(
            parameters=tuple(self._parameter(field, default) for field in self.fields),
            fixed=tuple((f.name, whole(self.written(example, f))) for f in self.fixed),
            combinations=math.prod(space.cardinalities),
            size=space.size,
            rules=tuple(self._rules()),
            example=self.as_json(example),
        )

    def schema(self, n_configs: int) -> dict[str, Any]:
        """A JSON schema of an answer, in the subset that servers enforce strictly."""
        choices = sum(len(self.space.values[f.places[0]]) for f in self.fields)
        properties = {f.name: self._field_schema(f, choices <= _MOST_CHOICES) for f in self.fields}
        config = _object(properties)
        return _object(
            {
                "analysis": {"type": "string"},
                "configs": {
                    "type": "array",
                    "items": config,
                    "description": f"{n_configs} configurations, most promising first.",
                },
            }
        )

    def _parameter(self, field: Field, default: Configuration | None) -> Parameter:
        columns = [self.space.values[i] for i in field.places]
        texts = tuple(tuple(map(whole, column)) for column in columns)
        alike = len(set(texts)) == 1
        return Parameter(
            name=field.name,
            values=texts[0] if alike else (),
            length=len(field.places) if field.is_list else 0,
            elements=() if alike else texts,
            default="" if default is None else whole(self.written(default, field)),
        )

    def _field_schema(self, field: Field, with_choices: bool) -> dict[str, Any]:
        values = list(dict.fromkeys(v for i in field.places for v in self.space.values[i]))
        kinds: dict[str, list[Value]] = {}
        for value in values:
            kinds.setdefault(_json_type(value), []).append(value)
        parts = [
            {"type": kind, "enum": choices} if with_choices and kind != "null" else {"type": kind}
            for kind, choices in kinds.items()
        ]
        each: dict[str, Any] = parts[0] if len(parts) == 1 else {"anyOf": parts}
        if not field.is_list:
            return each
        return {
            "type": "array",
            "items": each,
            "description": f"{len(field.places)} elements",
        }

    def _rules(self) -> list[str]:
        """Pairs of parameters that exclude each other's values, in words."""
        space = self.space
        size = space.size
        if size is None or size > _MOST_ROWS or size == math.prod(space.cardinalities):
            return []
        rows = space.pool(size)
        rules: list[str] = []
        for first, second in itertools.combinations(range(len(space.names)), 2):
            if rule := self._pair_rule(rows, first, second):
                rules.append(rule)
            if len(rules) > _MOST_RULES:
                return [*rules[:_MOST_RULES], "there are more like these"]
        if not _pairs_explain(rows, space.cardinalities):
            rules.append("some combinations of three or more values are not valid")
        return rules

    def _pair_rule(self, rows: NDArray[np.int64], first: int, second: int) -> str:
        space = self.space
        together = _together(rows, space.cardinalities, first, second)
        occurs = together.any(axis=0)
        groups: dict[tuple[int, ...], list[int]] = {}  # values of the one by those of the other
        for index, row in enumerate(together):
            if row.any() and (row != occurs).any():
                groups.setdefault(tuple(np.flatnonzero(row).tolist()), []).append(index)
        clauses = []
        for allowed, indices in groups.items():
            first_values = "/".join(whole(space.values[first][i]) for i in indices)
            second_values = ", ".join(whole(space.values[second][i]) for i in allowed)
            clauses.append(
                f"{space.names[first]} {first_values} only with "
                f"{space.names[second]} {second_values}"
            )
        return "; ".join(clauses)


def plain(name: str) -> str:
    """A name without what models change about names."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _fields(names: Sequence[str]) -> list[Field]:
    """One for each list whose elements are all there, one for every other parameter."""
    lists: dict[str, dict[int, int]] = {}
    for place, name in enumerate(names):
        if match := _ELEMENT.match(name):
            lists.setdefault(match[1], {})[int(match[2])] = place
    fields = {name: Field(name, (place,), is_list=False) for place, name in enumerate(names)}
    for stem, places in lists.items():
        if sorted(places) == list(range(len(places))) and stem not in names:
            in_order = tuple(places[i] for i in range(len(places)))
            fields |= dict.fromkeys(
                (names[place] for place in in_order), Field(stem, in_order, is_list=True)
            )
    return list(dict.fromkeys(fields.values()))


def _together(
    rows: NDArray[np.int64], cardinalities: Sequence[int], first: int, second: int
) -> NDArray[np.bool_]:
    """Whether some row has both values, by value of the ``first`` and of the ``second``."""
    cooccurrence = np.zeros((cardinalities[first], cardinalities[second]), dtype=bool)
    cooccurrence[rows[:, first], rows[:, second]] = True
    return cooccurrence


def _pairs_explain(rows: NDArray[np.int64], cardinalities: Sequence[int]) -> bool:
    """Whether ``rows`` are all the combinations whose every pair of values occurs in them.

    Where the combinations are too many to look at, the answer is no.
    """
    vary = [i for i, count in enumerate(cardinalities) if count > 1]
    counts = [cardinalities[i] for i in vary]
    if math.prod(counts) > _MOST_COMBINATIONS:
        return False
    allowed = np.ones(counts, dtype=bool)
    for one, two in itertools.combinations(range(len(vary)), 2):
        together = _together(rows, cardinalities, vary[one], vary[two])
        shape = [count if i in (one, two) else 1 for i, count in enumerate(counts)]
        allowed &= together.reshape(shape)
    return int(allowed.sum()) == len(rows)


def _any_configuration(space: Space) -> Configuration:
    """A valid configuration that takes nothing from the run's random numbers."""
    return space.repair([0.0] * len(space.names))


def _json_type(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    return "number" if isinstance(value, float) else "string"


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
