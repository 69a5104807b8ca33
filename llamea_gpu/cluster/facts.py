"""What a node of a cluster is: what it runs, and how that differs from what is expected.

It imports little: the processes of GPUs' engines start with it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import llamea_gpu

# What seeded runs depend on beside the code of a searcher's own library.
_LIBRARIES = ("numpy", "scipy", "scikit-learn")

Facts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Examined:
    """What a node is. ``problem`` says why it has no sandbox."""

    node: str
    host: str
    facts: Facts
    problem: str = ""

    def unlike(self, expected: Facts) -> str:
        """How it differs: ``numpy 1.26.4, expected 2.4.6; ...``; empty if it does not."""
        differing = "; ".join(
            f"{name} {self.facts.get(name, 'unknown')}, expected {value}"
            for name, value in expected.items()
            if self.facts.get(name) != value
        )
        return f"{differing}. {self.problem}" if differing and self.problem else differing


@functools.cache
def software() -> Facts:
    """What this process runs, but for its sandbox."""
    return {
        "machine": platform.machine(),
        "Python": platform.python_version(),
        **installed(_LIBRARIES),
        "llamea_gpu": f"{llamea_gpu.__version__} ({_code_digest()})",
    }


def installed(packages: Iterable[str]) -> Facts:
    """The versions of packages here."""
    return {package: _version(package) for package in packages}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _code_digest() -> str:
    """Of the package's modules: checkouts of one version may differ."""
    folder = Path(llamea_gpu.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]
