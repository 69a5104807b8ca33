"""Optimizers driving Helion's real search code to the end, on a real configuration space."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helion
import numpy as np
import pytest
import threadpoolctl
from support.helion_live import (
    FormulaProvider,
    bound_kernel,
    formula_ms,
    run_search,
    searching,
    settings,
)

from llamea_gpu.live.helion.registration import search_class
from llamea_gpu.programs import make
from llamea_gpu.searchers.registry import resolve_program

# What a model wrote is run in test_export.
SPECS = (
    *("random_search", "iterated_local_search", "simulated_annealing"),
    *("genetic_algorithm", "differential_evolution"),
)


@pytest.fixture(scope="module")
def live() -> Iterator[tuple[Any, Any]]:
    with bound_kernel("matmul", "H200") as given:
        yield given


@pytest.mark.parametrize("spec", SPECS)
def test_an_optimizer_tunes_to_the_end(spec: str, live: Any) -> None:
    search = search_class(resolve_program(spec))(*live, evaluations=25)
    best = run_search(search)
    seen = search.benchmark_provider.seen
    assert len(seen) == len(set(seen)) == 25
    assert formula_ms(best) == min(map(formula_ms, seen))


def test_the_same_seed_is_the_same_run(live: Any) -> None:
    cls = search_class(resolve_program("genetic_algorithm"))
    first, second = cls(*live, evaluations=24), cls(*live, evaluations=24)
    run_search(first)
    run_search(second)
    assert first.benchmark_provider.seen == second.benchmark_provider.seen


def test_another_seed_is_another_run(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = search_class(resolve_program("random_search"))
    first, second = cls(*live, evaluations=30), cls(*live, evaluations=30)
    run_search(first)
    settings(live, monkeypatch, autotune_random_seed=-2)  # Python's generator takes it
    run_search(second)
    common = set(first.benchmark_provider.seen) & set(second.benchmark_provider.seen)
    assert len(common) < 20


def test_default_and_seeds_are_measured_even_if_nobody_asks_for_them(live: Any) -> None:
    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        evaluate([tuple(space.pool(50)[-1].tolist())])

    search = searching(live, run)
    run_search(search)
    generation = live[0].config_spec.create_config_generation()
    wanted = [generation.unflatten(generation.default_flat())]
    wanted += [config for _, config in generation.seed_flat_config_pairs()]
    assert search.benchmark_provider.seen[: len(set(wanted))] == list(dict.fromkeys(wanted))
    assert len(search.benchmark_provider.seen) == len(set(wanted)) + 1
    assert search._pinned_finalist_configs == set(wanted)


def test_a_seed_of_the_user_comes_before_the_compilers(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = helion.Config(block_sizes=[32, 64, 128], num_warps=2, num_stages=7)
    settings(live, monkeypatch, autotune_seed_configs=mine)
    search = searching(live, lambda evaluate, space, _rng: evaluate(space.sample(2)))
    run_search(search)
    second = search.benchmark_provider.seen[1].config
    assert {key: second[key] for key in mine.config} == mine.config


def test_evaluate_keeps_its_contract(live: Any) -> None:
    noted: dict[str, Any] = {}

    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        assert evaluate.spent == len(space.starts) / 100  # measured before it begins
        noted["parallel"] = evaluate.parallel
        configs = space.sample(20)
        first = evaluate([*configs, configs[0]])
        noted["spent"] = evaluate.spent
        assert first[0] == first[-1]
        assert evaluate(configs[::-1]) == first[19::-1]  # revisits
        assert evaluate(np.array(configs[:2])) == first[:2]
        assert evaluate([]) == []
        flat = space.starts[0]  # Helion's default
        alias = list(flat)
        alias[space.names.index("num_sm_multiplier")] = 3
        assert evaluate([alias]) == evaluate([flat])
        assert evaluate.spent == noted["spent"]
        with pytest.raises(ValueError, match=r"repair\(\)"):
            evaluate([(99,) * len(space.names)])
        huge = list(flat)
        huge[:3] = [c - 1 for c in space.cardinalities[:3]]
        noted["fails"] = evaluate([huge])
        noted["done"] = True

    search = searching(live, run, evaluations=100)
    run_search(search)
    assert noted["done"]
    assert noted["parallel"] == 10  # a tenth of the evaluations, though 16 would compile at once
    assert noted["spent"] == 0.2
    assert noted["fails"] == [math.inf]
    assert len(search.benchmark_provider.seen) == 21


def test_the_optimizer_has_one_thread_and_the_measuring_as_many_as_before(live: Any) -> None:
    seen: list[set[int]] = []

    def look() -> None:
        pools = threadpoolctl.threadpool_info()
        seen.append({pool["num_threads"] for pool in pools if pool["user_api"] == "blas"})

    class Looking(FormulaProvider):
        def on_batch(self) -> None:
            look()

    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        look()
        evaluate(space.sample(20))
        look()

    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        run_search(searching(live, run), Looking)
        look()
    assert seen == [{3}, {1}, {3}, {1}, {3}]  # the first looks while the starts are measured


def test_interrupted_it_returns_the_best_so_far(live: Any) -> None:
    class Interrupted(FormulaProvider):
        def on_batch(self) -> None:
            if len(self.batches) == 3:
                raise KeyboardInterrupt

    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        while True:
            try:
                evaluate(space.sample(15))
            except Exception:
                continue

    search = searching(live, run)
    best = run_search(search, Interrupted)
    measured = [config for batch in search.benchmark_provider.batches[:2] for config in batch]
    assert formula_ms(best) == min(map(formula_ms, measured))
    assert not search._search_policy_cacheable

    class AtOnce(FormulaProvider):
        def on_batch(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_search(searching(live, run), AtOnce)


def test_an_optimizer_that_fails_loses_nothing_that_was_measured(live: Any) -> None:
    def late(evaluate: Any, space: Any, _rng: Any) -> None:
        evaluate(space.sample(20))
        raise ZeroDivisionError("mine")

    search = searching(live, late)
    best = run_search(search)
    assert formula_ms(best) == min(map(formula_ms, search.benchmark_provider.seen))

    def early(_evaluate: Any, _space: Any, _rng: Any) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run_search(searching(live, early))


def test_a_fault_of_helions_is_raised_even_if_the_optimizer_catches_it(live: Any) -> None:
    class Broken(FormulaProvider):
        def on_batch(self) -> None:
            if len(self.batches) == 2:
                raise RuntimeError("the driver is gone")

    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        for _ in range(5):
            with contextlib.suppress(Exception):
                evaluate(space.sample(10))

    with pytest.raises(RuntimeError, match="the driver is gone"):
        run_search(searching(live, run), Broken)


def again_and_again(evaluate: Any, space: Any, _rng: Any) -> None:
    config = space.sample(1)
    while True:
        evaluate(config * 100)


def nothing_valid(evaluate: Any, _space: Any, _rng: Any) -> None:
    while True:
        with contextlib.suppress(ValueError):
            evaluate([()] * 100)


def nothing_at_all(evaluate: Any, _space: Any, _rng: Any) -> None:
    while True:
        evaluate([])


@pytest.mark.parametrize("run", [again_and_again, nothing_valid, nothing_at_all])
def test_an_optimizer_that_gets_nowhere_ends(live: Any, run: Any) -> None:
    search = searching(live, run)
    assert run_search(search) in search.benchmark_provider.seen


def test_an_optimizer_that_does_nothing_leaves_the_default_and_the_seeds(live: Any) -> None:
    search = searching(live, lambda *_: None)
    assert run_search(search) in search.benchmark_provider.seen


def test_nothing_that_works_is_said_so(live: Any) -> None:
    class AllFail(FormulaProvider):
        time_ms = staticmethod(lambda _config: math.inf)

    run = make(resolve_program("random_search").program)
    with pytest.raises(helion.exc.NoConfigFound):
        run_search(searching(live, run, evaluations=40), AllFail)


def test_the_users_filter_is_asked_before_anything_is_measured(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(
        live,
        monkeypatch,
        autotune_config_filter=lambda config: config if config.num_warps == 8 else None,
    )
    search = search_class(resolve_program("genetic_algorithm"))(*live, evaluations=25)
    assert run_search(search).num_warps == 8
    assert len(search.benchmark_provider.seen) == 25
    assert {config.num_warps for config in search.benchmark_provider.seen} == {8}


def test_generators_of_the_user_are_left_as_they_were(live: Any) -> None:
    def run(evaluate: Any, space: Any, _rng: Any) -> None:
        drawn.append(np.random.rand())  # noqa: NPY002 - what the contract advises against
        evaluate(space.sample(2))

    drawn: list[float] = []
    np.random.seed(11)  # noqa: NPY002
    expected = np.random.RandomState(11).rand()
    run_search(searching(live, run))
    assert np.random.rand() == expected  # noqa: NPY002
    run_search(searching(live, run))
    assert drawn[0] == drawn[1]


def test_a_distributed_kernel_is_refused(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live[0].env, "process_group_name", "ranks")
    with pytest.raises(NotImplementedError, match="Helion's own searches"):
        searching(live, lambda *_: None)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"evaluations": 0}, "evaluations must be positive"),
        ({"evaluations": 20.5}, "evaluations must be a whole number"),
        ({"seconds": -1.0}, "seconds must be positive"),
        ({"seconds": math.nan}, "seconds must be positive"),
        ({"speed": 3}, r"among \(start_samples, kick_size, max_kicks\), but got speed"),
    ],
)
def test_wrong_options_are_refused(live: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        search_class(resolve_program("iterated_local_search"))(*live, **options)


def test_helions_trace_names_the_search(live: Any, tmp_path: Path) -> None:
    search = search_class(resolve_program("random_search"))(*live, evaluations=12)
    search.settings.autotune_log = str(tmp_path / "run")
    search.settings.autotune_log_details = True
    try:
        run_search(search)
    finally:
        search.settings.autotune_log = None
        search.settings.autotune_log_details = False
    lines = (tmp_path / "run.trace.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert {event["algorithm"] for event in events} == {"RandomSearch"}
