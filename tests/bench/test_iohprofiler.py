"""Logs that iohinspector reads, with the numbers that were logged."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.simulated import simulated_bench, small_tasks

from llamea_gpu.bench import BenchResults
from llamea_gpu.bench.ioh import write_logs
from llamea_gpu.bench.plan import RunKey
from llamea_gpu.spaces.space import SearchSpace

TASKS = small_tasks(2)
SPACES = {task.name: task.recording.space for task in TASKS}


@pytest.fixture(scope="module")
def results() -> BenchResults:
    plan, _, runs = simulated_bench({"a/b: c?d=1": 0.0, "better": 2.0}, TASKS, 3)
    empty = RunKey("better", "small-1", 1)
    nothing = np.empty(0)
    runs[empty] = replace(
        runs[empty],
        rows=nothing.astype(np.int32),
        elapsed_s=nothing,
        cost_ms=nothing,
        asks=0,
        batch=None,
    )
    return BenchResults(plan, runs)


@pytest.fixture(scope="module")
def folder(results: BenchResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ioh") / "logs"
    write_logs(results, SPACES, folder)
    return folder


def test_iohinspector_reads_every_run(results: BenchResults, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its own libraries
        import iohinspector
    manager = iohinspector.DataManager()
    manager.add_folder(str(folder))
    overview = manager.overview.to_dicts()
    assert len(overview) == 2 * 2 * 3
    data = manager.load(False, True)
    for row in overview:
        trace = results.runs[RunKey(row["algorithm_name"], row["function_name"], row["run_id"] - 1)]
        lines = data.filter(data["data_id"] == row["data_id"]).sort("evaluations")
        if not trace.rows.size:
            assert row["evals"] == 1
            assert lines["raw_y"].to_list() == [math.inf]
            continue
        assert row["evals"] == trace.rows.size
        assert row["best_y"] == trace.best_ms
        assert lines["evaluations"].to_list() == list(range(1, trace.rows.size + 1))
        assert lines["raw_y"].to_list() == trace.cost_ms.tolist()
        assert lines["elapsed_s"].to_list() == trace.elapsed_s.tolist()


def test_positions_are_value_indices(results: BenchResults, folder: Path) -> None:
    space: SearchSpace = SPACES["small-0"]
    (data,) = folder.glob("02-better/data_f1_small-0/*.dat")
    header, *lines = data.read_text().splitlines()
    assert header == "evaluations raw_y elapsed_s x0 x1 x2 x3"
    trace = results.traces("better", "small-0")[0]
    found = [tuple(map(int, line.split()[3:])) for line in lines[: trace.rows.size]]
    assert found == [space.configuration(row) for row in trace.rows.tolist()]


def test_the_json_is_plain_json(folder: Path) -> None:
    files = sorted(folder.rglob("*.json"))
    assert len(files) == 4
    for file in files:
        document = json.loads(file.read_text(), parse_constant=pytest.fail)
        assert (file.parent / document["scenarios"][0]["path"]).is_file()
        for run in document["scenarios"][0]["runs"]:
            assert len(run["best"]["x"]) == document["scenarios"][0]["dimension"]


def test_names_stay_below_the_folder(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["01-a-b-c-d-1", "02-better"]
