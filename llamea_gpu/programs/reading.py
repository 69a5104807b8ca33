"""From source text to a ``Program``, or one sentence on what is wrong with it.

The text is parsed, never executed. `read_program` wants Python with one class of the contract's
shape; `admit` wants every rule of ``screening`` kept as well. A filter for clear errors, not a
security boundary.

Not here: finding the code in an answer (``prompting``), running it (the sandbox).
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping

from llamea_gpu.errors import AnswerError
from llamea_gpu.programs.defaults import defaults_of
from llamea_gpu.programs.normalise import program_digest
from llamea_gpu.programs.program import Program
from llamea_gpu.programs.screening import Problem, screen
from llamea_gpu.programs.syntax import methods_of, parse

MAX_SOURCE_CHARS = 60_000
_MAX_IDEA_CHARS = 200
_SHOWN_PROBLEMS = 3
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|\n\s*\n")


_Methods = Mapping[ast.ClassDef, ast.FunctionDef | None]


def read_program(source: str, class_name: str = "") -> Program:
    """The program that ``source`` defines, its hyperparameters at their defaults.

    ``class_name`` is the optimizer's where several classes could be one.

    Raises:
        AnswerError: with the kind of the first problem and one sentence that names up to three.
    """
    return _read(source, class_name, screened=False)


def admit(source: str) -> Program:
    """The program that a model's answer ``source`` defines, if it keeps the contract's rules.

    Its text is given "\\n" line ends, no blank lines before, and exactly one line end after it.

    Raises:
        AnswerError: with the kind of the first problem and one sentence that names up to three.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff").strip("\n")
    source = source.rstrip() + "\n"
    if len(source) > MAX_SOURCE_CHARS:
        raise AnswerError(
            "too-long",
            f"A program may have {MAX_SOURCE_CHARS:,} characters, but this one has "
            f"{len(source):,}: write a simpler one.",
        )
    return _read(source, "", screened=True)


def idea_of(tree: ast.Module, owner: ast.ClassDef | None = None) -> str:
    """The first sentence of the class's docstring (or the module's), else the class's name."""
    name = owner.name if owner else ""
    text = (owner and ast.get_docstring(owner)) or ast.get_docstring(tree) or name
    sentence = " ".join(_SENTENCE_END.split(text.strip(), maxsplit=1)[0].split())
    if len(sentence) <= _MAX_IDEA_CHARS:
        return sentence or name
    return sentence[: _MAX_IDEA_CHARS - 1].rstrip() + "…"


def _read(source: str, class_name: str, *, screened: bool) -> Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape in a string is let pass
        try:
            return _parsed(source, class_name, screened)
        except (ValueError, OverflowError, RecursionError, MemoryError) as error:
            raise AnswerError(
                "syntax",
                f"The program cannot be analysed ({type(error).__name__}): write plainer code.",
            ) from error


def _parsed(source: str, class_name: str, screened: bool) -> Program:
    tree = parse(source)
    problems = list(screen(tree, source)) if screened else []
    optimizer, shape_problems = find_optimizer(tree, class_name)
    problems += shape_problems
    if optimizer is None or problems:
        clauses = "; ".join(problem.clause for problem in problems[:_SHOWN_PROBLEMS])
        raise AnswerError(problems[0].kind, f"{clauses[0].upper()}{clauses[1:]}.")
    return Program(
        source=source,
        class_name=optimizer.name,
        hyperparameters=tuple(defaults_of(optimizer, tree).items()),
        idea=idea_of(tree, optimizer),
        digest=program_digest(tree, optimizer.name),  # last: the tree is another afterwards
    )


def find_optimizer(
    tree: ast.Module, class_name: str = ""
) -> tuple[ast.ClassDef | None, list[Problem]]:
    """The optimizer class, and what is wrong with its shape.

    It is the class whose ``__call__`` takes three arguments. Of several, those that the program
    itself refers to (as a base or a helper) are left aside. ``class_name`` leaves only that one.
    """
    methods = methods_of(tree, "__call__")
    defined = [node for node in methods if class_name in ("", node.name)]
    if not defined:
        names = ", ".join(dict.fromkeys(node.name for node in methods))
        listed = f"; classes in it: {names}" if names else ""
        missing = f"no class {class_name}" if class_name else "no class"
        return None, [Problem("no-class", f"the program defines {missing} at module level{listed}")]
    fitting = [c for c in defined if _takes_three(methods[c])]
    if not fitting:
        return None, [_no_call(defined, methods)]
    if len(fitting) > 1:
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        fitting = [c for c in fitting if c.name not in used] or fitting
    if len(fitting) > 1:
        names = ", ".join(c.name for c in fitting)
        clause = f"exactly one class may be an optimizer, but {names} all are: keep one"
        return None, [Problem("ambiguous-class", clause)]
    optimizer = fitting[0]
    constructor = methods_of(tree, "__init__")[optimizer]
    problems = [*_call_problems(methods[optimizer]), *_constructor_problems(constructor)]
    return optimizer, problems


def _no_call(defined: list[ast.ClassDef], methods: _Methods) -> Problem:
    called = next((c for c in defined if methods[c]), None)
    name = (called or defined[-1]).name
    got = "has another signature" if called else "is missing"
    clause = f"class {name} needs __call__(self, evaluate, space, rng), but its __call__ {got}"
    return Problem("signature", clause)


def _takes_three(method: ast.FunctionDef | None) -> bool:
    """Whether ``instance(evaluate, space, rng)`` binds to the method's parameters."""
    if method is None:
        return False
    positional = len(method.args.posonlyargs) + len(method.args.args) - 1
    required = positional - len(method.args.defaults)
    enough = positional >= 3 or method.args.vararg is not None
    return required <= 3 and enough and None not in method.args.kw_defaults


def _call_problems(method: ast.FunctionDef | None) -> Iterator[Problem]:
    pending: list[ast.AST] = list(method.body) if method else []
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            clause = f"line {node.lineno} makes __call__ a generator, which would never run"
            yield Problem("signature", clause)
        elif not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))


def _constructor_problems(method: ast.FunctionDef | None) -> Iterator[Problem]:
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
