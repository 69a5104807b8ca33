"""The hyperparameters that a class declares: names, defaults, and where each stands in the text."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import replace

from llamea_gpu.errors import SearcherError
from llamea_gpu.programs.program import Hyperparameter, Program
from llamea_gpu.programs.syntax import classes_of, methods_of


def defaults_of(owner: ast.ClassDef, tree: ast.Module) -> dict[str, Hyperparameter]:
    """The parameters of ``owner``'s constructor whose default is a finite number, bool or string.

    ``owner`` stands in ``tree`` at module level, and may inherit the constructor there.
    """
    return {name: value for name, _, value in _literals(owner, tree)}


def with_defaults(program: Program, values: Mapping[str, Hyperparameter]) -> str:
    """The source with ``values`` as the defaults in ``__init__``, comments and layout kept.

    Raises:
        SearcherError: one of them has no numeric literal there, or another type.
    """
    before = _literals_in(program)
    defaults = {name: value for name, _, value in before}
    unknown = sorted(name for name in values if isinstance(defaults.get(name, ""), str))
    if unknown:
        raise SearcherError(f"only a numeric default can be replaced, but {unknown} is none")
    lines = program.source.encode().split(b"\n")  # columns of a syntax tree count bytes
    changed = [
        (node, values[name]) for name, node, value in before if values.get(name, value) != value
    ]
    for node, value in reversed(changed):  # from the end, so that places before it stay right
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        surroundings = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        lines[first : last + 1] = [repr(value).encode().join(surroundings)]
    edited = b"\n".join(lines).decode()
    after = {name: value for name, _, value in _literals_in(replace(program, source=edited))}
    types = [type(value) for value in defaults.values()]
    if after != {**defaults, **values} or [type(value) for value in after.values()] != types:
        raise SearcherError(f"defaults must be {dict(values)} after the edit, but are {after}")
    return edited


_Literal = tuple[str, ast.expr, Hyperparameter]  # a parameter's name, its default and the value


def _literals_in(program: Program) -> list[_Literal]:
    tree = ast.parse(program.source)
    return _literals(classes_of(tree)[program.class_name], tree)


def _literals(owner: ast.ClassDef, tree: ast.Module) -> list[_Literal]:
    init = methods_of(tree, "__init__")[owner]
    if init is None:
        return []
    arguments = init.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaulted = positional[len(positional) - len(arguments.defaults) :]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(defaulted, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    literals = (
        (argument.arg, node, _literal(node)) for argument, node in pairs if node is not None
    )
    return [(name, node, value) for name, node, value in literals if value is not None]


def _literal(node: ast.expr) -> Hyperparameter | None:
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
