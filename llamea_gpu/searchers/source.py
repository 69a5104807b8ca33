"""What a searcher's source text says of it: its class, and its numeric hyperparameters.

What it does: reads the syntax tree, and settings in the type of a default.

What it does not do: import or run the text, which may hold anything.
"""

from __future__ import annotations

import ast
from pathlib import Path

from llamea_gpu.errors import SearcherError
from llamea_gpu.searchers.library import parse_settings

Hyperparameter = int | float | bool


def read_source(path: Path) -> str:
    """The file's text.

    Raises:
        SearcherError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise SearcherError(f"a searcher's file must be readable UTF-8 text: {error}") from error


def parse_source(path: Path, source: str) -> ast.Module:
    """The syntax tree of ``source``, the text of ``path``.

    Raises:
        SearcherError: it is not Python.
    """
    try:
        return ast.parse(source, filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SearcherError(f"{path} must be Python source, but: {error}") from error


def find_class(path: Path, tree: ast.Module, class_name: str) -> ast.ClassDef:
    """The class to run: the one named, or the only one that can be called.

    Raises:
        SearcherError: there is none, or more than one.
    """
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if class_name:
        chosen = [node for node in classes if node.name == class_name]
    else:
        chosen = [node for node in classes if method_of(node, "__call__")]
    if len(chosen) != 1:
        raise SearcherError(
            f"{path} must hold one class with a __call__ method, or be named as FILE.py:Class; "
            f"classes in it: {', '.join(node.name for node in classes) or 'none'}"
        )
    return chosen[0]


def method_of(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """The method of that name, if the class itself defines it."""
    methods = (item for item in node.body if isinstance(item, ast.FunctionDef))
    return next((method for method in methods if method.name == name), None)


def numeric_defaults(node: ast.ClassDef) -> dict[str, Hyperparameter]:
    """Numeric defaults of ``__init__``, by name.

    Raises:
        SearcherError: a hyperparameter can only be passed by position.
    """
    init = method_of(node, "__init__")
    if init is None:
        return {}
    if init.args.posonlyargs[1:]:
        names = ", ".join(argument.arg for argument in init.args.posonlyargs[1:])
        raise SearcherError(
            f"hyperparameters must be passable by name, but the / after {names} in "
            f"{node.name}.__init__ forbids that: leave it out"
        )
    positional = [*init.args.posonlyargs, *init.args.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = list(
        zip(
            positional[len(positional) - len(init.args.defaults) :], init.args.defaults, strict=True
        )
    )
    pairs += zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True)
    found = {}
    for argument, default in pairs:
        try:
            value = ast.literal_eval(default) if default is not None else None
        except (ValueError, TypeError):  # an expression: the class sets it, the spec cannot
            continue
        if isinstance(value, int | float):
            found[argument.arg] = value
    return found


def with_settings(
    spec: str, defaults: dict[str, Hyperparameter], query: str
) -> dict[str, Hyperparameter]:
    """The defaults, with what the spec sets, in the type of the default.

    Raises:
        SearcherError: a key that is not in ``defaults``, or a value of another type.
    """
    chosen = parse_settings(spec, query, defaults, "name a numeric hyperparameter")
    return {**defaults, **chosen}
