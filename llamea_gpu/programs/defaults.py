"""The hyperparameters that a class declares: names, defaults, and where each stands in the text."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llamea_gpu.errors import SearcherError
from llamea_gpu.programs.program import Hyperparameter, Program
from llamea_gpu.programs.syntax import classes_of, methods_of


@dataclass(frozen=True, slots=True)
class Default:
    """A hyperparameter's default.

    ``start`` and ``end`` are (line from 0, byte in it) of the expression, the end exclusive.
    """

    value: Hyperparameter
    start: tuple[int, int]
    end: tuple[int, int]


def defaults_of(owner: ast.ClassDef, tree: ast.Module) -> dict[str, Default]:
    """The parameters of ``owner``'s constructor whose default is a finite number, bool or string.

    ``owner`` stands in ``tree`` at module level, and may inherit the constructor there.
    """
    init = methods_of(tree, "__init__")[owner]
    return {} if init is None else dict(_literal_defaults(init.args))


def with_defaults(program: Program, values: Mapping[str, Hyperparameter]) -> str:
    """The source with ``values`` as the defaults in ``__init__``, comments and layout kept.

    Raises:
        SearcherError: one of them has no numeric literal there, or another type.
    """
    before = _defaults_in(program.source, program.class_name)
    numeric = {name for name, default in before.items() if not isinstance(default.value, str)}
    unknown = sorted(set(values) - numeric)
    if unknown:
        raise SearcherError(f"only a numeric default can be replaced, but {unknown} is none")
    lines = program.source.encode().split(b"\n")  # columns of a syntax tree count bytes
    changed = [
        (before[name], values[name]) for name in values if values[name] != before[name].value
    ]
    for default, value in sorted(changed, key=lambda change: change[0].start, reverse=True):
        (first, start), (last, end) = default.start, default.end
        text = repr(value).encode()
        lines[first : last + 1] = [lines[first][:start] + text + lines[last][end:]]
    edited = b"\n".join(lines).decode()
    wanted = {name: values.get(name, default.value) for name, default in before.items()}
    after = {
        name: default.value for name, default in _defaults_in(edited, program.class_name).items()
    }
    types = [type(default.value) for default in before.values()]
    if after != wanted or [type(value) for value in after.values()] != types:
        raise SearcherError(f"defaults must be {dict(values)} after the edit, but are {after}")
    return edited


def _defaults_in(source: str, class_name: str) -> dict[str, Default]:
    """Of a class that has been found in ``source`` before."""
    tree = ast.parse(source)
    return defaults_of(classes_of(tree)[class_name], tree)


def _literal_defaults(arguments: ast.arguments) -> Iterator[tuple[str, Default]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaulted = positional[len(positional) - len(arguments.defaults) :]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(defaulted, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, node in pairs:
        value = _literal(node)
        if node is not None and value is not None:
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start, end = (
                (node.lineno - 1, node.col_offset),
                (node.end_lineno - 1, node.end_col_offset),
            )
            yield argument.arg, Default(value, start, end)


def _literal(node: ast.expr | None) -> Hyperparameter | None:
    """The value of a finite number, a bool or a string literal, else None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _literal(node.operand)
        if isinstance(value, str | bool) or value is None:
            return None
        return -value if isinstance(node.op, ast.USub) else value
    if not isinstance(node, ast.Constant) or not isinstance(node.value, int | float | str):
        return None
    if isinstance(node.value, float) and not math.isfinite(node.value):
        return None
    return node.value
