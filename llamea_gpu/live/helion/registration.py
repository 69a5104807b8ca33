"""Our searchers inside Helion: in its registry by name, or as one kernel's autotuner.

What it does: wraps an optimizer, an ``llm:`` or a ``hybrid:`` as a Helion search and tells Helion
of it.

What it does not do: import Helion before it is asked to; tune by itself. Tuning executes an
optimizer's source in this process (`llamea_gpu.programs.instances`).
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from llamea_gpu.engine import early
from llamea_gpu.errors import SearcherError
from llamea_gpu.live.searcher import LiveSearcher, live_program, load_searcher
from llamea_gpu.programs import Hyperparameter
from llamea_gpu.programs.shipped import generated
from llamea_gpu.searchers.registry import ProgramSearcher

if TYPE_CHECKING:
    from llamea_gpu.live.helion.runtime import HelionSearch


EngineName = Literal["pipelined", "framework"]
OLDEST = (1, 2)


def register(*specs: str) -> tuple[str, ...]:
    """Put searchers into Helion's registry, an optimizer under its class's name.

    Another one has its spec's letters and digits for a name: ``llm:gpt-5?rounds=2`` is
    ``llm_gpt_5_rounds_2``.

    ``HELION_AUTOTUNER=NAME`` then makes Helion tune with one, and
    ``helion.autotuner.search_algorithms[NAME]`` is its search class.

    Args:
        specs: as for ``llamea-gpu run``: names, ``FILE.py:Class``, ``llm:MODEL``, with
            ``?key=value`` settings. Without any, every generated optimizer that ships.

    Returns:
        The names.

    Raises:
        SearcherError: an optimizer that is not there or does not load; a name that Helion or
            another optimizer has already; Helion is missing or too old.
    """
    searches = [search_class(_load(spec)) for spec in specs or generated()]
    from llamea_gpu.live.helion.runtime import helion_register

    for search in searches:
        try:
            helion_register(search)
        except ValueError as error:
            raise SearcherError(str(error)) from None
    return tuple(search.__name__ for search in searches)


def autotuner(
    spec: str,
    *,
    evaluations: int | None = None,
    seconds: float | None = None,
    engine: EngineName = "pipelined",
    journal: str | Path | None = None,
    **hyperparameters: Hyperparameter,
) -> Callable[..., Any]:
    """An ``autotuner_fn`` for ``@helion.kernel`` that tunes with the searcher of ``spec``.

    Args:
        spec: a name, ``FILE.py`` or ``FILE.py:Class``, ``llm:MODEL``, ``hybrid:FIRST+NEXT``, or
            one of Helion's own searches, ``helion:NAME``.
        evaluations: configurations to measure, Helion's default and seeds included.
        seconds: wall-clock time to tune; a batch that has begun is finished, and the best are read
            again. With neither budget, Helion's effort decides: 150 evaluations for ``quick``, 500
            for ``full``.
        engine: ``pipelined`` compiles and times side by side, in processes of their own, and makes
            a sleeping copy of this process now (`llamea_gpu.engine.early`); ``framework``
            measures batches in Helion's own way.
        journal: a file in which each measurement of the engine is kept as it comes. A search that
            begins with the file of one that was killed goes on where that one was. It is of one
            kernel on one set of arguments.
        hyperparameters: of the optimizer, or settings of the spec.

    Raises:
        SearcherError: the optimizer is not there or does not load, a hyperparameter does not
            exist or has another type, Helion is missing or too old, a journal of another engine.
        ValueError: a budget is not positive and finite.
    """
    search = search_class(_load(spec, hyperparameters), engine, journal)
    from llamea_gpu.live.helion.runtime import helion_autotuner

    return helion_autotuner(search, evaluations=evaluations, seconds=seconds)


def search_class(
    searcher: ProgramSearcher | LiveSearcher,
    engine: EngineName = "pipelined",
    journal: str | Path | None = None,
) -> type[HelionSearch]:
    """The searcher as a subclass of Helion's ``PopulationBasedSearch``.

    Raises:
        SearcherError: it does not load, or Helion is missing or too old.
    """
    live_searcher = live_program(searcher) if isinstance(searcher, ProgramSearcher) else searcher
    live_searcher.make()  # now, rather than when a kernel is tuned
    require_helion()
    from llamea_gpu.live.helion.runtime import helion_search

    base = search_base(engine, journal)
    from llamea_gpu.live.helion.journal import JournalRequest
    from llamea_gpu.live.helion.pipelined import make_evaluate

    request = None if journal is None else JournalRequest(Path(journal), live_searcher.name)
    return helion_search(
        live_searcher.class_name,
        live_searcher.make,
        dict(live_searcher.hyperparameters),
        live_searcher.fingerprint,
        partial(make_evaluate, journal=request),
        base,
    )


def search_base(engine: EngineName, journal: str | Path | None = None) -> type[HelionSearch]:
    """The search that measures by this engine; prepares this process for it.

    Raises:
        SearcherError: there is no such engine, or it keeps no journal.
    """
    from llamea_gpu.live.helion.runtime import HelionSearch

    if engine == "framework":
        if journal is not None:
            raise SearcherError(
                f"a journal is kept by the engine 'pipelined' alone, but got {journal} and "
                f"'framework': leave one of them out"
            )
        return HelionSearch
    if engine != "pipelined":
        raise SearcherError(f"the engine must be 'pipelined' or 'framework', but got {engine!r}")
    from llamea_gpu.live.helion.pipelined import PipelinedSearch

    fork_early()
    return PipelinedSearch


def _load(spec: str, hyperparameters: Mapping[str, Hyperparameter] | None = None) -> LiveSearcher:
    require_helion()
    from llamea_gpu.live.helion.facts import HelionFramework

    return load_searcher(spec, HelionFramework(), hyperparameters or {})


def require_helion() -> None:
    """Raises SearcherError where Helion is missing or too old."""
    try:
        version = importlib.metadata.version("helion")
    except importlib.metadata.PackageNotFoundError:
        raise SearcherError(
            "tuning inside Helion needs Helion, which is not installed: install PyTorch and "
            "Triton for your GPU, then pip install helion"
        ) from None
    match = re.match(r"(\d+)\.(\d+)", version)  # of 2.0rc1 too
    if match is not None and tuple(map(int, match.groups())) < OLDEST:
        raise SearcherError(
            f"Helion must be {'.'.join(map(str, OLDEST))} or later, but got {version}"
        )


def fork_early() -> None:
    """Make the copy, unless there is one or this process uses the GPU already."""
    import helion  # noqa: F401 - to be in the copy
    import torch  # noqa: F401 - likewise
    import triton  # noqa: F401 - likewise

    early.fork_early()
