"""Any searcher on a live kernel: what a framework offers, under the optimizer contract.

What it does: makes one kind of `LiveSearcher` of a generated optimizer, a library's searcher,
``llm:`` and ``hybrid:``. Searchers that know more than the contract are given what
`llamea_gpu.runner` gives them on a recording: a space with ``default`` and ``info``, and an
evaluate with ``failure``. So they run on a live kernel as they are.

What it does not do: isolate anything. A generated optimizer, NEXT of a hybrid included, is executed
in this very process, screened as `llamea_gpu.programs.instances` says. What a model answers to
``llm:`` is parsed and never executed.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast

import numpy as np

from llamea_gpu.contract import Configuration, Evaluate, Optimizer, Space
from llamea_gpu.errors import SearcherError
from llamea_gpu.programs import Hyperparameter, Program, make
from llamea_gpu.prompting.proposer import DeviceFacts
from llamea_gpu.searchers.hybrid import Hybrid, parts
from llamea_gpu.searchers.library import LibrarySearcher, Setting
from llamea_gpu.searchers.registry import ProgramSearcher, Searcher, resolve
from llamea_gpu.searchers.spec import Spec
from llamea_gpu.spaces.recording import RecordingInfo


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What is known of a live kernel before anything is measured.

    ``default`` is the configuration that the kernel ships with; ``device`` is what its GPU says of
    itself; ``notes`` are further facts, one line each.
    """

    info: RecordingInfo
    default: Configuration | None = None
    device: DeviceFacts | None = None
    notes: tuple[str, ...] = ()


class Framework(Protocol):
    """What an integration adds for searchers that know more than the contract."""

    def facts(self, evaluate: Any, space: Any) -> KernelFacts:
        """What the framework's own objects tell of the kernel."""

    def failure(self, evaluate: Any, config: Configuration) -> str | None:
        """How a configuration that was measured failed; None for one that works."""

    def own_search(self, searcher: LibrarySearcher, evaluate: Any, space: Any) -> Optimizer | None:
        """The framework's own search of that name, on the kernel itself; None: it has none."""

    def batch_measured(self, evaluate: Any, space: Any) -> None:
        """Called after each batch, the last one included."""


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
    spec: str,
    framework: Framework,
    hyperparameters: Mapping[str, Setting],
    *,
    watched: bool = False,
) -> LiveSearcher:
    """The searcher that ``spec`` names: whatever ``llamea-gpu run`` takes.

    ``hyperparameters`` are those of an optimizer's class, or settings that the spec could hold.
    ``watched`` tells the framework of the batches of a generated optimizer, too.

    Raises:
        SearcherError: nothing has that name, a setting does not exist, a library is missing, or
            the source breaks a rule of the contract.
    """
    found = resolve(spec, hyperparameters)
    if Spec.parse(spec).scheme == "hybrid":
        hybrid = parts(spec)
        following = _loaded(hybrid.following)
        build = partial(_hybrid, hybrid.first, following, hybrid.share, framework)
        return _of_library(spec, build, framework)
    if isinstance(found, LibrarySearcher):
        return _of_library(found.name, partial(_library, found, framework), framework)
    program = _live_program(found)
    live = live_program(found)
    return replace(live, make=partial(_watched, program, framework)) if watched else live


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


class LiveEvaluate:
    """``evaluate`` of a framework, with what trusted searchers find on a recording's."""

    def __init__(self, evaluate: Any, space: Any, framework: Framework) -> None:
        self._evaluate = evaluate
        self._space = space
        self._framework = framework

    @property
    def spent(self) -> float:
        """Share of the budget used, 0 to 1."""
        return float(self._evaluate.spent)

    @property
    def parallel(self) -> int:
        """How many configurations compile side by side."""
        return int(self._evaluate.parallel)

    @property
    def pending(self) -> int:
        """How many submitted configurations no `wait` has handed out yet."""
        return int(self._evaluate.pending)

    def failure(self, config: Configuration) -> str | None:
        """How a configuration that was measured failed; None for one that works."""
        return self._framework.failure(self._evaluate, config)

    def submit(self, configs: Iterable[Sequence[int]]) -> None:
        """Queue configurations.

        Raises:
            ValueError: a configuration is not valid, or too many are on their way.
            BudgetExhausted: the run is over.
        """
        self._evaluate.submit(list(configs))

    def wait(self) -> list[tuple[Configuration, float]]:
        """What is done, with times in ms.

        Raises:
            BudgetExhausted: the run is over.
            Stalled: nothing was pending, too often.
        """
        try:
            return cast("list[tuple[Configuration, float]]", self._evaluate.wait())
        finally:
            self._framework.batch_measured(self._evaluate, self._space)

    def __call__(self, configs: Iterable[Sequence[int]]) -> list[float]:
        """Times in ms, inf for a configuration that fails.

        Raises:
            ValueError: a configuration is not valid.
            BudgetExhausted: the run is over.
            Stalled: too many asks in a row brought nothing new.
        """
        try:
            return cast("list[float]", self._evaluate(list(configs)))
        finally:
            self._framework.batch_measured(self._evaluate, self._space)


class LiveSpace:
    """``space`` of a framework, with what trusted searchers find on a recording's."""

    def __init__(self, space: Any, facts: KernelFacts) -> None:
        self._space = space
        self.info = facts.info
        self.default = facts.default
        self.device = facts.device
        self.notes = facts.notes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle ask before there is a space
            raise AttributeError(name)
        return getattr(self._space, name)


class _Live:
    """An optimizer under the contract as one for a framework's own evaluate and space."""

    def __init__(self, build: Callable[[Any, Any], Optimizer], framework: Framework) -> None:
        self._build = build
        self._framework = framework
        self.trouble: str | None = None

    def __call__(self, evaluate: Any, space: Any, rng: np.random.Generator) -> None:
        live = LiveEvaluate(evaluate, space, self._framework)
        told = LiveSpace(space, self._framework.facts(evaluate, space))
        optimizer = self._build(evaluate, space)
        try:
            optimizer(cast("Evaluate", live), cast("Space", told), rng)
        except KeyboardInterrupt:
            self.trouble = "interrupted"
            raise
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"
            raise
        finally:
            if self.trouble is None and (trouble := getattr(optimizer, "trouble", None)):
                self.trouble = trouble
                warnings.warn(f"tuning went on in spite of: {trouble}", stacklevel=2)


def _of_library(
    spec: str, build: Callable[[Any, Any], Optimizer], framework: Framework
) -> LiveSearcher:
    """``spec`` under a name that Python and environment variables take."""
    name = re.sub(r"\W+", "_", spec).strip("_")
    digest = hashlib.sha256(spec.encode()).hexdigest()[:16]
    return LiveSearcher(spec, name, {}, digest, partial(_Live, build, framework))


def _make(program: Program, **hyperparameters: Hyperparameter) -> Optimizer:
    return make(program.with_settings(**hyperparameters))


def _watched(program: Program, framework: Framework, **hyperparameters: Hyperparameter) -> _Live:
    made = _make(program, **hyperparameters)
    return _Live(lambda *_: made, framework)


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
    program = _live_program(following)
    make(program)
    return program


def _live_program(searcher: ProgramSearcher) -> Program:
    """The program, if it may run outside the sandbox."""
    if Spec.parse(searcher.name).scheme:
        raise SearcherError(
            f"{searcher.name} runs in the sandbox alone: it cannot tune a live kernel"
        )
    return searcher.program
