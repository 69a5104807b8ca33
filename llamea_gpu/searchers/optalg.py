"""Optimizers written for Kernel Tuner's `OptAlg`, from their own files: ``optalg:FILE.py[:NAME]``.

    optalg:hybrid.py
    optalg:hybrid.py:HybridVNS?restart=50

NAME is a class that is called with ``(func, searchspace)``, as Kernel Tuner's `OptAlgWrapper` calls
it and as LLaMEA and BLADE have it written; or one with a method ``tune(searchspace, runner,
tuning_options)``. A file with such a function ``tune`` of its own is a strategy module, as Kernel
Tuner's are, and its ``_options`` are what can be set.

The file runs in the sandbox, unmodified: a few lines are put after it, which make an optimizer
under the contract of what it defines (`kernel_tuner.wrapping`).

What it does not do: import or run the file here.
"""

from __future__ import annotations

import ast
from pathlib import Path

from llamea_gpu.errors import SearcherError
from llamea_gpu.searchers.kernel_tuner.installed import module_options
from llamea_gpu.searchers.library import require
from llamea_gpu.searchers.registry import SearcherSource
from llamea_gpu.searchers.source import (
    Hyperparameter,
    find_class,
    method_of,
    numeric_defaults,
    parse_source,
    read_source,
    with_settings,
)

_TUNE = "tune"
_OPTIMIZER = "LlameaGpuOptimizer"
_TAIL = """
# -- Not of this file: what it defines, as an optimizer of llamea_gpu -------------------------
from llamea_gpu.searchers.kernel_tuner import wrapping as _llamea_gpu_wrapping
{optimizer} = _llamea_gpu_wrapping.{wrap}({name})
"""


def resolve(spec: str, name: str, query: str) -> SearcherSource:
    """The optimizer in the file that ``name`` names.

    Raises:
        SearcherError: Kernel Tuner is not installed; the file cannot be read or holds no such
            optimizer; a hyperparameter does not exist or has another type.
    """
    require("kernel_tuner", "kernel-tuner", spec)
    file_name, colon, chosen = name.partition(".py:")
    path = Path(f"{file_name}.py" if colon else name)
    if path.suffix != ".py":
        raise SearcherError(f"{spec}: an OptAlg must be given as FILE.py[:Class], but got {name!r}")
    source = read_source(path)
    tree = parse_source(path, source)
    if _is_strategy_module(tree, chosen):
        defaults = _module_defaults(tree)
        tail = _TAIL.format(optimizer=_OPTIMIZER, wrap="from_tune", name=_TUNE)
    else:
        found = find_class(path, tree, chosen)
        defaults = numeric_defaults(found)
        tail = _TAIL.format(optimizer=_OPTIMIZER, wrap="from_class", name=found.name)
    return SearcherSource(
        name=spec,
        source=source + tail,
        class_name=_OPTIMIZER,
        hyperparameters=with_settings(spec, defaults, query),
    )


def names() -> tuple[str, ...]:
    """None: such optimizers are named by their files."""
    return ()


def _is_strategy_module(tree: ast.Module, chosen: str) -> bool:
    """Whether the file's function ``tune`` is what to run.

    It is when it is named, when nothing is, or when the named class is only part of it: nothing
    that could be run by itself.
    """
    if not any(isinstance(node, ast.FunctionDef) and node.name == _TUNE for node in tree.body):
        return False
    if chosen in ("", _TUNE):
        return True
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == chosen]
    return bool(classes) and not any(
        method_of(classes[-1], method) for method in ("__call__", _TUNE)
    )


def _module_defaults(tree: ast.Module) -> dict[str, Hyperparameter]:
    """The options of a strategy module that are numbers; none when it has no table of them."""
    options = module_options(tree)
    return {key: value for key, value in options.items() if isinstance(value, int | float)}
