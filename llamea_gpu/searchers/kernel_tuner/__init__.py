"""Kernel Tuner's own search strategies, as they are installed: ``kernel_tuner:NAME``.

    kernel_tuner:genetic_algorithm
    kernel_tuner:genetic_algorithm?popsize=20&method=uniform

Which strategies there are and what their options default to is read from the installation's text;
`strategy` runs one in a worker process; `bridge` and `searchspace` are the objects
that Kernel Tuner's code is given, which OptAlg classes in the sandbox (`searchers.optalg`) share.

What it does not do: copy or patch a strategy. Kernel Tuner is imported where one runs, never here.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from llamea_gpu.errors import SearcherError, suggestion
from llamea_gpu.searchers.library import LibrarySearcher, Setting, parse_settings, require

# What the strategies themselves are made of: another version of these gives other runs.
_DECIDING = ("numpy", "scipy", "scikit-learn")


_TABLE = "_STRATEGY_IMPORTS"
_OPTIONS = "_options"
# Strategy module -> the package it needs beside Kernel Tuner's own requirements, and where from.
_EXTRA_PACKAGES = {
    "pyatf_strategies": ("pyatf", "pyatf"),
    "skopt": ("skopt", "scikit-optimize"),
    "pymoo_minimize": ("pymoo", "pymoo"),
}
# Accepted by every strategy but this one, with the type of a count.
_EVALUATION_LIMIT = {"max_fevals": 0}
_WITHOUT_LIMIT = "brute_force"


def resolve(spec: str, name: str, query: str) -> LibrarySearcher:
    """The strategy ``name``, with the options that ``query`` sets.

    Raises:
        SearcherError: Kernel Tuner, or a package that the strategy needs, is not installed; there
            is no such strategy or option.
    """
    version = require("kernel_tuner", "kernel-tuner", spec)
    known = strategies()
    if name not in known:
        raise SearcherError(
            f"{spec}: Kernel Tuner {version} has no strategy {name!r}: {suggestion(name, known)}"
        )
    strategy = known[name]
    if not _is_complete(strategy):
        raise SearcherError(
            f"{spec} needs a package that Kernel Tuner does not bring: "
            f"pip install {strategy.distribution}"
        )
    versions = {"kernel_tuner": version}
    for package in (*_DECIDING, strategy.distribution):
        if package:
            versions[package] = importlib.metadata.version(package)
    settings = parse_settings(spec, query, strategy.options)
    return LibrarySearcher(
        name=spec,
        factory="llamea_gpu.searchers.kernel_tuner.strategy:AdaptedStrategy",
        settings={"strategy": name, "module": strategy.module, **settings},
        versions=versions,
    )


def names() -> tuple[str, ...]:
    """The strategies that this installation can run; none without Kernel Tuner."""
    if importlib.util.find_spec("kernel_tuner") is None:
        return ()
    return tuple(name for name, strategy in strategies().items() if _is_complete(strategy))


def options(name: str) -> Mapping[str, Setting]:
    """What ``?key=value`` may set of ``name``, with the defaults."""
    return strategies()[name].options


def _is_complete(strategy: Strategy) -> bool:
    return not strategy.package or importlib.util.find_spec(strategy.package) is not None


@dataclass(frozen=True, slots=True)
class Strategy:
    """One strategy: its module, the options with their defaults, and the package it also needs.

    ``package`` is imported, ``distribution`` installed; both are empty when it needs none.
    """

    module: str
    options: Mapping[str, Setting]
    package: str = ""
    distribution: str = ""


@cache
def strategies() -> Mapping[str, Strategy]:
    """Every strategy of the installed Kernel Tuner, by name.

    Raises:
        SearcherError: its table of strategies is not where versions 1.5 and newer have it.
    """
    folder = _folder()
    try:
        table = _assigned(_tree(folder / "interface.py"), _TABLE)
        if table is None:
            raise ValueError(f"interface.py has no {_TABLE}")
        modules: dict[str, str] = ast.literal_eval(table)
        return {name: _strategy(folder, name, module) for name, module in modules.items()}
    except (OSError, ValueError, SyntaxError) as error:
        raise SearcherError(
            f"Kernel Tuner's strategies must be listed as its versions >= 1.5, < 2 list them, but "
            f"{folder} does not: {error}. Install kernel_tuner>=1.5,<2"
        ) from error


def _folder() -> Path:
    spec = importlib.util.find_spec("kernel_tuner")
    if spec is None or spec.origin is None:
        raise SearcherError("Kernel Tuner is not installed: pip install 'llamea-gpu[kernel-tuner]'")
    return Path(spec.origin).parent


def _strategy(folder: Path, name: str, module: str) -> Strategy:
    stem = module.rpartition(".")[2]
    options = module_options(_tree(folder / "strategies" / f"{stem}.py"))
    if name != _WITHOUT_LIMIT:
        options = {**_EVALUATION_LIMIT, **options}
    package, distribution = _EXTRA_PACKAGES.get(stem, ("", ""))
    return Strategy(module, options, package, distribution)


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """The expression that the module assigns to ``name``, if it does."""
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=value)
                | ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value)
            ) if target == name:
                return value
    return None


def module_options(tree: ast.Module) -> dict[str, Setting]:
    """Options of a strategy module whose default a spec can set: a number, text or truth value.

    None when the module has no table of options: ``dict(key=(text, default))``, or with braces.
    """
    entries: list[tuple[object, ast.expr]] = []
    match _assigned(tree, _OPTIONS):
        case ast.Call(keywords=keywords):
            entries = [(keyword.arg, keyword.value) for keyword in keywords]
        case ast.Dict(keys=keys, values=values):
            entries = [(getattr(k, "value", None), v) for k, v in zip(keys, values, strict=True)]
    defaults = {}
    for entry in entries:
        match entry:
            case str(name), ast.Tuple(elts=[_, expression]):
                default = _value(expression)
                if isinstance(default, bool | int | float | str):
                    defaults[name] = default
    return defaults


def _value(expression: ast.expr) -> object:
    """A literal, or ``int(literal)``; None for anything else."""
    match expression:
        case ast.Call(func=ast.Name(id="int"), args=[ast.Constant(value=float(number))]):
            return int(number)
    try:
        return ast.literal_eval(expression)
    except ValueError:
        return None
