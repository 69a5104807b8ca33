"""Finds a searcher by its spec.

A spec is ``NAME`` of a classical or generated optimizer, ``FILE.py`` or ``FILE.py:Class``, or
``SCHEME:NAME`` of a library's searcher, each with ``?key=value&key=value`` to set hyperparameters:

    random_search
    genetic_algorithm?population_size=40&offspring=10
    mine.py:TabuSearch?tenure=7
    kernel_tuner:genetic_algorithm?popsize=20
    hybrid:llm:MODEL?rounds=1+iterated_local_search?kick_size=3

What it does not do: import or run a searcher. Its class and hyperparameters are read from the
syntax tree, because the file may hold anything; the sandbox runs it.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llamea_gpu.errors import SearcherError
from llamea_gpu.resources import resource_dir
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.source import (
    Hyperparameter,
    find_class,
    numeric_defaults,
    parse_source,
    read_source,
    with_settings,
)

__all__ = [
    "Hyperparameter",
    "Searcher",
    "SearcherSource",
    "resolve",
    "resolve_source",
    "searcher_names",
]

_CLASSICAL = Path(__file__).resolve().parent / "classical"
# Each module has ``resolve(spec, name, query)``, which returns a searcher, and ``names()``.
_SCHEMES = {
    "kernel_tuner": "llamea_gpu.searchers.kernel_tuner",
    "optalg": "llamea_gpu.searchers.optalg",
    "helion": "llamea_gpu.searchers.helion",
    "scipy": "llamea_gpu.searchers.scipy_optimize",
    "optuna": "llamea_gpu.searchers.optuna_samplers",
    "llm": "llamea_gpu.searchers.llm",
    "hybrid": "llamea_gpu.searchers.hybrid",
}


@dataclass(frozen=True, slots=True)
class SearcherSource:
    """A searcher as text: what the sandbox needs to run it.

    ``name`` is the spec it was found by. ``hyperparameters`` holds every numeric one, at its
    default unless the spec sets it. ``first`` is the searcher on whose run this one goes on: a
    hybrid's.
    """

    name: str
    source: str
    class_name: str
    hyperparameters: Mapping[str, Hyperparameter]
    first: LibrarySearcher | None = None


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
    source = read_source(path)
    found = find_class(path, parse_source(path, source), class_name)
    return SearcherSource(
        name=spec,
        source=source,
        class_name=found.name,
        hyperparameters=with_settings(spec, numeric_defaults(found), query),
    )


def classical() -> dict[str, Path]:
    """Name to file of the optimizers that are this package's own code."""
    files = sorted(path for path in _CLASSICAL.glob("*.py") if path.stem != "__init__")
    return {path.stem: path for path in files}


def _shipped() -> dict[str, Path]:
    """Name to file of everything that ships."""
    generated = sorted(resource_dir("generated_optimizers").glob("*.py"))
    return {**classical(), **{path.stem: path for path in generated}}


def _unknown(name: str) -> str:
    known = searcher_names()
    close = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
    return f"a searcher must be a known name or a FILE.py[:Class], but got {name!r}: {hint}"
