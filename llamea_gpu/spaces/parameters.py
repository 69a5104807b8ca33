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

Value = int | float | str | bool | None


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names as a tuple; SpaceError unless they are distinct non-empty strings."""
    checked = tuple(names)
    if not checked:
        raise SpaceError("a search space must have at least one parameter")
    if not all(isinstance(name, str) and name for name in checked):
        raise SpaceError(f"parameter names must be non-empty strings, but got {checked!r}")
    if len(set(checked)) != len(checked):
        raise SpaceError(f"parameter names must be distinct, but got {checked!r}")
    return checked


def checked_values(name: str, values: Sequence[Value]) -> tuple[Value, ...]:
    """Values as a tuple of Python scalars; SpaceError unless distinct and of the right types."""
    checked = tuple(v.item() if isinstance(v, np.generic) else v for v in values)
    for value in checked:
        finite = not isinstance(value, float) or math.isfinite(value)
        if not isinstance(value, int | float | str | bool | None) or not finite:
            raise SpaceError(
                f"values must be finite numbers, strings, bools or None, but {name!r} has {value!r}"
            )
    if not checked or len(set(checked)) != len(checked):
        raise SpaceError(
            f"a parameter must have at least one value and all distinct (1, 1.0 and True are "
            f"equal), but {name!r} has {_shortened(checked)}"
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
    weights = [math.prod(cardinalities[j + 1 :]) for j in range(len(cardinalities))]
    return np.array(weights, dtype=np.int64)


def _shortened(values: Sequence[Value], limit: int = 200) -> str:
    text = repr(list(values))
    return text if len(text) <= limit else text[:limit] + "…"
