"""A program's numeric hyperparameters: what they may be tuned to, and how they become defaults.

What it does: ranges derived from the defaults, random settings within them, and an edit of the
program's text at the places of the literals, which leaves every other character as it was.

What it does not do: run a program (`llamea_gpu.promotion.tuning` does), or touch hyperparameters
that are text, and defaults that are computed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from llamea_gpu.errors import SearcherError
from llamea_gpu.searchers.source import (
    Hyperparameter,
    find_class,
    method_of,
    numeric_defaults,
    parse_source,
)

FACTOR = 4.0  # a number is tried from a quarter of its default to four times as much
_DIGITS = 3  # significant ones of a tuned float: more would be noise
_MOST = 1e9  # beyond it a number is a mask or an infinity, not a size

Settings = dict[str, Hyperparameter]


def tunable(source: str, class_name: str) -> Settings:
    """The hyperparameters that can be tuned, with their defaults.

    Bools, and numbers that have a scale: a 0 has none, nor has an infinity.
    """
    found = numeric_defaults(_class(source, class_name))
    return {name: value for name, value in found.items() if _has_range(value)}


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


def with_defaults(source: str, class_name: str, values: Mapping[str, Hyperparameter]) -> str:
    """``source`` with ``values`` as the defaults in ``__init__``, comments and layout kept.

    Raises:
        SearcherError: one of them has no numeric literal there.
    """
    before = numeric_defaults(_class(source, class_name))
    nodes = _default_nodes(source, class_name)
    unknown = sorted(set(values) - set(before) | (set(values) - set(nodes)))
    if unknown:
        raise SearcherError(f"only a numeric default can be replaced, but {unknown} is none")
    lines = source.encode().split(b"\n")  # columns of a syntax tree count bytes
    changed = [name for name in values if values[name] != before[name]]
    for node, name in sorted(
        ((nodes[name], name) for name in changed), key=lambda item: _start(item[0]), reverse=True
    ):
        (first, start), (last, end) = _start(node), _end(node)
        text = repr(values[name]).encode()
        lines[first : last + 1] = [lines[first][:start] + text + lines[last][end:]]
    edited = b"\n".join(lines).decode()
    after = numeric_defaults(_class(edited, class_name))
    if after != {**before, **values} or [*map(type, after.values())] != [
        *map(type, before.values())
    ]:
        raise SearcherError(f"defaults must be {dict(values)} after the edit, but are {after}")
    return edited


def _class(source: str, class_name: str) -> ast.ClassDef:
    path = Path(f"{class_name}.py")
    return find_class(path, parse_source(path, source), class_name)


def _default_nodes(source: str, class_name: str) -> dict[str, ast.expr]:
    init = method_of(_class(source, class_name), "__init__")
    if init is None:
        return {}
    positional = [*init.args.posonlyargs, *init.args.args]
    defaulted = positional[len(positional) - len(init.args.defaults) :]
    pairs = [
        *zip(defaulted, init.args.defaults, strict=True),
        *zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True),
    ]
    return {argument.arg: node for argument, node in pairs if node is not None}


def _start(node: ast.expr) -> tuple[int, int]:
    return node.lineno - 1, node.col_offset


def _end(node: ast.expr) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno - 1, node.end_col_offset


def _has_range(value: Hyperparameter) -> bool:
    return isinstance(value, bool) or 0 < abs(value) <= _MOST


def _drawn(default: Hyperparameter, rng: np.random.Generator) -> Hyperparameter:
    if isinstance(default, bool):
        return not default
    size = abs(default)
    high = size * FACTOR if isinstance(default, int) or size >= 1 else min(size * FACTOR, 1.0)
    drawn = math.exp(rng.uniform(math.log(size / FACTOR), math.log(high)))
    sign = 1 if default > 0 else -1
    if isinstance(default, int):
        return sign * max(1, round(drawn))
    return sign * float(f"{drawn:.{_DIGITS}g}")
