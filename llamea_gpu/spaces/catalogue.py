"""What spaces there are: those that ship, those in folders the user names, and any file.

Recordings and clouds are listed apart: a cloud is a file whose name ends with ``.cloud.parquet``.
A folder may hold a ``splits.toml`` that assigns its spaces to train, validation or test. Listing
looks at file names only; nothing is read until :func:`load_space`.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llamea_gpu import toml
from llamea_gpu.errors import SpaceError, SpaceFormatError, UnknownSpaceError, suggestion
from llamea_gpu.files import read_text
from llamea_gpu.resources import resource_dir
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.parts import random_part
from llamea_gpu.spaces.quoting import quoted, shortened
from llamea_gpu.spaces.recording import Recording

SPLITS = ("train", "validation", "test")
CLOUD_SUFFIX = ".cloud.parquet"
CARD_SUFFIX = ".model.json"  # of a cloud's model, see llamea_gpu.models.card
YARDSTICK_SUFFIX = ".yardstick.json"  # see llamea_gpu.runner.yardsticks
_SUFFIXES = (".json.gz", ".jsonl.gz", ".parquet", ".jsonl", ".json")
_NOT_RECORDINGS = (
    *("T1.json", ".meta.jsonl", ".chat.jsonl"),
    *(CLOUD_SUFFIX, CARD_SUFFIX, YARDSTICK_SUFFIX),
)
_CLOUDS = "clouds/"  # what the names of clouds that ship begin with
_LEFT_OUT = (
    "An installed package has the clouds of whole-train and whole-validation alone: for the others "
    "clone the repository and give its folder tuning_spaces with --spaces-path or LLAMEA_GPU_SPACES"
)
_BENCH_FILES = ("bench.json", "bench.jsonl", "bench.parquet")  # see llamea_gpu.bench.results


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A space that :func:`load_space` can load by name; ``split`` is empty when not assigned."""

    name: str
    path: Path
    split: str


def list_spaces(search_path: Sequence[Path] = ()) -> list[CatalogueEntry]:
    """Spaces that ship, then those under the folders of ``search_path``, each sorted by name.

    A name is the file's path below its folder without the suffix; the first of a name counts.

    Raises:
        UnknownSpaceError: a folder of the search path does not exist.
        SpaceFormatError: a ``splits.toml`` is malformed.
    """
    return _listed(search_path, _SUFFIXES, _NOT_RECORDINGS)


def list_clouds(search_path: Sequence[Path] = ()) -> list[CatalogueEntry]:
    """Clouds that ship, then those under the folders of ``search_path``; see :func:`list_spaces`.

    Raises:
        UnknownSpaceError: a folder of the search path does not exist.
        SpaceFormatError: a ``splits.toml`` is malformed.
    """
    return _listed(search_path, (CLOUD_SUFFIX,))


def load_space(spec: str, search_path: Sequence[Path] = ()) -> Recording:
    """Load a recording by name, or from a path to any importable file.

    ``SPEC~K`` is the K-th random part of what ``SPEC`` names (`llamea_gpu.spaces.parts`). A
    ``T1.json`` beside a JSON file is used with it. Import warnings become Python warnings.

    Raises:
        UnknownSpaceError: nothing answers to ``spec``; names close matches.
        SpaceFormatError: the file cannot be imported.
    """
    if _is_file(spec):
        return load_file(Path(spec))
    whole, part = split_part(spec)
    if part is not None:
        return random_part(load_space(whole, search_path), part)
    return load_file(_find(spec, search_path).path)


def load_spaces(specs: Sequence[str], search_path: Sequence[Path] = ()) -> list[Recording]:
    """Load several recordings; a split's name ("train") stands for all that it holds.

    ``train~K`` stands for the K-th random part of each.

    Raises:
        UnknownSpaceError: nothing answers to a spec, a split is empty, or a recording comes twice.
    """
    names: list[str] = []
    for spec in specs:
        split, part = split_part(spec)
        if split not in SPLITS:
            names.append(spec)
            continue
        members = [entry.name for entry in list_spaces(search_path) if entry.split == split]
        if not members:
            raise UnknownSpaceError(
                f"a split must hold spaces, but no space is in {quoted(split)}: 'spaces list' "
                f"shows the splits; name spaces one by one instead"
            )
        names += members if part is None else [f"{name}~{part}" for name in members]
    recordings = [load_space(name, search_path) for name in names]
    recording_names = [recording.info.name for recording in recordings]
    if not recording_names or len(set(recording_names)) < len(recording_names):
        raise UnknownSpaceError(
            f"spaces must be at least one, and each named once, but "
            f"{quoted(list(specs))} gives {quoted(recording_names)}"
        )
    return recordings


def load_file(path: Path) -> Recording:
    """Load one file; see :func:`load_space`."""
    from llamea_gpu.spaces.formats import import_recording, t1_beside

    recording, notes = import_recording(path, t1=t1_beside(path))
    for note in notes:
        warnings.warn(f"{path}: {note}", stacklevel=3)
    return recording


def search_path_from_environment() -> tuple[Path, ...]:
    """Folders of ``LLAMEA_GPU_SPACES``, separated as in PATH."""
    listed = os.environ.get("LLAMEA_GPU_SPACES", "")
    return tuple(Path(part).expanduser() for part in listed.split(os.pathsep) if part)


def load_cloud(spec: str, search_path: Sequence[Path] = ()) -> Cloud:
    """Load a cloud by name, or from a path to any file of one; see :func:`load_space`.

    Raises:
        UnknownSpaceError: nothing answers to ``spec``; names close matches.
        SpaceFormatError: the file is no cloud or cannot be imported.
    """
    from llamea_gpu.spaces.formats import import_cloud

    path = cloud_file(spec, search_path)
    cloud, notes = import_cloud(path)
    for note in notes:
        warnings.warn(f"{path}: {note}", stacklevel=2)
    return cloud


def cloud_file(spec: str, search_path: Sequence[Path] = ()) -> Path:
    """Where a cloud lies; raises what :func:`load_cloud` does for a name that is none's."""
    return Path(spec) if _is_file(spec) else _named(spec, list_clouds(search_path), "cloud").path


def is_cloud(spec: str, search_path: Sequence[Path] = ()) -> bool:
    """Whether a name or file is a cloud's; False where there is none.

    Raises:
        SpaceFormatError: the file is damaged.
    """
    from llamea_gpu.spaces.formats import holds_cloud

    if _is_file(spec):
        return holds_cloud(Path(spec))
    return any(entry.name == spec for entry in list_clouds(search_path))


def check_cloud_name(path: Path) -> None:
    """SpaceError unless a file to be written is called as clouds are, by which they are listed."""
    if not path.name.endswith(CLOUD_SUFFIX):
        raise SpaceError(
            f"a cloud's file must be called NAME{CLOUD_SUFFIX}, so that it is not listed as a "
            f"recording, but got {path}"
        )


def split_part(spec: str) -> tuple[str, int | None]:
    """``NAME~K`` as its name and the part's number; None where there is none."""
    whole, tilde, number = spec.rpartition("~")
    if tilde and number.isascii() and number.isdigit() and len(number) < 10:
        return whole, int(number)
    return spec, None


def _find(spec: str, search_path: Sequence[Path]) -> CatalogueEntry:
    listed = list_spaces(search_path)
    for entry in listed:
        if entry.name == spec:
            return entry
    if any(entry.name == spec for entry in list_clouds(search_path)):
        raise UnknownSpaceError(
            f"a recording holds its whole space, but {quoted(spec)} is a cloud, some measurements "
            f"of a space too large to list: 'spaces show' describes it"
        )
    return _named(spec, listed, "space")


def _named(spec: str, among: Sequence[CatalogueEntry], kind: str) -> CatalogueEntry:
    entries = {entry.name: entry for entry in among}
    if spec in entries:
        return entries[spec]
    hint = suggestion(spec, (*entries, *SPLITS), "'spaces list' shows what there is")
    if spec in SPLITS:
        hint = "it is a split of several: 'spaces list' shows which, name one"
    elif os.path.isdir(spec):  # unlike Path's, never raises
        hint = (
            f"it is a folder: name one file in it, or give the folder as --spaces-path and a name "
            f"from 'spaces list --spaces-path {quoted(spec)}'"
        )
    if spec.startswith(_CLOUDS):
        hint = f"{hint}{'' if hint.endswith('?') else '.'} {_LEFT_OUT}"
    raise UnknownSpaceError(
        f"a {kind} must be the name of one that ships or lies on the search path, or the path of "
        f"a file, but got {quoted(spec)}: {hint}"
    )


def _is_file(spec: str) -> bool:
    path = Path(spec)
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # too long for a path, or with a NUL character
        return False


def _listed(
    search_path: Sequence[Path], suffixes: Sequence[str], others: tuple[str, ...] = ()
) -> list[CatalogueEntry]:
    """Files of these suffixes, but for those whose names end with one of ``others``."""
    entries: dict[str, CatalogueEntry] = {}
    for folder in (resource_dir("tuning_spaces"), *map(Path, search_path)):
        if not folder.is_dir():
            raise UnknownSpaceError(
                f"a search path must name folders, but {folder} is none: mend "
                f"LLAMEA_GPU_SPACES or the option"
            )
        splits = _read_splits(folder)
        for path in sorted(folder.rglob("*")):
            suffix = next((s for s in suffixes if path.name.endswith(s)), None)
            hidden = path.name.startswith(".") or path.name in _BENCH_FILES
            if suffix is None or hidden or path.name.endswith(others) or not path.is_file():
                continue
            name = path.relative_to(folder).as_posix().removesuffix(suffix)
            entries.setdefault(name, CatalogueEntry(name, path, splits.get(name, "")))
    return list(entries.values())


_parsed = functools.lru_cache(maxsize=4)(toml.loads)  # the same file for every name


def _read_splits(folder: Path) -> Mapping[str, str]:
    path = folder / "splits.toml"
    if not path.is_file():
        return {}
    try:
        document = _parsed(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:400]
        raise SpaceFormatError(
            path, "the whole file", f"malformed TOML ({problem})", "Mend it."
        ) from error
    spaces = document.get("spaces", {})
    if not isinstance(spaces, dict):
        raise SpaceFormatError(
            path,
            "spaces",
            f"must be a table, but is {quoted(spaces)}",
            'Write [spaces."NAME"] and split = "train".',
        )
    splits = {}
    for name, entry in spaces.items():
        split = entry.get("split") if isinstance(entry, dict) else None
        if split not in SPLITS:
            raise SpaceFormatError(
                path,
                f"spaces.{shortened(name)}",
                f"split must be one of {SPLITS}, but is {quoted(split)}",
                'Write [spaces."NAME"] and split = "train".',
            )
        splits[name] = split
    return splits
