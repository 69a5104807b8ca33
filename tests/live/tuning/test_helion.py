"""Searchers that know more than the contract, on Helion's real search code and real spaces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helion.autotuner.base_search import BaseSearch
from support.fake_openai import FakeOpenAI, Reply, error
from support.helion_live import FormulaProvider, bound_kernel, formula_ms
from support.model_server import Held, Interrupted, answer, example_in, prompt_of

from llamea_gpu.errors import SearcherError
from llamea_gpu.live import TuneProgress, TuneSettings, TuningResult
from llamea_gpu.live.helion import autotuner, register
from llamea_gpu.live.helion.facts import HelionFramework
from llamea_gpu.live.helion.tuning import tune_bound
from llamea_gpu.live.searcher import load_searcher

Bound = tuple[Any, tuple[Any, ...]]


@pytest.fixture(scope="module")
def live() -> Iterator[Bound]:
    with bound_kernel("matmul", "H200") as opened:
        yield opened


class Watched(FormulaProvider):
    """The providers that searches made, in order."""

    made: list[FormulaProvider]
    measuring: Any = None

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.made.append(self)

    def on_batch(self) -> None:
        if self.measuring is not None:
            self.measuring.set()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    """Every search of the test measures by the formula, whoever makes it."""

    class OfTest(Watched):
        made: list[FormulaProvider] = []  # noqa: RUF012 - one a test

    prepare = BaseSearch._prepare

    def prepared(search: Any) -> None:
        chosen = search._benchmark_provider_cls  # a class, or partial() of one
        if "helion.own" not in getattr(chosen, "func", chosen).__module__:
            search._benchmark_provider_cls = OfTest
        prepare(search)

    monkeypatch.setattr(BaseSearch, "_prepare", prepared)
    return OfTest


def tuned(live: Bound, spec: str, evaluations: int = 60, **more: Any) -> TuningResult:
    settings = TuneSettings(evaluations=evaluations, effort="quick", **more)
    return tune_bound(*live, spec, settings)


def warps(body: dict[str, Any]) -> Reply:
    """Six configurations around the default one."""
    example = example_in(body)
    return answer(*({**example, "num_warps": 1 << n, "num_stages": 2} for n in range(6)))


def seen(provider: type[Watched]) -> list[Any]:
    return [config for made in provider.made for config in made.seen]


def test_a_model_tunes_a_live_kernel(
    live: Bound, server: FakeOpenAI, provider: type[Watched]
) -> None:
    server.default = warps
    found = tuned(live, "llm:m?rounds=2&initial=4&patience=9")
    proposed = [c for c in seen(provider) if c.config["num_stages"] == 2]
    assert {c.config["num_warps"] for c in proposed} >= {1, 2, 4, 8, 16, 32}
    assert found.trouble == ""
    assert found.best is not None
    assert found.best.time_ms == min(each.time_ms for each in found.measured)
    assert found.code.startswith("@helion.kernel(config=helion.Config(")
    assert f"num_warps={found.best.configuration['num_warps']}" in found.code


def test_the_prompt_is_of_helions_own_objects(
    live: Bound, server: FakeOpenAI, provider: type[Watched]
) -> None:
    server.default = warps
    tuned(live, "llm:m?rounds=2&initial=4&patience=9")
    first, second = (prompt_of(received.body) for received in server.received)
    assert "def matmul(a: torch.Tensor, b: torch.Tensor)" in first
    assert "- a: shape [2048, 2048], torch.bfloat16, strides [2048, 1]" in first
    assert "132 SMs" in first
    assert "tensor_descriptor" in first  # a space of the GPU, not of this machine
    assert "# Results" not in first
    assert "# Results" in second


def test_the_kernel_is_measured_while_the_model_thinks(
    live: Bound, server: FakeOpenAI, provider: type[Watched]
) -> None:
    held = Held(warps)
    server.default = held
    provider.measuring = held.happened
    tuned(live, "llm:m?rounds=1&initial=6")
    assert held.in_time == [True]


def test_failures_reach_the_model_in_words(
    live: Bound, server: FakeOpenAI, provider: type[Watched]
) -> None:
    huge = [1024, 2048, 2048]
    assert math.isinf(formula_ms(type("C", (), {"config": {"block_sizes": huge}})))
    server.default = lambda body: answer(
        *({**example_in(body), "block_sizes": huge, "num_warps": n} for n in (4, 8, 16))
    )
    tuned(live, "llm:m?rounds=2&initial=2&patience=9")
    assert "does not compile or launch" in prompt_of(server.received[1].body)


def test_a_hybrid_seeds_helions_own_search_with_all_of_it(
    live: Bound, server: FakeOpenAI, provider: type[Watched]
) -> None:
    server.default = warps
    found = tuned(live, "hybrid:llm:m?rounds=1&initial=4+helion:LFBOTreeSearch?effort=quick", 80)
    first = [c.config for c in seen(provider)]
    # One provider measures, each configuration once, and the second stage goes on to new ones.
    assert len(provider.made) == 1
    assert len(found.measured) > 20
    distinct = {str(sorted(config.items(), key=str)) for config in first}
    assert len(distinct) == len(first)
    assert found.best is not None


def test_the_own_search_alone_keeps_to_the_budget(live: Bound, provider: type[Watched]) -> None:
    found = tuned(live, "helion:PatternSearch?effort=quick", 40)
    assert len(found.measured) == 40
    assert found.best is not None


GENERATED = '''
class FromTheBest:
    """Looks around the first of its samples."""

    def __call__(self, evaluate, space, rng):
        start = space.sample(3)
        costs = evaluate(start)
        assert costs == sorted(costs), costs
        while True:
            evaluate(space.neighbors(start[0])[:8])
            start = space.sample(1)
'''


def test_a_hybrid_seeds_a_generated_optimizer_best_first(
    live: Bound, server: FakeOpenAI, provider: type[Watched], tmp_path: Any
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GENERATED)
    server.default = warps
    found = tuned(live, f"hybrid:llm:m?rounds=1&initial=4+{path}:FromTheBest")
    assert found.trouble == ""
    assert len(found.measured) == 60


@pytest.mark.filterwarnings("ignore:tuning went on in spite of:UserWarning")
def test_a_server_that_is_down_leaves_the_rest_to_a_local_search(
    live: Bound, server: FakeOpenAI, provider: type[Watched]
) -> None:
    server.close()
    found = tuned(live, "llm:m?initial=4")
    assert "could not be reached" in found.trouble
    assert len(found.measured) == 60
    assert found.best is not None


@pytest.mark.filterwarnings("ignore:tuning went on in spite of:UserWarning")
def test_a_refusing_server_does_not_end_a_hybrid(
    live: Bound, server: FakeOpenAI, provider: type[Watched]
) -> None:
    server.default = lambda body: error(500, "out of order")
    found = tuned(live, "hybrid:llm:m?initial=4+genetic_algorithm?population_size=12")
    assert "could not be reached" in found.trouble
    assert len(found.measured) == 60


def test_progress_is_told_after_each_batch(live: Bound, provider: type[Watched]) -> None:
    told: list[TuneProgress] = []
    settings = TuneSettings(evaluations=30, effort="quick")
    found = tune_bound(*live, "random_search", settings, told.append)
    assert [each.measured for each in told] == sorted({each.measured for each in told})
    assert told[-1].measured == len(found.measured) == 30
    document = found.document(3)
    assert [each["time_ms"] for each in document["top"]] == sorted(
        each["time_ms"] for each in document["top"]
    )
    assert document["default_ms"] is None  # by the formula it is one of those that fail
    assert math.isinf(formula_ms(live[0].config_spec.default_config()))
    assert document["failed"] == sum(each["time_ms"] is None for each in document["trace"]) > 0


def test_ctrl_c_ends_with_the_best_so_far(live: Bound, provider: type[Watched]) -> None:
    settings = TuneSettings(evaluations=60, effort="quick")
    found = tune_bound(*live, "random_search", settings, Interrupted(at=30))
    assert 30 <= len(found.measured) < 60
    assert found.trouble == "interrupted"
    assert found.best is not None
    assert found.best.time_ms == min(each.time_ms for each in found.measured)


def test_the_kernels_settings_are_as_before(live: Bound, provider: type[Watched]) -> None:
    before = dict(vars(live[0].settings))
    tuned(live, "random_search", 12, seed=5)
    assert dict(vars(live[0].settings)) == before


def test_a_model_is_a_registered_autotuner(
    live: Bound,
    server: FakeOpenAI,
    provider: type[Watched],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from helion.autotuner import search_algorithms

    names = register("llm:some-model?rounds=1&initial=3", "hybrid:llm:m+random_search")
    try:
        assert names == ("llm_some_model_rounds_1_initial_3", "hybrid_llm_m_random_search")
        server.default = warps
        monkeypatch.setenv("HELION_AUTOTUNER", names[0])
        live[0].settings.autotuner_fn(*live, evaluations=20).autotune(skip_cache=True)
        assert len(server.received) == 1
    finally:
        for name in names:
            search_algorithms.pop(name, None)


def test_a_model_is_a_kernels_autotuner(
    live: Bound, server: FakeOpenAI, provider: type[Watched]
) -> None:
    server.default = warps
    tune = autotuner("llm:m", evaluations=20, rounds=1, initial=3)
    tune(*live).autotune(skip_cache=True)
    assert len(server.received) == 1
    with pytest.raises(SearcherError, match="did you mean rounds"):
        autotuner("llm:m", roundz=1)
    with pytest.raises(SearcherError, match="in its spec"):
        autotuner("hybrid:llm:m+random_search", rounds=1)


def test_what_does_not_load_is_refused_before_anything_runs(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    refusing = "    def __init__(self):\n        raise OverflowError\n\n    def __call__"
    broken.write_text(GENERATED.replace("    def __call__", refusing))
    reads = tmp_path / "reads.py"
    reads.write_text(f"import os\n{GENERATED}")
    for spec, said in (
        ("no_such_searcher", "known name or a FILE"),
        (f"hybrid:llm:m+{broken}", "OverflowError"),
        (f"hybrid:llm:m+{reads}", "must keep the rules"),
        (f"hybrid:{broken}+llm:m", "must be a library's"),
        (f"optalg:{broken}", "sandbox alone|optalg"),
    ):
        with pytest.raises(SearcherError, match=said):
            load_searcher(spec, HelionFramework(), {})


def test_it_starts_from_what_another_shape_found(live: Bound, provider: type[Watched]) -> None:
    """What is given is measured right after the default, whatever the searcher would do."""
    cold = tuned(live, "random_search", evaluations=3)
    bare = dict(cold.measured[0].configuration)
    starts = ({**bare, "num_warps": 8, "num_stages": 3}, {**bare, "num_warps": 2})
    found = tuned(live, "random_search", evaluations=3, starts=starts)
    assert found.measured[0].configuration == bare
    seen = [(e.configuration["num_warps"], e.configuration["num_stages"]) for e in found.measured]
    assert seen[1:] == [(8, 3), (2, bare["num_stages"])]
    assert cold.measured[1].configuration not in [e.configuration for e in found.measured]
