"""From a plan to a cloud through real processes: kills, Ctrl-C, resuming, what the cloud says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recorder_stages import FakeStage, PretendedStage, opened
from support.whole_spaces import Config, ToySpace, toy_cost

from llamea_gpu.engine.journal import journal_path
from llamea_gpu.errors import RecordingError, SearcherError
from llamea_gpu.frameworks.helion.kernel_script import find_script
from llamea_gpu.frameworks.helion.stages import CompileStage
from llamea_gpu.frameworks.helion.static import pretend_gpu
from llamea_gpu.recording._base import HelionSettings, RecordProgress
from llamea_gpu.recording.clouds import CloudOutcome, CloudPlan, MixtureSettings, measure_cloud
from llamea_gpu.recording.helion import cloud
from llamea_gpu.recording.helion.cloud import (
    measured,
    plan_cloud,
    record_cloud,
)
from llamea_gpu.recording.helion.record import common_facts
from llamea_gpu.spaces.catalogue import load_cloud
from llamea_gpu.spaces.cloud import RECIPES
from llamea_gpu.spaces.formats import import_cloud
from llamea_gpu.spaces.formats.cloud_lines import Points

SEARCHERS = ("steady_state_genetic_algorithm", "growing_foresight")
SETTINGS = MixtureSettings(60, searchers=SEARCHERS, evaluations=30)
HOW = HelionSettings(command="llamea-gpu spaces x")


def payload(config: Config) -> dict[str, Any]:
    cost = toy_cost(config)
    fails = {"compile": "error"} if cost == float("inf") else {}
    return {"x": 0 if fails else cost - 1.0, **fails}


def header() -> dict[str, Any]:
    space = ToySpace(np.random.default_rng(0))
    return {
        "journal": 1,
        "name": "pretended-6",
        "kernel": "pretended",
        "kernel_source": "def pretended(): ...",
        "script": "pretended",
        "shape": "medium",
        "arguments": [{"shape": [6], "dtype": "torch.float32"}],
        "device": "Pretended GPU",
        "framework": "helion 1.5.1",
        "compilers": 2,
        "names": space.names,
        "values": space.values,
        "ordinal": space.ordinal,
        "default": space.starts[0],
        "starts": space.starts,
        "provenance": {"helion": "1.5.1"},
    }


PLAN = CloudPlan(
    header(),
    ToySpace,
    lambda rng: ToySpace(rng).draw(rng),
    payload,
    measured,
    lambda pipeline: common_facts(pipeline.facts()),
)


def record(
    folder: Path,
    settings: MixtureSettings = SETTINGS,
    how: HelionSettings = HOW,
    plan: CloudPlan = PLAN,
    seconds: float = 0.0,
    seen: list[RecordProgress] | None = None,
    timing: Sequence[FakeStage] = (),
) -> CloudOutcome:
    seen = [] if seen is None else seen
    compiling = [FakeStage("compile", folder, seconds)] * 2
    output = folder / "out.cloud.parquet"
    timing = timing or [FakeStage("time", folder, seconds)]
    with (
        tempfile.TemporaryDirectory() as logs,
        opened(compiling, timing, how, Path(logs)) as pipeline,
    ):
        return measure_cloud(plan, pipeline, 5, output, settings, how, seen.append)


def test_a_cloud_holds_what_was_measured_and_where_it_comes_from(tmp_path: Path) -> None:
    seen: list[RecordProgress] = []
    outcome = record(tmp_path, seen=seen)
    assert (outcome.done, outcome.measured, outcome.interrupted) == (60, 60, False)
    assert not outcome.troubles
    assert not journal_path(tmp_path / "out.cloud.parquet").exists()

    found = load_cloud(str(tmp_path / "out.cloud.parquet"))
    assert len(found) == 60
    assert found.recipe == RECIPES[-1]
    assert found.names == ToySpace.names
    assert found.default == (2, 2, 2, 2, 2, 2)
    for row in range(60):
        expected = toy_cost(found.configuration(row))
        assert found.ok[row] == (expected < float("inf"))
        if found.ok[row]:
            assert found.times_ms[row] == pytest.approx(expected)
            assert found.low_ms[row] < found.times_ms[row] < found.high_ms[row]
            assert found.source[row] == f"code-{payload(found.configuration(row))['x']}"
    counts = Counter(found.how.tolist())
    assert counts["start"] == 2
    assert min(counts[how] for how in ("random", "near", "cross", "step", *SEARCHERS)) > 0
    assert (np.diff(found.at_s) >= 0).all()
    info = found.info
    assert info.parallel_workers == 2
    assert info.references_ms == {"torch": 2.5, "helion_default": 1.5}
    assert info.provenance["helion"] == "1.5.1"
    assert found.runs[0]["command"] == "llamea-gpu spaces x"
    assert found.runs[0]["cuda"] == "13.0"
    assert [p.done for p in seen] == list(range(1, 61))
    assert seen[-1].left_s == 0.0


def test_time_that_is_up_writes_a_cloud_and_the_same_call_continues(tmp_path: Path) -> None:
    first = record(tmp_path, how=replace(HOW, seconds=4.0), seconds=0.2)
    assert 0 < first.done < 60
    assert first.cloud is not None
    assert len(first.cloud) == first.done
    assert first.journal.exists()
    second = record(tmp_path)
    assert (second.done, second.measured) == (60, 60 - first.done)
    found = load_cloud(str(tmp_path / "out.cloud.parquet"))
    assert np.bincount(found.run).tolist() == [first.done, 60 - first.done]
    assert len(found.runs) == 2
    new = [found.configuration(row) for row in range(60) if found.how[row] != "again"]
    assert len(set(new)) == len(new)


WANTED = (((3, 1, 4, 1, 0, 3), "proposed"), ((0, 3, 1, 1, 1, 1), "proposed"), ((2,) * 6, "control"))
POINTS = Points("pretended", "medium", ToySpace.names, ToySpace.values, WANTED)


def test_points_are_measured_before_all_others_or_alone(tmp_path: Path) -> None:
    alone = record(tmp_path, replace(SETTINGS, measurements=3, points=POINTS)).cloud
    assert alone is not None
    found = {alone.configuration(row): str(alone.how[row]) for row in range(3)}
    normal = (0, 0, 1, 1, 1, 1)
    assert found == {WANTED[0][0]: "proposed", normal: "proposed", (2,) * 6: "control"}
    folder = tmp_path / "more"
    folder.mkdir()
    more = record(folder, replace(SETTINGS, measurements=12, points=POINTS)).cloud
    assert more is not None
    counts = Counter(more.how.tolist())
    assert (counts["proposed"], counts["control"], counts["start"]) == (2, 1, 1)


def test_points_of_something_else_are_refused(tmp_path: Path) -> None:
    others = replace(POINTS, names=tuple("uvwxyz"))
    with pytest.raises(RecordingError, match="their names are"):
        record(tmp_path, replace(SETTINGS, points=others))
    invalid = replace(POINTS, rows=(((0, 0, 0, 0, 4, 4), "proposed"),))
    with pytest.raises(RecordingError, match="must be valid"):
        record(tmp_path, replace(SETTINGS, points=invalid))


SCRIPT = """
import signal
import sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
sys.path.insert(0, sys.argv[2])
from recording.helion.test_cloud import record
print(record(Path(sys.argv[1]), seconds=0.2).interrupted)
"""


def started(folder: Path, lines: int) -> subprocess.Popen[str]:
    """A recorder as a process of its own that has written so many lines."""
    tests = Path(__file__).resolve().parents[2]
    script, journal = folder / "recorder.py", journal_path(folder / "out.cloud.parquet")
    script.write_text(SCRIPT)
    recorder = subprocess.Popen(
        [sys.executable, str(script), str(folder), str(tests)], stdout=subprocess.PIPE, text=True
    )
    while not journal.exists() or journal.read_bytes().count(b"\n") < lines:
        assert recorder.poll() is None, "the recorder ended by itself"
        time.sleep(0.01)
    return recorder


def test_a_killed_recorder_leaves_a_journal_that_is_a_cloud(tmp_path: Path) -> None:
    with started(tmp_path, lines=12) as recorder:
        recorder.send_signal(signal.SIGKILL)
    journal = journal_path(tmp_path / "out.cloud.parquet")
    with journal.open("ab") as file:  # what a crash in the middle of a write leaves
        file.write(b'{"c": [3, "sta')
    found, notes = import_cloud(journal)
    assert 0 < len(found) < 60
    assert "cut short" in notes[0]
    outcome = record(tmp_path)
    assert outcome.done == 60
    assert outcome.measured == 60 - len(found)


def test_ctrl_c_ends_in_order(tmp_path: Path) -> None:
    with started(tmp_path, lines=12) as recorder:
        recorder.send_signal(signal.SIGINT)
        assert recorder.communicate(timeout=60)[0].strip() == "True"
    assert recorder.returncode == 0
    found = load_cloud(str(tmp_path / "out.cloud.parquet"))
    rows = journal_path(tmp_path / "out.cloud.parquet").read_text().count('"status"')
    assert 0 < len(found) == rows < 60


def test_what_was_measured_before_a_breakdown_is_written(tmp_path: Path) -> None:
    # The timing process crashes on everything but the first few: after twenty in a row, it ends.
    calls = iter(range(1000))

    def crashing(config: Config) -> dict[str, Any]:
        return {"x": 1.0} if next(calls) < 5 else {"x": 2.0, "time": "crash"}

    with pytest.raises(RecordingError, match="crashed"):
        record(tmp_path, plan=replace(PLAN, payload=crashing))
    assert len(load_cloud(str(tmp_path / "out.cloud.parquet"))) >= 5
    assert journal_path(tmp_path / "out.cloud.parquet").exists()


def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    wrong = FakeStage("time", tmp_path, 0.5, refuses="the default configuration is wrong")
    with pytest.raises(RecordingError, match="is wrong"):
        record(tmp_path, timing=[wrong])
    with pytest.raises(SearcherError, match="no_such"):
        record(tmp_path, replace(SETTINGS, searchers=("no_such",)))
    assert {path.name for path in tmp_path.iterdir()} <= {"trail.jsonl"}


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    journal_path(tmp_path / "out.cloud.parquet").write_text(json.dumps(PLAN.header) + "\n")
    for key, value in (("kernel_source", "x"), ("starts", []), ("device", "H100")):
        other = replace(PLAN, header={**PLAN.header, key: value})
        with pytest.raises(RecordingError, match=f"differs in {key} "):
            record(tmp_path, plan=other)


# -- a real kernel on a GPU that is not there ---------------------------------------------------


def test_a_plan_has_the_whole_space_that_was_measured_on_the_real_gpu() -> None:
    shipped = load_cloud("clouds/helion/matmul-2048x2048-h200")
    with pretend_gpu("H200"):
        plan = plan_cloud(find_script("matmul"), MixtureSettings(1), HelionSettings())
        assert plan.header["names"] == shipped.names
        assert plan.header["values"] == shipped.values
        assert plan.header["ordinal"] == shipped.ordinal
        assert plan.header["default"] == shipped.default
        assert set(plan.header["starts"]) == set(shipped.starts)
        assert plan.header["device"] == "NVIDIA H200"
        assert plan.header["name"] == shipped.info.name
        assert plan.header["kernel_source"] == shipped.info.kernel_source
        json.dumps(plan.header)
        space = plan.make_space(np.random.default_rng(1))
        rows = np.random.default_rng(2).choice(len(shipped), 100, replace=False)
        assert all(space.contains(shipped.configuration(row)) for row in rows)
        drawn = [plan.draw(np.random.default_rng(seed)) for seed in range(20)]
        found = [config for config in drawn if config is not None]
        assert len(found) > 10
        assert all(space.canonical(config) == config for config in found)
        assert plan.payload(shipped.default)["num_warps"] == 8  # type: ignore[index]


def test_a_kernel_is_recorded_from_its_script_for_a_pretended_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pretended(script: Path, shape: str, folder: Path) -> PretendedStage:
        return PretendedStage(CompileStage(script, shape, folder), "H200")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the GPU's lock is
    monkeypatch.setattr(cloud, "CompileStage", pretended)
    monkeypatch.setattr(cloud, "TimingStage", lambda *_: FakeStage("time", tmp_path))
    mixture = MixtureSettings(4, searchers=("random_search",))
    how = HelionSettings(shape="small", compilers=1)
    output = tmp_path / "out.cloud.parquet"
    with pretend_gpu("H200"):
        outcome = record_cloud(find_script("row_sum"), output, mixture, how)
    found = outcome.cloud
    assert found is not None
    assert len(found) == 4
    assert (found.script, found.shape, found.info.device) == ("row_sum", "small", "NVIDIA H200")
    assert found.ok.any()
    assert "start" in found.how
    assert all(found.source[found.ok] != "")
    assert found.compile_s[found.ok].min() > 0
