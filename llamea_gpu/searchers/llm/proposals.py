"""From the text of an answer to configurations that can be measured.

What it does: finds the configurations, reads every value against its parameter's, repairs what is
safe to repair, and says of everything it changed or refused what and why, for the next prompt. Pure
functions of text and space.

What it does not do: measure, or know what was measured but for the configurations it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from llamea_gpu.contract import Configuration
from llamea_gpu.searchers.llm.layout import Field, Layout, plain
from llamea_gpu.searchers.llm.reading import Partial, Reading, read_values
from llamea_gpu.searchers.llm.values import match_value, shown

_MOST_CHANGED = 2  # parameters by which a repair may move a configuration that is not valid
_MAX_DEPTH = 6
# Keys under which models put a configuration, or a list of them.
_WRAPPERS = ("config", "configuration", "params", "parameters", "values", "settings")
_LISTS = ("configs", "configurations", "proposals", "candidates", "suggestions", "results")
Kind = Literal[
    "unreadable", "no-configs", "value", "constraint", "repeat", "measured", "failed", "many"
]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A configuration, or a whole answer, that was refused: ``kind`` is one of a fixed set."""

    kind: Kind
    text: str


class _Refused(Exception):  # noqa: N818 - a configuration's fate, not a fault
    """Why a configuration cannot be read."""

    def __init__(self, kind: Kind, why: str) -> None:
        super().__init__(why)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Proposals:
    """What an answer comes to.

    ``configs`` are valid, distinct and new, in the answer's order; ``repaired`` says what was
    changed about them, ``rejected`` what was refused and why.
    """

    configs: tuple[Configuration, ...] = ()
    repaired: tuple[str, ...] = ()
    rejected: tuple[Rejection, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Both, refusals first, in words for the model."""
        return (*(rejection.text for rejection in self.rejected), *self.repaired)


def parse_proposals(
    text: str,
    layout: Layout,
    *,
    anchor: Configuration | None = None,
    measured: Mapping[Configuration, float] | None = None,
    most: int = 1_000,
) -> Proposals:
    """The configurations that ``text`` proposes.

    Args:
        text: the answer; untrusted.
        layout: of the space that they must be valid in.
        anchor: gives the values that a configuration leaves out; without one, such a configuration
            is refused.
        measured: what is refused as known, with its costs in ms; inf is a failure.
        most: how many configurations are taken.
    """
    reading = read_values(text)
    written = _configs_in(list(reading.values), layout)
    collected = _Collected(layout, anchor, measured or {}, most)
    for number, each in enumerate(written, start=1):
        collected.take(number, each)
    if not written:
        collected.rejected.append(_nothing_found(text, reading))
    elif reading.cut_off:
        collected.repaired.append(
            f"the answer was cut off after configuration {len(written)}: write less analysis"
        )
    return Proposals(tuple(collected.configs), tuple(collected.repaired), tuple(collected.rejected))


@dataclass(slots=True)
class _Collected:
    """What has been taken of an answer so far."""

    layout: Layout
    anchor: Configuration | None
    measured: Mapping[Configuration, float]
    most: int
    configs: dict[Configuration, int] = field(default_factory=dict)
    repaired: list[str] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)

    def take(self, number: int, written: Any) -> None:
        """Read one configuration, and keep it or say why not."""
        if len(self.configs) >= self.most:
            if not any(rejection.kind == "many" for rejection in self.rejected):
                self._refuse("many", number, f"more than the {self.most} that were asked for")
            return
        notes: list[str] = []
        try:
            config = self._valid(self._read(written, notes), notes)
        except _Refused as refused:
            self._refuse(refused.kind, number, str(refused))
            return
        if config in self.measured:
            cost_ms = self.measured[config]
            known = cost_ms < float("inf")
            reason = f"was measured already: {cost_ms:.4g} ms" if known else "has failed already"
            self._refuse("measured" if known else "failed", number, reason, notes)
        elif config in self.configs:
            reason = f"repeats configuration {self.configs[config]} of the answer"
            self._refuse("repeat", number, reason, notes)
        else:
            self.configs[config] = number
            if notes:
                self.repaired.append(f"configuration {number}: {'; '.join(notes)}")

    def _refuse(self, kind: Kind, number: int, why: str, notes: Sequence[str] = ()) -> None:
        after = f" (after {'; '.join(notes)})" if notes else ""
        self.rejected.append(Rejection(kind, f"configuration {number} was refused: {why}{after}"))

    def _read(self, written: Any, notes: list[str]) -> Configuration:
        """Value indices, not yet checked together."""
        if not isinstance(written, dict | list):
            raise _Refused("value", f"it must be an object like {{...}}, but is {shown(written)}")
        if isinstance(written, list):
            names = [each.name for each in self.layout.fields]
            notes.append("its values were taken in the order of the parameters")
            written = dict(zip(names, written, strict=True))
        indices: dict[int, int] = {}  # by place
        unknown = []
        for key, value in written.items():
            place, target = self._place(key), self._field(key)
            if place is not None:
                indices[place] = self._element(place, value, notes)
            elif target is None:
                unknown.append(key)
            else:
                if target.name != key:
                    notes.append(f"{shown(key)} was read as {target.name}")
                indices |= self._elements(target, value, notes)
        if unknown:
            notes.append(f"there is no {', '.join(map(shown, unknown[:4]))}")
        return self._filled(indices, notes)

    def _place(self, key: str) -> int | None:
        """The parameter of that very name, where it is an element of a list."""
        if key in self.layout.by_name or key not in self.layout.space.names:
            return None
        return self.layout.space.names.index(key)

    def _field(self, key: str) -> Field | None:
        return self.layout.by_name.get(key) or self.layout.by_plain_name.get(plain(key))

    def _element(self, place: int, value: Any, notes: list[str]) -> int:
        match = match_value(self.layout.space.names[place], value, self.layout.space.values[place])
        if isinstance(match, str):
            raise _Refused("value", match)
        if match.note:
            notes.append(match.note)
        return match.index

    def _elements(self, target: Field, value: Any, notes: list[str]) -> dict[int, int]:
        """The field's indices by place."""
        if not target.is_list:
            return {target.places[0]: self._element(target.places[0], value, notes)}
        length = len(target.places)
        if not isinstance(value, list):
            notes.append(f"{target.name}: {shown(value)} was taken for all {length} elements")
            value = [value] * length
        elif len(value) == 1 < length:
            notes.append(f"{target.name}: its one element was taken {length} times")
            value = value * length
        elif len(value) != length:
            reason = f"{target.name} must have {length} elements, but has {len(value)}"
            raise _Refused("value", reason)
        pairs = zip(target.places, value, strict=True)
        return {place: self._element(place, each, notes) for place, each in pairs}

    def _filled(self, indices: Mapping[int, int], notes: list[str]) -> Configuration:
        """The anchor's values, and those of fixed parameters, where nothing was written."""
        fields = self.layout.fields
        missing = [each.name for each in fields if not indices.keys() >= set(each.places)]
        if len(missing) == len(fields):
            raise _Refused("value", "it has none of the parameters")
        if missing and self.anchor is None:
            raise _Refused("value", f"it lacks {', '.join(missing[:6])}")
        if missing:
            notes.append(f"it lacks {', '.join(missing[:6])}: taken from the best configuration")
        fixed = {place: 0 for each in self.layout.fixed for place in each.places}
        anchor = dict(enumerate(self.anchor or ()))
        filled = {**anchor, **fixed, **indices}
        return tuple(filled[place] for place in range(len(self.layout.space.names)))

    def _valid(self, config: Configuration, notes: list[str]) -> Configuration:
        """``config``, or a valid one close by."""
        space = self.layout.space
        if space.contains(config):
            return space.repair(config)  # a framework may make another one of it: Helion does
        repaired = space.repair(config)
        changed = sum(
            value != repaired_value for value, repaired_value in zip(config, repaired, strict=True)
        )
        if changed > _MOST_CHANGED:
            raise _Refused("constraint", f"{self.layout.as_json(config)} is not valid")
        notes.append(
            f"it is not valid, so the nearest one was taken: {self.layout.change(repaired, config)}"
        )
        return repaired


def _nothing_found(text: str, reading: Reading) -> Rejection:
    if not text.strip():
        return Rejection("unreadable", "the answer was empty")
    if reading.cut_off:
        return Rejection(
            "unreadable", "the answer was cut off before its first configuration was complete"
        )
    if not reading.values and "{" in text:
        return Rejection(
            "unreadable", "the answer could not be read: write JSON, with every value written out"
        )
    return Rejection(
        "no-configs", 'the answer held no configuration: write {"configs": [{...}, ...]}'
    )


def _configs_in(
    value: Any, layout: Layout, depth: int = 0, *, announced: bool = False
) -> list[Any]:
    """Every configuration in what was read, wherever models put them.

    Below a key that announces configurations, everything counts as one, to be refused in words.
    """
    if depth > _MAX_DEPTH:
        return []
    if isinstance(value, list):
        if _is_positional(value, layout) and (announced or depth):
            return [value]
        return [
            c for each in value for c in _configs_in(each, layout, depth + 1, announced=announced)
        ]
    if not isinstance(value, dict):
        return [value] if announced else []
    for key in _LISTS:
        if isinstance(value.get(key), list | dict):
            return _configs_in(value[key], layout, depth + 1, announced=True)
    if _names_a_parameter(value, layout):
        return [] if isinstance(value, Partial) else [value]
    for key in _WRAPPERS:
        if isinstance(value.get(key), dict | list):
            return _configs_in(value[key], layout, depth + 1, announced=announced)
    nested = [each for each in value.values() if isinstance(each, dict | list)]
    if announced and not nested:
        return [] if isinstance(value, Partial) else [value]
    return [c for each in nested for c in _configs_in(each, layout, depth + 1, announced=announced)]


def _names_a_parameter(mapping: dict[str, Any], layout: Layout) -> bool:
    names = {plain(name) for name in layout.space.names} | set(layout.by_plain_name)
    return any(plain(str(key)) in names for key in mapping)


def _is_positional(values: list[Any], layout: Layout) -> bool:
    """As many plain values as there are fields, and not a list of names."""
    if len(values) != len(layout.fields) or len(values) < 2:
        return False
    return all(isinstance(each, int | float | str | bool | None) for each in values) and not all(
        isinstance(each, str) for each in values
    )
