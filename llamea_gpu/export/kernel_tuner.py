"""``llamea-gpu export NAME --to kernel-tuner``: an optimizer as one file for Kernel Tuner.

The file holds the optimizer, the text of `runtime` and a class that joins the two. It needs
kernel_tuner and what the optimizer imports, not llamea_gpu. Neither is imported here.
"""

from __future__ import annotations

import math
import re

from llamea_gpu.export.standalone import Export, compose, runtime_text
from llamea_gpu.live.optimizer import LoadedOptimizer
from llamea_gpu.searchers.registry import Hyperparameter

_RUNTIME = "live/kernel_tuner/runtime.py"
_WIDTH = 100
_USAGE = """
import kernel_tuner
from {name} import {strategy}

results, env = kernel_tuner.tune_kernel(..., strategy={strategy}(seed=1),
                                        strategy_options={{"max_fevals": 200}})
"""
_JOINT = '''
class {strategy}(KernelTunerStrategy):
    """For ``tune_kernel(..., strategy=...)``. The same seed gives the same run."""

{signature}
        hyperparameters = {{{hyperparameters}}}
        super().__init__("{name}", {class_name}, hyperparameters, seed)
'''


def export_source(optimizer: LoadedOptimizer) -> str:
    """The text of a standalone file whose class is the optimizer's name plus ``Strategy``.

    Raises:
        SearcherError: the optimizer defines a name that the runtime defines too.
    """
    strategy = f"{optimizer.class_name}Strategy"
    export = Export(
        target="kernel-tuner",
        title="a strategy for Kernel Tuner",
        framework="kernel_tuner >= 1.5",
        runtime=runtime_text(_RUNTIME),
        joint=_joint(optimizer, strategy),
        # A file with a dash in its name cannot be imported: the example is not to show it.
        usage=_USAGE.format(name=re.sub(r"\W", "_", optimizer.name), strategy=strategy),
    )
    return compose(optimizer, export)


def _joint(optimizer: LoadedOptimizer, strategy: str) -> str:
    """The class that is used, with the optimizer's hyperparameters in its signature."""
    # One that is called seed stays as it is: the strategy's seed is the run's.
    settable = {key: value for key, value in optimizer.hyperparameters.items() if key != "seed"}
    pairs = [f'"{key}": {key}' for key in settable]
    pairs += [
        f'"{key}": {_literal(value)}'
        for key, value in optimizer.hyperparameters.items()
        if key not in settable
    ]
    return _JOINT.format(
        strategy=strategy,
        signature=_signature([f"{key}={_literal(value)}" for key, value in settable.items()]),
        hyperparameters="".join(f"\n            {pair}," for pair in pairs) + "\n        ",
        name=optimizer.name,
        class_name=optimizer.class_name,
    )


def _signature(parameters: list[str]) -> str:
    line = f"    def __init__({', '.join(['self', *parameters, 'seed=None'])}):"
    if len(line) <= _WIDTH:
        return line
    listed = "".join(f"        {item},\n" for item in ["self", *parameters, "seed=None"])
    return f"    def __init__(\n{listed}    ):"


def _literal(value: Hyperparameter) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value}")'
