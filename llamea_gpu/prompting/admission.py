"""Static admission: from source code to a ``Program``, or one sentence on what is wrong with it.

The text is parsed, never executed. Checked are size and depth, syntax, the rules of ``screening``,
and the shape of the optimizer class. A filter for clear errors, not a security boundary.

Not here: finding the code in an answer (``answers``), running it (the sandbox).
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Iterator, Mapping

from llamea_gpu.errors import AnswerError
from llamea_gpu.prompting.normalise import program_digest
from llamea_gpu.prompting.program import Hyperparameter, Program
from llamea_gpu.prompting.screening import Problem, screen

MAX_SOURCE_CHARS = 60_000
# Far below the recursion limit of the interpreter's own tree walks, far above honest code.
MAX_DEPTH = 150
# Far below the digits that Python still turns into text, far above any mask or seed.
MAX_INTEGER_BITS = 1024
_MAX_IDEA_CHARS = 200
_SHOWN_PROBLEMS = 3
_Classes = Mapping[str, ast.ClassDef]  # of the module, by name
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|\n\s*\n")


def admit(source: str) -> Program:
    """The program that ``source`` defines.

    Raises:
        AnswerError: with the kind of the first problem and one sentence that names up to three.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff").strip("\n")
    source = source.rstrip() + "\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape in a string is let pass
        try:
            return _admit(source)
        except (ValueError, OverflowError, RecursionError, MemoryError) as error:
            raise AnswerError(
                "syntax",
                f"The program cannot be analysed ({type(error).__name__}): write plainer code.",
            ) from error


def _admit(source: str) -> Program:
    tree = _parse(source)
    problems = list(screen(tree, source))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    optimizer, shape_problems = _optimizer(tree, classes)
    problems += shape_problems
    if optimizer is None or problems:
        clauses = "; ".join(problem.clause for problem in problems[:_SHOWN_PROBLEMS])
        raise AnswerError(problems[0].kind, f"{clauses[0].upper()}{clauses[1:]}.")
    return Program(
        source=source,
        class_name=optimizer.name,
        hyperparameters=tuple(_hyperparameters(_method(optimizer, "__init__", classes))),
        idea=_idea(optimizer, tree),
        digest=program_digest(source, optimizer.name),
    )


def _parse(source: str) -> ast.Module:
    if len(source) > MAX_SOURCE_CHARS:
        raise AnswerError(
            "too-long",
            f"A program may have {MAX_SOURCE_CHARS:,} characters, but this one has "
            f"{len(source):,}: write a simpler one.",
        )
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
    if _depth(tree) > MAX_DEPTH:
        raise _too_deep()
    if any(_is_huge(node) for node in ast.walk(tree)):
        raise AnswerError("syntax", f"An integer literal may have {MAX_INTEGER_BITS} bits at most.")
    return tree


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


def _depth(tree: ast.AST) -> int:
    """Levels of the tree, counted without recursion; stops above the limit."""
    level: list[ast.AST] = [tree]
    depth = 0
    while level and depth <= MAX_DEPTH:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        depth += 1
    return depth


def _optimizer(tree: ast.Module, classes: _Classes) -> tuple[ast.ClassDef | None, list[Problem]]:
    """The optimizer class, and what is wrong with its shape.

    It is the class whose ``__call__`` takes three arguments. Of several, those that the program
    itself refers to (as a base or a helper) are left aside.
    """
    defined = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if not defined:
        return None, [Problem("no-class", "the program defines no class at module level")]
    fitting = [c for c in defined if _takes_three(_method(c, "__call__", classes))]
    if not fitting:
        return None, [_no_call(defined, classes)]
    if len(fitting) > 1:
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        fitting = [c for c in fitting if c.name not in used] or fitting
    if len(fitting) > 1:
        names = ", ".join(c.name for c in fitting)
        clause = f"exactly one class may be an optimizer, but {names} all are: keep one"
        return None, [Problem("ambiguous-class", clause)]
    optimizer = fitting[0]
    problems = [*_call_problems(optimizer, classes), *_constructor_problems(optimizer, classes)]
    return optimizer, problems


def _no_call(defined: list[ast.ClassDef], classes: _Classes) -> Problem:
    called = next((c for c in defined if _method(c, "__call__", classes)), None)
    name = (called or defined[-1]).name
    got = "has another signature" if called else "is missing"
    clause = f"class {name} needs __call__(self, evaluate, space, rng), but its __call__ {got}"
    return Problem("signature", clause)


def _method(owner: ast.ClassDef, name: str, classes: _Classes) -> ast.FunctionDef | None:
    """The method ``name`` of ``owner``, or the one it inherits from classes of this module."""
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


def _takes_three(method: ast.FunctionDef | None) -> bool:
    """Whether ``instance(evaluate, space, rng)`` binds to the method's parameters."""
    if method is None:
        return False
    positional = len(method.args.posonlyargs) + len(method.args.args) - 1
    required = positional - len(method.args.defaults)
    enough = positional >= 3 or method.args.vararg is not None
    return required <= 3 and enough and None not in method.args.kw_defaults


def _call_problems(optimizer: ast.ClassDef, classes: _Classes) -> Iterator[Problem]:
    method = _method(optimizer, "__call__", classes)
    pending: list[ast.AST] = list(method.body) if method else []
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            clause = f"line {node.lineno} makes __call__ a generator, which would never run"
            yield Problem("signature", clause)
        elif not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))


def _constructor_problems(optimizer: ast.ClassDef, classes: _Classes) -> Iterator[Problem]:
    method = _method(optimizer, "__init__", classes)
    if method is None:
        return
    arguments = method.args
    if arguments.vararg or arguments.kwarg:
        clause = f"line {method.lineno}: __init__ must name every hyperparameter, without * or **"
        yield Problem("no-defaults", clause)
    if arguments.posonlyargs[1:]:
        names = ", ".join(argument.arg for argument in arguments.posonlyargs[1:])
        clause = (
            f"line {method.lineno}: hyperparameters are passed by name, but the / after {names}"
        )
        yield Problem("signature", f"{clause} in __init__ forbids that: leave it out")
    positional = [*arguments.posonlyargs, *arguments.args][1:]
    bare = positional[: max(0, len(positional) - len(arguments.defaults))]
    bare += [
        argument
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    if bare:
        names = ", ".join(argument.arg for argument in bare)
        clause = f"line {method.lineno}: every parameter of __init__ needs a default, but {names} "
        yield Problem("no-defaults", clause + ("have none" if len(bare) > 1 else "has none"))


def _hyperparameters(method: ast.FunctionDef | None) -> Iterator[tuple[str, Hyperparameter]]:
    if method is None:
        return
    arguments = method.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaulted = positional[len(positional) - len(arguments.defaults) :]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(defaulted, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        value = _literal(default)
        if value is not None:
            yield argument.arg, value


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


def _idea(optimizer: ast.ClassDef, tree: ast.Module) -> str:
    """The first sentence of the class's docstring (or the module's), else the class's name."""
    text = ast.get_docstring(optimizer) or ast.get_docstring(tree) or optimizer.name
    sentence = " ".join(_SENTENCE_END.split(text.strip(), maxsplit=1)[0].split())
    if len(sentence) <= _MAX_IDEA_CHARS:
        return sentence or optimizer.name
    return sentence[: _MAX_IDEA_CHARS - 1].rstrip() + "…"
