"""``llamea-gpu export NAME --to helion``: an optimizer as one file for Helion.

The file holds the optimizer, the text of `space` and `runtime`, and a few lines that register it.
It needs helion and what the optimizer imports, not llamea_gpu. Helion is not imported here.
"""

from __future__ import annotations

import ast
import math

from llamea_gpu.errors import SearcherError
from llamea_gpu.export.standalone import Export, compose, runtime_text
from llamea_gpu.live.helion.registration import fingerprint
from llamea_gpu.live.optimizer import LoadedOptimizer
from llamea_gpu.prompting.normalise import module_names
from llamea_gpu.searchers.registry import Hyperparameter

_OWN_NAMES = {"SEARCH", "autotuner"}
_RUNTIME = ("frameworks/helion/space.py", "live/helion/runtime.py")
_USAGE = """
# With HELION_AUTOTUNER={class_name} in the environment, for every kernel:
import {name}

# Or for one:
@helion.kernel(autotuner_fn={name}.autotuner(evaluations=200))
"""
_JOINT = '''
SEARCH = helion_search(
    "{class_name}",
    {class_name},
    {{{hyperparameters}}},
    fingerprint="{fingerprint}",
)
helion_register(SEARCH)


def autotuner(**options):
    """For ``@helion.kernel(autotuner_fn=...)``: evaluations, seconds, hyperparameters."""
    return helion_autotuner(SEARCH, **options)
'''


def export_source(optimizer: LoadedOptimizer) -> str:
    """The text of a standalone file that registers the optimizer when it is imported.

    Raises:
        SearcherError: the optimizer defines a name that the rest of the file defines too.
    """
    clashing = sorted(module_names(ast.parse(optimizer.source)) & _OWN_NAMES)
    if clashing:
        raise SearcherError(
            f"an exported optimizer must leave the names {', '.join(sorted(_OWN_NAMES))} to the "
            f"file, but {optimizer.name} defines {', '.join(clashing)}: rename it"
        )
    settings = [f'"{key}": {_literal(value)},' for key, value in optimizer.hyperparameters.items()]
    export = Export(
        target="helion",
        title="a search for Helion",
        framework="helion >= 1.2",
        runtime=runtime_text(*_RUNTIME),
        joint=_JOINT.format(
            class_name=optimizer.class_name,
            hyperparameters="".join(f"\n        {item}" for item in settings) + "\n    ",
            fingerprint=fingerprint(optimizer),
        ),
        usage=_USAGE.format(name=optimizer.name, class_name=optimizer.class_name),
    )
    return compose(optimizer, export)


def _literal(value: Hyperparameter) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value}")'
