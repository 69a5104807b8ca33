"""An optimizer inside Helion on the engine: configurations are measured as they are submitted.

What it does: `PipelinedSearch` is `HelionSearch` with the engine's provider, `PipelinedEvaluate`
the contract's evaluate over it: what is submitted compiles while other configurations are timed,
what is measured goes into a journal, and at the end the best are read side by side.

What it does not do: measure where the engine cannot; then it is the search that it builds on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from llamea_gpu.errors import BudgetExhausted, RecordingError
from llamea_gpu.frameworks.helion.space import HelionSpace
from llamea_gpu.live.helion.facts import ExplainingEvaluate
from llamea_gpu.live.helion.journal import JournalRequest, TuningJournal
from llamea_gpu.live.helion.provider import PipelinedProvider
from llamea_gpu.live.helion.runtime import HelionEvaluate, HelionSearch
from llamea_gpu.live.helion.streamed import StreamedProvider

_POLL_S = 0.25  # how often the budget is looked at
STARTS_S = 2.0
FINALISTS_WITHIN = 1.05  # times the best reading: as far as short readings mislead
# Of a budget of seconds, for reading finalists; some of it passes until they are loaded.
READING_SHARE = 0.1
LEAST_RESERVE_S, MOST_RESERVE_S = 1.5, 12.0
UNBUDGETED_RESERVE_S = 4.0
_FEED = 2  # configurations beyond the compiling processes that keep a timing one fed

Config = tuple[int, ...]


class PipelinedSearch(HelionSearch):
    """`HelionSearch` on the engine."""

    _were_read = False  # the finalists, side by side

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.measure_by(PipelinedProvider)

    def measure_by(self, provider: Callable[..., StreamedProvider]) -> None:
        """Have the provider that this makes measure."""
        self._benchmark_provider_cls = partial(provider, expected=self.starts)

    def starts(self) -> list[Any]:
        """The configurations that every search begins with."""
        space = self._space(np.random.default_rng(0))
        return [space.config(start) for start in space.starts]

    def final_rebenchmark_best(self, best: Any) -> Any:
        """As Helion's, unless the finalists have been read side by side."""
        return best if self._were_read else super().final_rebenchmark_best(best)

    def _budget_reserve_seconds(self) -> float:
        """What is kept for the finalists; Helion asks from 1.5.1 on."""
        budget = self.settings.autotune_budget_seconds
        if budget is None or not isinstance(getattr(self, "evaluate", None), PipelinedEvaluate):
            return float(getattr(super(), "_budget_reserve_seconds", float)())
        reserve_s = min(max(READING_SHARE * float(budget), LEAST_RESERVE_S), MOST_RESERVE_S)
        return reserve_s + float(self.benchmark_provider.loading_s)

    def _read_finalists(self) -> None:
        """In the process that timed them, in long windows side by side."""
        evaluate, provider = self.evaluate, self.benchmark_provider
        if not isinstance(evaluate, PipelinedEvaluate):
            super()._read_finalists()
            return
        finalists = evaluate.finalists()
        if len(finalists) < 2:
            provider.end_measuring()
        elif not self._read_side_by_side(finalists):
            if provider.measures_here:
                super()._read_finalists()
                return
            self.log.warning("The best could not be read side by side: times are first readings")
        self._were_read = True

    def _read_side_by_side(self, finalists: list[Any]) -> bool:
        seconds = UNBUDGETED_RESERVE_S + self.benchmark_provider.loading_s
        if (budget := self.settings.autotune_budget_seconds) is not None:
            reserve_s = self._budget_reserve_seconds()
            seconds = min(reserve_s, budget - (perf_counter() - self._autotune_budget_start))
        self.log(f"Reading the best {len(finalists)} side by side")
        configs = [member.config for member in finalists]
        standings = self.benchmark_provider.read_again(configs, monotonic() + seconds)
        if standings is None or not any(math.isfinite(each.time_ms) for each in standings):
            return False
        for member, each in zip(finalists, standings, strict=True):
            if each.windows:
                member.perfs.append(each.time_ms)
        self.population = [m for m, each in zip(finalists, standings, strict=True) if each.windows]
        return True


def make_evaluate(
    search: HelionSearch,
    space: HelionSpace,
    on_batch: Callable[[HelionEvaluate], None] = lambda _: None,
    journal: JournalRequest | None = None,
) -> ExplainingEvaluate:
    """What a run measures with: over the engine, where the search's provider has one.

    Raises:
        RecordingError: the journal is of something else, is damaged, or is in use.
    """
    provider = search.benchmark_provider
    if isinstance(provider, StreamedProvider) and provider.streams:
        tuning_journal = None
        if journal is not None:
            tuning_journal = journal.opened(search, space, provider.compilers)
            provider.until_cleanup.callback(tuning_journal.close)
        return PipelinedEvaluate(search, space, on_batch, provider, tuning_journal)
    if journal is not None:
        search.log.warning("No journal is kept: only what the engine measures goes into one")
    return ExplainingEvaluate(search, space, on_batch)


class PipelinedEvaluate(ExplainingEvaluate):
    """``evaluate`` over the engine; see `llamea_gpu.contract.Evaluate`.

    ``on_batch`` is told whenever something is finished. What ``journal`` knows is as if it had been
    measured just before; its seconds count.

    Attributes:
        trouble: why measuring ended before the budget, where something had worked by then.
    """

    trouble = ""

    def __init__(
        self,
        search: HelionSearch,
        space: HelionSpace,
        on_batch: Callable[[HelionEvaluate], None],
        provider: StreamedProvider,
        journal: TuningJournal | None = None,
    ) -> None:
        super().__init__(search, space, on_batch)
        self._provider = provider
        self._journal = journal
        self._asked: deque[tuple[Config, Config]] = deque()  # as submitted, and as it is known
        self._unsent: deque[Config] = deque()  # beyond the budget of evaluations
        self._on_way: dict[Config, Any] = {}  # members without a time
        self._places: dict[int, Config] = {}  # of the members' configurations, by identity
        self._starts: dict[Config, Any] = dict.fromkeys(space.starts)  # members that work
        self._unasked: set[Config] = set()  # of the journal
        self._began = search._autotune_budget_start or perf_counter()
        if journal is not None:
            self._resume(journal)

    def begin(self, starts: Sequence[Config]) -> None:
        """Measure the starts; those that take long follow while the optimizer is at work.

        It begins after `STARTS_S` at the earliest, when half of them are known and one works.

        Raises:
            BudgetExhausted: there is room for some of them only.
        """
        self._send(starts)
        if self._unsent:
            self(starts)
        patient_until = monotonic() + STARTS_S
        while any(start in self._on_way for start in starts):
            known = [self.costs[start] for start in starts if start in self.costs]
            enough = 2 * len(known) >= len(starts) and min(known) < math.inf
            if enough and monotonic() >= patient_until:
                break
            self._collect()

    def finalists(self) -> list[Any]:
        """Members to read again, best first: those close to the best, and the best start."""
        leaders = list(self._leaders.values())
        close = [member for member in leaders if member.perf <= FINALISTS_WITHIN * leaders[0].perf]
        starts = sorted(filter(None, self._starts.values()), key=lambda member: member.perf)
        return close + [member for member in starts[:1] if member not in close]

    @property
    def parallel(self) -> int:
        """How many configurations on their way keep the engine busy."""
        return int(self._provider.compilers) + _FEED * self._provider.gpus

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
            if finished := [
                (config, known) for config, known in self._asked if known in self.costs
            ]:
                self._asked = deque(
                    (config, known) for config, known in self._asked if known not in self.costs
                )
                return [(config, self.costs[known]) for config, known in finished]
            self._collect()
        return []

    def obtain(self, configs: Sequence[Config]) -> None:
        """See `HelionEvaluate.obtain`."""
        self._send(configs)
        while any(config not in self.costs for config in configs):
            self._collect()

    def _send(self, configs: Sequence[Config]) -> None:
        """Submit what is new, as far as the budget goes."""
        search = self.search
        fresh = [
            config
            for config in dict.fromkeys(configs)
            if config not in self.costs and config not in self._on_way
        ]
        if self._unasked and (first := self._unasked.intersection(configs)):
            self._unasked -= first
            self._idle_asks = 0  # a search that is run again is not idle
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
        """Take in what is finished, waiting for it a while, unless the budget has ended."""
        try:
            if not self._on_way:  # all that is left is beyond the budget
                raise BudgetExhausted
            self._refuse_when_late()
            for config, result in self._wait():
                self._take_in(self._places.pop(id(config)), result)
                self._on_batch(self)
        except BaseException as fault:
            self.fault = fault
            raise

    def _wait(self) -> list[tuple[Any, Any]]:
        try:
            return self._provider.wait(monotonic() + _POLL_S)
        except RecordingError as error:
            if not self._leaders:
                raise
            self.trouble = str(error)
            raise BudgetExhausted from error

    def _refuse_when_late(self) -> None:
        """Where the start has taken all the time, one that works is waited for nevertheless."""
        begun = bool(self._leaders) or all(start in self.costs for start in self._starts)
        if begun and self.search.time_share >= 1:
            raise BudgetExhausted

    def _take_in(self, config: Config, result: Any) -> None:
        member = self._on_way.pop(config)
        member.perfs.append(result.perf)
        member.fn, member.status = result.fn, result.status
        member.compile_time = result.compile_time
        if hasattr(self.search, "_record_benchmarked_member"):  # from Helion 1.5 on
            self.search._record_benchmarked_member(member)
        if not math.isfinite(result.perf):
            self.statuses[config] = result.status
        elif config in self._starts:
            self._starts[config] = member
        self._rank({**self._leaders, config: member})

    def _keep(self, config: Any, measured: Mapping[str, Any]) -> None:
        """Into the journal, if there is one that can be written."""
        place = self._places.get(id(config))
        if self._journal is None or place is None:
            return
        try:
            self._journal.append(place, perf_counter() - self._began, measured)
        except OSError as error:
            self.search.log.warning(f"The journal cannot be written, going on without: {error}")
            self._journal = None

    def _resume(self, journal: TuningJournal) -> None:
        """Take in what was measured before; the time that it took is used."""
        self._provider.on_measured = self._keep
        self.used_s = journal.used_s
        self._began -= journal.used_s
        if self.search._autotune_budget_start is not None:
            self.search._autotune_budget_start -= journal.used_s
        for config, known in journal.known.items():
            member = self.search.make_unbenchmarked(self.space.flat(config))
            if member is None:  # refused by a filter of today
                continue
            self._on_way[config] = member
            self.known_before[config] = known.at_s
            self._take_in(config, self._provider.remembered(member.config, known))
        self._unasked.update(self.costs)
        if self.costs:
            self._on_batch(self)
