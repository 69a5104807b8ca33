"""The results that ship fit the recordings that ship, and come out again."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamea_gpu.bench import BenchResults, BenchSettings, make_plan, run_bench
from llamea_gpu.bench.plan import RunKey, describe_space
from llamea_gpu.bench.results import SHIPPED, load_baseline
from llamea_gpu.errors import BenchError
from llamea_gpu.resources import resource_dir
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.tasks import Task, build_tasks


@pytest.fixture(scope="module")
def shipped() -> BenchResults:
    return load_baseline()


def test_every_recording_of_it_is_as_it_was(shipped: BenchResults) -> None:
    for info in shipped.plan.spaces:
        found = describe_space(Task.build(load_space(info.name)))
        assert (found.fingerprint, found.clock) == (info.fingerprint, info.clock)


def test_it_has_the_splits_and_the_usual_competitors(shipped: BenchResults) -> None:
    assert shipped.plan.repeats == 25
    assert shipped.plan.settings == BenchSettings()
    kinds = {s.name.partition(":")[0] for s in shipped.plan.searchers}
    assert kinds >= {"random_search", "scipy", "kernel_tuner"}
    assert shipped.analysis is not None
    assert shipped.analysis.standings[0].p > 0.5


def test_it_is_small() -> None:
    folder = resource_dir("tuning_spaces") / "baselines" / SHIPPED
    assert sorted(path.name for path in folder.iterdir()) == ["bench.json", "bench.parquet"]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 8_000_000


def test_a_new_searcher_meets_it_and_an_old_one_comes_out_again(shipped: BenchResults) -> None:
    tasks = build_tasks([load_space("rms_norm-16384x4096"), load_space("softmax-4096x4096")])
    again = [resolve("random_search"), resolve("iterated_local_search?kick_size=4")]
    plan = make_plan(again, tasks, 5, BenchSettings())
    with Runner.open(workers=2) as runner:
        results = run_bench(plan, again, tasks, runner, baseline=shipped)
    assert len(results.plan.searchers) == len(shipped.plan.searchers) + 1
    assert results.analysis is not None
    for space in ("rms_norm-16384x4096", "softmax-4096x4096"):
        for repeat in range(5):
            key = RunKey("random_search", space, repeat)
            assert results.runs[key].rows.tolist() == shipped.runs[key].rows.tolist()


def test_a_folder_that_is_no_bench_is_no_baseline(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"must hold bench\.json"):
        load_baseline(tmp_path)
