"""A program's numeric hyperparameters: what they may be tuned to.

What it does: ranges derived from the defaults, and random settings within them.

What it does not do: run a program (evolution and promotion do), or touch hyperparameters that are
text, and defaults that are computed.
"""

from __future__ import annotations

import math

import numpy as np

from llamea_gpu.programs.program import Program

FACTOR = 4.0  # a number is tried from a quarter of its default to four times as much
_DIGITS = 3  # significant ones of a tuned float: more would be noise
_MOST_DRAWS = 50  # of a setting that is new
_MOST = 1e9  # beyond it a number is a mask or an infinity, not a size

Number = int | float | bool
Settings = dict[str, Number]


def tunable(program: Program) -> Settings:
    """The hyperparameters that can be tuned, with their values.

    Bools, and numbers that have a scale: a 0 has none.
    """
    return {
        name: value
        for name, value in program.hyperparameters
        if not isinstance(value, str) and _has_range(value)
    }


def random_settings(defaults: Settings, rng: np.random.Generator) -> Settings:
    """Some of ``defaults`` replaced: each with even chance, and one at least.

    Numbers are drawn log-uniformly from a quarter of their default to four times as much, in their
    own type and with their own sign; a float between 0 and 1 stays there. A bool is turned.
    """
    names = list(defaults)
    chosen = [name for name in names if rng.random() < 0.5] or [
        names[int(rng.integers(len(names)))]
    ]
    return {**defaults, **{name: _drawn(defaults[name], rng) for name in chosen}}


def distinct_settings(defaults: Settings, size: int, seed: int) -> list[Settings]:
    """``defaults``, then up to ``size`` - 1 others by `random_settings`, all distinct."""
    rng = np.random.default_rng(seed)
    settings = [defaults]
    for _ in range(_MOST_DRAWS * size):
        if len(settings) >= size:
            break
        drawn = random_settings(defaults, rng)
        if drawn not in settings:
            settings.append(drawn)
    return settings


def _has_range(value: Number) -> bool:
    return isinstance(value, bool) or 0 < abs(value) <= _MOST


def _drawn(default: Number, rng: np.random.Generator) -> Number:
    if isinstance(default, bool):
        return not default
    size = abs(default)
    high = size * FACTOR if isinstance(default, int) or size >= 1 else min(size * FACTOR, 1.0)
    drawn = math.exp(rng.uniform(math.log(size / FACTOR), math.log(high)))
    sign = 1 if default > 0 else -1
    if isinstance(default, int):
        return sign * max(1, round(drawn))
    return sign * float(f"{drawn:.{_DIGITS}g}")
