"""Our optimizers inside Helion: in its registry by name, or as one kernel's autotuner.

What it does: wraps an optimizer as a Helion search and tells Helion of it.

What it does not do: import Helion before it is asked to; tune by itself. Tuning executes the
optimizer's source in this process (`llamea_gpu.integrations.optimizer`).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from llamea_gpu.errors import SearcherError
from llamea_gpu.integrations.optimizer import LoadedOptimizer, load_optimizer
from llamea_gpu.resources import resource_dir
from llamea_gpu.searchers.registry import Hyperparameter

if TYPE_CHECKING:
    from llamea_gpu.integrations.helion.search import HelionSearch

OLDEST = (1, 2)


def register(*specs: str) -> tuple[str, ...]:
    """Put optimizers into Helion's registry, each under its class's name.

    ``HELION_AUTOTUNER=NAME`` then makes Helion tune with one, and
    ``helion.autotuner.search_algorithms[NAME]`` is its search class.

    Args:
        specs: as for ``llamea-gpu run``: names, ``FILE.py:Class``, with ``?key=value`` settings.
            Without any, every generated optimizer that ships.

    Returns:
        The names.

    Raises:
        SearcherError: an optimizer that is not there or does not load; a name that Helion or
            another optimizer has already; Helion is missing or too old.
    """
    if not specs:
        folder = resource_dir("generated_optimizers")
        specs = tuple(sorted(path.stem for path in folder.glob("*.py")))
    searches = [search_class(load_optimizer(spec)) for spec in specs]
    from llamea_gpu.integrations.helion.search import helion_register

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
    **hyperparameters: Hyperparameter,
) -> Callable[..., Any]:
    """An ``autotuner_fn`` for ``@helion.kernel`` that tunes with the optimizer of ``spec``.

    Args:
        spec: a name, ``FILE.py`` or ``FILE.py:Class``.
        evaluations: configurations to measure, Helion's default and seeds included.
        seconds: wall-clock time to tune; a batch that has begun is finished, and the best are read
            again. With neither budget, Helion's effort decides: 150 evaluations for ``quick``, 500
            for ``full``.
        hyperparameters: of the optimizer.

    Raises:
        SearcherError: the optimizer is not there or does not load, a hyperparameter does not
            exist or has another type, Helion is missing or too old.
        ValueError: a budget is not positive and finite.
    """
    search = search_class(load_optimizer(spec, **hyperparameters))
    from llamea_gpu.integrations.helion.search import helion_autotuner

    return helion_autotuner(search, evaluations=evaluations, seconds=seconds)


def search_class(optimizer: LoadedOptimizer) -> type[HelionSearch]:
    """The optimizer as a subclass of Helion's ``PopulationBasedSearch``.

    Raises:
        SearcherError: it does not load, or Helion is missing or too old.
    """
    optimizer.make()  # now, rather than when a kernel is tuned
    _require_helion()
    from llamea_gpu.integrations.helion.search import helion_search

    return helion_search(
        optimizer.class_name,
        partial(_make, optimizer),
        dict(optimizer.hyperparameters),
        fingerprint(optimizer),
    )


def fingerprint(optimizer: LoadedOptimizer) -> str:
    """Of its source: the start of a SHA-256, in hexadecimal."""
    return hashlib.sha256(optimizer.source.encode()).hexdigest()[:16]


def _make(optimizer: LoadedOptimizer, **hyperparameters: Hyperparameter) -> Any:
    return optimizer.with_settings(**hyperparameters).make()


def _require_helion() -> None:
    try:
        version = importlib.metadata.version("helion")
    except importlib.metadata.PackageNotFoundError:
        raise SearcherError(
            "tuning inside Helion needs Helion, which is not installed: install PyTorch and "
            "Triton for your GPU, then pip install helion"
        ) from None
    found = re.match(r"(\d+)\.(\d+)", version)  # of 2.0rc1 too
    if found is not None and tuple(map(int, found.groups())) < OLDEST:
        raise SearcherError(
            f"Helion must be {'.'.join(map(str, OLDEST))} or later, but got {version}"
        )
