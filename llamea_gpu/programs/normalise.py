"""A digest of a program under which trivial rewrites are equal.

Covered: comments, formatting, docstrings, annotations, the optimizer class's name, and the names
of local variables and parameters (renamed in order of first occurrence, one function at a time).
Not covered: the names of attributes, methods, module-level functions and hyperparameters, the
order of statements, algebra. Two programs with equal digests do the same; the reverse is open.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
from collections.abc import Iterable, Iterator

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAMED = (*_DEFINITIONS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
_BUILTINS = frozenset(dir(builtins))
_OPTIMIZER = "Optimizer"


def program_digest(tree: ast.Module, class_name: str) -> str:
    """SHA-256 (hex) of the normalised tree; the same on every Python version from 3.10 on.

    Args:
        tree: of bounded depth (``syntax.parse`` sees to it). It is normalised in place.
        class_name: the optimizer class, which is given a fixed name.
    """
    nodes = tuple(ast.walk(tree))  # once: walking takes most of the time
    # Names passed as keywords: renaming a parameter would part it from its callers.
    keywords = {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    fixed = module_names(tree, nodes) | keywords | _BUILTINS
    for node in nodes:
        _drop_documentation(node)
    for function, is_constructor in _outermost_functions(tree):
        _rename_locals(function, fixed, _parameters(function) if is_constructor else set())
    _rename(nodes, {class_name: _OPTIMIZER})
    parts: list[str] = []
    _dump(tree, parts)
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def module_names(tree: ast.Module, nodes: Iterable[ast.AST] | None = None) -> set[str]:
    """Every name that the module's own scope binds: imports, functions, classes, constants.

    ``nodes`` are all of ``tree``, where they are at hand.
    """
    names: set[str] = set()
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        names.update(_bound_names(node))
        if not isinstance(node, (*_DEFINITIONS, ast.ClassDef, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))
    for node in ast.walk(tree) if nodes is None else nodes:
        if isinstance(node, ast.Global):
            names.update(node.names)
    return names


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Names that this node alone binds in the scope it stands in."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0]
    elif isinstance(node, _NAMED) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def _outermost_functions(tree: ast.Module) -> Iterator[tuple[FunctionNode, bool]]:
    """Functions and methods that stand in no other function; True marks a class's ``__init__``."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, in_class = pending.pop()
        if isinstance(node, FunctionNode):
            yield node, in_class and getattr(node, "name", "") == "__init__"
            continue
        inside = isinstance(node, ast.ClassDef)
        pending.extend((child, inside) for child in ast.iter_child_nodes(node))


def _parameters(function: FunctionNode) -> set[str]:
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def _rename_locals(function: FunctionNode, fixed: set[str], own_fixed: set[str]) -> None:
    """Rename what ``function`` and the functions in it bind, one to one, so meaning is kept."""
    inner = list(_preorder(function))[1:]
    imported = {
        name for node in inner if isinstance(node, ast.alias) for name in _bound_names(node)
    }
    mapping: dict[str, str] = {}
    for node in inner:
        for name in (node.arg,) if isinstance(node, ast.arg) else _bound_names(node):
            if not (name in fixed or name in own_fixed or name in imported):
                mapping.setdefault(name, f"v{len(mapping)}")
    _rename(inner, mapping)


def _rename(nodes: Iterable[ast.AST], mapping: dict[str, str]) -> None:
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = mapping.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = mapping.get(node.arg, node.arg)
        elif isinstance(node, _NAMED) and node.name:
            node.name = mapping.get(node.name, node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            node.rest = mapping.get(node.rest, node.rest)
        elif isinstance(node, ast.Nonlocal):
            node.names = [mapping.get(name, name) for name in node.names]


def _drop_documentation(node: ast.AST) -> None:
    """Remove the annotations that ``node`` itself carries, and statements in it that do nothing.

    Annotated assignments in a class body stay: in a dataclass they declare fields.
    """
    if isinstance(node, ast.arg):
        node.annotation = None
    elif isinstance(node, _DEFINITIONS):
        node.returns = None
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        if isinstance(statements, list):
            kept = [statement for statement in statements if not _is_idle(statement)]
            if not isinstance(node, ast.ClassDef):
                kept = [plain for statement in kept for plain in _without_annotation(statement)]
            setattr(node, field, kept)


def _is_idle(statement: ast.stmt) -> bool:
    """A docstring, ``...`` or ``pass``."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass)


def _without_annotation(statement: ast.stmt) -> list[ast.stmt]:
    """``x: int = 1`` as ``x = 1``; nothing for a bare ``x: int``, which only declares."""
    if not isinstance(statement, ast.AnnAssign):
        return [statement]
    if statement.value is None:
        return []
    return [ast.Assign(targets=[statement.target], value=statement.value)]


def _preorder(node: ast.AST) -> Iterator[ast.AST]:
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(list(ast.iter_child_nodes(current))))


def _dump(node: object, parts: list[str]) -> None:
    """The tree as text: like ``ast.dump``, but empty fields are left out on every version."""
    if isinstance(node, ast.AST):
        parts.append(f"{type(node).__name__}(")
        for name, value in ast.iter_fields(node):
            if value is not None and value != [] and name not in ("ctx", "kind", "type_comment"):
                parts.append(f"{name}=")
                _dump(value, parts)
        parts.append(")")
    elif isinstance(node, list):
        parts.append("[")
        for item in node:
            _dump(item, parts)
            parts.append(",")
        parts.append("]")
    else:
        parts.append(repr(node))
