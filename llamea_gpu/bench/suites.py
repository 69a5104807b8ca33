"""Which recordings a bench is on: suites, splits, names, patterns and files.

What it does: reads the suites that ship (``tuning_spaces/splits.toml``) and expands patterns.

What it does not do: load recordings from anywhere but `llamea_gpu.spaces.catalogue`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from llamea_gpu import toml
from llamea_gpu.errors import BenchError, UnknownSpaceError
from llamea_gpu.resources import resource_dir
from llamea_gpu.spaces.catalogue import SPLITS, list_spaces, load_spaces
from llamea_gpu.spaces.recording import Recording


@dataclass(frozen=True, slots=True)
class Suite:
    """A named choice of spaces: ``patterns`` for the catalogue's names, and what it is for."""

    name: str
    patterns: tuple[str, ...]
    purpose: str
    remedy: str = ""


def suites() -> dict[str, Suite]:
    """The suites that ship, by name; every split is one as well."""
    document = toml.loads((resource_dir("tuning_spaces") / "splits.toml").read_text("utf-8"))
    found = {split: Suite(split, (split,), f"the {split} split") for split in SPLITS}
    for name, entry in document["suites"].items():
        found[name] = Suite(
            name, tuple(entry["spaces"]), entry["purpose"], entry.get("remedy", "")
        )
    return found


def load_suite(name: str, search_path: Sequence[Path] = ()) -> list[Recording]:
    """The recordings of a suite.

    Raises:
        BenchError: there is no such suite, or none of its recordings is here.
    """
    known = suites()
    if name not in known:
        raise BenchError(f"a suite must be one of {', '.join(known)}, but got {name!r}")
    suite = known[name]
    try:
        return load_patterns(suite.patterns, search_path)
    except UnknownSpaceError as error:
        raise BenchError(f"the suite {name} is not here: {error}. {suite.remedy}") from error


def load_patterns(patterns: Sequence[str], search_path: Sequence[Path] = ()) -> list[Recording]:
    """Recordings by name, split, file, or pattern with ``*``, ``?`` and ``[...]``; in that order.

    A recording that several patterns match is loaded once.

    Raises:
        UnknownSpaceError: nothing answers to one of ``patterns``.
    """
    chosen: dict[str, None] = {}
    for pattern in patterns:
        if pattern in SPLITS or not set(pattern) & set("*?[") or Path(pattern).is_file():
            names = [pattern]
        else:
            names = [e.name for e in list_spaces(search_path) if fnmatchcase(e.name, pattern)]
            if not names:
                raise UnknownSpaceError(
                    f"a pattern must match the name of a space, but {pattern!r} matches none: "
                    f"'spaces list' shows the names"
                )
        chosen |= dict.fromkeys(names)
    return load_spaces(tuple(chosen), search_path)
