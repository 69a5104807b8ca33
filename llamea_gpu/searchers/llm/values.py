"""One value as a model wrote it, matched to the values that a parameter has.

Exact where it is exact. Repaired, with a note for the model, where no reasonable reader could mean
anything else ("4" for 4, True for 1, [64] for 64, "Flat" for "flat") or where a number lies between
listed ones, or at most a factor of two beyond them. Everything else is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from llamea_gpu.contract import Value

_MAX_SHOWN = 40
_MAX_LISTED = 12
_NOTHING = ("", "none", "null", "default")


@dataclass(frozen=True, slots=True)
class Match:
    """The index of the value that is meant; ``note`` says what was changed, if anything was."""

    index: int
    note: str = ""


def match_value(name: str, written: Any, values: Sequence[Value]) -> Match | str:
    """The index of ``written`` in ``values``, or in words why it is none of them."""
    exact = _exact(written, values)
    if exact is not None:
        return Match(exact)
    meant = _unwrapped(written)
    for reading in _readings(meant):
        index = _exact(reading, values)
        if index is not None:
            return Match(index, f"{name}: {shown(written)} was read as {shown(values[index])}")
    number = _number(meant)
    nearest = None if number is None else _nearest(number, values)
    if nearest is not None:
        return Match(
            nearest, f"{name}: {shown(written)} is no value, so {shown(values[nearest])} was taken"
        )
    return f"{name}: {shown(written)} is none of {listed(values)}"


def whole(value: object) -> str:
    """A space's value, or a list of them, as JSON: what a model must be able to write again."""
    return json.dumps(value, ensure_ascii=False)


def shown(value: object) -> str:
    """A value that a model wrote, as JSON, not longer than a message should be."""
    try:
        text = whole(value)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def listed(values: Sequence[Value]) -> str:
    """The first values of a parameter, for a message."""
    more = ", …" if len(values) > _MAX_LISTED else ""
    return f"[{', '.join(shown(value) for value in values[:_MAX_LISTED])}{more}]"


def _exact(written: Any, values: Sequence[Value]) -> int | None:
    """Equal, and of the same kind: True is not 1, but 4.0 is 4."""
    for index, value in enumerate(values):
        alike = type(written) is type(value) or (_is_number(written) and _is_number(value))
        if alike and written == value:
            return index
    return None


def _is_number(value: object) -> TypeGuard[int | float]:
    return type(value) in (int, float)


def _unwrapped(written: Any) -> Any:
    """The one element of a list of one, of alike ones, or of a mapping with a value."""
    if isinstance(written, dict) and set(written) == {"value"}:
        return written["value"]
    if isinstance(written, list) and written and all(each == written[0] for each in written):
        return written[0]
    return written


def _readings(meant: Any) -> list[Any]:
    """What else ``meant`` may stand for, most likely first."""
    readings: list[Any] = [meant]
    if isinstance(meant, bool):
        readings += [int(meant), str(meant), str(meant).lower()]
    elif isinstance(meant, int | float):
        readings += [bool(meant)] if meant in (0, 1) else []
        readings.append(str(meant))
    elif meant is None:
        readings += ["", "none", "None", "null"]
    elif isinstance(meant, str):
        text = meant.strip().strip("\"'")
        readings.append(text)
        number = _number(text)
        if number is not None:
            readings.append(number)
        plain = text.lower()
        if plain in ("true", "yes", "on"):
            readings += [True, 1]
        elif plain in ("false", "no", "off"):
            readings += [False, 0]
        elif plain in _NOTHING:
            readings += [None, "", 0] if plain != "default" else [None, ""]
        readings += [plain, re.sub(r"[\s-]+", "_", plain), plain.upper()]
    return readings


def _number(meant: Any) -> int | float | None:
    """A finite number, written as such or as text."""
    if isinstance(meant, str) and re.fullmatch(r"[-+]?[\d_]{1,20}(?:\.\d{0,20})?", meant.strip()):
        plain = meant.strip().replace("_", "")
        meant = float(plain) if "." in plain else int(plain or 0)
    return meant if _is_number(meant) and abs(meant) < 1e15 else None


def _nearest(number: float, values: Sequence[Value]) -> int | None:
    """Index of the listed number that is meant, if rounding to it is safe."""
    numbers = [(index, value) for index, value in enumerate(values) if _is_number(value)]
    if len(numbers) < 2:
        return None
    least = min(value for _, value in numbers)
    most = max(value for _, value in numbers)
    if least > 0:
        if not least / 2 <= number <= 2 * most:
            return None
        return min(numbers, key=lambda pair: abs(math.log(pair[1] / number)))[0]
    if not least <= number <= 2 * most:
        return None
    return min(numbers, key=lambda pair: abs(pair[1] - number))[0]
