"""Finds the values that a model wrote: JSON where it kept to it, and what it writes instead.

Read beside JSON: Markdown fences, prose around, single quotes, Python's and JavaScript's literals,
comments, trailing commas, unquoted keys, tuples, ``Config(a=1)``, ``[4] * 2``, a <think> section,
and answers that were cut off, whose complete parts count. Nothing is ever evaluated; depth, length
and repetition are bounded.

What the values mean is not known here. Libraries that mend JSON are made to give something for any
text (json-repair takes the 12 that was cut off from 128 for a value); here a wrong value is worse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

MAX_ANSWER_CHARS = 200_000
_MAX_DEPTH = 24
_MAX_STARTS = 400  # places where a value is looked for
_MAX_REPEATED = 256
_MAX_NUMBER_CHARS = 40
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S)
_SPACE = re.compile(r"(?:\s|//[^\n]*|#[^\n]*|/\*.*?\*/)*", re.S)
_NUMBER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d[\d_]*)?\.?\d*(?:[eE][-+]?\d+)?)")
_WORD = re.compile(r"[A-Za-z_$][\w.$\[\]-]*")
# Only where a word begins: a long one would otherwise be read again from each of its letters.
_CALL = re.compile(r"(?:(?<![\w.])[A-Za-z_][\w.]*)?[({\[]")
_WORDS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
    "null": None,
    "None": None,
    "undefined": None,
    "nil": None,
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
_CLOSING = {"{": "}", "[": "]", "(": ")"}


class _Wrong(Exception):  # noqa: N818 - no value here: carries the reading on to the next place
    """This is no value."""


class _Cut(Exception):  # noqa: N818 - as above
    """The text ended inside a value."""


class Partial(dict[str, Any]):
    """An object that the end of the text cut off: what was complete of it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The outermost values of a text, in its order, and whether it ended inside one."""

    values: tuple[Any, ...]
    cut_off: bool


def read_values(text: str) -> Reading:
    """Every object or list in ``text`` that is part of no other; of its fenced blocks, if any."""
    text = text[:MAX_ANSWER_CHARS].replace("\r\n", "\n").lstrip("\ufeff")
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    elif text.lstrip().startswith("<think>"):
        return Reading((), cut_off=True)
    fenced = [match[2] for match in _FENCE.finditer(text)]
    for bodies in (fenced, [text]):
        readings = [_scan(body) for body in bodies]
        values = tuple(value for reading in readings for value in reading.values)
        cut_off = any(reading.cut_off for reading in readings)
        if values:
            break
    return Reading(values, cut_off)


def _scan(text: str) -> Reading:
    values: list[Any] = []
    position = 0
    for _ in range(_MAX_STARTS):
        match = _CALL.search(text, position)
        if match is None:
            break
        if match[0] == "(":  # prose
            position = match.end()
            continue
        reader = _Reader(text)
        try:
            value, position = reader.value(match.start(), 0)
        except _Wrong:
            position = match.end()
            continue
        except _Cut:
            return Reading(tuple(values), cut_off=True)
        values.append(value)
        if reader.cut_off:
            return Reading(tuple(values), cut_off=True)
    return Reading(tuple(values), cut_off=False)


class _Reader:
    """Recursive descent; each method takes a position and gives back a value and the next one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.cut_off = False

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        if depth > _MAX_DEPTH:
            raise _Wrong
        at = self._skip(at)
        here = self._text[at]
        if here == "{":
            return self._mapping(at + 1, "}", depth)
        if here in "[(":
            return self._repeated(*self._list(at + 1, _CLOSING[here], depth))
        if here in "\"'`":
            return self._string(at)
        if here.isdigit() or here in "+-.":
            return self._number(at)
        return self._word(at, depth)

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        at = match.end() if match else at
        if at >= len(self._text):
            raise _Cut
        return at

    def _mapping(self, at: int, closing: str, depth: int) -> tuple[dict[str, Any], int]:
        items, at = self._items(at, closing, depth, keyed=True)
        return (Partial if self.cut_off else dict)(items), at

    def _list(self, at: int, closing: str, depth: int) -> tuple[list[Any], int]:
        items, at = self._items(at, closing, depth, keyed=False)
        return [value for _, value in items], at

    def _items(
        self, at: int, closing: str, depth: int, *, keyed: bool
    ) -> tuple[list[tuple[str, Any]], int]:
        """(key, value) of each, of a list without keys."""
        items: list[tuple[str, Any]] = []
        key = ""
        try:
            while True:
                at = self._skip(at)
                if self._text[at] == closing:
                    return items, at + 1
                if self._text[at] == ",":
                    at += 1
                    continue
                if not keyed and self._text.startswith("...", at):
                    at += 3
                    continue
                if keyed:
                    key, at = self._key(at)
                    at = self._skip(at)
                    if self._text[at] not in ":=":
                        raise _Wrong
                    at += 1
                value, at = self.value(at, depth + 1)
                items.append((key, value))
                if self.cut_off:
                    return items, at
                at = self._separated(at, closing)
        except _Cut:
            self.cut_off = True
            return items, len(self._text)

    def _separated(self, at: int, closing: str) -> int:
        """Past a comma; objects may also follow each other without one."""
        at = self._skip(at)
        if self._text[at] in ",;":
            return at + 1
        if self._text[at] == closing or self._text[at] in "{[\"'":
            return at
        if _WORD.match(self._text, at) and "\n" in self._text[max(at - 80, 0) : at]:
            return at
        raise _Wrong

    def _repeated(self, elements: list[Any], at: int) -> tuple[list[Any], int]:
        """``[4] * 2``."""
        match = re.compile(r"\s*\*\s*(\d{1,4})\b").match(self._text, at)
        if match is None or self.cut_off:
            return elements, at
        if len(elements) * int(match[1]) > _MAX_REPEATED:
            raise _Wrong
        return elements * int(match[1]), match.end()

    def _key(self, at: int) -> tuple[str, int]:
        if self._text[at] in "\"'`":
            return self._string(at)
        match = _WORD.match(self._text, at)
        if match is None:
            raise _Wrong
        return match[0], match.end()

    def _string(self, at: int) -> tuple[str, int]:
        quote = self._text[at]
        parts: list[str] = []
        at += 1
        while at < len(self._text):
            here = self._text[at]
            if here == quote:
                return "".join(parts), at + 1
            if here == "\n" and quote != "`":
                raise _Wrong
            if here == "\\" and at + 1 < len(self._text):
                at += 1
                here = _ESCAPES.get(self._text[at], self._text[at])
            parts.append(here)
            at += 1
        raise _Cut

    def _number(self, at: int) -> tuple[int | float, int]:
        match = _NUMBER.match(self._text, at)
        text = match[0] if match else ""
        if not 0 < len(text) <= _MAX_NUMBER_CHARS:
            raise _Wrong
        end = at + len(text)
        if end >= len(self._text):
            raise _Cut  # it may go on
        if self._text[end].isalnum() or self._text[end] in "*%":
            raise _Wrong  # 64KB, 2**5: not a value that anybody wrote out
        plain = text.replace("_", "")
        try:
            if "x" in plain.lower():
                return int(plain, 16), end
            return (float(plain) if set(plain) & set(".eE") else int(plain)), end
        except ValueError:
            raise _Wrong from None

    def _word(self, at: int, depth: int) -> tuple[Any, int]:
        match = re.compile(r"[A-Za-z_][\w.]*").match(self._text, at)
        if match is None:
            raise _Wrong
        end = match.end()
        if end >= len(self._text):
            raise _Cut
        if self._text[end] == "(":  # Config(a=1), dict(a=1), list((1, 2))
            inside = self._skip(end + 1)
            if re.compile(r"[A-Za-z_]\w*\s*=[^=]").match(self._text, inside):
                return self._mapping(end + 1, ")", depth)
            elements, end = self._list(end + 1, ")", depth)
            return (elements[0] if len(elements) == 1 else elements), end
        if match[0] in _WORDS:
            return _WORDS[match[0]], end
        return match[0], end  # a string whose quotes were forgotten
