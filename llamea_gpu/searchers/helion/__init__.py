"""Helion's own searches: ``helion:LFBOTreeSearch?effort=full``.

What a spec may set, beside every plain keyword argument of the search itself (which otherwise are
those of Helion's effort profile):

- ``effort``: ``full`` (Helion's default) or ``quick``.
- ``start``: ``random`` begins at a random configuration; ``default`` begins at the recording's
  default configuration, as Helion does with a live kernel.
- ``initial_population_strategy``: ``from_random``, or Helion's ``from_best_available``, which is
  what its quick profile uses: the start alone, since no cache is read.
- ``roles``: whether Helion is told which parameters are block sizes and which is the number of
  warps, as it knows of its own kernels. It then searches those more, and draws fewer large blocks.
- ``model``, for the searches that ask an LLM, unless ``HELION_LLM_MODEL`` names one. Address and
  key come from the environment as Helion reads them (``HELION_LLM_API_BASE``,
  ``HELION_LLM_API_KEY``, ``OPENAI_API_KEY`` ...), never from a spec, because specs are recorded.

It only reads specs, and from Helion's source text what a search takes, because importing Helion
takes seconds, and a spec has to be checked before anything runs; Helion is imported where a search
runs (`search`).
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path

from llamea_gpu.errors import SearcherError, suggestion
from llamea_gpu.programs.syntax import classes_of, method_of
from llamea_gpu.searchers.library import (
    LibrarySearcher,
    Setting,
    converted,
    require,
)

# Each search, and the module of helion.autotuner that holds it.
_MODULES = {
    "LFBOTreeSearch": "surrogate_pattern_search",
    "LFBOPatternSearch": "surrogate_pattern_search",
    "PatternSearch": "pattern_search",
    "DifferentialEvolutionSearch": "differential_evolution",
    "DESurrogateHybrid": "de_surrogate_hybrid",
    "RandomSearch": "random_search",
    "LLMGuidedSearch": "llm_search",
    "LLMSeededLFBOTreeSearch": "llm_seeded_lfbo",
}
_DEFAULTS: dict[str, Setting] = {
    "effort": "full",
    "start": "random",
    "initial_population_strategy": "from_random",
    "roles": True,
}
_CHOICES = {
    "effort": ("quick", "full"),
    "start": ("random", "default"),
    "initial_population_strategy": ("from_random", "from_best_available"),
}
_OLDEST = (1, 2)


_TYPES: dict[str, type[Setting]] = {"int": int, "float": float, "bool": bool, "str": str}
# A setting of ours (model), or of the LLM route: those come from the environment.
_ROUTE = ("provider", "model", "api_base", "api_key")
_STRATEGY = "initial_population_strategy"


def names() -> tuple[str, ...]:
    """The searches that `resolve` knows."""
    return tuple(_MODULES)


def options(name: str) -> Mapping[str, Setting]:  # noqa: ARG001 - one for all
    """What ``?key=value`` may set of ``name``, with the defaults."""
    return _DEFAULTS


def resolve(spec: str, name: str, query: str) -> LibrarySearcher:
    """The searcher that ``helion:NAME?QUERY`` names.

    Raises:
        SearcherError: there is no such search or setting, a value has another type, an LLM search
            has no model, or Helion or torch is missing or too old.
    """
    if name not in _MODULES:
        raise SearcherError(f"{spec}: Helion has no search {name!r}: {suggestion(name, _MODULES)}")
    versions = {
        package: require(package, "helion", spec) for package in ("helion", "torch", "scikit-learn")
    }
    release = tuple(int(part) for part in re.findall(r"\d+", versions["helion"])[:2])
    if release < _OLDEST:
        raise SearcherError(
            f"{spec} needs helion >= {'.'.join(map(str, _OLDEST))}, but {versions['helion']} is "
            "installed: pip install --upgrade helion"
        )
    settings = _settings(spec, name, query)
    return LibrarySearcher(
        name=spec,
        factory="llamea_gpu.searchers.helion.search:RecordedSearch",
        settings={"search": name, **settings},
        versions=versions,
    )


def _settings(spec: str, name: str, query: str) -> dict[str, Setting]:
    if "api_key" in query:
        raise SearcherError(
            f"helion:{name}: a spec is recorded, so it must hold no key (this one is not shown): "
            "put it into HELION_LLM_API_KEY"
        )
    asks_llm = name.startswith("LLM")
    own: dict[str, Setting] = {**_DEFAULTS, **({"model": ""} if asks_llm else {})}
    types: dict[str, type[Setting]] = {key: type(default) for key, default in own.items()}
    items = [item.partition("=") for item in query.split("&") if item]
    if any(key not in own for key, _, _ in items):
        types |= _argument_types(_MODULES[name], name)
    settings = dict(_DEFAULTS)
    for key, _, text in items:
        if key not in types:
            raise SearcherError(
                f"{spec}: a setting must be one of ({', '.join(types)}), but got {key!r}"
            )
        settings[key] = converted(spec, key, text, types[key])
    for key, choices in _CHOICES.items():
        if settings[key] not in choices:
            raise SearcherError(
                f"{spec}: {key} must be one of {', '.join(choices)}, but got {settings[key]!r}"
            )
    if asks_llm:
        settings["model"] = settings.get("model") or os.environ.get("HELION_LLM_MODEL", "")
        if not settings["model"]:
            raise SearcherError(
                f"{spec} asks an LLM, so it needs the name of a model: add ?model=NAME or set "
                "HELION_LLM_MODEL"
            )
    return settings


def _argument_types(module: str, search: str) -> dict[str, type[Setting]]:
    """Name to type of each argument of a plain type, of a search in ``helion.autotuner.MODULE``.

    Raises:
        SearcherError: this Helion has no such search.
    """
    spec = importlib.util.find_spec("helion")
    places = spec.submodule_search_locations if spec is not None else None
    path = Path(next(iter(places or ()), "")) / "autotuner" / f"{module}.py"
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        raise SearcherError(f"the source of Helion's {search} must be readable: {error}") from error
    owner = classes_of(tree).get(search)
    init = None if owner is None else method_of(owner, "__init__")
    if init is None:
        raise SearcherError(f"the installed Helion has no {search}: pip install --upgrade helion")
    types = {}
    for argument in (*init.args.args, *init.args.kwonlyargs):
        kind = ast.unparse(argument.annotation) if argument.annotation else ""
        name = argument.arg
        if name.removeprefix("llm_") in _ROUTE or name == _STRATEGY:
            continue
        if (plain := kind.removesuffix(" | None")) in _TYPES:
            types[name] = _TYPES[plain]
    return types
