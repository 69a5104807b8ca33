"""Instances of a program's class, in this very process: for live tuning alone.

It isolates nothing. `make` executes the source right here, because live tuning means just that.
The screening refuses forbidden imports and clear mistakes; it is no security boundary. Read an
optimizer that you did not write before you tune with it, or run it in the sandbox (``llamea-gpu
run``).
"""

from __future__ import annotations

import linecache
import sys
import types
from typing import TYPE_CHECKING, cast

from llamea_gpu.errors import SearcherError
from llamea_gpu.programs.program import Program
from llamea_gpu.programs.screening import require_contract

if TYPE_CHECKING:
    from llamea_gpu.contract import Optimizer


def make(program: Program) -> Optimizer:
    """A fresh instance, from a module of its own. Executes the source in this process.

    Raises:
        SearcherError: the source breaks a rule of the contract, or it or the constructor raises.
    """
    require_contract(program)
    name = f"llamea_gpu_program_{program.class_name}"
    module = types.ModuleType(name)
    # Tracebacks show the lines; dataclasses look their module up.
    lines = program.source.splitlines(keepends=True)
    linecache.cache[name] = (len(program.source), None, lines, name)
    sys.modules[name] = module
    try:
        exec(compile(program.source, name, "exec"), module.__dict__)  # noqa: S102 - live tuning
        instance = getattr(module, program.class_name)(**program.settings)
    except Exception as error:
        raise SearcherError(
            f"{program.class_name} must load and take its hyperparameters {program.settings}, "
            f"but: {type(error).__name__}: {error}"
        ) from error
    return cast("Optimizer", instance)
