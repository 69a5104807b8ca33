"""Our numbers beside those of the package autotuning_methodology, on the recordings it is used on.

The package runs as it is but for one function: `_get_prediction_interval_bagging` averages fits to
random subsamples, and gives the plain fit instead.
"""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.driver import run_in_process

from llamea_gpu.clocks import SequentialClock
from llamea_gpu.programs.classical.genetic_algorithm import GeneticAlgorithm
from llamea_gpu.programs.classical.random_search import RandomSearch
from llamea_gpu.scoring import ExternalTrace, aggregate, score_space
from llamea_gpu.spaces.formats import export_recording, import_recording
from llamea_gpu.tasks import Task, Trace, run_seed

TIME_KEYS = ["compilation", "runtimes", "framework", "search_algorithm", "validation"]
T4_FILES = [
    f"{recording}_T4.json.gz"
    for recording in ("convolution/A100", "convolution/MI250X", "dedispersion/A4000")
]
CACHES = ["pnpoly/RTX_3060_laptop.json.gz"]
SPARSE = T4_FILES[1]  # a budget of 56 evaluations: every point counts

# The package warns on import (matplotlib) and while it scales cut-offs.
pytestmark = pytest.mark.filterwarnings("ignore")


@dataclass(frozen=True)
class Pair:
    """One recording as the two sides see it."""

    task: Task
    stats: Any


@cache
def statistics(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("autotuning_methodology.searchspace_statistics")
        return module.SearchspaceStatistics(
            "kernel", "device", True, TIME_KEYS, ["time"], path, full_validate=False
        )


@pytest.fixture(scope="module")
def pairs(shared_spaces: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """T4 files go to both sides; caches reach the package as the T4 files that we export."""
    folder = tmp_path_factory.mktemp("t4")
    found = {}
    for number, name in enumerate([*T4_FILES, *CACHES]):
        recording, _ = import_recording(shared_spaces / "kernel_tuner" / name)
        path = folder / f"{number}.json"
        if name in T4_FILES:
            source = shared_spaces / "kernel_tuner" / name
            path.write_bytes(gzip.decompress(source.read_bytes()))
        else:
            export_recording(recording, path, "t4")
        found[name] = Pair(Task.build(recording, SequentialClock()), statistics(path))
    return found


def package_baseline(stats: Any) -> Any:
    from autotuning_methodology.baseline import RandomSearchCalculatedBaseline

    return RandomSearchCalculatedBaseline(stats)


def package_curve(traces: Sequence[Trace | ExternalTrace]) -> Any:
    """The package's curve of the traces, laid out as its runner writes them."""
    from autotuning_methodology.curves import StochasticOptimizationAlgorithm

    class PlainFit(StochasticOptimizationAlgorithm):
        def __init__(self) -> None:
            longest = max(trace.cost_ms.size for trace in traces)
            self._x_time = np.full((longest, len(traces)), np.nan)
            self._y = self._x_time.copy()
            for run, trace in enumerate(traces):
                best = np.minimum.accumulate(trace.cost_ms)
                self._x_time[: best.size, run] = trace.elapsed_s
                self._y[: best.size, run] = np.where(np.isinf(best), np.nan, best)
            self.minimization = True
            self.name = self.display_name = self.application_name = self.device_name = "test"

        def _get_prediction_interval_bagging(
            self, x_1d: Any, y_1d: Any, x_test_1d: Any, confidence_level: Any, num_repeats: Any
        ) -> Any:
            fit = self.get_isotonic_curve(x_1d, y_1d, x_test_1d, y_1d.min(), y_1d.max())
            return np.stack([fit, fit, fit], axis=1)

    return PlainFit()


def package_performance(
    pairs: Sequence[Pair], traces: Sequence[Sequence[Trace | ExternalTrace]]
) -> np.ndarray:
    """P_t of one searcher, aggregated by the package."""
    from autotuning_methodology.report_experiments import get_strategies_aggregated_performance

    data = [
        (package_baseline(pair.stats), [package_curve(runs)], pair.stats, pair.task.axis_s, None)
        for pair, runs in zip(pairs, traces, strict=True)
    ]
    curves, *_ = get_strategies_aggregated_performance(data, 0.95)
    return np.asarray(curves[0])


def runs_of(optimizer: Any, task: Task, repeats: int) -> list[Trace]:
    return [
        run_in_process(optimizer, task, run_seed(1, task.name, repeat)) for repeat in range(repeats)
    ]


def ragged(task: Task, seed: int) -> list[ExternalTrace]:
    """Random searches that fail at first and end here and there, some long before the axis does."""
    rng = np.random.default_rng(seed)
    traces = []
    for number, trace in enumerate(runs_of(RandomSearch(), task, 7)):
        length = rng.integers(trace.rows.size // 3, trace.rows.size) + 1
        cost_ms = trace.cost_ms[:length].copy()
        cost_ms[: rng.integers(4)] = np.inf
        traces.append(ExternalTrace(str(number), trace.elapsed_s[:length], cost_ms))
    return traces


@pytest.mark.parametrize("name", [*T4_FILES, *CACHES])
def test_statistics_agree(pairs: dict[str, Pair], name: str) -> None:
    task, stats = pairs[name].task, pairs[name].stats
    assert task.recording.space.size == stats.size
    assert task.costs_ms == pytest.approx(stats.objective_performances_total_sorted, rel=1e-12)
    assert task.optimum_ms == pytest.approx(stats.total_performance_minimum(), rel=1e-12)
    assert task.median_ms == pytest.approx(stats.total_performance_median(), rel=1e-12)
    assert task.evaluation_s == pytest.approx(stats.total_time_median(), rel=1e-9)


@pytest.mark.parametrize("name", [*T4_FILES, *CACHES])
def test_budget_and_axis_agree(pairs: dict[str, Pair], name: str) -> None:
    task, stats = pairs[name].task, pairs[name].stats
    _, evaluations, start_s, end_s = stats.cutoff_point_fevals_time_start_end(0.01, 0.95)
    assert task.axis_s == pytest.approx(np.linspace(start_s, end_s, 1000), rel=1e-9)
    assert task.budget_s == pytest.approx(1.1 * end_s, rel=1e-9)
    assert task.budget_evaluations == pytest.approx(1.1 * evaluations, rel=1e-9)


@pytest.mark.parametrize("name", [*T4_FILES, *CACHES])
def test_baseline_agrees(pairs: dict[str, Pair], name: str) -> None:
    task = pairs[name].task
    theirs = package_baseline(pairs[name].stats).get_curve(task.axis_s, "time")
    assert task.baseline_ms == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("name", T4_FILES)
def test_scores_of_a_searcher_agree(pairs: dict[str, Pair], name: str) -> None:
    pair = pairs[name]
    traces = runs_of(GeneticAlgorithm(), pair.task, 6)
    theirs = package_performance([pair], [traces])
    assert score_space(pair.task, traces, bootstrap=0).curve == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_scores_of_ragged_runs_agree(pairs: dict[str, Pair], seed: int) -> None:
    pair = pairs[SPARSE]
    traces = ragged(pair.task, seed)
    theirs = package_performance([pair], [traces])
    assert score_space(pair.task, traces, bootstrap=0).curve == pytest.approx(theirs, abs=1e-9)


def test_the_aggregate_agrees(pairs: dict[str, Pair]) -> None:
    chosen = [pairs[name] for name in T4_FILES[:3]]
    traces = [runs_of(RandomSearch(), pair.task, 5) for pair in chosen]
    theirs = package_performance(chosen, traces)
    scores = [
        score_space(pair.task, runs, bootstrap=0) for pair, runs in zip(chosen, traces, strict=True)
    ]
    assert aggregate(scores).curve == pytest.approx(theirs, abs=1e-9)
    assert aggregate(scores).p == pytest.approx(float(np.mean(theirs)), abs=1e-9)


def test_a_widened_axis_agrees_where_the_package_is_right(tmp_path: Path) -> None:
    # Its cap on the end is the optimum's cost; above the number of evaluations it has no effect.
    from support.handmade import line_recording

    costs = [100.0] + [101.0] * 25 + [500.0] * 6 + [900.0] * 29
    recording = line_recording(costs)
    export_recording(recording, tmp_path / "t4.json", "t4")
    stats = statistics(tmp_path / "t4.json")
    _, evaluations, start_s, end_s = stats.cutoff_point_fevals_time_start_end(0.01, 0.95)
    task = Task.build(recording)
    assert task.budget_evaluations == pytest.approx(1.1 * evaluations, rel=1e-9)
    assert task.axis_s[[0, -1]] == pytest.approx([start_s, end_s], rel=1e-9)
