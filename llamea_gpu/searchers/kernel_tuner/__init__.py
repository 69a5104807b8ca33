"""Kernel Tuner's own search strategies, as they are installed: ``kernel_tuner:NAME``.

    kernel_tuner:genetic_algorithm
    kernel_tuner:genetic_algorithm?popsize=20&method=uniform

`installed` reads from the installation's text which strategies there are and what their options
default to; `strategy` runs one in a worker process; `bridge` and `searchspace` are the objects
that Kernel Tuner's code is given, which OptAlg classes in the sandbox (`searchers.optalg`) share.

What it does not do: copy or patch a strategy. Kernel Tuner is imported where one runs, never here.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping

from llamea_gpu.errors import SearcherError, suggestion
from llamea_gpu.searchers.kernel_tuner.installed import Strategy, strategies
from llamea_gpu.searchers.library import LibrarySearcher, Setting, parse_settings, require

_FACTORY = "llamea_gpu.searchers.kernel_tuner.strategy:build"
# What the strategies themselves are made of: another version of these gives other runs.
_DECIDING = ("numpy", "scipy", "scikit-learn")


def resolve(spec: str, name: str, query: str) -> LibrarySearcher:
    """The strategy ``name``, with the options that ``query`` sets.

    Raises:
        SearcherError: Kernel Tuner, or a package that the strategy needs, is not installed; there
            is no such strategy or option.
    """
    version = require("kernel_tuner", "kernel-tuner", spec)
    known = strategies()
    if name not in known:
        raise SearcherError(
            f"{spec}: Kernel Tuner {version} has no strategy {name!r}: {suggestion(name, known)}"
        )
    strategy = known[name]
    if not _is_complete(strategy):
        raise SearcherError(
            f"{spec} needs a package that Kernel Tuner does not bring: "
            f"pip install {strategy.distribution}"
        )
    versions = {"kernel_tuner": version}
    for package in (*_DECIDING, strategy.distribution):
        if package:
            versions[package] = importlib.metadata.version(package)
    settings = parse_settings(spec, query, strategy.options)
    return LibrarySearcher(
        name=spec,
        factory=_FACTORY,
        settings={"strategy": name, "module": strategy.module, **settings},
        versions=versions,
    )


def names() -> tuple[str, ...]:
    """The strategies that this installation can run; none without Kernel Tuner."""
    if importlib.util.find_spec("kernel_tuner") is None:
        return ()
    return tuple(name for name, strategy in strategies().items() if _is_complete(strategy))


def options(name: str) -> Mapping[str, Setting]:
    """What ``?key=value`` may set of ``name``, with the defaults."""
    return strategies()[name].options


def _is_complete(strategy: Strategy) -> bool:
    return not strategy.package or importlib.util.find_spec(strategy.package) is not None
