"""Finds a searcher by its spec.

A spec is ``NAME`` of a classical or generated optimizer, ``FILE.py`` or ``FILE.py:Class``, or
``SCHEME:NAME`` of a library's searcher, each with ``?key=value&key=value`` to set hyperparameters:

    random_search
    genetic_algorithm?population_size=40&offspring=10
    mine.py:TabuSearch?tenure=7
    kernel_tuner:genetic_algorithm?popsize=20

What it does not do: import or run a searcher. Its class and hyperparameters are read from the
syntax tree, because the file may hold anything; the sandbox runs it.
"""

from __future__ import annotations

import ast
import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llamea_gpu.errors import SearcherError
from llamea_gpu.resources import resource_dir
from llamea_gpu.searchers.library import LibrarySearcher

Hyperparameter = int | float | bool

_CLASSICAL = Path(__file__).resolve().parent / "classical"
# Each module has ``resolve(spec, name, query)``, which returns a searcher, and ``names()``.
_SCHEMES = {
    "kernel_tuner": "llamea_gpu.searchers.kernel_tuner",
    "optalg": "llamea_gpu.searchers.optalg",
    "helion": "llamea_gpu.searchers.helion",
    "scipy": "llamea_gpu.searchers.scipy_optimize",
    "optuna": "llamea_gpu.searchers.optuna_samplers",
}


@dataclass(frozen=True, slots=True)
class SearcherSource:
    """A searcher as text: what the sandbox needs to run it.

    ``name`` is the spec it was found by. ``hyperparameters`` holds every numeric one, at its
    default unless the spec sets it.
    """

    name: str
    source: str
    class_name: str
    hyperparameters: Mapping[str, Hyperparameter]


Searcher = SearcherSource | LibrarySearcher


def searcher_names() -> tuple[str, ...]:
    """Names of the searchers that ship: classical ones, then generated ones, each sorted."""
    return tuple(_shipped())


def resolve(spec: str) -> Searcher:
    """The searcher that ``spec`` names.

    Raises:
        SearcherError: nothing has that name, the file cannot be read or holds no such class, its
            library is missing, or a hyperparameter does not exist or has another type.
    """
    target, _, query = spec.partition("?")
    scheme, colon, name = target.partition(":")
    if colon and scheme in _SCHEMES:
        found: Searcher = importlib.import_module(_SCHEMES[scheme]).resolve(spec, name, query)
        return found
    return resolve_source(spec)


def resolve_source(spec: str) -> SearcherSource:
    """The searcher that ``spec`` names, which must be source text: no library's.

    Raises:
        SearcherError: as for `resolve`.
    """
    target, _, query = spec.partition("?")
    file_name, _, class_name = target.partition(".py:")
    path = _shipped().get(target)
    if path is None:
        path = Path(f"{file_name}.py" if class_name else target)
        if path.suffix != ".py":
            raise SearcherError(_unknown(target))
    source = _read(path)
    found = _optimizer_class(path, source, class_name)
    return SearcherSource(
        name=spec,
        source=source,
        class_name=found.name,
        hyperparameters=_with_settings(spec, _defaults(found), query),
    )


def _shipped() -> dict[str, Path]:
    """Name to file of everything that ships."""
    files = [
        *sorted(path for path in _CLASSICAL.glob("*.py") if path.stem != "__init__"),
        *sorted(resource_dir("generated_optimizers").glob("*.py")),
    ]
    return {path.stem: path for path in files}


def _unknown(name: str) -> str:
    known = searcher_names()
    close = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
    return f"a searcher must be a known name or a FILE.py[:Class], but got {name!r}: {hint}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise SearcherError(f"a searcher's file must be readable UTF-8 text: {error}") from error


def _optimizer_class(path: Path, source: str, class_name: str) -> ast.ClassDef:
    """The class to run: the one named, or the only one that can be called."""
    try:
        tree = ast.parse(source, filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SearcherError(f"{path} must be Python source, but: {error}") from error
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if class_name:
        chosen = [node for node in classes if node.name == class_name]
    else:
        chosen = [node for node in classes if _method(node, "__call__")]
    if len(chosen) != 1:
        raise SearcherError(
            f"{path} must hold one class with a __call__ method, or be named as FILE.py:Class; "
            f"classes in it: {', '.join(node.name for node in classes) or 'none'}"
        )
    return chosen[0]


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    methods = (item for item in node.body if isinstance(item, ast.FunctionDef))
    return next((method for method in methods if method.name == name), None)


def _defaults(node: ast.ClassDef) -> dict[str, Hyperparameter]:
    """Numeric defaults of ``__init__``, by name.

    Raises:
        SearcherError: a hyperparameter can only be passed by position.
    """
    init = _method(node, "__init__")
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


def _with_settings(
    spec: str, defaults: dict[str, Hyperparameter], query: str
) -> dict[str, Hyperparameter]:
    """The defaults, with what the spec sets, in the type of the default."""
    settings = dict(defaults)
    for item in filter(None, query.split("&")):
        key, _, text = item.partition("=")
        if key not in defaults:
            raise SearcherError(
                f"{spec}: a setting must name a numeric hyperparameter "
                f"({', '.join(defaults) or 'there are none'}), but got {key!r}"
            )
        settings[key] = _number(spec, key, text, defaults[key])
    return settings


def _number(spec: str, key: str, text: str, default: Hyperparameter) -> Hyperparameter:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        return int(text) if isinstance(default, int) else float(text)
    except (KeyError, ValueError):
        raise SearcherError(
            f"{spec}: {key} must be of type {type(default).__name__} like its default {default}, "
            f"but got {text!r}"
        ) from None
