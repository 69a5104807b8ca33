"""Finds the folders that ship beside the code: prompts, generated optimizers, tuning spaces."""

from __future__ import annotations

from pathlib import Path

from llamea_gpu.errors import LlameaGpuError

_PACKAGE = Path(__file__).resolve().parent


def resource_dir(name: str) -> Path:
    """Folder ``name`` as installed in the wheel, or at the top of a source tree.

    Raises:
        LlameaGpuError: neither place has it (a broken installation).
    """
    for candidate in (_PACKAGE / "_resources" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise LlameaGpuError(
        f"the folder {name!r} must ship with llamea_gpu, but it is neither in the package nor "
        f"beside it: reinstall with 'pip install --force-reinstall llamea-gpu'"
    )
