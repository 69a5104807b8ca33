"""Which recordings a bench is on: suites, splits, names, patterns and files.

What it does: reads the suites that ship (``tuning_spaces/splits.toml``) and expands patterns.

What it does not do: load anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypedDict

from llamea_gpu import toml
from llamea_gpu.errors import BenchError, UnknownSpaceError, suggestion
from llamea_gpu.resources import resource_dir
from llamea_gpu.spaces.catalogue import SPLITS, list_clouds, list_spaces, split_part


class Suite(TypedDict, total=False):
    """A named choice of spaces: patterns for the catalogue's names, its purpose, how to get it."""

    spaces: list[str]
    purpose: str
    remedy: str


def suites() -> dict[str, Suite]:
    """The suites that ship, by name, as their file has them; every split is one as well."""
    document = toml.loads((resource_dir("tuning_spaces") / "splits.toml").read_text("utf-8"))
    by_name: dict[str, Suite] = {split: {"spaces": [split]} for split in SPLITS}
    by_name.update(document["suites"])
    return by_name


def suite_spaces(name: str, search_path: Sequence[Path] = ()) -> tuple[str, ...]:
    """The names of a suite's recordings or clouds that are here.

    Raises:
        BenchError: there is no such suite, or none of its spaces is here.
    """
    known = suites()
    if name not in known:
        raise BenchError(f"there is no suite {name!r}: {suggestion(name, known)}")
    patterns = known[name]["spaces"]
    here = [pattern for pattern in patterns if _names(pattern, search_path)]
    if not here:
        raise BenchError(
            f"the suite {name} must be on the search path, but no space's name matches "
            f"{' or '.join(patterns)}. {known[name].get('remedy', '')}".rstrip()
        )
    return _expand(here, search_path)


def spaces_of(names: Sequence[str], search_path: Sequence[Path] = ()) -> tuple[str, ...]:
    """Each space's own name or file, by suite, split, name, file or pattern (``*?[...]``).

    ``~K`` after a name, split or pattern stands for the K-th random part of each. What several of
    them name comes once.

    Raises:
        BenchError: none of a suite's spaces is here.
        UnknownSpaceError: a pattern matches nothing.
    """
    known = suites()
    spaces: dict[str, None] = {}
    for name in names:
        space_names = (
            suite_spaces(name, search_path) if name in known else _expand([name], search_path)
        )
        spaces |= dict.fromkeys(space_names)
    return tuple(spaces)


def _expand(patterns: Sequence[str], search_path: Sequence[Path]) -> tuple[str, ...]:
    chosen: dict[str, None] = {}
    for pattern in patterns:
        names = _names(pattern, search_path)
        if not names and _is_pattern(pattern):
            raise UnknownSpaceError(
                f"a pattern must match the name of a space, but {pattern!r} matches none: "
                f"'spaces list' shows the names"
            )
        chosen |= dict.fromkeys(names or [pattern])
    return tuple(chosen)


def _is_pattern(text: str) -> bool:
    return bool(set(text) & set("*?[")) and not Path(text).is_file()


def _names(pattern: str, search_path: Sequence[Path]) -> list[str]:
    """Names of the catalogue, or of parts, that match a pattern or lie in a split."""
    whole, part = split_part(pattern)
    if part is not None:
        return [f"{name}~{part}" for name in _names(whole, search_path)]
    entries = list_spaces(search_path)
    if pattern in SPLITS:
        return [entry.name for entry in entries if entry.split == pattern]
    if not _is_pattern(pattern):
        every = [*entries, *list_clouds(search_path)]
        return [pattern] if pattern in {entry.name for entry in every} else []
    # A pattern that matches recordings means these alone: scores on clouds are of another kind.
    recordings = [entry.name for entry in entries if fnmatchcase(entry.name, pattern)]
    clouds = [entry.name for entry in list_clouds(search_path)]
    return recordings or [name for name in clouds if fnmatchcase(name, pattern)]
