"""What processes that a test starts can import."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def hide(module: str, folder: Path) -> None:
    """A process with ``folder`` in its path cannot import ``module``."""
    (folder / f"{module}.py").write_text(f"raise ImportError('{module} is hidden')\n")


@contextmanager
def hidden_from_processes(module: str, folder: Path) -> Iterator[None]:
    """Processes that start meanwhile do without ``module``, as where it is not installed."""
    importlib.import_module(module)  # this one does not
    hide(module, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield
