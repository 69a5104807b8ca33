"""Kernel Tuner: our optimizers in it, recordings from it, files exported to it.

`strategy` is for live tuning and simulation; ``export`` writes the same as one file that does not
need llamea_gpu. Kernel Tuner itself is imported late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llamea_gpu.programs import Hyperparameter
from llamea_gpu.searchers.library import require

if TYPE_CHECKING:
    from llamea_gpu.live.kernel_tuner.pipelined import EngineName, PipelinedStrategy

__all__ = ["strategy"]


def strategy(
    spec: str,
    *,
    seed: int | None = None,
    engine: EngineName = "pipelined",
    **hyperparameters: Hyperparameter,
) -> PipelinedStrategy:
    """A searcher for ``kernel_tuner.tune_kernel(..., strategy=strategy("NAME"))``.

    ``spec`` names a classical or generated optimizer, a ``FILE.py[:Class]``, ``llm:MODEL``, a
    ``hybrid:`` or a library's searcher. ``hyperparameters`` are those of the optimizer's class, or
    settings of the spec; ``strategy_options`` may hold those of a class too, beside Kernel Tuner's
    ``max_fevals`` and ``time_limit``. With a ``seed`` the run can be repeated. An optimizer's
    source is executed in this process: see `llamea_gpu.programs.instances`.

    With the engine ``pipelined``, kernels in CUDA are compiled and timed in other processes, copies
    of a sleeping copy of this one that is made now (`llamea_gpu.engine.early`); where that cannot
    be, and with ``framework``, Kernel Tuner's own runner measures.

    Raises:
        SearcherError: Kernel Tuner is not installed, there is no such engine, nothing has that
            name, its source breaks a rule of the contract or raises when it is loaded, or a
            hyperparameter does not exist or has another type.
        ValueError: the seed is no integer >= 0.
    """
    require("kernel_tuner", "kernel-tuner", "a Kernel Tuner strategy")
    from llamea_gpu.live.kernel_tuner.facts import KernelTunerFramework
    from llamea_gpu.live.kernel_tuner.pipelined import PipelinedStrategy
    from llamea_gpu.live.searcher import load_searcher

    searcher = load_searcher(spec, KernelTunerFramework(), hyperparameters)
    # A fault shows now, and what it imports draws no random numbers later, when a run is seeded.
    searcher.make()
    return PipelinedStrategy(
        searcher.name, searcher.make, searcher.hyperparameters, seed, engine=engine
    )
