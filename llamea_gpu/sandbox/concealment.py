"""What a candidate, and a model that reads its errors, may know of this machine: no name, no path.

`conceal` runs in the zygote when everything is loaded: what Python keeps of paths and of the
machine's name becomes neutral, the same on every machine. `without_paths` runs on the host over a
candidate's error text, as a child may have found a path in raw memory.
"""

from __future__ import annotations

import _imp
import contextlib
import functools
import gc
import linecache
import os
import platform
import posix
import re
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

_STANDARD = f"/lib/python{sys.version_info.major}.{sys.version_info.minor}"
_INSTALLED = f"{_STANDARD}/site-packages"
_MACHINE = ("Linux", "localhost", "", "", platform.machine())
# Folders of packages and of the standard library. A match starts where a path does, so that a long
# text of slashes takes linear time.
_LIBRARY_FOLDER = re.compile(
    r"""(?<![^\s"'(=:,])/(?!/)[^\s"'()]*/(?:site-packages|dist-packages|python3\.\d+t?)/"""
)
_LEAST_FOLDER_CHARS = 4  # "/" and the like are no secret


def conceal(import_roots: Sequence[str]) -> None:
    """Make neutral what modules, functions, ``sys``, ``os`` and ``platform`` say of this machine.

    ``import_roots`` are the folders that libraries were imported from. Nothing can be imported from
    a file afterwards.
    """
    # A module that is not loaded then raises ModuleNotFoundError at once, at every level alike.
    sys.path.clear()
    sys.path_importer_cache.clear()
    linecache.clearcache()
    os.environ.pop("LD_LIBRARY_PATH", None)
    shown = _renaming(import_roots)
    platform._uname_cache = platform.uname_result(*_MACHINE)  # type: ignore[attr-defined]
    os.uname = posix.uname = lambda: os.uname_result(_MACHINE)
    for name, module in list(sys.modules.items()):
        _conceal_module(module, shown)
        if name.startswith("_sysconfigdata"):
            module.build_time_vars.clear()
    if "sysconfig" in sys.modules:
        sys.modules["sysconfig"].get_config_vars().clear()
    for thing in gc.get_objects():
        kind = type(thing)
        if kind is types.FunctionType:
            code = thing.__code__
            _imp._fix_co_filename(code, shown(code.co_filename))  # type: ignore[attr-defined]
        elif kind is list:
            for index, item in enumerate(thing):
                if _is_path(item):
                    thing[index] = shown(item)
        elif kind is dict:
            _conceal_values(thing, shown)


def _renaming(import_roots: Sequence[str]) -> Callable[[str], str]:
    """A function that gives a path of this machine its neutral name, and leaves other text."""
    folders = dict.fromkeys(import_roots, _INSTALLED)
    folders[os.path.dirname(os.__file__)] = _STANDARD
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix):
        folders.setdefault(prefix, "")
    ordered = sorted(folders.items(), key=lambda pair: -len(pair[0]))

    @functools.cache
    def shown(text: str) -> str:
        for folder, neutral in ordered:
            if text == folder or text.startswith(f"{folder}/"):
                return neutral + text[len(folder) :] or "/"
        return text

    return shown


def _conceal_module(module: types.ModuleType, shown: Callable[[str], str]) -> None:
    spec: Any = getattr(module, "__spec__", None)
    loader: Any = getattr(spec, "loader", None)
    with contextlib.suppress(AttributeError, TypeError):
        module.__path__ = []
        spec.submodule_search_locations = []
        spec.loader_state = None  # of a frozen module: its file
    if hasattr(loader, "_path"):  # of a namespace package: all that was on the search path
        loader._path = []
    for owner, name in ((spec, "origin"), (spec, "cached"), (loader, "path")):
        value = getattr(owner, name, None)
        if type(value) is str:
            setattr(owner, name, shown(value))


def _conceal_values(namespace: dict[Any, Any], shown: Callable[[str], str]) -> None:
    namespace.update({key: shown(v) for key, v in namespace.items() if _is_path(v)})


def _is_path(value: object) -> bool:
    return type(value) is str and value.startswith("/")


def without_paths(text: str) -> str:
    """``text`` with the paths of libraries cut to what stands below their folder.

    The folders of this very machine are cut out wherever they stand: their names may hold blanks.
    """
    for folder in _own_folders():
        text = text.replace(f"{folder}/", "")
    return _LIBRARY_FOLDER.sub("", text)


@functools.cache
def _own_folders() -> tuple[str, ...]:
    """Where this process's libraries and its user's files lie; the longest first."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    folders = [package, os.path.dirname(os.__file__), os.path.expanduser("~")]
    folders += [sys.prefix, sys.base_prefix, *filter(os.path.isabs, sys.path)]
    folders += [os.path.realpath(folder) for folder in folders]
    long_enough = {f for f in folders if len(f) >= _LEAST_FOLDER_CHARS}
    return tuple(sorted(long_enough, key=lambda folder: (-len(folder), folder)))
