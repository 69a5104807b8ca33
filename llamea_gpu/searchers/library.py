"""Searchers of installed libraries: trusted code that runs in a worker process, not in the sandbox.

A scheme (``kernel_tuner:``, ``scipy:`` ...) is a module of this package. It turns what follows the
colon into a `LibrarySearcher`: a name for a function that builds the optimizer, and its settings.
The library itself is imported where the searcher runs, never where it is only named.

What it does not do: run anything (`llamea_gpu.runner` does), or know a library.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from llamea_gpu.contract import Configuration, KernelFacts, Optimizer, Space
from llamea_gpu.errors import SearcherError, suggestion
from llamea_gpu.spaces.seeded import SeededSpace

Setting = int | float | bool | str
AnySetting = TypeVar("AnySetting", bound=Setting)


@dataclass(frozen=True, slots=True)
class LibrarySearcher:
    """A searcher of a library, by name: it can be sent to a worker process.

    ``name`` is the spec it was found by. ``factory`` is ``"package.module:function"``; the function
    takes ``settings`` as keyword arguments and returns an optimizer under the contract.
    ``versions`` are those of the libraries that decide what it does, for the record.
    """

    name: str
    factory: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def build(self) -> Optimizer:
        """The optimizer. Imports its library.

        Raises:
            SearcherError: the factory refuses the settings.
        """
        module, _, function = self.factory.partition(":")
        build = getattr(importlib.import_module(module), function)
        return cast("Callable[..., Optimizer]", build)(**self.settings)


def require(package: str, extra: str, needed_by: str) -> str:
    """The installed version of ``package``, found without importing it.

    Raises:
        SearcherError: it is not installed; the message names the extra that brings it.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise SearcherError(
            f"{needed_by} needs {package}, which is not installed: "
            f"pip install 'llamea-gpu[{extra}]'"
        ) from None


def parse_settings(
    spec: str, query: str, defaults: Mapping[str, AnySetting]
) -> dict[str, AnySetting]:
    """``key=value&key=value`` as settings in the type of each default; only those that are set.

    Raises:
        SearcherError: a key that is not in ``defaults``, one without a value, or a value of
            another type.
    """
    settings: dict[str, AnySetting] = {}
    for item in filter(None, query.split("&")):
        key, _, text = item.partition("=")
        if key not in defaults:
            raise SearcherError(f"{spec}: there is no setting {key!r}: {suggestion(key, defaults)}")
        default = defaults[key]
        settings[key] = converted(spec, key, text, type(default), f" like its default {default}")
    return settings


def converted(spec: str, key: str, text: str, kind: type[AnySetting], like: str = "") -> AnySetting:
    """``text`` as a value of a plain type.

    Raises:
        SearcherError: it is none.
    """
    try:
        return kind({"true": True, "false": False}[text.lower()] if kind is bool else text)
    except (KeyError, ValueError):
        raise SearcherError(
            f"{spec}: {key} must be of type {kind.__name__}{like}, but got {text!r}"
        ) from None


class DescribedSpace(SeededSpace):
    """``space`` with `KernelFacts`; its samples begin with ``measured``, best first."""

    def __init__(
        self, space: Space, facts: KernelFacts, measured: Sequence[Configuration] = ()
    ) -> None:
        super().__init__(space, measured)
        self.facts = facts
