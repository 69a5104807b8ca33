"""What a search may spend, and whose readings decide: budgets, second readings, the final pick."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from support.helion_live import (
    FormulaProvider,
    bound_kernel,
    formula_ms,
    run_search,
    searching,
    settings,
)

from llamea_gpu.live.helion.runtime import HELION_CONTENDERS


@pytest.fixture(scope="module")
def live() -> Iterator[tuple[Any, Any]]:
    with bound_kernel("matmul", "H200") as given:
        yield given


def test_the_effort_gives_the_budget(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        while True:
            evaluate(space.sample(40))

    search = searching(live, run)
    run_search(search)
    assert len(search.benchmark_provider.seen) == 150
    settings(live, monkeypatch, autotune_effort="full")
    assert searching(live, run).evaluations == 500
    assert searching(live, run, seconds=5).evaluations is None
    assert searching(live, run, evaluations=7, seconds=5).evaluations == 7


class SlowProvider(FormulaProvider):
    """Every batch takes 30 s of a clock that only batches move."""

    clock_s = 0.0

    def on_batch(self) -> None:
        SlowProvider.clock_s += 30.0

    @staticmethod
    def clock() -> Any:
        """Until the ``with`` block ends, the clock is that one, and starts at 0."""
        SlowProvider.clock_s = 0.0
        return mock.patch.object(time, "perf_counter", side_effect=lambda: SlowProvider.clock_s)


def test_seconds_end_it_and_the_users_own_limit_stays(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []

    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        assert evaluate.parallel == 15  # of 16: a tenth of what quick effort would give
        while True:
            shares.append(evaluate.spent)
            evaluate(space.sample(5))

    search = searching(live, run, seconds=100)
    with SlowProvider.clock():
        run_search(search, SlowProvider)
    assert len(search.benchmark_provider.batches) == 4  # the fourth begins at 90 s
    assert shares == pytest.approx([0.3, 0.3, 0.6, 0.9])  # the starts come first: a free revisit
    assert live[0].settings.autotune_budget_seconds is None
    settings(live, monkeypatch, autotune_budget_seconds=50)
    search = searching(live, run, seconds=100)
    with SlowProvider.clock():
        run_search(search, SlowProvider)
    assert len(search.benchmark_provider.batches) == 2
    assert live[0].settings.autotune_budget_seconds == 50


def test_a_budget_of_seconds_limits_each_compilation(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limits(own_s: int, **budget: float) -> list[int]:
        found: list[int] = []

        def run(evaluate: Any, space: Any, _rng: Any) -> None:
            for _ in range(3):
                evaluate(space.sample(5))

        class Noting(FormulaProvider):
            def on_batch(self) -> None:
                found.append(live[0].settings.autotune_compile_timeout)

        settings(live, monkeypatch, autotune_compile_timeout=own_s)
        run_search(searching(live, run, **budget), Noting)
        assert live[0].settings.autotune_compile_timeout == own_s
        return found[:3]

    assert limits(60, seconds=120) == [20, 10, 10]
    assert limits(60, seconds=12) == [10, 2, 2]
    assert limits(8, seconds=120) == [8, 8, 8]
    assert limits(60, evaluations=40) == [60, 30, 30]  # Helion's own adaptive one


def test_a_lucky_reading_does_not_win(live: Any) -> None:
    """The first reading of one configuration is far too good; Helion's second ones are right."""

    class Lucky(FormulaProvider):
        def benchmark(self, configs: list[Any], **options: Any) -> Any:
            lucky = not self.batches
            results = super().benchmark(configs, **options)
            if lucky:
                results[2] = results[2]._replace(perf=1e-6)
            return results

    search = searching(live, lambda evaluate, space, _rng: evaluate(space.sample(20)))
    best = run_search(search, Lucky)
    assert formula_ms(best) == min(map(formula_ms, search.benchmark_provider.seen))
    assert search.benchmark_provider.seen[2] != best


def test_a_lucky_reading_does_not_win_when_the_time_is_up_either(live: Any) -> None:
    """Helion verifies nothing then, and at quick effort reads nothing a second time."""

    class Lucky(SlowProvider):
        def benchmark(self, configs: list[Any], **options: Any) -> Any:
            results = super().benchmark(configs, **options)
            return [*results[:-1], results[-1]._replace(perf=1e-6)]

    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        while True:
            told.extend(evaluate(space.sample(5)))

    told: list[float] = []
    with SlowProvider.clock():
        search = searching(live, run, seconds=100)
        best = run_search(search, Lucky)
    assert told.count(1e-6) >= 2
    assert formula_ms(best) == min(map(formula_ms, search.benchmark_provider.seen))


def test_those_that_seem_better_are_read_again_and_the_optimizer_is_told(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(live, monkeypatch, autotune_rebenchmark_threshold=10.0)
    told: list[float] = []
    limits: list[float] = []

    class TooGood(FormulaProvider):
        def benchmark(self, configs: list[Any], **options: Any) -> Any:
            results = super().benchmark(configs, **options)
            return [r._replace(perf=r.perf / 2) for r in results]

    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        limits.append(evaluate.search.population[0].perf)
        told.extend(evaluate(space.sample(60)[-40:]))  # the starts have their times

    search = searching(live, run)
    run_search(search, TooGood)
    right = [formula_ms(config) for config in search.benchmark_provider.batches[1]]
    better = sorted(t for t in right if t / 2 < limits[0])
    assert len(better) > HELION_CONTENDERS
    again = better[:HELION_CONTENDERS]
    assert told == [t if t in again else t / 2 for t in right]


def test_one_huge_batch_is_cut_at_the_budget(live: Any) -> None:
    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        evaluate(space.sample(30) * 500)  # 15,000 asks at once

    search = searching(live, run, evaluations=25)
    run_search(search)
    assert list(map(len, search.benchmark_provider.batches)) == [9, 16]  # the starts first


def test_no_optimizer_outlives_the_budget_by_catching_everything(live: Any) -> None:
    asked: list[int] = []

    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        for _ in range(50):
            try:
                evaluate(space.sample(10))
            except BaseException:
                asked.append(1)

    search = searching(live, run, evaluations=30)
    run_search(search)
    assert len(asked) == 47
    assert len(search.benchmark_provider.seen) == 30
