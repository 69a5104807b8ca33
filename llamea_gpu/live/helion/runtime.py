"""An optimizer under llamea_gpu's contract as a Helion search.

What it does: `HelionEvaluate` sends batches through Helion's own benchmarking, within a budget;
`HelionSearch` is the search that Helion runs, from its start to Helion's final verification.

What it does not do: distributed kernels; interrupt an optimizer that computes without evaluating.
With `llamea_gpu.frameworks.helion.space` and the two exceptions it is the runtime of an exported
file: helion, numpy and threadpoolctl, which comes with Helion, are all that needs.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from helion.autotuner import cache_classes, search_algorithms
from helion.autotuner.base_search import PopulationBasedSearch
from helion.autotuner.effort_profile import get_effort_profile
from helion.exc import NoConfigFound
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from llamea_gpu.errors import BudgetExhausted, Stalled
from llamea_gpu.frameworks.helion.space import HelionSpace
from llamea_gpu.live.queued import QueuedEvaluate

# First visits without a budget of one's own, by Helion's effort.
HELION_EVALUATIONS = {"quick": 150, "full": 500}
HELION_MOST_IDLE_ASKS = 10_000
HELION_PATIENT_BATCHES = 3  # may fail altogether before the compiler's error ends the search
# What one configuration may compile for, in the first batch and after it: a share of a budget of
# seconds, and never less than so many. A batch waits for its slowest, and those are hardly ever
# good. The first holds what must work, in a process that is cold.
HELION_COMPILE_SHARES = (1 / 6, 1 / 12)
HELION_COMPILE_LEAST_S = (10.0, 2.0)
HELION_FINALISTS = 8  # as many as Helion verifies at the end
# New configurations of a batch that are timed again beside the best. Each takes 0.2 s and more, on
# small kernels three times its first reading; Helion's searches do it to all that come within 1.5
# times the best, which are nearly all where samples are drawn around the best.
HELION_CONTENDERS = 3

_benchmark_options = inspect.signature(PopulationBasedSearch.benchmark_population).parameters
_lacking = [
    name
    for name in ("make_unbenchmarked", "rebenchmark_population", "_budgeted_range", "_finalize")
    if not hasattr(PopulationBasedSearch, name)
]
if _lacking:
    raise ImportError(f"Helion must be 1.2 or later, but its searches lack {', '.join(_lacking)}")


class HelionEvaluate(QueuedEvaluate):
    """The optimizer contract's ``evaluate`` over Helion's benchmarking.

    Helion's default, the user's seeds and the compiler's are measured before the optimizer begins:
    a search ends with nothing worse than those.
    """

    space: HelionSpace

    def __init__(self, search: HelionSearch, space: HelionSpace) -> None:
        super().__init__(space)
        self.search = search
        self.costs: dict[tuple[int, ...], float] = {}
        self.statuses: dict[tuple[int, ...], str] = {}  # Helion's words for what failed
        self.fault: BaseException | None = None
        # Of a search that goes on: seconds of its earlier parts, and when each was known.
        self.used_s = 0.0
        self.known_before: dict[tuple[int, ...], float] = {}
        self._leaders: dict[tuple[int, ...], Any] = {}
        self._batches = self._idle_asks = 0

    def begin(self, starts: Sequence[tuple[int, ...]]) -> None:
        """Measure what every search begins with.

        Raises:
            BudgetExhausted: there is room for some of them only.
        """
        self(starts)

    @property
    def spent(self) -> float:
        """Share of the budget used, 0 to 1: of evaluations or of seconds, whichever is more."""
        return min(1.0, self.search.share_of_budget(len(self.costs)))

    @property
    def parallel(self) -> int:
        """How many configurations Helion precompiles side by side.

        On a machine of many cores no more than a tenth of the evaluations, or of those that
        Helion's effort would give, so that there are at least ten batches.
        """
        search = self.search
        jobs = int(getattr(search.benchmark_provider, "_jobs", 1))
        return max(1, min(jobs, (search.evaluations or search.by_effort()) // 10))

    def __call__(self, configs: Any) -> list[float]:
        """Times in ms in the order of ``configs``; inf for one that does not compile or run.

        Raises:
            ValueError: a configuration is not valid.
            BudgetExhausted: the run is over.
            Stalled: too many asks in a row brought nothing new.
        """
        configs = list(configs)
        self._note_ask(len(configs))
        canonical_configs = [self._known(config) for config in configs]
        self.obtain(canonical_configs)
        return [self.costs[config] for config in canonical_configs]

    def obtain(self, configs: Sequence[tuple[int, ...]]) -> None:
        """See to it that each has a cost; raises as a call does."""
        fresh = [c for c in dict.fromkeys(configs) if c not in self.costs]
        if not fresh:
            return
        self._idle_asks = 0
        try:
            with self.search.all_threads():
                self.measure(fresh)
        except BaseException as fault:
            self.fault = fault
            raise

    def _note_ask(self, count: int) -> None:
        """An ask for so many configurations, which may be the last straw."""
        if self.fault is not None:
            raise BudgetExhausted  # what the optimizer caught before may not keep it running
        if self._idle_asks > HELION_MOST_IDLE_ASKS:
            self._idle_asks = 0  # of a hybrid, the next optimizer begins with revisits
            raise Stalled(f"no new configuration in {HELION_MOST_IDLE_ASKS} asks")
        self._idle_asks += max(count, 1)

    def measure(self, fresh: Sequence[tuple[int, ...]]) -> None:
        """Benchmark new configurations, and then again those that seem better than the best.

        Raises:
            BudgetExhausted: there was room for some of them only, or for none.
        """
        search = self.search
        self._refuse_when_late()
        room = len(fresh)
        if search.evaluations is not None:
            room = min(room, search.evaluations - len(self.costs))
        if room <= 0:
            raise BudgetExhausted
        members = {c: search.make_unbenchmarked(self.space.flat(c)) for c in fresh[:room]}
        viable = {config: member for config, member in members.items() if member is not None}
        self._batches += 1
        search.set_generation(self._batches)
        search.benchmark_new(list(viable.values()), self._batches)
        search.rebenchmark_population(
            self._contenders(list(viable.values())), desc=f"Batch {self._batches}: verifying"
        )
        self.costs.update(dict.fromkeys(members, math.inf))
        for config, member in members.items():
            if member is None or not math.isfinite(member.perf):
                self.statuses[config] = getattr(member, "status", "filtered")
        self._rank({**self._leaders, **viable})
        if room < len(fresh):
            raise BudgetExhausted
        self._refuse_when_late()  # what Helion left out when the time was up has no cost

    def _refuse_when_late(self) -> None:
        if next(self.search._budgeted_range(1), None) is None:
            raise BudgetExhausted

    def _contenders(self, new: list[Any]) -> list[Any]:
        """The best so far and the fastest of the ``new`` ones, if faster: it may have been luck."""
        best = [*self._leaders.values()][:1]
        limit = best[0].perf if best else math.inf
        faster = sorted((m for m in new if m.perf < limit), key=lambda member: member.perf)
        return [*best, *faster[:HELION_CONTENDERS]]

    def _rank(self, members: dict[tuple[int, ...], Any]) -> None:
        """Note the costs, and keep the best as the search's population."""
        for config, member in members.items():
            self.costs[config] = float(member.perf) if math.isfinite(member.perf) else math.inf
        finite = [config for config in members if self.costs[config] < math.inf]
        finite.sort(key=self.costs.__getitem__)
        self._leaders = {config: members[config] for config in finite[:HELION_FINALISTS]}
        self.space.leaders = list(self._leaders)
        self.search.population = list(self._leaders.values())

    def _known(self, config: Any) -> tuple[int, ...]:
        known = self.space.canonical(config)
        if known is None:
            raise ValueError(
                f"evaluate needs valid configurations, but got {config!r}: use repair() first"
            )
        return known


class HelionSearch(PopulationBasedSearch):  # type: ignore[misc]
    """Runs an optimizer as Helion runs its own searches. Made concrete by `helion_search`.

    Args:
        kernel: the bound kernel.
        args: its arguments.
        evaluations: first visits to spend, the default and the seeds included.
        seconds: wall-clock time to spend, but for the end of a batch and reading the best again.
        finishing_rounds: Helion's own simplification of the result.
        hyperparameters: of the optimizer.

    With neither budget, Helion's effort decides: 150 evaluations for ``quick``, 500 for ``full``.
    ``HELION_AUTOTUNE_BUDGET_SECONDS`` holds as well.
    """

    make_optimizer: Callable[..., Any]
    make_evaluate: Callable[[HelionSearch, HelionSpace], HelionEvaluate]
    evaluate: HelionEvaluate  # from the beginning of `autotune` on
    defaults: ClassVar[dict[str, Any]]
    fingerprint: ClassVar[str]
    _one_thread: Any  # threadpool_limits while the optimizer runs

    def __init__(
        self,
        kernel: Any,
        args: Sequence[object],
        *,
        evaluations: int | None = None,
        seconds: float | None = None,
        finishing_rounds: int = 0,
        **hyperparameters: Any,
    ) -> None:
        super().__init__(kernel, args, finishing_rounds=finishing_rounds)
        self.check(evaluations, seconds, hyperparameters)
        if kernel.env.process_group_name is not None:
            raise NotImplementedError(
                f"{type(self).__name__} must tune on one device, but the kernel is distributed: "
                f"use one of Helion's own searches"
            )
        if evaluations is None and seconds is None:
            evaluations = self.by_effort()
        self.evaluations = None if evaluations is None else int(evaluations)
        self.seconds = seconds
        self.hyperparameters = {**self.defaults, **hyperparameters}
        self.optimizer = type(self).make_optimizer(**self.hyperparameters)

    @classmethod
    def check(
        cls, evaluations: int | None, seconds: float | None, hyperparameters: dict[str, Any]
    ) -> None:
        """Raises ValueError for a budget that is none, or a hyperparameter that is not there."""
        for name, budget in (("evaluations", evaluations), ("seconds", seconds)):
            if budget is not None and not 0 < budget < math.inf:
                raise ValueError(f"{name} must be positive and finite, but got {budget!r}")
        if evaluations is not None and evaluations != int(evaluations):
            raise ValueError(f"evaluations must be a whole number, but got {evaluations!r}")
        unknown = sorted(set(hyperparameters) - set(cls.defaults))
        if unknown:
            raise ValueError(
                f"hyperparameters of {cls.__name__} must be among ({', '.join(cls.defaults)}), "
                f"but got {', '.join(unknown)}"
            )

    def autotune(self, *, skip_cache: bool = False) -> Any:
        """As Helion's, with ``seconds`` as its wall-clock budget meanwhile."""
        before = self.settings.autotune_budget_seconds
        compiling = self.settings.autotune_compile_timeout
        limits = [limit for limit in (before, self.seconds) if limit is not None]
        self.settings.autotune_budget_seconds = min(limits, default=None)
        try:
            return super().autotune(skip_cache=skip_cache)
        finally:
            self.settings.autotune_budget_seconds = before
            self.settings.autotune_compile_timeout = compiling

    def by_effort(self) -> int:
        """First visits that Helion's effort would give."""
        return HELION_EVALUATIONS.get(self.settings.autotune_effort, HELION_EVALUATIONS["full"])

    @contextlib.contextmanager
    def all_threads(self) -> Iterator[None]:
        """As many threads of linear algebra as the user allows: the optimizer itself has one."""
        self._one_thread.restore_original_limits()
        try:
            yield
        finally:
            self._one_thread = threadpool_limits(1, user_api="blas")

    def share_of_budget(self, visits: int) -> float:
        """Share of the evaluations or of the seconds that is used, whichever is more."""
        return max(0.0 if self.evaluations is None else visits / self.evaluations, self.time_share)

    @property
    def time_share(self) -> float:
        """Share of the seconds that is used, but for those kept to read the best again."""
        budget = self.settings.autotune_budget_seconds
        if budget is None or self._autotune_budget_start is None:
            return 0.0
        reserve_s = getattr(self, "_budget_reserve_seconds", float)()
        elapsed = time.perf_counter() - self._autotune_budget_start
        return float(elapsed / max(budget - reserve_s, 1e-9))

    def benchmark_new(self, members: list[Any], batch: int) -> None:
        """Benchmark members that have no time yet; it may be that none of them works.

        Raises:
            Exception: the compiler's, when nothing has worked in several batches.
        """
        options: dict[str, Any] = {"desc": f"Batch {batch}"}
        if "raise_if_no_viable_config" in _benchmark_options:  # from 1.5 on; before, it raises
            options["raise_if_no_viable_config"] = batch > HELION_PATIENT_BATCHES
        self._limit_compilation(batch)
        if members:
            self.benchmark_population(members, **options)
        if batch == 1:  # where the user wants it; with the bounds of Helion's own searches
            self.set_adaptive_compile_timeout(members, min_seconds=30.0, quantile=0.9)

    def _limit_compilation(self, batch: int) -> None:
        settings, later = self.settings, batch > 1
        if settings.autotune_budget_seconds is not None:
            share_s = HELION_COMPILE_SHARES[later] * settings.autotune_budget_seconds
            limit_s = round(max(share_s, HELION_COMPILE_LEAST_S[later]))
            settings.autotune_compile_timeout = min(settings.autotune_compile_timeout, limit_s)

    def _autotune(self) -> Any:
        rng = np.random.default_rng(self.settings.autotune_random_seed % 2**64)
        space = self._space(rng)
        evaluate = self.evaluate = type(self).make_evaluate(self, space)
        if hasattr(self, "pin_finalist_configs"):  # 1.4: what to verify at the end in any case
            flats = map(space.flat, space.starts)
            self.pin_finalist_configs([self.config_gen.unflatten(flat) for flat in flats])
        self.log(
            f"Starting {type(self).__name__} with evaluations={self.evaluations}, "
            f"seconds={self.seconds}, {self.hyperparameters} on {len(space.names)} parameters"
        )
        try:
            self._run(evaluate, space, rng)
            self._read_finalists()
            return self._finalize()
        except KeyboardInterrupt:
            if not self.population:
                raise
            self.log.warning(
                f"Interrupted after {len(evaluate.costs)} configurations: the best so far it is"
            )
            self._search_policy_cacheable = False  # 1.5: do not keep it as if it were the best
            return self.best.config

    def _space(self, rng: np.random.Generator) -> HelionSpace:
        return HelionSpace(self.config_gen, rng, self._seeds, self._accepts)

    @functools.cached_property
    def _seeds(self) -> list[list[Any]]:
        """Flat configurations: the user's, then the compiler's."""
        pairs = [
            *self.config_gen.user_seed_flat_config_pairs(self._autotune_seed_configs(), self.log),
            *self.config_gen.seed_flat_config_pairs(self.log),
        ]
        return [flat for flat, _ in pairs]

    def _read_finalists(self) -> None:
        """Side by side, as Helion verifies nothing in some versions, nor when the time is up."""
        self.rebenchmark(self.population, desc="Verifying the best")

    def _run(self, evaluate: HelionEvaluate, space: HelionSpace, rng: Any) -> None:
        state = np.random.get_state()  # noqa: NPY002 - for code that uses the global generator
        np.random.seed(self.settings.autotune_random_seed % 2**32)  # noqa: NPY002
        # Threads that wait for one another burn time, and their number changes the last digits.
        self._one_thread = threadpool_limits(1, user_api="blas")
        try:
            if space.starts:  # first, so that `sample` and `pool` draw around the best of them
                evaluate.begin(space.starts)
            if space.names:
                self.optimizer(evaluate, space, rng)
        except BudgetExhausted:
            pass
        except Stalled as stalled:
            self.log(f"{type(self).__name__} ends before its budget: {stalled}")
        except Exception:
            if evaluate.fault is not None or len(evaluate.costs) <= len(space.starts):
                raise
            self.log.warning(
                f"{type(self).__name__} failed; going on with the best so far", exc_info=True
            )
        finally:
            self._one_thread.restore_original_limits()
            np.random.set_state(state)  # noqa: NPY002
        if evaluate.fault is not None and not isinstance(evaluate.fault, BudgetExhausted):
            raise evaluate.fault
        if not self.population:
            why = getattr(self.benchmark_provider, "take_no_viable_config_error", lambda: None)()
            raise why or NoConfigFound
        self.log(f"{len(evaluate.costs)} configurations measured:", self.statistics)

    def _accepts(self, config: Any) -> bool:
        """What the user's filter and the backend think of a configuration."""
        user_filter = self.settings.autotune_config_filter
        viable = getattr(self, "_backend_config_is_viable", None)  # from 1.5 on
        filtered = config if user_filter is None else user_filter(config)
        return filtered is not None and (viable is None or bool(viable(filtered)))


def helion_search(
    name: str,
    make: Callable[..., Any],
    hyperparameters: dict[str, Any],
    fingerprint: str,
    make_evaluate: Callable[[HelionSearch, HelionSpace], HelionEvaluate] = HelionEvaluate,
    base: type[HelionSearch] = HelionSearch,
) -> type[HelionSearch]:
    """A search class called ``name``; ``make(**hyperparameters)`` gives an optimizer.

    ``fingerprint`` tells optimizers of the same name apart. ``make_evaluate`` gives what a run
    measures with; ``base`` is what the class is derived from.
    """
    body = {
        "__module__": __name__,
        "make_optimizer": staticmethod(make),
        "make_evaluate": staticmethod(make_evaluate),
        "defaults": dict(hyperparameters),
        "fingerprint": fingerprint,
    }
    return type(name, (base,), body)


def helion_register(search: type[HelionSearch]) -> None:
    """Let ``HELION_AUTOTUNER=NAME`` find the search under its class's name.

    Raises:
        ValueError: Helion or another optimizer has that name.
    """
    name = search.__name__
    present = search_algorithms.get(name, search)
    if getattr(present, "fingerprint", None) != search.fingerprint:
        raise ValueError(
            f"a search must have a name that is free in Helion's registry, but {name} is taken: "
            f"rename the optimizer's class, or use its autotuner() instead of the registry"
        )
    search_algorithms[name] = search


def helion_autotuner(
    search: type[HelionSearch],
    *,
    evaluations: int | None = None,
    seconds: float | None = None,
    **hyperparameters: Any,
) -> Callable[..., Any]:
    """An ``autotuner_fn`` for ``@helion.kernel``; the options are those of `HelionSearch`.

    Raises:
        ValueError: a budget that is none, or a hyperparameter that is not there.
    """
    search.check(evaluations, seconds, hyperparameters)

    def autotuner_fn(bound_kernel: Any, args: Sequence[object], **more: Any) -> Any:
        settings = bound_kernel.settings
        profile = get_effort_profile(settings.autotune_effort)
        by_profile = search.get_kwargs_from_profile(profile, settings)
        options = {
            "finishing_rounds": by_profile.get("finishing_rounds", 0),
            "evaluations": evaluations,
            "seconds": seconds,
            **hyperparameters,
            **more,
        }

        def fresh() -> HelionSearch:
            return search(bound_kernel, args, **options)

        return cache_classes[settings.autotune_cache](fresh(), autotuner_factory=fresh)

    return autotuner_fn
