"""Live tuning on the engine: its evaluate, over a stand-in for the engine, on real searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("helion")

from support import submitting
from support.helion_live import FormulaProvider, bound_kernel, formula_ms, run_search

from llamea_gpu.errors import SearcherError
from llamea_gpu.live.helion.pipelined import PipelinedEvaluate
from llamea_gpu.live.helion.registration import autotuner, search_base
from llamea_gpu.live.helion.runtime import HelionSearch, helion_search
from llamea_gpu.programs import make
from llamea_gpu.searchers.registry import resolve_program


class Streaming(FormulaProvider):
    """Measures what was submitted last first, one a wait."""

    compilers = 4
    gpus = 1

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.queue: list[Any] = []
        self.most = 0

    def submit(self, configs: Sequence[Any]) -> None:
        self.queue += configs
        self.most = max(self.most, len(self.queue))

    def wait(self, deadline: float | None = None) -> list[tuple[Any, Any]]:
        if not self.queue:
            return []
        config = self.queue.pop()
        return [(config, self.benchmark([config])[0])]


@pytest.fixture
def live() -> Iterator[Any]:
    with bound_kernel("row_sum", "H200") as bound:
        yield bound


def search(
    live: Any, optimizer: Any, batches: Callable[[Any], None] = lambda _: None, **options: Any
) -> HelionSearch:
    def evaluate(around: HelionSearch, space: Any) -> PipelinedEvaluate:
        return PipelinedEvaluate(around, space, batches, around.benchmark_provider)

    return helion_search("Streamed", lambda: optimizer, {}, "0", evaluate)(*live, **options)


@pytest.mark.parametrize("check", submitting.CHECKS)
def test_what_the_contract_promises(live: Any, check: str) -> None:
    passed: list[str] = []

    def optimizer(evaluate: Any, space: Any, rng: Any) -> None:
        getattr(submitting, check)()(evaluate, space, rng)
        passed.append(check)

    run_search(search(live, optimizer, evaluations=5000), Streaming)
    assert passed == [check]


def test_a_steady_state_keeps_the_engine_fed_and_its_budget(live: Any) -> None:
    seen: list[int] = []
    optimizer = make(resolve_program("steady_state_genetic_algorithm").program)
    found = search(live, optimizer, lambda e: seen.append(len(e.costs)), evaluations=60)
    chosen = run_search(found, Streaming)
    provider = found.benchmark_provider
    assert len(set(map(repr, provider.seen))) == len(provider.seen) == 60
    assert provider.most <= max(provider.compilers + 2, len(found.evaluate.space.starts))
    assert seen == sorted(seen)
    assert formula_ms(chosen) == min(map(formula_ms, provider.seen))


def test_a_search_that_calls_measures_the_same_as_in_batches(live: Any) -> None:
    def optimizer(evaluate: Any, space: Any, rng: Any) -> None:
        for _ in range(3):
            costs = evaluate(space.sample(10))
            assert len(costs) == 10

    streamed = search(live, optimizer, evaluations=25)
    run_search(streamed, Streaming)
    batched = helion_search("Batched", lambda: optimizer, {}, "0")(*live, evaluations=25)
    run_search(batched)
    assert set(map(repr, streamed.benchmark_provider.seen)) == set(
        map(repr, batched.benchmark_provider.seen)
    )


def test_seconds_end_it_while_nothing_comes(live: Any) -> None:
    class Silent(Streaming):
        def wait(self, deadline: float | None = None) -> list[tuple[Any, Any]]:
            return super().wait(deadline) if len(self.seen) < 3 else []

    def optimizer(evaluate: Any, space: Any, rng: Any) -> None:
        evaluate.submit(space.sample(8))
        while evaluate.wait():
            pass
        raise AssertionError("a wait returns something, or the run is over")

    found = search(live, optimizer, seconds=1.0)
    run_search(found, Silent)
    assert len(found.benchmark_provider.seen) == 3


def test_an_engine_must_be_one_of_two() -> None:
    assert search_base("framework") is HelionSearch
    assert issubclass(search_base("pipelined"), HelionSearch)
    with pytest.raises(SearcherError, match=r"must be 'pipelined' or 'framework', but got 'ray'"):
        search_base("ray")  # type: ignore[arg-type]


def test_a_journal_is_the_engines() -> None:
    with pytest.raises(SearcherError, match=r"engine 'pipelined' alone, but got a\.jsonl"):
        autotuner("iterated_local_search", engine="framework", journal="a.jsonl")
