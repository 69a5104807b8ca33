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

from llamea_gpu.errors import AnswerError
from llamea_gpu.programs.defaults import defaults_of
from llamea_gpu.programs.normalise import program_digest
from llamea_gpu.programs.program import Program
from llamea_gpu.programs.screening import screen
from llamea_gpu.programs.shape import find_optimizer
from llamea_gpu.programs.syntax import parse

MAX_SOURCE_CHARS = 60_000
_MAX_IDEA_CHARS = 200
_SHOWN_PROBLEMS = 3
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|\n\s*\n")


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
    defaults = defaults_of(optimizer, tree)
    return Program(
        source=source,
        class_name=optimizer.name,
        hyperparameters=tuple((name, default.value) for name, default in defaults.items()),
        idea=idea_of(tree, optimizer),
        digest=program_digest(tree, optimizer.name),  # last: the tree is another afterwards
    )
