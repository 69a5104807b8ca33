"""Recorders on the GPUs of two nodes, which are pretended; a kernel of Kernel Tuner's is in C."""

from __future__ import annotations

import functools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import llamea
from support.dot_script import write_dot_script
from support.recorder_stages import FakeStage, fake_engine

from llamea_gpu.cluster.connection import connected
from llamea_gpu.cluster.engine import EngineSpec, Script
from llamea_gpu.cluster.pipeline import ClusterPipeline, find_gpus
from llamea_gpu.engine.limits import Limits
from llamea_gpu.errors import RecordingError
from llamea_gpu.recording.helion.grid import Grid
from llamea_gpu.recording.helion.record import (
    RecordingPlan,
    RecordSettings,
    measure,
    measure_by,
)
from llamea_gpu.spaces.formats import import_recording

PLAN = RecordingPlan(
    name="pretended-6",
    kernel="pretended",
    kernel_source="def pretended(): ...",
    arguments=({"shape": [6], "dtype": "torch.float32"},),
    default_config={"x": 3, "time": "ok", "compile": "ok"},
    grid=Grid(("x", "time", "compile"), (tuple(range(6)), ("ok", "error"), ("ok", "error"))),
    versions={"helion": "1.5.1", "torch": "2", "triton": "3"},
    device="Pretended GPU",
)
# Ray leaves the files of its processes' output to the collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_kernel_tuner_is_recorded_and_a_recording_goes_on(nodes: Any, tmp_path: Path) -> None:
    script = write_dot_script(tmp_path, unroll=(1, 2, 3), width=(1,), fault=(0, 1))
    output = tmp_path / "dot.parquet"
    command = ("spaces", "record", "kernel-tuner", script, "-o", output, "--iterations", 3)
    command += ("--cluster", nodes.address)
    begun = llamea(*command, "--seconds", 1)
    assert "of 6 configurations measured, kept in" in begun.stdout
    llamea(*command, "--gpu", "H200")
    recording, _ = import_recording(output)
    for row in range(recording.space.size):
        values = recording.space.value_dict(recording.space.configuration(row))
        works = values["unroll"] != 3 and not values["fault"]
        assert np.isfinite(recording.time_ms[row]) == works
    assert recording.space.size == 6
    assert recording.info.provenance["devices"] == "2"


def test_a_grid_is_recorded_as_on_one_machine(nodes: Any, tmp_path: Path) -> None:
    settings = RecordSettings(command="llamea-gpu spaces record helion k.py", cluster="here")
    compiling, timing = [FakeStage("compile", tmp_path)] * 2, [FakeStage("time", tmp_path)]
    expected = measure(PLAN, compiling, timing, tmp_path / "here.parquet", settings).recording
    spec = EngineSpec(functools.partial(fake_engine, tmp_path, 0.0, ""), Limits(start_s=60.0))
    output = tmp_path / "there.parquet"
    with connected(nodes.address):
        gpus = find_gpus()
        found = measure_by(
            PLAN, lambda _: ClusterPipeline(spec, gpus, 2), (2, gpus.count), output, settings
        ).recording
    assert expected is not None
    assert found is not None
    for name in ("time_ms", "compile_s", "benchmark_s", "status"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()
    provenance = {**found.info.provenance, "devices": ""}
    assert provenance == {**expected.info.provenance, "devices": ""}
    assert found.info.provenance["devices"] == "2"


def test_a_node_must_have_the_script(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("one = 1")
    script = Script.of(file)
    assert script.here() == file
    file.write_text("one = 2")
    with pytest.raises(RecordingError, match=r"here .* is another one: use a folder"):
        script.here()
    with pytest.raises(RecordingError, match=r"here .* is missing: use a folder"):
        replace(script, path=tmp_path / "other.py").here()
    with pytest.raises(RecordingError, match="all GPUs of a kind are used, but got devices"):
        RecordSettings(cluster="ray", devices=(0,))
