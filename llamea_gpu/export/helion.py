"""``llamea-gpu export NAME --to helion``: an optimizer as one file for Helion.

The file holds the optimizer, the text of `space` and `runtime`, and a few lines that register it.
It needs helion and what the optimizer imports, not llamea_gpu. Helion is not imported here.
"""

from __future__ import annotations

from llamea_gpu.export.standalone import Export, compose, literal, runtime_text
from llamea_gpu.live.searcher import fingerprint
from llamea_gpu.searchers.registry import ProgramSearcher

_RUNTIME = ("frameworks/helion/space.py", "live/queued.py", "live/helion/runtime.py")
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


def export_source(searcher: ProgramSearcher) -> str:
    """The text of a standalone file that registers the optimizer when it is imported.

    Raises:
        SearcherError: the optimizer defines a name that the rest of the file defines too.
    """
    program = searcher.program
    settings = [f'"{key}": {literal(value)},' for key, value in program.hyperparameters]
    export = Export(
        target="helion",
        title="a search for Helion",
        framework="helion >= 1.2",
        runtime=runtime_text(*_RUNTIME),
        joint=_JOINT.format(
            class_name=program.class_name,
            hyperparameters="".join(f"\n        {item}" for item in settings) + "\n    ",
            fingerprint=fingerprint(program),
        ),
        usage=_USAGE.format(name=searcher.short_name, class_name=program.class_name),
    )
    return compose(searcher, export)
