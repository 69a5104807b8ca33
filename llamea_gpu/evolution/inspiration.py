"""Inspirations: programs brought along as first parents, from elsewhere or from earlier runs.

They are evaluated like the seed programs, cost no answers, and breed if they are good enough. What
they came from is kept with them. A spec is ``NAME`` of an optimizer that ships, ``FILE.py`` or
``FILE.py:Class``, ``RUN#SLOT`` for one candidate of an earlier run; `expand_inspirations` also
takes ``RUN`` (its best) and ``shipped`` (every generated optimizer).

Whatever it is, it is read as text, passes the same admission as a model's answer, and runs in the
sandbox alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from llamea_gpu.archive import FILE_NAME, Archive
from llamea_gpu.errors import AnswerError, ArchiveError, SettingsError
from llamea_gpu.evolution.population import Population
from llamea_gpu.programs import Program, admit
from llamea_gpu.programs.shipped import generated
from llamea_gpu.searchers.registry import resolve_program
from llamea_gpu.searchers.spec import Spec

BEST_OF_RUN = 3
_SLOT = re.compile(r"(?P<run>.+)#(?P<slot>\d{1,6})")
_LICENCE = re.compile(r"SPDX-License-Identifier:\s*([A-Za-z0-9.+()-]+(?: (?:AND|OR|WITH) \S+)*)")


@dataclass(frozen=True, slots=True)
class Inspiration:
    """A program that was brought along, and where it came from (strings, for the archive).

    ``name`` is its spec without folders: prompts show it, and must not tell where a user keeps
    files, nor differ from machine to machine.
    """

    name: str
    program: Program
    provenance: Mapping[str, str] = field(default_factory=dict)


def expand_inspirations(specs: Sequence[str]) -> tuple[str, ...]:
    """``specs`` with a run replaced by its best candidates and ``shipped`` by names.

    A run goes on with what it began with, so this is done once, before it starts.

    Raises:
        ArchiveError: a run cannot be read.
        SettingsError: a run has nothing that was fully scored.
    """
    expanded: list[str] = []
    for spec in specs:
        folder = Path(spec)
        if spec == "shipped":
            expanded += generated()
        elif (folder / FILE_NAME).is_file():
            population, _ = _read_run(folder)
            best = population.written().elite(BEST_OF_RUN)
            if not best:
                raise SettingsError(
                    f"a run inspires by its scored candidates, but {folder} has none: name another"
                )
            expanded += [f"{folder.absolute()}#{candidate.slot}" for candidate in best]
        elif folder.is_dir():
            raise SettingsError(f"an inspiration's folder must hold a run, but {folder} holds none")
        else:
            expanded.append(spec)
    return tuple(dict.fromkeys(expanded))


def load_inspiration(spec: str) -> Inspiration:
    """The program that ``spec`` names (not ``shipped``, not a whole run).

    Raises:
        SettingsError: it is not a program that a model's answer could be.
        ArchiveError: its run cannot be read, or has no such candidate.
        SearcherError: there is no such file or name.
    """
    match = _SLOT.fullmatch(spec)
    if match:
        return _from_run(spec, Path(match["run"]), int(match["slot"]))
    named_program = resolve_program(spec)
    original = named_program.program
    program = _admitted(spec, original.source)
    if program.class_name != original.class_name:
        raise SettingsError(
            f"an inspiration's optimizer must be {program.class_name}, the one that admission "
            f"finds, but {spec} names {original.class_name}"
        )
    licence = _LICENCE.search(original.source)
    return Inspiration(
        str(Spec.parse(spec).without_folder()),
        program.with_settings(**original.settings),
        {
            "spec": spec,
            "origin": named_program.provenance.origin,
            "digest": program.digest,
            "licence": licence[1] if licence else "not stated",
        },
    )


def recorded_provenance(facts: Mapping[str, str]) -> list[dict[str, str]]:
    """What a run's archive says of its inspirations, in the order they were given.

    Raises:
        ArchiveError: that is not what this program writes.
    """
    try:
        entries = json.loads(facts.get("inspirations", "[]"))
        return [{str(key): str(value) for key, value in item.items()} for item in entries]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ArchiveError(
            f"an archive must hold its inspirations as a list of objects, but: {error}: "
            f"it is damaged or foreign"
        ) from error


def _admitted(spec: str, source: str) -> Program:
    try:
        return admit(source)
    except AnswerError as error:
        raise SettingsError(f"the inspiration {spec} must pass admission: {error}") from error


def _from_run(spec: str, folder: Path, slot: int) -> Inspiration:
    population, facts = _read_run(folder)
    chosen = population.find(slot)
    if chosen is None or chosen.program is None:
        raise ArchiveError(f"an inspiration must be a candidate with a program, but {spec} is none")
    admitted = _admitted(spec, chosen.program.source)  # the archive may come from elsewhere
    provenance = {
        "spec": spec,
        "origin": "run",
        "digest": admitted.digest,
        "licence": "a model's answer",
        "model": chosen.model,
        "run_created": facts.get("created", ""),
        "run_problem": facts.get("problem", ""),
        "p_there": "" if chosen.p is None else f"{chosen.p:.4f}",
    }
    return Inspiration(Path(spec).name, admitted, provenance)


def _read_run(folder: Path) -> tuple[Population, Mapping[str, str]]:
    with closing(Archive.open(folder, read_only=True)) as archive:
        return Population.read(archive), archive.facts
