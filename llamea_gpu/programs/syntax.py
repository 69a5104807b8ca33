"""From text to a syntax tree that every later step can walk.

The text is parsed and compiled, never executed. Bounds on depth and integers keep the interpreter's
own recursion and number formatting out of trouble.
"""

from __future__ import annotations

import ast

from llamea_gpu.errors import AnswerError

# Far below the recursion limit of the interpreter's own tree walks, far above honest code.
MAX_DEPTH = 150
# Far below the digits that Python still turns into text, far above any mask or seed.
MAX_INTEGER_BITS = 1024


def parse(source: str) -> ast.Module:
    """The syntax tree of ``source``.

    Raises:
        AnswerError: of kind ``syntax`` or ``too-deep``.
    """
    if "\0" in source:
        raise AnswerError("syntax", "The source contains a null byte: write plain text.")
    try:
        source.encode()
        tree = ast.parse(source)
        compile(source, "<optimizer>", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise AnswerError("syntax", _syntax_sentence(error)) from error
    except UnicodeEncodeError as error:
        raise AnswerError("syntax", f"The source is not valid Unicode text ({error}).") from error
    except (ValueError, OverflowError) as error:
        raise AnswerError("syntax", f"The source does not compile: {error}.") from error
    except (RecursionError, MemoryError):
        raise _too_deep() from None
    _check_bounds(tree)
    return tree


def classes_of(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """The classes at module level by name; of equal names the last, as Python has it."""
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def method_of(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """The method ``name`` that ``owner`` itself defines."""
    methods = (node for node in reversed(owner.body) if isinstance(node, ast.FunctionDef))
    return next((method for method in methods if method.name == name), None)


def methods_of(tree: ast.Module, name: str) -> dict[ast.ClassDef, ast.FunctionDef | None]:
    """The method ``name`` of each class at module level: its own, or that of a class before it."""
    methods: dict[ast.ClassDef, ast.FunctionDef | None] = {}
    latest: dict[str, ast.FunctionDef | None] = {}  # by the class's name
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = (latest.get(base.id) for base in node.bases if isinstance(base, ast.Name))
            inherited = next((method for method in bases if method is not None), None)
            methods[node] = latest[node.name] = method_of(node, name) or inherited
    return methods


def _is_huge(node: ast.AST) -> bool:
    """Whether ``node`` is an integer literal that Python may refuse to turn into text."""
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS


def _syntax_sentence(error: SyntaxError) -> str:
    text = (error.text or "").strip()[:80]
    shown = f", at `{text}`" if text else ""
    return f"Line {error.lineno} is not valid Python: {error.msg}{shown}."


def _too_deep() -> AnswerError:
    return AnswerError(
        "too-deep", f"The code nests deeper than {MAX_DEPTH} levels: break it into statements."
    )


def _check_bounds(tree: ast.AST) -> None:
    """Level by level, without recursion."""
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if any(map(_is_huge, level)):
            raise AnswerError(
                "syntax", f"An integer literal may have {MAX_INTEGER_BITS} bits at most."
            )
    if level:
        raise _too_deep()
