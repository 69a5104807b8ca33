"""From a plan to a recording through real processes: kills, resuming, what the recording says."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recorder_stages import FakeStage, opened, trail
from typer.testing import CliRunner

from llamea_gpu.cli import app
from llamea_gpu.engine.device_lock import device_lock, devices_held
from llamea_gpu.engine.journal import journal_path
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.kernel_script import find_script
from llamea_gpu.frameworks.helion.static import pretend_gpu
from llamea_gpu.recording._base import HelionSettings, RecordProgress
from llamea_gpu.recording.helion.grid import Grid
from llamea_gpu.recording.helion.record import (
    RecordingPlan,
    RecordOutcome,
    measure,
    plan_recording,
    record_kernel,
)
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.recording import STATUSES

GRID = Grid(
    ("x", "time", "compile"),
    (tuple(range(6)), ("ok", "error"), ("ok", "error")),
)
PLAN = RecordingPlan(
    name="pretended-6",
    kernel="pretended",
    kernel_source="def pretended(): ...",
    arguments=({"shape": [6], "dtype": "torch.float32"},),
    default_config={"x": 3, "time": "ok", "compile": "ok"},
    grid=GRID,
    versions={"helion": "1.5.1", "torch": "2", "triton": "3"},
    device="Pretended GPU",
)


def record(
    folder: Path,
    plan: RecordingPlan = PLAN,
    settings: HelionSettings | None = None,
    seconds: float = 0.0,
    seen: list[RecordProgress] | None = None,
) -> RecordOutcome:
    seen = [] if seen is None else seen
    settings = settings or HelionSettings(command="llamea-gpu spaces record helion k.py")
    compiling = [FakeStage("compile", folder, seconds)] * 2
    timing = [FakeStage("time", folder, seconds)]
    engine = partial(opened, compiling, timing, settings)
    return measure(plan, engine, (2, 1), folder / "out.parquet", settings, seen.append)


def test_a_recording_holds_what_was_measured_and_where_it_comes_from(tmp_path: Path) -> None:
    seen: list[RecordProgress] = []
    outcome = record(tmp_path, seen=seen)
    assert (outcome.done, outcome.total, outcome.measured) == (24, 24, 24)
    assert not journal_path(tmp_path / "out.parquet").exists()

    found = load_space(str(tmp_path / "out.parquet"))
    assert found.space.names == ("x", "time", "compile")
    assert found.space.values == GRID.values
    for row in range(found.space.size):
        x, timing, compiling = found.space.configuration(row)
        status = ("compile_error",) if compiling else ("incorrect",) if timing else ("ok",)
        assert STATUSES[found.status[row]] == status[0]
        assert found.time_ms[row] == (1.0 + x if status == ("ok",) else np.inf)
        assert found.benchmark_s[row] == (0.0 if compiling else 0.125 if timing else 0.25)
    info = found.info
    assert info.exhaustive
    assert info.parallel_workers == 2
    assert info.default_configuration == {"x": 3, "time": "ok", "compile": "ok"}
    assert info.references_ms == {"torch": 2.5, "helion_default": 1.5}
    assert info.framework == "helion 1.5.1"
    assert info.provenance["command"].endswith("k.py")
    assert "12x refused" in info.provenance["failures"]
    assert "median 2.00%" in info.provenance["spread"]
    assert [p.done for p in seen] == list(range(1, 25))
    assert seen[-1].failed == 18
    assert seen[-1].left_s == 0.0


def test_equal_code_has_the_compile_time_of_the_first(tmp_path: Path) -> None:
    # Points 0 to 3 are the same code; the stage takes 0.5 + x seconds, but for hits in the cache.
    grid = Grid(("x", "code"), ((0, 1, 2, 3), ("same",)))
    plan = replace(PLAN, grid=grid, default_config={"x": 0, "code": "same"})
    found = record(tmp_path, plan).recording
    assert found is not None
    assert found.compile_s.tolist() == [3.5] * 4


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from recording.helion.test_record import record
record(Path(sys.argv[1]), seconds=0.02)
"""


def test_a_killed_recorder_takes_its_workers_along_and_continues(tmp_path: Path) -> None:
    tests = Path(__file__).resolve().parents[2]
    script = tmp_path / "recorder.py"
    script.write_text(SCRIPT)
    journal = journal_path(tmp_path / "out.parquet")
    recorder = subprocess.Popen([sys.executable, str(script), str(tmp_path), str(tests)])
    while not journal.exists() or journal.read_bytes().count(b"\n") < 8:
        assert recorder.poll() is None, "the recorder ended by itself"
        time.sleep(0.01)
    recorder.send_signal(signal.SIGKILL)
    recorder.wait()
    pids = {line["pid"] for line in trail(tmp_path)}
    assert len(pids) == 3
    for _ in range(200):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            break
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)

    with journal.open("ab") as file:  # what a crash in the middle of a write leaves
        file.write(b'{"point": 3, "sta')
    before = [json.loads(line) for line in journal.read_bytes().splitlines()[:-1]]
    measured = {entry["point"] for entry in before if "point" in entry}
    assert 0 < len(measured) < 24
    outcome = record(tmp_path)
    assert outcome.done == 24
    assert outcome.measured == 24 - len(measured)
    fresh = [x for x in trail(tmp_path) if x["pid"] not in pids and x["event"] == "begin"]
    assert sum(x["kind"] == "compile" for x in fresh) == 24 - len(measured)
    assert load_space(str(tmp_path / "out.parquet")).info.exhaustive


def test_time_that_is_up_keeps_the_journal_and_a_part_on_request(tmp_path: Path) -> None:
    settings = HelionSettings(seconds=2.5, partial=True)
    outcome = record(tmp_path, settings=settings, seconds=0.4)
    assert 0 < outcome.done < 24
    assert outcome.journal.exists()
    assert outcome.recording is not None
    assert outcome.recording.space.size == outcome.done
    assert not outcome.recording.info.exhaustive
    assert "of 24 grid points" in outcome.recording.info.provenance["sample"]
    whole = record(tmp_path, settings=replace(settings, seconds=None))
    assert whole.done == 24
    assert load_space(str(tmp_path / "out.parquet")).info.exhaustive


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("kernel_source", {"kernel_source": "def other(): ..."}),
    ("grid", {"grid": Grid(GRID.names, (tuple(range(7)), *GRID.values[1:]))}),
    ("default_config", {"default_config": {**PLAN.default_config, "num_warps": 8}}),
    ("versions", {"versions": {**PLAN.versions, "helion": "1.6"}}),
]


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    record(tmp_path, settings=HelionSettings(seconds=1.5), seconds=0.5)
    for named, change in CHANGES:
        with pytest.raises(RecordingError, match=f"differs in {named} "):
            record(tmp_path, replace(PLAN, **change))


def test_gpus_of_two_kinds_and_gpus_that_are_not_there_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pretend_gpu("H200"):
        monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
        monkeypatch.setattr("torch.cuda.get_device_name", lambda i: ("H200", "H100")[i])
        with pytest.raises(RecordingError, match="one kind, but there are H100, H200"):
            plan_recording(find_script("row_sum"), HelionSettings())
        with pytest.raises(RecordingError, match="numbered 0 to 1"):
            plan_recording(find_script("row_sum"), HelionSettings(devices=(2,)))
        with pytest.raises(RecordingError, match="one configuration at a time"):
            plan_recording(find_script("row_sum"), HelionSettings(devices=(1, 1)))


def test_one_recorder_at_a_time_is_at_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pretend_gpu("H200"), device_lock(0).open("a") as file:  # Kernel Tuner's recorder has it
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RecordingError, match="another one is at GPU 0"):
            record_kernel(find_script("row_sum"), tmp_path / "out.parquet", HelionSettings())
    with devices_held([0, 1]), pytest.raises(RecordingError, match="GPU 1"), devices_held([2, 1]):
        pass
    with devices_held([2, 0]):
        pass


def test_a_start_that_fails_leaves_no_journal_to_a_mended_kernel(tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    # Late: some configurations have failed to compile by then.
    wrong = FakeStage("time", tmp_path, 0.5, refuses="the default configuration is wrong")
    engine = partial(opened, [FakeStage("compile", tmp_path)], [wrong], HelionSettings())
    with pytest.raises(RecordingError, match="is wrong"):
        measure(PLAN, engine, (1, 1), output, HelionSettings())
    assert not journal_path(output).exists()


def test_without_a_gpu_recording_says_so(tmp_path: Path) -> None:
    if os.environ.get("CUDA_VISIBLE_DEVICES") or Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU")
    output = tmp_path / "out.parquet"
    done = CliRunner().invoke(app, ["spaces", "record", "helion", "matmul", "-o", str(output)])
    assert isinstance(done.exception, RecordingError)
    assert "needs a CUDA GPU" in str(done.exception)
    assert not list(tmp_path.iterdir())
