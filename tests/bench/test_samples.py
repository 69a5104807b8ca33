"""Resampled scores are scores of resampled runs; the journal takes what runs may say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.simulated import simulated_bench, small_tasks

from llamea_gpu import scoring
from llamea_gpu.bench.execution import append_run, open_journal, read_journal
from llamea_gpu.bench.samples import Samples
from llamea_gpu.scoring import resampled_curves, score_space
from llamea_gpu.tasks import Trace


def material(repeats: int) -> tuple[object, list[Trace]]:
    plan, tasks, runs = simulated_bench({"a": 0.2}, small_tasks(1), repeats)
    return next(iter(tasks.values())), [runs[key] for key in plan.runs()]


def test_taking_every_run_once_is_the_score_itself() -> None:
    task, traces = material(6)
    curves = resampled_curves(task, traces, np.ones((1, 6), dtype=np.int64))
    assert np.array_equal(curves[0], score_space(task, traces, bootstrap=0).curve)


def test_taking_a_run_twice_is_having_it_twice() -> None:
    # All are taken: which runs are there decides about the window.
    task, traces = material(4)
    counts = np.array([[3, 1, 1, 2]])
    repeated = [trace for trace, n in zip(traces, counts[0], strict=True) for _ in range(n)]
    curves = resampled_curves(task, traces, counts)
    assert curves[0] == pytest.approx(score_space(task, repeated, bootstrap=0).curve)


def test_merging_times_changes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    task, traces = material(30)
    counts = np.ones((1, 30), dtype=np.int64)
    whole = resampled_curves(task, traces, counts).mean()
    monkeypatch.setattr(scoring, "_RESAMPLED_TIMES", 100)
    assert resampled_curves(task, traces, counts).mean() == pytest.approx(whole, abs=0.02)


def test_pairs_share_their_resamples() -> None:
    """The difference of a searcher and itself has no spread."""
    plan, tasks, runs = simulated_bench({"a": 0.2, "b": 0.2}, small_tasks(2), 6)
    for key in list(runs):
        runs[key._replace(searcher="b")] = runs[key._replace(searcher="a")]
    samples = Samples.of(plan, tasks, runs, 50)
    a, b = samples.replicates("a"), samples.replicates("b")
    assert a is not None
    assert np.array_equal(a, b)
    assert not np.allclose(a[0] - a[0].mean(), a[1] - a[1].mean())  # spaces have their own draws


def test_the_journal_keeps_the_end_of_a_long_error(tmp_path: Path) -> None:
    plan, _, runs = simulated_bench({"a": 0.2}, small_tasks(1), 1)
    (key,) = plan.runs()
    trace = replace(runs[key], outcome="error", error="x" * 50_000 + "ZeroDivisionError")
    with open_journal(tmp_path / "bench.jsonl") as journal:
        append_run(journal, key, trace)
        found = read_journal(journal, plan)[key]
    assert (found.error or "").endswith("ZeroDivisionError")
    assert len(found.error or "") == 10_000
