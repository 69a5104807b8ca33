"""Any searcher on a live kernel: what a framework offers, under the optimizer contract.

What it does: makes one kind of `LiveSearcher` of a generated optimizer, a library's searcher,
``llm:`` and ``hybrid:``. The trusted ones find what they find on a recording: a space that
describes its kernel, an evaluate that explains failures, the same exceptions at the end. So they
run on a live kernel as they are.

What it does not do: isolate anything. A generated optimizer, NEXT of a hybrid included, is executed
in this very process, screened as `llamea_gpu.programs.instances` says. What a model answers to
``llm:`` is parsed and never executed.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from llamea_gpu.contract import KernelFacts, Optimizer, trouble_of
from llamea_gpu.errors import SearcherError
from llamea_gpu.programs import Hyperparameter, Program, make
from llamea_gpu.searchers.hybrid import Hybrid, parts
from llamea_gpu.searchers.library import DescribedSpace, LibrarySearcher, Setting
from llamea_gpu.searchers.registry import ProgramSearcher, Searcher, resolve
from llamea_gpu.searchers.spec import Spec


class Framework(Protocol):
    """What a framework adds for trusted searchers."""

    def facts(self, evaluate: Any, space: Any) -> KernelFacts:
        """What the framework's own objects tell of the kernel."""

    def own_search(self, searcher: LibrarySearcher, evaluate: Any, space: Any) -> Optimizer | None:
        """The framework's own search of that name, on the kernel itself; None: it has none."""


@dataclass(frozen=True, slots=True)
class LiveSearcher:
    """A searcher, ready for an integration.

    ``make`` takes the hyperparameters as keywords and returns an optimizer for the framework's own
    evaluate and space. ``fingerprint`` tells searchers of one name apart.
    """

    name: str
    class_name: str
    hyperparameters: Mapping[str, Hyperparameter]
    fingerprint: str
    make: Callable[..., Any]


def load_searcher(
    spec: str, framework: Framework, hyperparameters: Mapping[str, Setting]
) -> LiveSearcher:
    """The searcher that ``spec`` names: whatever ``llamea-gpu run`` takes.

    ``hyperparameters`` are those of an optimizer's class, or settings that the spec could hold.

    Raises:
        SearcherError: nothing has that name, a setting does not exist, a library is missing, or
            the source breaks a rule of the contract.
    """
    searcher = resolve(spec, hyperparameters)
    if Spec.parse(spec).scheme == "hybrid":
        hybrid = parts(spec)
        following = _loaded(hybrid.following)
        build = partial(_hybrid, hybrid.first, following, hybrid.share, framework)
        return _of_library(spec, build, framework)
    if isinstance(searcher, LibrarySearcher):
        return _of_library(searcher.name, partial(_library, searcher, framework), framework)
    _require_unsandboxed(searcher)
    return live_program(searcher)


def live_program(searcher: ProgramSearcher) -> LiveSearcher:
    """A generated or classical optimizer, given what the contract says and nothing else."""
    program = searcher.program
    return LiveSearcher(
        name=searcher.short_name,
        class_name=program.class_name,
        hyperparameters=program.settings,
        fingerprint=fingerprint(program),
        make=partial(_make, program),
    )


def fingerprint(program: Program) -> str:
    """What tells programs of one name apart: the start of the digest."""
    return program.digest[:16]


class _Reporting:
    """An optimizer that says afterwards what became of it."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self.trouble = ""

    def __call__(self, evaluate: Any, space: Any, rng: np.random.Generator) -> None:
        try:
            self._optimizer(evaluate, space, rng)
        except KeyboardInterrupt:
            self.trouble = "interrupted"
            raise
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"
            raise
        finally:
            if not self.trouble and (trouble := trouble_of(self._optimizer)):
                self.trouble = trouble
                warnings.warn(f"tuning went on in spite of: {trouble}", stacklevel=2)


class _Trusted:
    """What ``build`` makes of the framework's own evaluate and space, told of the kernel."""

    def __init__(self, build: Callable[[Any, Any], Optimizer], framework: Framework) -> None:
        self._build = build
        self._framework = framework
        self.trouble = ""

    def __call__(self, evaluate: Any, space: Any, rng: np.random.Generator) -> None:
        optimizer = self._build(evaluate, space)
        facts = self._framework.facts(evaluate, space)
        try:
            optimizer(evaluate, DescribedSpace(space, facts), rng)
        finally:
            self.trouble = trouble_of(optimizer)


def _of_library(
    spec: str, build: Callable[[Any, Any], Optimizer], framework: Framework
) -> LiveSearcher:
    """``spec`` under a name that Python and environment variables take."""
    name = re.sub(r"\W+", "_", spec).strip("_")
    digest = hashlib.sha256(spec.encode()).hexdigest()[:16]
    return LiveSearcher(spec, name, {}, digest, lambda: _Reporting(_Trusted(build, framework)))


def _make(program: Program, **hyperparameters: Hyperparameter) -> Optimizer:
    return _Reporting(make(program.with_settings(**hyperparameters)))


def _library(
    searcher: LibrarySearcher, framework: Framework, evaluate: Any, space: Any
) -> Optimizer:
    return framework.own_search(searcher, evaluate, space) or searcher.build()


def _hybrid(
    first: LibrarySearcher,
    following: LibrarySearcher | Program,
    share: float,
    framework: Framework,
    evaluate: Any,
    space: Any,
) -> Hybrid:
    then = (
        make(following)
        if isinstance(following, Program)
        else _library(following, framework, evaluate, space)
    )
    return Hybrid(_library(first, framework, evaluate, space), then, share)


def _loaded(following: Searcher) -> LibrarySearcher | Program:
    """A fault of NEXT's source shows now, and not when FIRST has used up its share."""
    if isinstance(following, LibrarySearcher):
        return following
    _require_unsandboxed(following)
    make(following.program)
    return following.program


def _require_unsandboxed(searcher: ProgramSearcher) -> None:
    if Spec.parse(searcher.name).scheme:
        raise SearcherError(
            f"{searcher.name} runs in the sandbox alone: it cannot tune a live kernel"
        )
