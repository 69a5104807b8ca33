"""Optimizers under the contract, made of what a file written for Kernel Tuner defines.

A class is wrapped by Kernel Tuner's own `OptAlgWrapper`, and gets the strategy options that
`tune_kernel_T1` would give it. This runs in the sandbox, at the end of such a file (see
`llamea_gpu.searchers.optalg`); `provide_names` runs in the sandbox's zygote.

What it does not do: read or check the file.
"""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from kernel_tuner.strategies.wrapper import OptAlgWrapper

from llamea_gpu.contract import Evaluate, Optimizer, Space
from llamea_gpu.searchers.kernel_tuner.bridge import Tune, search
from llamea_gpu.searchers.kernel_tuner.searchspace import ListedSearchspace

# What BLADE writes before a class that it runs. Its files hold it; answers of a model do not.
_MODULES = ("json", "math", "os", "random", "re", "time", "traceback")
_OF_KERNEL_TUNER = {
    "util": "kernel_tuner",
    "Searchspace": "kernel_tuner.searchspace",
    "CostFunc": "kernel_tuner.strategies.common",
    "OptAlg": "kernel_tuner.strategies.wrapper",
}


def from_class(optimizer_class: Callable[..., Any]) -> Callable[..., Optimizer]:
    """What makes an optimizer of hyperparameters: an instance of the class, wrapped."""

    def make(**hyperparameters: Any) -> Optimizer:
        instance = optimizer_class(**hyperparameters)
        options = {}
        if hasattr(instance, "constraint_aware"):
            options["constraint_aware"] = instance.constraint_aware
        strategy = OptAlgWrapper(instance) if callable(instance) else instance
        return from_tune(strategy.tune)(**options)

    return make


def from_tune(tune: Tune) -> Callable[..., Optimizer]:
    """What makes an optimizer of options: a strategy module's function."""

    def make(**options: Any) -> Optimizer:
        def optimize(evaluate: Evaluate, space: Space, rng: np.random.Generator) -> None:
            seed = int(rng.integers(2**32))
            search(tune, evaluate, ListedSearchspace(space), options=options, seed=seed)

        return optimize

    return make


def provide_names() -> None:
    """Let every file of this process use the names that BLADE runs a class with, unimported."""
    for name in _MODULES:
        setattr(builtins, name, importlib.import_module(name))
    builtins.np = np  # type: ignore[attr-defined]
    for name, module in _OF_KERNEL_TUNER.items():
        setattr(builtins, name, getattr(importlib.import_module(module), name))
