"""Finds a searcher by its spec: the only place that knows what a spec names.

A spec is ``NAME`` of a classical or generated optimizer, ``FILE.py`` or ``FILE.py:Class``, or
``SCHEME:NAME`` of a library's searcher, each with ``?key=value&key=value`` to set hyperparameters:

    random_search
    genetic_algorithm?population_size=40&offspring=10
    mine.py:TabuSearch?tenure=7
    kernel_tuner:genetic_algorithm?popsize=20
    hybrid:llm:MODEL?rounds=1+iterated_local_search?kick_size=3

What it does not do: import or run a searcher. A program is read by its syntax tree, because the
file may hold anything; the sandbox runs it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llamea_gpu.errors import AnswerError, SearcherError, suggestion
from llamea_gpu.files import MAX_TEXT_BYTES, read_text
from llamea_gpu.programs import Program, Provenance, read_program
from llamea_gpu.programs.shipped import classical, generated, provenance_of, shipped
from llamea_gpu.searchers.library import LibrarySearcher, Setting, parse_settings
from llamea_gpu.searchers.spec import SCHEMES, Spec


@dataclass(frozen=True, slots=True)
class ProgramSearcher:
    """A program under the name that benches, tables and exported files give it.

    ``name`` is the spec it was found by. ``first`` is the searcher on whose run this one goes on: a
    hybrid's.
    """

    name: str
    program: Program
    provenance: Provenance = field(default_factory=lambda: Provenance("file"))
    first: LibrarySearcher | None = None

    @property
    def short_name(self) -> str:
        """The name without settings; of a file without its folder and suffix, too."""
        return Spec.parse(self.name).name


Searcher = ProgramSearcher | LibrarySearcher


def resolve(spec: str, settings: Mapping[str, Setting] | None = None) -> Searcher:
    """The searcher that ``spec`` names; ``settings`` win over those in the spec.

    Raises:
        SearcherError: nothing has that name, the file cannot be read or holds no such class, its
            library is missing, or a hyperparameter does not exist or has another type.
    """
    parts = Spec.parse(spec)
    if not parts.scheme:
        return resolve_program(spec, settings)
    if settings:
        if parts.scheme == "hybrid":
            raise SearcherError(f"{spec}: settings of a hybrid must stand in its spec, not beside")
        parts = parts.with_settings(settings)
        spec = str(parts)
    module = importlib.import_module(SCHEMES[parts.scheme])
    searcher: Searcher = module.resolve(spec, parts.target, parts.query)
    return searcher


def resolve_program(spec: str, settings: Mapping[str, Setting] | None = None) -> ProgramSearcher:
    """The searcher that ``spec`` names, which must be a program: no library's.

    Raises:
        SearcherError: as for `resolve`.
    """
    parts = Spec.parse(spec)
    path = None if parts.scheme else shipped().get(parts.target)
    provenance, class_name = Provenance("file"), ""
    if path is not None:
        provenance = provenance_of(parts.target)
    elif parts.file is not None and not parts.scheme:
        path, class_name = parts.file
    else:
        raise SearcherError(_unknown(spec.partition("?")[0]))
    program = read_file(path, class_name)
    chosen = parse_settings(spec, parts.query, program.settings)
    program = program.with_settings(**chosen).with_settings(**settings or {})
    return ProgramSearcher(str(parts.with_settings(settings or {})), program, provenance)


def read_source(path: Path) -> str:
    """The text of a searcher's file.

    Raises:
        SearcherError: it is no regular file of at most a mebibyte, cannot be read, or is not UTF-8.
    """
    try:
        return read_text(path)
    except FileNotFoundError:
        beside = [each.name for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
        hint = suggestion(path.name, beside, "check the path")
        raise SearcherError(f"there is no file {path}: {hint}") from None
    except (OSError, ValueError) as error:
        raise SearcherError(
            f"a searcher's file must be a regular file of UTF-8 text, at most {MAX_TEXT_BYTES:,} "
            f"bytes, but: {error}"
        ) from error


def read_file(path: Path, class_name: str = "") -> Program:
    """The program in a file.

    Raises:
        SearcherError: it cannot be read, is not Python, or has no class of that name, or no one
            class of the contract's shape.
    """
    try:
        return read_program(read_source(path), class_name)
    except AnswerError as error:
        hint = " Or name one: FILE.py:Class." if error.kind == "ambiguous-class" else ""
        raise SearcherError(f"{path} must hold an optimizer, but: {error}{hint}") from error


def require_ready(name: str) -> None:
    """Fail before the first run of the searcher ``name`` for want of what each would lack: a key.

    Raises:
        SearcherError: the environment's route to a model lacks something.
        SettingsError: it is OpenAI's own, and there is no key.
    """
    spec = Spec.parse(name)
    whole = [spec]
    if spec.scheme == "hybrid":
        whole = [Spec.parse(each) for each in name.partition(":")[2].split("+", 1)]
    for part in whole:
        if part.scheme == "llm":
            from llamea_gpu.searchers.llm.settings import require_route

            require_route(part.value("route") or "")


def known_searchers() -> dict[str, tuple[str, ...]]:
    """Every spec that is a name alone: the classical and generated optimizers, then by scheme.

    A scheme whose library is not installed, or whose targets are no fixed names, has none.
    """
    known = {"classical": tuple(classical()), "generated": tuple(generated())}
    for scheme, module in SCHEMES.items():
        try:
            names: tuple[str, ...] = getattr(importlib.import_module(module), "names", tuple)()
        except SearcherError:
            names = ()
        known[scheme] = tuple(f"{scheme}:{name}" for name in names)
    return known


def _unknown(name: str) -> str:
    scheme, colon, target = name.partition(":")
    if os.path.isdir(name):  # unlike Path's, never raises
        hint = f"it is a folder: name a file in it, {name.rstrip('/')}/FILE.py"
    elif colon and target:
        hint = suggestion(scheme, SCHEMES, f"before a colon stands one of {', '.join(SCHEMES)}")
    else:
        known = [spec for specs in known_searchers().values() for spec in specs]
        hint = suggestion(name, known, "'searchers list' shows what there is")
    return f"a searcher must be a known name or a FILE.py[:Class], but got {name!r}: {hint}"
