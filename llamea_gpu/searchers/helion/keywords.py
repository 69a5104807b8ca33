"""Settings of a spec that are keyword arguments of an installed Helion search.

Their names and types are read from Helion's source: importing it takes seconds, and a spec has to
be checked before anything runs. Defaults are the effort profile's, which Helion adds later.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path

from llamea_gpu.errors import SearcherError
from llamea_gpu.searchers.library import Setting

_TYPES: dict[str, type[int | float | bool | str]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
}
# A setting of ours (model), or of the LLM route: those come from the environment.
_ROUTE = ("provider", "model", "api_base", "api_key")
_STRATEGY = "initial_population_strategy"


def parse_keywords(
    spec: str, items: Iterable[str], module: str, search: str, others: Sequence[str]
) -> dict[str, Setting]:
    """``key=value`` items as keyword arguments of ``search``, in ``helion.autotuner.MODULE``.

    ``others`` are the settings that an error also names.

    Raises:
        SearcherError: there is no such argument, a value has another type, or this Helion has no
            such search.
    """
    types = _argument_types(module, search)
    found: dict[str, Setting] = {}
    for item in items:
        key, _, text = item.partition("=")
        if key not in types:
            raise SearcherError(
                f"{spec}: a setting must be one of ({', '.join([*others, *types])}), but got "
                f"{key!r}"
            )
        kind = types[key]
        try:
            found[key] = {"true": True, "false": False}[text] if kind is bool else kind(text)
        except (KeyError, ValueError):
            raise SearcherError(
                f"{spec}: {key} must be of type {kind.__name__}, but got {text!r}"
            ) from None
    return found


def _argument_types(module: str, search: str) -> dict[str, type[int | float | bool | str]]:
    """Name to type of each argument of a plain type."""
    spec = importlib.util.find_spec("helion")
    places = spec.submodule_search_locations if spec is not None else None
    path = Path(next(iter(places or ()), "")) / "autotuner" / f"{module}.py"
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        raise SearcherError(f"the source of Helion's {search} must be readable: {error}") from error
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == search:
            return _plain_arguments(node)
    raise SearcherError(f"the installed Helion has no {search}: pip install --upgrade helion")


def _plain_arguments(search: ast.ClassDef) -> dict[str, type[int | float | bool | str]]:
    methods = (node for node in search.body if isinstance(node, ast.FunctionDef))
    init = next(method.args for method in methods if method.name == "__init__")
    found = {}
    for argument in (*init.args, *init.kwonlyargs):
        kind = ast.unparse(argument.annotation) if argument.annotation else ""
        name = argument.arg
        if name.removeprefix("llm_") in _ROUTE or name == _STRATEGY:
            continue
        if (plain := kind.removesuffix(" | None")) in _TYPES:
            found[name] = _TYPES[plain]
    return found
