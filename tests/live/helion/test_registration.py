"""register() and autotuner(): through Helion's own doors, up to its cache and its benchmarking."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helion.autotuner
import pytest
import torch
from helion.autotuner import BooleanFragment, EnumFragment, PowerOfTwoFragment, benchmark_provider
from support.helion_live import FormulaProvider, bound_kernel, formula_ms

from llamea_gpu.errors import SearcherError
from llamea_gpu.live.helion import autotuner, register, registration
from llamea_gpu.resources import resource_dir


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Helion's registry, put back after the test."""
    known = helion.autotuner.search_algorithms
    for name in list(known):
        monkeypatch.setitem(known, name, known[name])
    for name in ("IteratedLocalSearch", "GeneticAlgorithm", "Mine"):
        monkeypatch.delitem(known, name, raising=False)
    return known


@pytest.fixture(scope="module")
def softmax() -> Iterator[tuple[Any, Any]]:
    """A bound kernel and its arguments."""
    with bound_kernel("softmax", "B200") as given:
        yield given


@pytest.fixture
def formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search of Helion times by the formula."""
    prepare = helion.autotuner.base_search.BaseSearch._prepare

    def prepared(self: Any) -> None:
        self._benchmark_provider_cls = FormulaProvider
        prepare(self)

    monkeypatch.setattr(helion.autotuner.base_search.BaseSearch, "_prepare", prepared)


@pytest.mark.usefixtures("formula")
def test_helions_environment_variable_names_ours(
    softmax: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert register("iterated_local_search?kick_size=3") == ("IteratedLocalSearch",)
    monkeypatch.setenv("HELION_AUTOTUNER", "IteratedLocalSearch")
    wrapped = softmax[0].settings.autotuner_fn(*softmax, evaluations=25)
    assert wrapped.autotuner.hyperparameters["kick_size"] == 3
    best = wrapped.autotune(skip_cache=True)
    seen = wrapped.autotuner.benchmark_provider.seen
    assert len(seen) == 25
    assert formula_ms(best) == min(map(formula_ms, seen))


@pytest.mark.usefixtures("formula")
def test_an_autotuner_of_one_kernel(softmax: Any) -> None:
    made = autotuner("iterated_local_search", evaluations=30, max_kicks=9)
    wrapped = made(*softmax)
    assert wrapped.autotuner.hyperparameters["max_kicks"] == 9
    wrapped.autotune(skip_cache=True)
    assert len(wrapped.autotuner.benchmark_provider.seen) == 30
    assert made(*softmax, evaluations=5).autotuner.evaluations == 5


@pytest.mark.usefixtures("formula")
def test_helions_cache_keeps_what_was_found(
    softmax: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HELION_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("HELION_SKIP_CACHE")
    made = autotuner("iterated_local_search", evaluations=20)
    first, second = made(*softmax), made(*softmax)
    best = first.autotune()
    assert len(first.autotuner.benchmark_provider.seen) == 20
    assert second.autotune() == best
    assert not hasattr(second.autotuner, "benchmark_provider")  # a hit: nothing was measured


@pytest.mark.usefixtures("formula")
def test_what_an_interrupted_search_returns_is_not_cached(
    softmax: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(provider: FormulaProvider) -> None:
        if len(provider.batches) == 2:
            raise KeyboardInterrupt

    monkeypatch.setenv("HELION_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("HELION_SKIP_CACHE")
    made = autotuner("iterated_local_search", evaluations=40)
    first, second = made(*softmax), made(*softmax)
    with monkeypatch.context() as once:
        once.setattr(FormulaProvider, "on_batch", interrupted)
        assert first.autotune() in first.autotuner.benchmark_provider.batches[0]
    second.autotune()
    assert len(second.autotuner.benchmark_provider.seen) == 40


@pytest.mark.usefixtures("formula")
def test_each_of_helions_several_trials_has_a_seed_of_its_own(
    softmax: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax[0].settings, "autotune_best_of_k", 2)
    trials = []
    wrapped = autotuner("genetic_algorithm", evaluations=15)(*softmax)
    fresh = wrapped._autotuner_factory

    def noted() -> Any:
        trials.append(fresh())
        return trials[-1]

    wrapped._autotuner_factory = noted
    wrapped.autotune(skip_cache=True)
    first, second, final = (trial.benchmark_provider.seen for trial in trials)
    assert len(first) == len(second) == 15
    assert first != second
    assert len(final) == 2


def test_without_a_name_every_generated_optimizer_is_registered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, registry: dict[str, Any]
) -> None:
    folder = tmp_path / "generated_optimizers"
    folder.mkdir()
    source = resource_dir("generated_optimizers") / "runs/h200-first/best.py"
    (folder / "ladder.py").write_text(source.read_text())
    find = lambda kind: folder if kind == "generated_optimizers" else tmp_path  # noqa: E731
    monkeypatch.setattr("llamea_gpu.programs.shipped.resource_dir", find)
    assert register() == ("DelayAwareLadder",)
    assert "DelayAwareLadder" in registry
    registry.pop("DelayAwareLadder")


def test_a_taken_name_is_refused_and_registering_again_is_not(tmp_path: Path) -> None:
    with pytest.raises(SearcherError, match="RandomSearch is taken"):
        register("random_search")  # Helion has a search of that name
    assert register("genetic_algorithm") == register("genetic_algorithm")
    other = tmp_path / "other.py"
    other.write_text(
        "class GeneticAlgorithm:\n"
        '    """Another."""\n\n'
        "    def __call__(self, evaluate, space, rng):\n"
        "        evaluate(space.sample(1))\n"
    )
    with pytest.raises(SearcherError, match="GeneticAlgorithm is taken"):
        register(str(other))


def test_wrong_requests_are_refused_before_anything_is_tuned(tmp_path: Path) -> None:
    with pytest.raises(SearcherError, match="did you mean"):
        autotuner("iterated_local_serch")
    with pytest.raises(SearcherError, match="kick_sise"):
        autotuner("iterated_local_search", kick_sise=3)
    with pytest.raises(SearcherError, match="type int"):
        autotuner("iterated_local_search", kick_size=0.5)
    with pytest.raises(ValueError, match="evaluations must be positive"):
        autotuner("iterated_local_search", evaluations=-1)
    broken = tmp_path / "broken.py"
    broken.write_text(
        "class Mine:\n"
        "    def __init__(self):\n"
        "        raise ZeroDivisionError\n\n"
        "    def __call__(self, evaluate, space, rng):\n"
        "        evaluate(space.sample(1))\n"
    )
    with pytest.raises(SearcherError, match="ZeroDivisionError"):
        register(str(broken))


@pytest.mark.parametrize("version", ["1.2.0", "1.6.dev3", "2.0rc1", "1.6rc1+local"])
def test_a_helion_that_is_new_enough_is_taken(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(registration.importlib.metadata, "version", lambda _name: version)
    autotuner("iterated_local_search")


@pytest.mark.parametrize(("version", "problem"), [("1.1.0", "must be 1.2 or later"), (None, "pip")])
def test_a_helion_that_is_too_old_or_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, version: str | None, problem: str
) -> None:
    def told(_name: str) -> str:
        if version is None:
            raise registration.importlib.metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(registration.importlib.metadata, "version", told)
    with pytest.raises(SearcherError, match=problem):
        autotuner("iterated_local_search")


def test_nothing_of_helion_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, llamea_gpu.live.helion, llamea_gpu.export.helion\n"
        "assert not {'helion', 'torch', 'triton'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_helions_real_benchmarking_checks_accuracy_and_writes_its_logs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only the timer is not Helion's: there is no GPU here."""

    kinds = ("right", "wrong")

    def compile_fn(config: Any) -> Any:
        if config["block"] == 1024:
            raise RuntimeError("does not compile")

        def run(x: torch.Tensor) -> torch.Tensor:
            return 2 * x + (1 if config["kind"] == "wrong" else 0)

        run.config = config  # type: ignore[attr-defined]
        return run

    def timed(run: Any, **_: Any) -> float:
        config = run.func.config
        return 1.0 + abs(math.log2(config["block"]) - 6) + 0.3 * config["flag"]

    monkeypatch.setattr(benchmark_provider, "do_bench", timed)
    # A CUDA build of torch asks for the driver, which may not be there.
    monkeypatch.setattr(benchmark_provider, "synchronize_device", lambda: None)
    register("iterated_local_search")
    best = helion.autotuner.autotune(
        {
            "block": PowerOfTwoFragment(1, 1024, 32),
            "kind": EnumFragment(kinds),
            "flag": BooleanFragment(),
        },
        compile_fn,
        (torch.ones(16),),
        baseline_fn=lambda x: 2 * x,
        algorithm="IteratedLocalSearch",
        device=torch.device("cpu"),
        evaluations=44,
        autotune_effort="quick",
        autotune_random_seed=1,
        autotune_progress_bar=False,
        autotune_log=str(tmp_path / "run"),
        autotune_log_details=True,
        autotune_benchmark_fn=lambda fns, **_: [1.0 for _ in fns],
    )
    assert best["kind"] == "right"
    with (tmp_path / "run.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] != "started"]
    trials = [json.loads(line) for line in (tmp_path / "run.trace.jsonl").read_text().splitlines()]
    trials = [event for event in trials if event["event"] == "trial"]
    assert {row["status"] for row in rows} == {"ok", "error"}
    by_kind = {kind: {t["status"] for t in trials if t["config"]["kind"] == kind} for kind in kinds}
    assert by_kind == {"right": {"ok", "error"}, "wrong": {"error"}}
    assert {t["algorithm"] for t in trials} == {"IteratedLocalSearch"}
    settings = json.loads((tmp_path / "run.meta.jsonl").read_text())["settings"]
    assert settings["autotune_effort"] == "quick"
