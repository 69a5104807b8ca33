"""One of Helion's searches as an optimizer under the contract.

It builds the search as Helion's external autotuner does, over a space instead of a kernel, with a
benchmark provider that answers from ``evaluate``. Nothing is compiled, cached, logged or run in
another process, and of the user's ``HELION_...`` variables only those of the LLM route count.

Not here: an LLM's latency; the clock charges what is measured. Its answers do not depend on the
seed, so such a run cannot be repeated exactly; every other one can.

Imports Helion, so it is imported where the search runs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from helion import exc
from helion.autotuner import search_algorithms
from helion.autotuner.base_search import BaseSearch
from helion.autotuner.external import _ExternalKernelAdapter, create_user_config_spec

from llamea_gpu.contract import Configuration, Evaluate, Space, facts_of, measured_in
from llamea_gpu.errors import SearcherError
from llamea_gpu.frameworks.helion.whole import BoundSpace
from llamea_gpu.searchers.helion import route
from llamea_gpu.searchers.helion.own import (
    AnsweringProvider,
    OwnSearch,
    arguments_of,
    begin_with,
    timed_again,
)
from llamea_gpu.searchers.helion.route import environment, replaced
from llamea_gpu.searchers.helion.tunables import Tunables
from llamea_gpu.searchers.library import Setting


class RecordedSearch:
    """``search`` names the class; the other parameters are those of the package's docstring.

    On the whole space of a kernel that is bound it is the search on that kernel (`OwnSearch`).

    Raises:
        SearcherError: this Helion has no such search, or an LLM search has no route.
    """

    measures_starts = True

    def __init__(
        self,
        search: str,
        effort: str,
        start: str,
        initial_population_strategy: str,
        roles: bool,
        model: str = "",
        **keywords: Setting,
    ) -> None:
        if search not in search_algorithms:
            raise SearcherError(
                f"the installed Helion has no {search}: pip install --upgrade helion"
            )
        self._search = search
        self._class = search_algorithms[search]
        self._effort: Any = effort
        self._start = start
        self._roles = roles
        self._model = model
        self._keywords = keywords
        self._environment = {
            "HELION_AUTOTUNER_INITIAL_POPULATION": initial_population_strategy,
            "HELION_SKIP_CACHE": "1",
            # joblib then runs one tree of a forest after the other. Threads would add up their
            # votes in the order in which they happen to finish, and sums of floats depend on it.
            "LOKY_MAX_CPU_COUNT": "1",
        }
        if model:
            route.check(search, model)
            self._environment["HELION_LLM_MODEL"] = model

    def __call__(self, evaluate: Evaluate, space: Space, rng: np.random.Generator) -> None:
        """Run until the search ends by itself, or the budget does.

        Raises:
            SearcherError: there is no default configuration to start from, or the LLM failed.
        """
        whole = facts_of(space).bound
        if isinstance(whole, BoundSpace):
            self._on_kernel(whole, evaluate, space, rng)
            return
        tunables = Tunables(space, self._first(space), roles=self._roles)
        provider = functools.partial(
            AnsweringProvider, evaluate=evaluate, place=tunables.configuration
        )
        with (
            environment(self._environment),
            _answered_by(provider),
            route.described(space) if self._model else contextlib.nullcontext(),
            # The end of a search in which nothing worked, which its trace shows.
            contextlib.suppress(exc.NoConfigFound),
        ):
            kernel = _ExternalKernelAdapter(
                create_user_config_spec(tunables.fragments),
                compile_fn=_never,
                args=(),
                device=torch.device("cpu"),
                autotune_effort=self._effort,
                autotune_random_seed=int(rng.integers(2**32)),
                autotune_benchmark_fn=timed_again,
                autotune_log_level=logging.CRITICAL + 1,
                autotune_progress_bar=False,
            )
            tensors = route.arguments(space) if self._model else ()
            measured = measured_in(space)
            # As where Helion compiles side by side: differential evolution measures a generation
            # in one batch. Its external autotuner would turn that off, having nothing to compile.
            keywords = {"immediate_update": False, **self._keywords}
            arguments = arguments_of(self._class, kernel, self._effort, len(measured), **keywords)
            search = self._class(kernel, tensors, **arguments)
            begin_with(search, [*map(tunables.config, measured)])
            search.autotune(skip_cache=True)

    def _on_kernel(
        self, whole: BoundSpace, evaluate: Evaluate, space: Space, rng: np.random.Generator
    ) -> None:
        """As Helion runs it, on a GPU that is pretended."""
        settings = {"search": self._search, "effort": self._effort, "model": self._model}
        overrides = {
            "autotune_effort": self._effort,
            "autotune_random_seed": int(rng.integers(2**32)),
            "autotune_log_level": logging.CRITICAL + 1,
            "autotune_progress_bar": False,
        }
        kernel = whole.kernel.bound
        own = OwnSearch({**settings, **self._keywords}, kernel, whole.kernel.arguments, whole.space)
        with (
            environment(self._environment),
            replaced(kernel.settings, **overrides),
            route.described(space) if self._model else contextlib.nullcontext(),
        ):
            own(evaluate, space, rng)

    def _first(self, space: Space) -> Configuration:
        if self._start == "random":
            return space.sample(1)[0]
        default = facts_of(space).default
        if default is None:
            raise SearcherError(
                "start=default needs a recording that names its tuner's default configuration "
                "(with categorical values that it holds), but this one does not: use start=random"
            )
        return default


def _never(*_: object) -> Any:
    raise AssertionError("a search on a recording compiles nothing")


@contextlib.contextmanager
def _answered_by(provider: Any) -> Iterator[None]:
    """Every search made within, those that a search makes itself included, uses ``provider``."""
    prepare = BaseSearch._prepare

    def prepare_with_provider(search: Any) -> None:
        search._benchmark_provider_cls = provider
        prepare(search)

    with replaced(BaseSearch, _prepare=prepare_with_provider):
        yield
