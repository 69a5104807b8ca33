"""A FIRST that asks for nothing new has ended, wherever it runs: NEXT has the budget's rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helion.autotuner.base_search import BaseSearch
from support.helion_live import FormulaProvider, bound_kernel
from support.recordings import small_recording
from support.tuning import Simulation, counted_task

from llamea_gpu.live import TuneSettings
from llamea_gpu.live.helion.tuning import tune_bound
from llamea_gpu.live.kernel_tuner import strategy
from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.searchers import hybrid

SPEC = "hybrid:random_search+scipy:differential_evolution?popsize=4"
BUDGET = 40


class Stuck:
    """Asks for the same three again and again, in the place of ``random_search``."""

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        known = space.sample(3)
        while True:
            evaluate(known)


def simulated(tmp_path: Path, _: pytest.MonkeyPatch) -> int:
    task = counted_task(small_recording(), BUDGET)
    trace = run_optimizer(hybrid.trusted(SPEC).build, task, 1, cpu_s=None)
    assert (trace.outcome, trace.error) == ("budget", None)
    return len(trace.rows)


def in_helion(_: Path, patch: pytest.MonkeyPatch) -> int:
    prepare = BaseSearch._prepare

    def prepared(search: Any) -> None:
        search._benchmark_provider_cls = FormulaProvider
        prepare(search)

    patch.setattr(BaseSearch, "_prepare", prepared)
    with bound_kernel("softmax", "H200") as (bound, arguments):
        found = tune_bound(bound, arguments, SPEC, TuneSettings(evaluations=BUDGET))
    assert found.trouble == ""
    return len(found.measured)


def in_kernel_tuner(tmp_path: Path, _: pytest.MonkeyPatch) -> int:
    return len(Simulation(small_recording(), tmp_path).tune(strategy(SPEC, seed=1), BUDGET))


@pytest.mark.filterwarnings(
    "ignore:None of the tunable parameters:UserWarning",
    "error:tuning ends before its budget:UserWarning",
)
@pytest.mark.parametrize("measured", [simulated, in_helion, in_kernel_tuner])
def test_a_first_one_that_stalls_leaves_the_rest_to_the_next_one(
    measured: Callable[[Path, pytest.MonkeyPatch], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hybrid, "build_classical", lambda **_: Stuck())
    assert measured(tmp_path, monkeypatch) == BUDGET
