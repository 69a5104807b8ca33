"""Single-file export: an optimizer and a runtime as one readable Python file.

What it does: writes the header (idea, how to use it, provenance, licence), merges the imports of
both, and puts the optimizer's text and the runtime's text below, each as it was written.

What it does not do: know a framework (`export.kernel_tuner` and `export.helion` bring the runtime
and what joins the two), or rename anything: a name that both sides define is refused.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from llamea_gpu import __version__
from llamea_gpu.errors import SearcherError
from llamea_gpu.programs import Hyperparameter, require_contract
from llamea_gpu.programs.normalise import module_names
from llamea_gpu.searchers.registry import ProgramSearcher
from llamea_gpu.searchers.spec import Spec

_PACKAGE = Path(__file__).parents[1]
COPYRIGHT = "Copyright (c) 2026 The llamea_gpu authors"
_PACKAGES = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}
_NOQA = re.compile(r"  # noqa: .*$", re.MULTILINE)  # directives of this project's own settings
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_WIDTH = 98
_BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True, slots=True)
class Export:
    """What a framework adds to an optimizer to make a file of it.

    ``target`` is the value of ``--to``; ``title`` says what the file is, e.g. ``"a Kernel Tuner
    strategy"``; ``framework`` the requirement, e.g. ``"helion >= 1.2"``.
    ``runtime`` is a module's text: docstring, imports, then code; module-level names that no
    optimizer is likely to have. ``joint`` is code that joins runtime and optimizer, at the end of
    the file. ``usage`` is example code for the header.
    """

    target: str
    title: str
    framework: str
    runtime: str
    joint: str
    usage: str


def compose(searcher: ProgramSearcher, export: Export) -> str:
    """The file's text.

    Raises:
        SearcherError: the program breaks a rule of the contract; it and the runtime define the
            same name for different things; or it is laid out so that they cannot be joined.
    """
    program, name = searcher.program, searcher.short_name
    require_contract(program)
    own, runtime = _Module.parse(program.source), _Module.parse(export.runtime)
    _refuse_collisions(name, own, runtime, ast.parse(export.joint))
    top = [
        _header(searcher, export, own),
        _import_block([*own.imports, *runtime.imports]),
        _rule(f"The optimizer: {program.class_name}"),
        own.body,
    ]
    framework = export.framework.partition(" ")[0]
    rest = [
        _rule(f"The runtime: what connects it to {framework}") + "\n\n\n" + runtime.body,
        export.joint.strip("\n"),
    ]
    text = "\n\n\n".join(["\n\n".join(top), *(_NOQA.sub("", part) for part in rest)]) + "\n"
    try:
        compile(text, f"{name}.py", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise SearcherError(
            f"{name} must begin with its docstring and imports, each on lines of its "
            f"own, to be exported, but: {error}"
        ) from error
    return text


def runtime_text(*modules: str) -> str:
    """Modules of llamea_gpu, named by their paths in it, as one text: the imports of all first.

    What they import of one another is left out, and what they import of `errors` is written out.
    """
    imports: list[str] = []
    bodies: list[str] = []
    errors: set[str] = set()
    for module in modules:
        text = (_PACKAGE / module).read_text(encoding="utf-8")
        leading = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
        for node in leading:
            own = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("llamea_gpu.")
            if not own:
                imports.append(ast.unparse(node))
            elif isinstance(node, ast.ImportFrom) and node.module == "llamea_gpu.errors":
                errors |= {alias.name for alias in node.names}
        bodies.append("\n".join(text.split("\n")[leading[-1].end_lineno :]).strip("\n"))
    text = (_PACKAGE / "errors.py").read_text(encoding="utf-8")
    written_out = [
        ast.get_source_segment(text, node) or ""
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name in errors
    ]
    return "\n".join(dict.fromkeys(imports)) + "\n\n" + "\n\n\n".join(written_out + bodies) + "\n"


def packages(source: str) -> tuple[str, ...]:
    """The packages beyond the standard library that ``source`` imports, as pip names them."""
    roots = {statement.root for node in ast.walk(ast.parse(source)) for statement in _parsed(node)}
    return tuple(_PACKAGES[root] for root in _PACKAGES if root in roots)


def literal(value: Hyperparameter) -> str:
    """``value`` as an expression of Python."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


@dataclass(frozen=True, slots=True, order=True)
class _Import:
    """One imported name: ``import module as alias``, or ``from module import name as alias``."""

    module: str
    name: str = ""
    alias: str = ""

    @property
    def root(self) -> str:
        return self.module.partition(".")[0]

    @property
    def bound(self) -> str:
        return self.alias or self.name or self.root


@dataclass(frozen=True, slots=True)
class _Module:
    """A module in three: docstring, leading imports, and the rest as it was written."""

    docstring: str
    imports: tuple[_Import, ...]
    body: str
    tree: ast.Module

    @classmethod
    def parse(cls, source: str) -> _Module:
        tree = ast.parse(source)
        docstring = ast.get_docstring(tree) or ""
        leading: list[ast.stmt] = []
        for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
            is_docstring = bool(docstring) and not leading
            if not (is_docstring or isinstance(node, ast.Import | ast.ImportFrom)):
                break
            if following is not None and following.lineno == node.end_lineno:
                break  # what shares its line with other code stays where it is
            leading.append(node)
        imports = tuple(item for node in leading for item in _parsed(node))
        return cls(docstring, imports, _without(source, leading), tree)


def _without(source: str, statements: Sequence[ast.stmt]) -> str:
    """``source`` without the lines of ``statements``, and without blank lines around it."""
    dropped = {
        number
        for node in statements
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = source.split("\n")
    kept = [line for number, line in enumerate(lines, start=1) if number not in dropped]
    return "\n".join(kept).strip("\n")


def _parsed(node: ast.AST) -> Iterator[_Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield _Import(alias.name, "", alias.asname or "")
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield _Import(node.module or "", alias.name, alias.asname or "")


def _import_block(imports: Sequence[_Import]) -> str:
    """Sorted import statements: ``__future__``, standard library, packages."""
    groups: list[list[str]] = [[], [], []]
    plain = sorted({i for i in imports if not i.name})
    for item in plain:
        renamed = f" as {item.alias}" if item.alias else ""
        groups[_group(item.root)].append(f"import {item.module}{renamed}")
    for module in sorted({i.module for i in imports if i.name}):
        names = sorted({i for i in imports if i.name and i.module == module}, key=_by_kind)
        listed = ", ".join(f"{i.name} as {i.alias}" if i.alias else i.name for i in names)
        groups[_group(module.partition(".")[0])].append(f"from {module} import {listed}")
    return "\n\n".join("\n".join(group) for group in groups if group)


def _group(root: str) -> int:
    if root == "__future__":
        return 0
    return 1 if root in sys.stdlib_module_names else 2


def _by_kind(item: _Import) -> tuple[int, str]:
    """Constants, then classes, then functions: the order that import sorters agree on."""
    kind = 0 if item.name.isupper() else 1 if item.name[0].isupper() else 2
    return kind, item.name


def _refuse_collisions(name: str, own: _Module, runtime: _Module, joint: ast.Module) -> None:
    """A name may be bound on both sides only by the same import."""
    runtime_names = module_names(runtime.tree) | module_names(joint)
    read = {node.id for node in ast.walk(runtime.tree) if isinstance(node, ast.Name)}
    runtime_names |= read & _BUILTINS
    shared = {i.bound for i in set(own.imports) & set(runtime.imports)}
    clashing = sorted((module_names(own.tree) & runtime_names) - shared)
    if clashing:
        raise SearcherError(
            f"an exported optimizer must not define the names of its runtime, but {name} defines "
            f"{', '.join(clashing)}: rename {'it' if len(clashing) == 1 else 'them'}"
        )


def _header(searcher: ProgramSearcher, export: Export, own: _Module) -> str:
    usage = "\n".join(f"    {line}".rstrip() for line in export.usage.strip().split("\n"))
    needed = [
        export.framework,
        *(p for p in packages(searcher.program.source) if p != "numpy"),
        "numpy",
    ]
    facts = [*_provenance(searcher, export), f"Needs: {', '.join(needed)}."]
    title = f"{searcher.program.class_name}: {export.title}."
    idea = textwrap.fill(searcher.program.idea, _WIDTH)
    paragraphs = [title, idea, own.docstring, usage, "\n".join(facts)]
    text = "\n\n".join(_quotable(p) for p in paragraphs if p)
    licence = f"# SPDX-License-Identifier: MIT\n# {COPYRIGHT}"
    if searcher.provenance.origin != "shipped":  # not ours to license
        licence = f"# The runtime, not the optimizer: MIT License, {COPYRIGHT}"
    return f'{licence}\n"""{text}\n"""'


def _provenance(searcher: ProgramSearcher, export: Export) -> Iterator[str]:
    provenance = searcher.provenance
    shipped = provenance.origin == "shipped"
    attribution = "" if shipped else ", a file of its user, under the licence of its author"
    yield f"Optimizer: {searcher.short_name}{attribution}."
    if provenance.model:
        run = f" in the run {provenance.run}" if provenance.run else ""
        day = f", {provenance.date}" if provenance.date else ""
        yield f"Written by: {provenance.model}{run}{day}."
    if provenance.parents:
        yield f"Parents: {', '.join(provenance.parents)}."
    if provenance.command:
        yield f"Made by: {provenance.command}"
    spec = str(Spec.parse(searcher.name).without_folder())
    command = shlex.join(("llamea-gpu", "export", spec, "--to", export.target))
    yield f"Exported by: llamea-gpu {__version__}, {command}"


def _quotable(text: str) -> str:
    """``text`` as it may stand in a docstring; foreign text cannot end it."""
    clean = _CONTROL.sub("", text).replace("\\", "\\\\")
    return clean.replace('"""', '\\"\\"\\"')


def _rule(title: str) -> str:
    return f"# {'-' * _WIDTH}\n# {title}\n# {'-' * _WIDTH}"
