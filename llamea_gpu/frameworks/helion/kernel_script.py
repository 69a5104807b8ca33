"""Kernel scripts: Python files that define a Helion kernel with arguments and a reference.

A script defines ``helion_kernel``, which returns (kernel, arguments, reference): a
``helion.kernel``, the tuple it is called with, and a function of the same arguments that gives the
right result. It may take ``shape``; ``SHAPES``, a mapping by that name, then says which there are.
Tensors are made on the default device, which the caller sets. Scripts that ship are in
``tuning_spaces/kernels/helion``.

A script is the user's own code and is executed as such: nothing here makes it safe.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.compiling import load_module
from llamea_gpu.resources import resource_dir

FUNCTION = "helion_kernel"
DEFAULT_SHAPE = "medium"
_SEED = 0
_ORDER_NOTE = (
    "A parameter such as loop_orders[0].1 says which of the dimensions that are left comes at that "
    "place, counted from 0; the last place needs no parameter."
)
_NORMALISED_NOTE = (
    "Helion normalises configurations: a setting without a meaning beside the others is ignored."
)


@dataclass(frozen=True, slots=True)
class KernelCase:
    """A kernel on certain arguments.

    Attributes:
        kernel: a ``helion.Kernel``.
        arguments: what it is called with.
        reference: the same computation by other means; takes the same arguments.
        shape: the script's name for these arguments; empty when it has only one.
    """

    kernel: Any
    arguments: tuple[Any, ...]
    reference: Callable[..., Any]
    shape: str

    @property
    def name(self) -> str:
        """Name of the kernel's function."""
        return str(self.kernel.name)

    @property
    def source(self) -> str:
        """Source text of the kernel's function."""
        return inspect.getsource(self.kernel.fn)

    def described_arguments(self) -> tuple[dict[str, object], ...]:
        """One mapping an argument: shape and dtype of a tensor, else its value; JSON values."""
        return tuple(map(_described, self.arguments))


def shipped_kernels() -> dict[str, Path]:
    """Kernel scripts that ship, by name, sorted."""
    folder = resource_dir("tuning_spaces") / "kernels" / "helion"
    return {path.stem: path for path in sorted(folder.glob("*.py"))}


def find_script(spec: str) -> Path:
    """A script by path, or by the name of one that ships.

    Raises:
        RecordingError: neither.
    """
    path = Path(spec)
    if path.is_file():
        return path
    shipped = shipped_kernels()
    if spec not in shipped:
        raise RecordingError(
            f"a kernel script must be a Python file or one of {', '.join(shipped)}, but got "
            f"{spec!r}"
        )
    return shipped[spec]


def shapes_of(script: Path) -> tuple[str, ...]:
    """Names of the shapes that a script offers; empty when it has only one.

    Raises:
        RecordingError: the script does not load.
    """
    return tuple(getattr(_load(script), "SHAPES", ()))


def load_case(script: Path, shape: str | None = None) -> KernelCase:
    """Execute a script and take its kernel.

    Tensors come from a fixed seed on torch's default device (inside
    ``PretendedGpu.fake_tensors`` they are fake).

    Args:
        script: the file.
        shape: one of its shapes; by default "medium", or the first where there is no such.

    Raises:
        RecordingError: the script does not load, does not follow the convention, or does not
            have this shape.
    """
    module = _load(script)
    offered = tuple(getattr(module, "SHAPES", ()))
    if shape is None and offered:
        shape = DEFAULT_SHAPE if DEFAULT_SHAPE in offered else offered[0]
    if shape is not None and shape not in offered:
        raise RecordingError(
            f"the shape must be one of the script's ({', '.join(offered) or 'it has none'}), but "
            f"got {shape!r} for {script}"
        )
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        raise RecordingError(
            f"a kernel script must define {FUNCTION}(), which returns (kernel, arguments, "
            f"reference), but {script} does not"
        )
    return _checked_case(script, _call(script, function, shape), shape)


def recording_name(case: KernelCase) -> str:
    """A recording's default name: the kernel and the first tensor's shape."""
    sizes = next((a.shape for a in case.arguments if hasattr(a, "shape")), ())
    shape = "x".join(str(int(size)) for size in sizes)
    return f"{case.name}-{shape}" if shape else case.name


def notes_on(names: Sequence[str]) -> tuple[str, ...]:
    """What a reader of a space with these parameters has to know that its values do not say."""
    has_orders = any("." in name for name in names)
    return (*([_ORDER_NOTE] if has_orders else []), _NORMALISED_NOTE)


def _described(argument: Any) -> dict[str, object]:
    if hasattr(argument, "shape"):
        return {"shape": list(argument.shape), "dtype": str(argument.dtype)}
    plain = argument is None or isinstance(argument, int | float | str)
    return {"value": argument if plain else repr(argument)}


def _load(script: Path) -> ModuleType:
    # Generated code imports the module of its kernel by this name, so that it must be the same in
    # every process.
    name = "llamea_gpu_kernel_" + re.sub(r"\W", "_", script.stem)
    try:
        return load_module(name, script)
    except Exception as error:
        raise RecordingError(
            f"a kernel script must load, but {script} raised {type(error).__name__}: {error}"
        ) from error


def _call(script: Path, function: Callable[..., Any], shape: str | None) -> Any:
    import torch

    torch.manual_seed(_SEED)
    try:
        return function() if shape is None else function(shape)
    except Exception as error:
        raise RecordingError(
            f"{FUNCTION}() of {script} must return, but raised {type(error).__name__}: {error}"
        ) from error


def _checked_case(script: Path, return_value: object, shape: str | None) -> KernelCase:
    import helion

    if isinstance(return_value, Sequence) and len(return_value) == 3:
        kernel, arguments, reference = return_value
        well_typed = isinstance(kernel, helion.Kernel) and isinstance(arguments, tuple | list)
        if well_typed and callable(reference):
            return KernelCase(kernel, tuple(arguments), reference, shape or "")
    raise RecordingError(
        f"{FUNCTION}() of {script} must return (kernel, arguments, reference): a helion.kernel, a "
        f"tuple, a function of the same arguments"
    )
