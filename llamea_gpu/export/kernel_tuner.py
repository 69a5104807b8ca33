"""``llamea-gpu export NAME --to kernel-tuner``: an optimizer as one file for Kernel Tuner.

The file holds the optimizer, the text of `runtime` and a class that joins the two. It needs
kernel_tuner and what the optimizer imports, not llamea_gpu. Neither is imported here.
"""

from __future__ import annotations

import re

from llamea_gpu.export.standalone import Export, compose, literal, runtime_text
from llamea_gpu.searchers.registry import ProgramSearcher

_RUNTIME = ("live/queued.py", "live/kernel_tuner/runtime.py")
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


def export_source(searcher: ProgramSearcher) -> str:
    """The text of a standalone file whose class is the optimizer's name plus ``Strategy``.

    Raises:
        SearcherError: the optimizer defines a name that the runtime defines too.
    """
    strategy = f"{searcher.program.class_name}Strategy"
    export = Export(
        target="kernel-tuner",
        title="a strategy for Kernel Tuner",
        framework="kernel_tuner >= 1.5",
        runtime=runtime_text(*_RUNTIME),
        joint=_joint(searcher, strategy),
        # A file with a dash in its name cannot be imported: the example is not to show it.
        usage=_USAGE.format(name=re.sub(r"\W", "_", searcher.short_name), strategy=strategy),
    )
    return compose(searcher, export)


def _joint(searcher: ProgramSearcher, strategy: str) -> str:
    """The class that is used, with the optimizer's hyperparameters in its signature."""
    # One that is called seed stays as it is: the strategy's seed is the run's.
    settings = searcher.program.settings
    settable = {key: value for key, value in settings.items() if key != "seed"}
    pairs = [f'"{key}": {key}' for key in settable]
    pairs += [
        f'"{key}": {literal(value)}' for key, value in settings.items() if key not in settable
    ]
    return _JOINT.format(
        strategy=strategy,
        signature=_signature([f"{key}={literal(value)}" for key, value in settable.items()]),
        hyperparameters="".join(f"\n            {pair}," for pair in pairs) + "\n        ",
        name=searcher.short_name,
        class_name=searcher.program.class_name,
    )


def _signature(parameters: list[str]) -> str:
    line = f"    def __init__({', '.join(['self', *parameters, 'seed=None'])}):"
    if len(line) <= _WIDTH:
        return line
    listed = "".join(f"        {item},\n" for item in ["self", *parameters, "seed=None"])
    return f"    def __init__(\n{listed}    ):"
