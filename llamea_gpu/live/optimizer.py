"""An optimizer as the integrations need it: its source, its settings, and where it comes from.

What it does: finds an optimizer by its spec, checks hyperparameters given by keyword, screens the
source against the contract's rules, and makes instances.

What it does not do: isolate anything. `LoadedOptimizer.make` executes the source in this very
process, because live tuning means just that. The screening refuses forbidden imports and clear
mistakes; it is no security boundary. Read an optimizer that you did not write before you tune with
it, or run it in the sandbox (``llamea-gpu run``).
"""

from __future__ import annotations

import ast
import json
import linecache
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from llamea_gpu.contract import Optimizer
from llamea_gpu.errors import SearcherError
from llamea_gpu.prompting.screening import screen
from llamea_gpu.resources import resource_dir
from llamea_gpu.searchers.registry import Hyperparameter, resolve_source, searcher_names

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|\n\s*\n")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where an optimizer comes from. A text is empty where it is not known.

    ``origin`` is ``"shipped"`` (ours, MIT) or ``"file"`` (the user's). The others come from the
    card beside a generated optimizer: who wrote it, in which run, from which parents, when, and
    the command that makes it again.
    """

    origin: str
    model: str = ""
    run: str = ""
    parents: tuple[str, ...] = ()
    date: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class LoadedOptimizer:
    """An optimizer, ready to be instantiated or exported. Get one from `load_optimizer`.

    ``name`` is the shipped name, or the file's name without its folder and suffix. ``idea`` is one
    sentence. ``hyperparameters`` holds every numeric one of the class, ``defaults`` what the class
    itself sets them to.
    """

    name: str
    class_name: str
    source: str
    idea: str
    hyperparameters: Mapping[str, Hyperparameter]
    provenance: Provenance
    defaults: Mapping[str, Hyperparameter] = field(default_factory=dict)

    @property
    def spec(self) -> str:
        """What names it with these hyperparameters; of a file the name alone, not the folder."""
        changed = [
            f"{key}={value}"
            for key, value in self.hyperparameters.items()
            if value != self.defaults.get(key, value)
        ]
        suffix = "" if self.provenance.origin == "shipped" else ".py"
        return f"{self.name}{suffix}{'?' if changed else ''}{'&'.join(changed)}"

    def with_settings(self, **changes: Hyperparameter) -> LoadedOptimizer:
        """The same optimizer with other hyperparameters.

        Raises:
            SearcherError: one does not exist, or has another type than its default.
        """
        checked = {key: self._checked(key, value) for key, value in changes.items()}
        return replace(self, hyperparameters={**self.hyperparameters, **checked})

    def make(self) -> Optimizer:
        """A fresh instance, from a module of its own. Executes the source in this process.

        Raises:
            SearcherError: the source or the constructor raises.
        """
        name = f"llamea_gpu_optimizer_{self.name}"
        module = types.ModuleType(name)
        # Tracebacks show the lines; dataclasses look their module up.
        lines = self.source.splitlines(keepends=True)
        linecache.cache[name] = (len(self.source), None, lines, name)
        sys.modules[name] = module
        try:
            exec(compile(self.source, name, "exec"), module.__dict__)  # noqa: S102 - live tuning
            instance = getattr(module, self.class_name)(**self.hyperparameters)
        except Exception as error:
            raise SearcherError(
                f"{self.name} must load and take its hyperparameters "
                f"{dict(self.hyperparameters)}, but: {type(error).__name__}: {error}"
            ) from error
        return cast("Optimizer", instance)

    def _checked(self, key: str, value: Hyperparameter) -> Hyperparameter:
        if key not in self.hyperparameters:
            raise SearcherError(
                f"{self.name}: a hyperparameter must be one of "
                f"({', '.join(self.hyperparameters) or 'there are none'}), but got {key!r}"
            )
        default = self.hyperparameters[key]
        wanted = type(default)
        if type(value) is wanted or (wanted is float and type(value) is int):
            return wanted(value)
        raise SearcherError(
            f"{self.name}: {key} must be of type {wanted.__name__} like its default {default}, "
            f"but got {value!r}"
        )


def load_optimizer(spec: str, **hyperparameters: Hyperparameter) -> LoadedOptimizer:
    """The optimizer that ``spec`` names: a classical or generated one, or ``FILE.py[:Class]``.

    Hyperparameters may stand in the spec (``NAME?key=value``) too; keywords win.

    Raises:
        SearcherError: nothing has that name, the source breaks a rule of the contract, or a
            hyperparameter does not exist or has another type.
    """
    found = resolve_source(spec)
    target = spec.partition("?")[0]
    shipped = target in searcher_names()
    name = target if shipped else Path(target.partition(".py:")[0]).stem
    tree = ast.parse(found.source)
    _refuse_problems(name, tree, found.source)
    card = _card(name) if shipped else {}
    optimizer = LoadedOptimizer(
        name=name,
        class_name=found.class_name,
        source=found.source,
        idea=_text(card, "idea") or idea_of(tree, found.class_name),
        hyperparameters=found.hyperparameters,
        provenance=_provenance(card) if shipped else Provenance("file"),
        defaults=resolve_source(target).hyperparameters,
    )
    return optimizer.with_settings(**hyperparameters)


def _refuse_problems(name: str, tree: ast.Module, source: str) -> None:
    problem = next(iter(screen(tree, source)), None)
    if problem is not None:
        raise SearcherError(
            f"{name} must keep the rules of the optimizer contract, but {problem.clause}"
        )


def idea_of(tree: ast.Module, class_name: str) -> str:
    """The first sentence of the class's docstring, else of the module's, else the class's name."""
    owner = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == class_name)
    text = ast.get_docstring(owner) or ast.get_docstring(tree) or class_name
    return " ".join(_SENTENCE_END.split(text.strip(), maxsplit=1)[0].split())


def _provenance(card: Mapping[str, Any]) -> Provenance:
    """Of a shipped optimizer: all that its card tells."""
    told = card.get("provenance")
    told = told if isinstance(told, dict) else {}
    parents = told.get("parents")
    return Provenance(
        origin="shipped",
        model=_text(told, "model"),
        run=_text(told, "run"),
        parents=tuple(map(str, parents)) if isinstance(parents, list) else (),
        date=_text(card, "date"),
        command=_text(card, "command"),
    )


def _card(name: str) -> Mapping[str, Any]:
    """The card of a generated optimizer; empty when there is none."""
    path = resource_dir("generated_optimizers") / f"{name}.json"
    if not path.is_file():
        return {}
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SearcherError(f"the card of {name} must be JSON, but: {error}") from error
    return card if isinstance(card, dict) else {}


def _text(card: Mapping[str, Any], key: str) -> str:
    value = card.get(key, "")
    return value if isinstance(value, str) else ""
