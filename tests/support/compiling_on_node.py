"""Helion compiles on a node for a GPU that is pretended; timing is by a formula.

A node's engine imports this module, which must do without PyTorch: only processes that compile have
it, on nodes that hide it from all others.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamea_gpu.engine.worker import Channel
from llamea_gpu.frameworks.helion.stages import CompileStage
from support.formula_timing import FormulaTiming


@dataclass(frozen=True)
class Unhidden(CompileStage):
    """Sees the PyTorch that is hidden from its node."""

    def run(self, channel: Channel) -> None:
        sys.path[:] = [path for path in sys.path if not (Path(path) / "torch.py").exists()]
        super().run(channel)


def compiling_on_node(
    trail: Path, script: Any, shape: str, compilers: int, folder: Path
) -> tuple[list[Any], list[Any]]:
    """In the place of a node's stages for a kernel's script."""
    compiling = Unhidden(script.here(), shape, folder, pretended="H200")
    return [compiling] * compilers, [FormulaTiming(trail, trail, {}, 0.05)]
