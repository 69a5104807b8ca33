"""An optimizer inside Helion on the engine: configurations are measured as they are submitted.

What it does: `PipelinedSearch` is `HelionSearch` with the engine's provider, `PipelinedEvaluate`
the contract's evaluate over it: what is submitted compiles while other configurations are timed.

What it does not do: measure where the engine cannot; then it is the search that it builds on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from llamea_gpu.errors import BudgetExhausted
from llamea_gpu.frameworks.helion.space import HelionSpace
from llamea_gpu.live.helion.facts import ExplainingEvaluate
from llamea_gpu.live.helion.provider import PipelinedProvider
from llamea_gpu.live.helion.runtime import HelionEvaluate, HelionSearch

_POLL_S = 0.25  # how often the budget is looked at
_FEED = 2  # configurations beyond the compiling processes that keep the timing one fed

Config = tuple[int, ...]


class PipelinedSearch(HelionSearch):
    """`HelionSearch` on the engine."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._benchmark_provider_cls = PipelinedProvider

    def _end_measuring(self) -> None:
        if isinstance(self.benchmark_provider, PipelinedProvider):
            self.benchmark_provider.pause()


def make_evaluate(
    search: HelionSearch,
    space: HelionSpace,
    on_batch: Callable[[HelionEvaluate], None] = lambda _: None,
) -> ExplainingEvaluate:
    """What a run measures with: over the engine, where the search's provider has one."""
    provider = search.benchmark_provider
    if isinstance(provider, PipelinedProvider) and provider.streams:
        return PipelinedEvaluate(search, space, on_batch, provider)
    return ExplainingEvaluate(search, space, on_batch)


class PipelinedEvaluate(ExplainingEvaluate):
    """``evaluate`` over the engine; see `llamea_gpu.contract.Evaluate`.

    ``on_batch`` is told whenever something is finished.
    """

    def __init__(
        self,
        search: HelionSearch,
        space: HelionSpace,
        on_batch: Callable[[HelionEvaluate], None],
        provider: PipelinedProvider,
    ) -> None:
        super().__init__(search, space, on_batch)
        self._provider = provider
        self._asked: deque[tuple[Config, Config]] = deque()  # as submitted, and as it is known
        self._unsent: deque[Config] = deque()  # beyond the budget of evaluations
        self._on_way: dict[Config, Any] = {}  # members without a time
        self._places: dict[int, Config] = {}  # of the members' configurations, by identity

    @property
    def parallel(self) -> int:
        """How many configurations on their way keep the engine busy."""
        return int(self._provider.compilers) + _FEED

    @property
    def pending(self) -> int:
        """How many submitted configurations no `wait` has handed out yet."""
        return len(self._asked)

    def submit(self, configs: Any) -> None:
        """Queue configurations, each to be handed out once by `wait`.

        Raises:
            ValueError: a configuration is not valid, or too many are on their way. Nothing is
                queued.
            BudgetExhausted: the run is over.
        """
        configs = self._accepted(configs)
        known = [self._known(config) for config in configs]
        self._note_ask(1)
        self._asked.extend(zip(configs, known, strict=True))
        self._send(known)

    def wait(self) -> list[tuple[Config, float]]:
        """Submitted configurations with their costs as they come; empty when nothing is pending.

        Raises:
            BudgetExhausted: the run is over.
            Stalled: too many asks in a row brought nothing new.
        """
        while self._asked:
            if done := [(config, known) for config, known in self._asked if known in self.costs]:
                self._asked = deque(
                    (config, known) for config, known in self._asked if known not in self.costs
                )
                return [(config, self.costs[known]) for config, known in done]
            self._collect()
        return []

    def __call__(self, configs: Any) -> list[float]:
        """Times in ms in the order of ``configs``; inf for one that does not compile or run.

        Raises:
            ValueError: a configuration is not valid.
            BudgetExhausted: the run is over.
            Stalled: too many asks in a row brought nothing new.
        """
        configs = list(configs)
        self._note_ask(len(configs))
        asked = [self._known(config) for config in configs]
        self._send(asked)
        while any(config not in self.costs for config in asked):
            self._collect()
        return [self.costs[config] for config in asked]

    def _send(self, configs: Sequence[Config]) -> None:
        """Submit what is new, as far as the budget goes."""
        search = self.search
        fresh = [
            config
            for config in dict.fromkeys(configs)
            if config not in self.costs and config not in self._on_way
        ]
        if not fresh:
            return
        self._idle_asks = 0
        try:
            self._refuse_when_late()
        except BaseException as fault:
            self.fault = fault
            raise
        room = len(fresh)
        if search.evaluations is not None:
            room = min(room, search.evaluations - len(self.costs) - len(self._on_way))
        self._unsent.extend(fresh[max(room, 0) :])
        self._batches += 1
        search.set_generation(self._batches)
        members = []
        for config in fresh[: max(room, 0)]:
            member = search.make_unbenchmarked(self.space.flat(config))
            if member is None:
                self.costs[config], self.statuses[config] = math.inf, "filtered"
                continue
            self._on_way[config] = member
            self._places[id(member.config)] = config
            members.append(member)
        self._provider.submit([member.config for member in members])

    def _collect(self) -> None:
        """Take in what is finished, waiting for it at most until the budget ends."""
        try:
            if not self._on_way:  # all that is left is beyond the budget
                raise BudgetExhausted
            done = self._provider.wait(monotonic() + _POLL_S)
            for config, result in done:
                self._take_in(self._places.pop(id(config)), result)
                self._on_batch(self)
            if not done:
                self._refuse_when_late()
        except BaseException as fault:
            self.fault = fault
            raise

    def _take_in(self, config: Config, result: Any) -> None:
        member = self._on_way.pop(config)
        member.perfs.append(result.perf)
        member.fn, member.status = result.fn, result.status
        member.compile_time = result.compile_time
        if hasattr(self.search, "_record_benchmarked_member"):  # from Helion 1.5 on
            self.search._record_benchmarked_member(member)
        if not math.isfinite(result.perf):
            self.statuses[config] = result.status
        self._rank({**self._leaders, config: member})
