"""``hybrid:FIRST+NEXT``: one searcher goes on where another one ended.

FIRST runs until it ends by itself (an ``llm:`` after its rounds), or until a share of the budget is
used: ``?share=0.2``, a setting of every FIRST. NEXT then finds what was measured, all of it, best
first, at the beginning of its samples, and asks for it again at no cost:

    hybrid:llm:MODEL?rounds=1+iterated_local_search
    hybrid:iterated_local_search?share=0.2+helion:LFBOTreeSearch
    hybrid:llm:MODEL+mine.py:TabuSearch?tenure=7

FIRST must be trusted: a library's searcher, ``llm:`` or a classical optimizer. NEXT may be anything
but a hybrid; one that is source text runs in the sandbox (`llamea_gpu.runner` starts it there),
any other one in the process of FIRST.

What it does not do: tell NEXT a cost. An ``llm:`` that cannot reach its model leaves the rest to
NEXT, without a searcher in between.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from llamea_gpu.contract import (
    Configuration,
    Configurations,
    Evaluate,
    Optimizer,
    SimulatesTime,
    Space,
    facts_of,
    failure_of,
    trouble_of,
)
from llamea_gpu.errors import BudgetExhausted, SearcherError, Stalled
from llamea_gpu.programs import make
from llamea_gpu.programs.shipped import classical
from llamea_gpu.searchers import registry
from llamea_gpu.searchers.library import DescribedSpace, LibrarySearcher, Setting
from llamea_gpu.searchers.spec import Spec


@dataclass(frozen=True, slots=True)
class Parts:
    """What a hybrid consists of; ``share`` is the share of the budget that ``first`` may use."""

    first: LibrarySearcher
    following: registry.Searcher
    share: float


def resolve(spec: str, name: str, query: str) -> registry.Searcher:  # noqa: ARG001 - see `parts`
    """The searcher that ``spec`` names; its parts hold queries of their own.

    Raises:
        SearcherError: there are not two parts, or one of them is not allowed in its place.
    """
    pair = parts(spec)
    first, following = pair.first, pair.following
    together = LibrarySearcher(
        name=spec,
        factory="llamea_gpu.searchers.hybrid:build",
        settings={"first": first.name, "following": "", "share": pair.share},
        versions=first.versions,
    )
    if not isinstance(following, LibrarySearcher):  # it runs in the sandbox
        return replace(following, name=spec, first=together)
    return replace(
        together,
        settings={**together.settings, "following": following.name},
        versions={**first.versions, **following.versions},
    )


def parts(spec: str) -> Parts:
    """The two searchers of a ``hybrid:`` spec.

    Raises:
        SearcherError: there are not two parts, or one of them is not allowed in its place.
    """
    whole = spec.partition(":")[2]
    first_spec, plus, next_spec = whole.partition("+")
    if "llm:" in spec and "key=" in spec:  # the errors below show the spec
        raise SearcherError(
            "a spec is recorded, so it must hold no key (this one is not shown): name the variable "
            "that holds it in LLAMEA_GPU_LLM_KEY_VARIABLE"
        )
    if not (first_spec and plus and next_spec) or "hybrid:" in whole:
        raise SearcherError(
            f"a hybrid must be hybrid:FIRST+NEXT, of two searchers that are none themselves, but "
            f"got {spec!r}"
        )
    first = Spec.parse(first_spec)
    share = _share(spec, first.value("share"))
    first = first.without("share")
    if first.scheme == "llm":
        # Hybrids of one FIRST ask alike: each keeps a conversation of its own.
        tag = hashlib.sha256(next_spec.encode()).hexdigest()[:8]
        for key, value in (("fallback", "none"), ("tag", tag)):
            if first.value(key) is None:
                first = first.with_settings({key: value})
    return Parts(trusted(str(first)), registry.resolve(next_spec), share)


def build(first: str, following: str, share: float) -> Hybrid:
    """The optimizer of two trusted specs; of the first stage alone when ``following`` is empty."""
    return Hybrid(
        trusted(first).build(),
        trusted(following).build() if following else None,
        share,
    )


class Hybrid:
    """``first``, until it ends or ``share`` of the budget is used, then ``following``, if any.

    ``trouble`` says what they went on in spite of.
    """

    def __init__(self, first: Optimizer, following: Optimizer | None, share: float = 1.0) -> None:
        self._parts = (first, following)
        self._share = share

    @property
    def trouble(self) -> str | None:
        """What a part says of itself."""
        return "\n".join(filter(None, map(trouble_of, self._parts))) or None

    def __call__(self, evaluate: Evaluate, space: Space, rng: np.random.Generator) -> None:
        """Run one after the other.

        Raises:
            BudgetExhausted: the budget, not the first one's share of it, has ended.
        """
        first, following = self._parts
        noted = MeasuredEvaluate(evaluate, self._share)
        try:
            first(noted, space, rng)
        except BudgetExhausted:
            if not noted.share_used:
                raise
        except Stalled:  # it asks for nothing new any more: it has ended
            if following is None:
                raise
        if following is not None:
            while noted.pending:  # the other one would be handed what it never submitted
                noted.wait()
            begun = DescribedSpace(space, facts_of(space), noted.best_first())
            following(evaluate, begun, rng)


class MeasuredEvaluate:
    """``evaluate`` that keeps what it answered, and ends at a ``share`` of the budget.

    ``costs_ms`` are the answers in the order of first visits. Failures and simulated time are the
    other one's: time passes by itself where that one simulates none.
    """

    def __init__(self, evaluate: Evaluate, share: float = 1.0) -> None:
        self._evaluate = evaluate
        self._share = share
        self.costs_ms: dict[Configuration, float] = {}
        self.share_used = False

    @property
    def spent(self) -> float:
        """Share used of the part of the budget that is there."""
        return min(self._evaluate.spent / self._share, 1.0)

    @property
    def parallel(self) -> int:
        """How many configurations compile side by side."""
        return self._evaluate.parallel

    @property
    def now_s(self) -> float:
        """Seconds of the run so far."""
        return self._evaluate.now_s if isinstance(self._evaluate, SimulatesTime) else 0.0

    def wait_until(self, moment_s: float) -> None:
        """Let time pass with nothing measured."""
        if isinstance(self._evaluate, SimulatesTime):
            self._evaluate.wait_until(moment_s)

    def failure(self, config: Configuration) -> str | None:
        """How a configuration that was measured failed."""
        return failure_of(self._evaluate, config)

    def __call__(self, configs: Configurations) -> list[float]:
        """Costs, as from the other ``evaluate``.

        Raises:
            BudgetExhausted: the budget, or the share of it, is used up.
        """
        configs = list(configs)
        self._check_share(configs)
        costs_ms = self._evaluate(configs)
        self._note(zip(configs, costs_ms, strict=True))
        return costs_ms

    @property
    def pending(self) -> int:
        """How many submitted configurations no `wait` has handed out yet."""
        return self._evaluate.pending

    def submit(self, configs: Configurations) -> None:
        """Queue configurations.

        Raises:
            BudgetExhausted: the budget, or the share of it, is used up.
        """
        configs = list(configs)
        self._check_share(configs)
        self._evaluate.submit(configs)

    def wait(self) -> list[tuple[Configuration, float]]:
        """What is done, as from the other ``evaluate``.

        Raises:
            BudgetExhausted: the budget has ended.
        """
        measurements = self._evaluate.wait()
        self._note(measurements)
        return measurements

    def _check_share(self, configs: Sequence[Iterable[int]]) -> None:
        over = self._share < 1 and self._evaluate.spent >= self._share
        if over and any(_plain(config) not in self.costs_ms for config in configs):
            self.share_used = True
            raise BudgetExhausted

    def _note(self, measurements: Iterable[tuple[Iterable[int], float]]) -> None:
        for config, cost_ms in measurements:
            self.costs_ms.setdefault(_plain(config), cost_ms)

    def best_first(self) -> list[Configuration]:
        """What was measured, by cost, failures last."""
        return sorted(self.costs_ms, key=lambda config: self.costs_ms[config])


def _plain(config: Iterable[int]) -> Configuration:
    """The configuration as a tuple of Python's integers."""
    return tuple(map(int, config))


def trusted(spec: str) -> LibrarySearcher:
    """``spec`` as a searcher that may run outside the sandbox.

    Raises:
        SearcherError: it may not: what a model or a user wrote runs in the sandbox alone.
    """
    searcher = registry.resolve(spec)
    if isinstance(searcher, LibrarySearcher):
        return searcher
    name = Spec.parse(spec).target
    if name not in classical():
        raise SearcherError(
            f"a searcher that runs outside the sandbox must be a library's, llm:MODEL or one of "
            f"{', '.join(classical())}, but got {name!r}"
        )
    return LibrarySearcher(
        name=spec,
        factory="llamea_gpu.searchers.hybrid:build_classical",
        settings={"name": name, **searcher.program.settings},
    )


def build_classical(name: str, **settings: Setting) -> Optimizer:
    """An instance of a classical optimizer, in this process."""
    return make(registry.read_file(classical()[name]).with_settings(**settings))


def _share(spec: str, text: str | None) -> float:
    """FIRST's share of the budget: 1 when it names none."""
    try:
        share = 1.0 if text is None else float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise SearcherError(f"{spec}: share must be above 0 and at most 1, but got {text!r}")
    return share
