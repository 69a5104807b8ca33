"""Optuna's samplers under the contract."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import optuna
import pytest
import torch
from scipy.stats import mannwhitneyu
from support.driver import run_in_process
from support.handmade import line_recording
from support.recordings import small_recording

from llamea_gpu.clocks import SequentialClock
from llamea_gpu.errors import SearcherError
from llamea_gpu.searchers.optuna_samplers import names
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.tasks import Task

SAMPLERS = names()


@pytest.fixture(autouse=True)
def _as_in_a_worker() -> Iterator[None]:
    """The runner silences what libraries say of themselves, and gives them one thread."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def build(spec: str) -> Any:
    return resolve(spec).build()  # type: ignore[union-attr]


def task(name: str) -> Task:
    if name == "small":  # about a dozen evaluations: a Gaussian process takes a second for each
        return replace(Task.build(small_recording()), budget_s=12.0)
    whole = Task.build(load_space(name))
    return replace(whole, budget_s=whole.budget_s / 6)  # CMA-ES repeats itself more and more


@pytest.mark.parametrize(
    ("sampler", "space"),
    [
        ("GPSampler?n_startup_trials=4", "small"),
        *((sampler, "rms_norm-16384x4096") for sampler in SAMPLERS if sampler != "GPSampler"),
    ],
)
def test_a_run_depends_on_its_seed_and_ends_with_the_budget(sampler: str, space: str) -> None:
    chosen = task(space)
    first, again, other = (run_in_process(build(f"optuna:{sampler}"), chosen, s) for s in (1, 1, 2))
    assert first.outcome == "budget"
    assert first.rows.tolist() == again.rows.tolist()
    assert first.rows.tolist() != other.rows.tolist()


@pytest.mark.parametrize("sampler", ["TPESampler", "RandomSampler", "CmaEsSampler"])
def test_everything_is_measured_when_the_budget_allows(sampler: str) -> None:
    recording = line_recording([float(1 + (i * 7) % 13) for i in range(13)])
    endless = replace(Task.build(recording), budget_s=math.inf)
    trace = run_in_process(build(f"optuna:{sampler}"), endless, seed=1)
    assert trace.outcome == "finished"
    assert sorted(trace.rows.tolist()) == list(range(13))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_space_of_one_configuration(sampler: str) -> None:
    single = replace(task("small"), recording=line_recording([1.0]), budget_s=math.inf)
    assert run_in_process(build(f"optuna:{sampler}"), single, seed=1).rows.tolist() == [0]


def test_the_sampler_learns() -> None:
    """TPE, told the costs, ends nearer to the optimum than Optuna's random sampling."""
    chosen = Task.build(load_space("matmul-2048"), SequentialClock())
    tpe, chance = (
        [
            run_in_process(build(f"optuna:{sampler}"), chosen, seed=repeat).best_ms
            for repeat in range(10)
        ]
        for sampler in ("TPESampler", "RandomSampler")
    )
    assert mannwhitneyu(tpe, chance, alternative="less").pvalue < 0.02


def test_failures_are_told_as_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    tell = optuna.Study.tell

    def note(self: optuna.Study, trial: Any, value: float) -> Any:
        told.append(value)
        return tell(self, trial, value)

    monkeypatch.setattr(optuna.Study, "tell", note)
    trace = run_in_process(build("optuna:TPESampler"), task("small"), seed=2)
    assert math.inf in trace.cost_ms.tolist()
    assert math.inf in told


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("optuna:TPE", "did you mean TPESampler"),
        ("optuna:TPESampler?gamma=3", "no setting .gamma"),
        ("optuna:TPESampler?multivariate=2", "multivariate must be of type bool"),
    ],
)
def test_wrong_specs_say_what_to_do(spec: str, said: str) -> None:
    with pytest.raises(SearcherError, match=said):
        resolve(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "TPESampler?multivariate=true&group=true&n_startup_trials=4&n_ei_candidates=8",
        "CmaEsSampler?n_startup_trials=4&with_margin=true&sigma0=0.3&popsize=6",
        "GPSampler?deterministic_objective=true&n_startup_trials=6",
    ],
)
def test_settings_reach_optuna(spec: str) -> None:
    set_, plain = (
        run_in_process(build(f"optuna:{name}"), task("small"), 1)
        for name in (spec, spec.partition("?")[0])
    )
    assert set_.rows.tolist() != plain.rows.tolist()
