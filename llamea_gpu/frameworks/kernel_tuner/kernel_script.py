"""Kernel scripts: a Python file that says how Kernel Tuner is to call a kernel.

Such a file defines one function and, optionally, one dictionary:

    def tune_kernel_arguments() -> dict: ...   # keyword arguments of kernel_tuner.tune_kernel
    INFO = {"name": "matmul-4096", "default_configuration": {"block_m": 64, ...}, "note": "..."}

The function gives what belongs to the kernel (``kernel_name``, ``kernel_source``,
``problem_size``, ``arguments``, ``tune_params``, ``restrictions``, ``answer``, ``lang``, ...).
What belongs to the way of tuning (strategy, device, iterations, cache, ...) is the caller's.
Its parameters, if it has any, are the problem's sizes, each with a default.

Loading executes the file: it is the user's own code, never a model's. Nothing is measured here.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from llamea_gpu.errors import RecordingError
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.space import Value

FUNCTION = "tune_kernel_arguments"
REQUIRED = ("kernel_name", "kernel_source", "problem_size", "arguments", "tune_params")
# Said by whoever tunes or records, on the command line.
_OF_THE_CALLER = {
    *("strategy", "strategy_options", "cache", "simulation_mode", "parallel", "device", "platform"),
    *("iterations", "quiet", "verbose", "log", "seed", "metrics"),
    *("objective", "objective_higher_is_better", "objectives"),
}
_INFO_KEYS = {"name", "default_configuration", "note"}
# What decides, beside source, space and problem size, which program runs on how many threads.
_LAUNCH = {
    *("block_size_names", "grid_div_x", "grid_div_y", "grid_div_z"),
    *("smem_args", "defines", "compiler", "compiler_options"),
}


@dataclass(frozen=True, slots=True)
class KernelScript:
    """A loaded kernel script.

    Attributes:
        path: the file.
        name: short name of kernel and problem; the file's stem unless ``INFO`` names it.
        arguments: keyword arguments of ``tune_kernel``. ``kernel_source`` is text, a function, or
            a list whose file names are absolute.
        default_configuration: parameter name to value, as ``INFO`` gives it.
        note: what ``INFO`` says about the kernel.
    """

    path: Path
    name: str
    arguments: Mapping[str, Any]
    default_configuration: Mapping[str, Value] | None = None
    note: str = ""

    @property
    def language(self) -> str | None:
        """The script's ``lang``: CUDA, CUPY, NVCUDA, HIP, OPENCL, C, ...; None: to be detected."""
        return self.arguments.get("lang")

    def kernel_text(self) -> str:
        """The kernel's source text: files one after another, a generating function as its code."""
        source = self.arguments["kernel_source"]
        parts = source if isinstance(source, list) else [source]
        return "\n".join(source_text(part) for part in parts)

    def argument_facts(self) -> tuple[Mapping[str, object], ...]:
        """Shape and dtype of each array, dtype and value of each scalar."""
        return tuple(argument_facts(argument) for argument in self.arguments["arguments"])

    def constraints(self) -> tuple[str, ...]:
        """The restrictions as text; a function as its code."""
        restrictions = self.arguments.get("restrictions") or ()
        listed = restrictions if isinstance(restrictions, list | tuple) else [restrictions]
        return tuple(item if isinstance(item, str) else source_text(item) for item in listed)

    def problem_size(self) -> str:
        """The problem size as JSON; a function as its code."""
        size = self.arguments["problem_size"]
        return source_text(size) if callable(size) else json.dumps(size, default=plain)

    def launch(self) -> str:
        """How it is compiled and launched, as JSON; a function as its code."""
        launch_arguments = {key: value for key, value in self.arguments.items() if key in _LAUNCH}
        return json.dumps(
            launch_arguments,
            sort_keys=True,
            default=lambda v: source_text(v) if callable(v) else str(v),
        )

    @property
    def verified(self) -> bool:
        """Whether results are compared with a reference."""
        return self.arguments.get("answer") is not None or "verify" in self.arguments


def load_kernel_script(path: Path, sizes: Mapping[str, Value] | None = None) -> KernelScript:
    """Execute a kernel script and check what it defines.

    ``sizes`` are arguments of its function by name; the kernel's name then ends in them.

    Raises:
        RecordingError: no such file, an error inside it, a missing function or argument, a size
            that the function does not take, an argument that is the caller's or that
            ``tune_kernel`` does not know.
    """
    path = Path(path).absolute()
    module = _execute(path)
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        raise RecordingError(
            f"a kernel script must define a function {FUNCTION}() that returns the keyword "
            f"arguments of kernel_tuner.tune_kernel, but {path} does not: add it"
        )
    with_context = f"{FUNCTION}() of {path}"
    _check_sizes(function, sizes or {}, with_context)
    try:
        arguments = function(**(sizes or {}))
    except Exception as error:
        raise RecordingError(f"{with_context} must return, but raised {error!r}") from error
    if not isinstance(arguments, dict):
        raise RecordingError(f"{with_context} must return a dict, but got {type(arguments)}")
    _check_keys(arguments, with_context)
    checked = {**arguments, "kernel_source": _resolved(arguments["kernel_source"], path.parent)}
    script = _described(module, path, checked)
    if not sizes:
        return script
    return replace(script, name=f"{path.stem}-{'x'.join(map(str, sizes.values()))}")


def parse_sizes(texts: Sequence[str]) -> dict[str, Value]:
    """Sizes from ``NAME=VALUE`` each; a value that is no number is text.

    Raises:
        RecordingError: one is not of that form, or a name comes twice.
    """
    sizes: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and value and name.isidentifier()) or name in sizes:
            raise RecordingError(
                f"a size must be NAME=VALUE, and each name must come once, but got {quoted(text)}"
            )
        try:
            number = json.loads(value)
        except ValueError:
            number = value
        sizes[name] = number if isinstance(number, int | float) else value
    return sizes


def _execute(path: Path) -> ModuleType:
    if not path.is_file():
        raise RecordingError(f"a kernel script must be a Python file, but {path} is not a file")
    name = f"llamea_gpu_kernel_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RecordingError(f"a kernel script must be named FILE.py, but got {path}: rename it")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as running the file does: it may import neighbours
    try:
        # Python's cache of compiled code takes a file that was changed within a second for the old.
        exec(compile(path.read_bytes(), path, "exec"), vars(module))  # noqa: S102 - the user's own
    except Exception as error:
        raise RecordingError(f"{path} must load, but raised {error!r}") from error
    return module


def _check_sizes(function: Callable[..., Any], sizes: Mapping[str, Value], context: str) -> None:
    parameters = inspect.signature(function).parameters
    unknown = sorted(set(sizes) - set(parameters))
    if unknown:
        accepted = ", ".join(parameters) or "none: give it parameters with defaults"
        raise RecordingError(
            f"{context} must take every size that is given, but got {unknown}; it takes {accepted}"
        )


def _check_keys(arguments: Mapping[str, Any], context: str) -> None:
    from kernel_tuner import tune_kernel

    missing = [key for key in REQUIRED if arguments.get(key) is None]
    if missing:
        raise RecordingError(
            f"{context} must give {', '.join(REQUIRED)}, but {missing} are missing"
        )
    known = set(inspect.signature(tune_kernel).parameters)
    foreign = sorted(set(arguments) - (known - _OF_THE_CALLER))
    if foreign:
        raise RecordingError(
            f"{context} must give arguments of tune_kernel that belong to the kernel, but got "
            f"{foreign}: leave them out (how to tune is said on the command line)"
        )


def _described(module: ModuleType, path: Path, arguments: Mapping[str, Any]) -> KernelScript:
    """The script, with what its ``INFO`` says."""
    info = getattr(module, "INFO", {})
    if not isinstance(info, dict) or not set(info) <= _INFO_KEYS:
        raise RecordingError(
            f"INFO of {path} must be a dict with some of {sorted(_INFO_KEYS)}, but is "
            f"{quoted(info)}"
        )
    default = info.get("default_configuration")
    names = set(arguments["tune_params"])
    if default is not None and (not isinstance(default, dict) or set(default) != names):
        raise RecordingError(
            f"default_configuration of {path} must give a value to each of {sorted(names)}, but "
            f"is {quoted(default)}"
        )
    return KernelScript(
        path=path,
        name=str(info.get("name", path.stem)),
        arguments=arguments,
        default_configuration=default,
        note=str(info.get("note", "")),
    )


def _resolved(source: Any, folder: Path) -> Any:
    """File names made independent of the current folder; one file becomes its text."""
    if isinstance(source, list):
        return [str(_found(item, folder) or item) if _is_name(item) else item for item in source]
    file = _found(source, folder) if _is_name(source) else None
    if isinstance(source, Path) and file is None:
        raise RecordingError(f"kernel_source must be a file or source text, but {source} is not")
    return source if file is None else file.read_text(encoding="utf-8")


def _is_name(source: object) -> bool:
    return isinstance(source, Path) or (isinstance(source, str) and "\n" not in source)


def _found(name: str | Path, folder: Path) -> Path | None:
    """The file beside the script, or in the current folder."""
    candidates = [place / name for place in (folder, Path.cwd())]
    try:
        return next((path for path in candidates if path.is_file()), None)
    except OSError:  # source text on one line is too long for a name
        return None


def source_text(source: Any) -> str:
    """A kernel source as text: a file's, a generating function's code, or what is text already."""
    if callable(source):
        try:
            return inspect.getsource(source)
        except (OSError, TypeError):
            return repr(source)
    file = _found(source, Path.cwd()) if _is_name(source) else None
    return str(source) if file is None else file.read_text(encoding="utf-8")


def argument_facts(argument: Any) -> Mapping[str, object]:
    """Shape and dtype of an array, dtype and value of a scalar."""
    shape: Sequence[int] | None = getattr(argument, "shape", None)
    dtype = str(getattr(argument, "dtype", type(argument).__name__))
    if shape:
        return {"shape": [int(n) for n in shape], "dtype": dtype}
    value = plain(argument)
    return {"dtype": dtype, "value": value} if isinstance(value, int | float) else {"dtype": dtype}


def plain(value: Any) -> Any:
    """A numpy scalar as the Python number it stands for."""
    return value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
