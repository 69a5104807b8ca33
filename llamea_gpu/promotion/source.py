"""The text that is validated and then shipped: tuned constants, a docstring, one layout.

What it does: everything that changes a program's text, before validation sees it, so that what was
measured is what is written. Behaviour stays: the digest of the normalised program is compared.

What it does not do: rewrite a program. It is laid out anew where ruff is installed, and else left
as its model wrote it.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Mapping

from llamea_gpu.errors import SearcherError
from llamea_gpu.programs import Hyperparameter, Program
from llamea_gpu.programs.defaults import with_defaults
from llamea_gpu.programs.normalise import program_digest
from llamea_gpu.programs.syntax import classes_of

_LINE_LENGTH = 100
_FORMAT_S = 60


def shipped_text(program: Program, values: Mapping[str, Hyperparameter]) -> str:
    """The source with ``values`` as defaults and the idea as docstring if the class has none.

    Raises:
        SearcherError: the text cannot be edited without changing what it does.
    """
    class_name = program.class_name
    tuned = with_defaults(program, values)
    text = _formatted(_with_docstring(tuned, class_name, program.idea))
    before, after = (program_digest(ast.parse(each), class_name) for each in (tuned, text))
    if before != after:
        raise SearcherError(f"the layout of {class_name} must not change it, but does")
    return text


def snake_case(class_name: str) -> str:
    """``AdaptiveTabuGA2`` as ``adaptive_tabu_ga2``."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", class_name.strip("_"))
    return re.sub(r"_+", "_", parted).lower()


def _with_docstring(source: str, class_name: str, idea: str) -> str:
    owner = classes_of(ast.parse(source))[class_name]
    if ast.get_docstring(owner):
        return source
    first = owner.body[0]
    decorators = getattr(first, "decorator_list", [])
    line = min([first.lineno, *(node.lineno for node in decorators)]) - 1
    lines = source.split("\n")
    indent = lines[line][: len(lines[line]) - len(lines[line].lstrip())]
    quoted = idea.replace("\\", "\\\\").replace('"', '\\"')
    lines.insert(line, f'{indent}"""{quoted}"""\n')
    return "\n".join(lines)


def _formatted(source: str) -> str:
    """``source`` as ruff lays it out; ``source`` itself where there is no ruff."""
    if importlib.util.find_spec("ruff") is None:
        return source
    options = ("--isolated", "--no-cache", f"--line-length={_LINE_LENGTH}", "-")
    completed = subprocess.run(  # noqa: S603 - a formatter reads the text, and runs none of it
        [sys.executable, "-m", "ruff", "format", *options],
        input=source,
        capture_output=True,
        text=True,
        timeout=_FORMAT_S,
    )
    return completed.stdout if completed.returncode == 0 and completed.stdout else source
