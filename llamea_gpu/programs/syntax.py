"""From text to a syntax tree that every later step can walk.

The text is parsed and compiled, never executed. Bounds on depth and integers keep the interpreter's
own recursion and number formatting out of trouble.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from llamea_gpu.errors import AnswerError

# Far below the recursion limit of the interpreter's own tree walks, far above honest code.
MAX_DEPTH = 150
# Far below the digits that Python still turns into text, far above any mask or seed.
MAX_INTEGER_BITS = 1024

Classes = Mapping[str, ast.ClassDef]  # of the module, by name


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


def method_of(owner: ast.ClassDef, name: str, classes: Classes) -> ast.FunctionDef | None:
    """The method ``name`` of ``owner``, or the one it inherits from ``classes``."""
    pending, seen = [owner], {owner.name}
    while pending:
        current = pending.pop()
        for node in reversed(current.body):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return node
        bases = [base.id for base in current.bases if isinstance(base, ast.Name)]
        pending.extend(classes[b] for b in reversed(bases) if b in classes and b not in seen)
        seen.update(bases)
    return None


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
