"""What a parameter may be: rules for names and values, and the weights of mixed-radix keys.

It does not know which combinations of values are valid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.quoting import quoted

Value = int | float | str | bool | None

MAX_PARAMETERS = 1_024
_MAX_BITS = 1_024  # of an integer value: no double holds more


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names as a tuple; SpaceError unless they are 1 to 1,024 distinct non-empty strings."""
    checked = tuple(names)
    if not checked:
        raise SpaceError("a search space must have at least one parameter")
    if len(checked) > MAX_PARAMETERS:
        raise SpaceError(
            f"a search space must have at most {MAX_PARAMETERS} parameters, but got {len(checked)}"
        )
    if not all(isinstance(name, str) and name and is_text(name) for name in checked):
        raise SpaceError(
            f"parameter names must be non-empty strings of UTF-8 text, but got {quoted(checked)}"
        )
    if len(set(checked)) != len(checked):
        raise SpaceError(f"parameter names must be distinct, but got {quoted(checked)}")
    return checked


def checked_values(name: str, values: Sequence[Value]) -> tuple[Value, ...]:
    """Values as a tuple of Python scalars; SpaceError unless distinct and of the right types."""
    checked = tuple(v.item() if isinstance(v, np.generic) else v for v in values)
    for value in checked:
        if not is_value(value):
            raise SpaceError(
                f"values must be finite numbers, strings of UTF-8 text, bools or None and "
                f"integers of at most {_MAX_BITS} bits, but {quoted(name)} has {quoted(value)}"
            )
    if not checked or len(set(checked)) != len(checked):
        raise SpaceError(
            f"a parameter must have at least one value and all distinct (1, 1.0 and True are "
            f"equal), but {quoted(name)} has {quoted(checked)}"
        )
    return checked


def is_ordinal(values: Sequence[Value]) -> bool:
    """At least two numbers (not bool), strictly rising or falling."""
    if len(values) < 2 or not all(type(v) in (int, float) for v in values):
        return False
    numbers = cast("Sequence[float]", values)
    pairs = list(pairwise(numbers))
    return all(a < b for a, b in pairs) or all(a > b for a, b in pairs)


def radix_weights(cardinalities: Sequence[int]) -> npt.NDArray[np.int64] | None:
    """Weights that turn a row of indices into one integer, or None when it would not fit."""
    if math.prod(cardinalities) >= 1 << 62:
        return None
    weights = np.ones(len(cardinalities), dtype=np.int64)
    for j in range(len(cardinalities) - 1, 0, -1):
        weights[j - 1] = weights[j] * cardinalities[j]
    return weights


def is_text(string: str) -> bool:
    """Whether it can be written as UTF-8: lone surrogates cannot."""
    try:
        string.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_value(value: object) -> bool:
    """Whether a parameter may have it: finite, of bounded size, and UTF-8 text where a text."""
    if isinstance(value, str):
        return is_text(value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return value.bit_length() <= _MAX_BITS
    return value is None
