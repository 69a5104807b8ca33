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

from llamea_gpu.errors import AnswerError, SearcherError
from llamea_gpu.programs import Hyperparameter, Program
from llamea_gpu.programs.defaults import defaults_of
from llamea_gpu.programs.normalise import program_digest
from llamea_gpu.programs.reading import idea_of
from llamea_gpu.programs.syntax import classes_of, method_of, parse
from llamea_gpu.searchers.kernel_tuner import module_options
from llamea_gpu.searchers.library import parse_settings, require
from llamea_gpu.searchers.registry import ProgramSearcher, read_source
from llamea_gpu.searchers.spec import Spec

_TUNE = "tune"
_OPTIMIZER = "LlameaGpuOptimizer"
_TAIL = """
# -- Not of this file: what it defines, as an optimizer of llamea_gpu -------------------------
from llamea_gpu.searchers.kernel_tuner import wrapping as _llamea_gpu_wrapping
{optimizer} = _llamea_gpu_wrapping.{wrap}({name})
"""


def resolve(spec: str, name: str, query: str) -> ProgramSearcher:
    """The optimizer in the file that ``name`` names.

    Raises:
        SearcherError: Kernel Tuner is not installed; the file cannot be read or holds no such
            optimizer; a hyperparameter does not exist or has another type.
    """
    require("kernel_tuner", "kernel-tuner", spec)
    file = Spec("", name).file
    if file is None:
        raise SearcherError(f"{spec}: an OptAlg must be given as FILE.py[:Class], but got {name!r}")
    path, class_name = file
    source = read_source(path)
    try:
        tree = parse(source)
    except AnswerError as error:
        raise SearcherError(f"{path} must be Python source, but: {error}") from error
    defaults: dict[str, Hyperparameter]
    if _is_strategy_module(tree, class_name):
        options = module_options(tree).items()
        defaults = {key: value for key, value in options if isinstance(value, int | float)}
        idea, wrap, wrapped = idea_of(tree), "from_tune", _TUNE
    else:
        owner = _class(path, tree, class_name)
        defaults = defaults_of(owner, tree)
        idea, wrap, wrapped = idea_of(tree, owner), "from_class", owner.name
    source += _TAIL.format(optimizer=_OPTIMIZER, wrap=wrap, name=wrapped)
    program = Program(
        source=source,
        class_name=_OPTIMIZER,
        hyperparameters=tuple(defaults.items()),
        idea=idea,
        digest=program_digest(ast.parse(source), _OPTIMIZER),
    )
    chosen = parse_settings(spec, query, program.settings)
    return ProgramSearcher(spec, program.with_settings(**chosen))


def _class(path: Path, tree: ast.Module, chosen: str) -> ast.ClassDef:
    """The class to run: the one named, or the only one that can be called."""
    classes = classes_of(tree)
    if chosen:
        fitting = [classes[chosen]] if chosen in classes else []
    else:
        fitting = [node for node in classes.values() if method_of(node, "__call__")]
    if len(fitting) != 1:
        raise SearcherError(
            f"{path} must hold one class with a __call__ method, or be named as FILE.py:Class; "
            f"classes in it: {', '.join(classes) or 'none'}"
        )
    return fitting[0]


def _is_strategy_module(tree: ast.Module, chosen: str) -> bool:
    """Whether the file's function ``tune`` is what to run.

    It is when it is named, when nothing is, or when the named class is only part of it: nothing
    that could be run by itself.
    """
    if not any(isinstance(node, ast.FunctionDef) and node.name == _TUNE for node in tree.body):
        return False
    if chosen in ("", _TUNE):
        return True
    owner = classes_of(tree).get(chosen)
    return owner is not None and not any(method_of(owner, name) for name in ("__call__", _TUNE))
