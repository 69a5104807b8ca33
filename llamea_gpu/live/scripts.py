"""Which framework a kernel script is written for, read from its text, and tuning it there.

The scripts are those that ``llamea-gpu spaces record`` reads. Loading one executes it: it is the
user's own code. What it does not do: execute a script to find out what it is.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from llamea_gpu.errors import SearcherError, suggestion
from llamea_gpu.files import read_text
from llamea_gpu.live.result import TuneProgress, TuneSettings, TuningResult
from llamea_gpu.live.shapes import ShapesResult
from llamea_gpu.resources import resource_dir

# Of NVIDIA, of AMD, of either under Windows.
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
# What --with means when it is left out: the best on whole spaces, live and on their models; the
# best on listed spaces of kernels that it never saw.
RECOMMENDED = {
    "helion": "improvement_by_instalments",
    "kernel_tuner": "conditioned_local_search",
    "recording": "conditioned_local_search",
}
FrameworkName = Literal["helion", "kernel_tuner"]
_FUNCTIONS: dict[str, FrameworkName] = {
    "helion_kernel": "helion",
    "tune_kernel_arguments": "kernel_tuner",
}


def find_kernel_script(spec: str) -> Path:
    """A script by path, or by the name of one that ships, such as ``helion/matmul``.

    The folder may be left out; Helion's comes first.

    Raises:
        SearcherError: neither.
    """
    path = Path(spec)
    if path.is_file():
        return path
    folder = resource_dir("tuning_spaces") / "kernels"
    shipped = {
        f"{kind}/{path.stem}": path
        for kind in ("helion", "kernel_tuner")
        for path in sorted((folder / kind).glob("*.py"))
    }
    for name, path in shipped.items():
        if spec in (name, path.stem):
            return path
    raise SearcherError(
        f"a kernel script must be a Python file or one that ships, but got {spec!r}: "
        f"{suggestion(spec, shipped)}"
    )


def framework_of(script: Path) -> FrameworkName:
    """The framework of a script, by the function that it defines.

    Raises:
        SearcherError: it is not Python, or defines neither function, or both.
    """
    try:
        tree = ast.parse(read_text(script))
    except (OSError, SyntaxError, ValueError) as error:
        raise SearcherError(f"a kernel script must be Python, but {script}: {error}") from error
    names = {
        name
        for node in tree.body
        for name in (
            [node.name]
            if isinstance(node, ast.FunctionDef)
            else [alias.asname or alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    frameworks = [framework for function, framework in _FUNCTIONS.items() if function in names]
    if len(frameworks) != 1:
        raise SearcherError(
            f"a kernel script must define one of {', '.join(_FUNCTIONS)}, but {script} defines "
            f"{'both' if frameworks else 'neither'}"
        )
    return frameworks[0]


def tune_script(
    script: Path,
    searcher: str,
    settings: TuneSettings,
    progress: Callable[[TuneProgress], None] = lambda _: None,
) -> TuningResult:
    """Tune the kernel of ``script`` with the searcher of that spec, here or on a cluster.

    Raises:
        SearcherError: no such searcher; a framework or a GPU is missing; nothing works.
        RecordingError: the script does not load.
    """
    if framework_of(script) == "helion":
        _require_helion_and_gpu(settings)
        from llamea_gpu.live.helion.tuning import tune_helion_script

        return tune_helion_script(script, searcher, settings, progress)
    from llamea_gpu.live.kernel_tuner.tuning import tune_kernel_tuner_script

    return tune_kernel_tuner_script(script, searcher, settings, progress)


def tune_script_shapes(
    script: Path,
    searcher: str,
    settings: TuneSettings,
    shapes: str,
    progress: Callable[[str, TuneProgress], None] = lambda *_: None,
) -> ShapesResult:
    """Tune the kernel of ``script`` at several of its shapes ("all", or names with commas).

    Raises:
        SearcherError: as for `tune_script`, no such shape, or a framework without shapes.
        RecordingError: the script does not load.
    """
    if framework_of(script) != "helion":
        raise SearcherError(
            f"only Helion's scripts name shapes, but {script} is Kernel Tuner's: tune it once for "
            f"each --size NAME=VALUE"
        )
    if settings.shape is not None:
        raise SearcherError("tune takes --shape or --shapes, but got both: leave one out")
    _require_helion_and_gpu(settings)
    from llamea_gpu.live.helion.tuning import tune_helion_shapes

    return tune_helion_shapes(script, searcher, settings, shapes, progress)


def _require_helion_and_gpu(settings: TuneSettings) -> None:
    """Fail before torch and Helion are imported, which takes long, where no driver is loaded."""
    from llamea_gpu.live.helion.registration import require_helion

    require_helion()
    if settings.cluster:  # its nodes have the GPUs
        return
    if sys.platform == "linux" and not any(os.path.exists(node) for node in _DRIVERS):
        raise SearcherError(
            f"tuning a Helion kernel needs a GPU, but no driver of one is loaded here "
            f"({', '.join(_DRIVERS)}), and number {settings.device} was asked for; a cluster may "
            f"have one (--cluster), a recording needs none (--space)"
        )
