"""Recorders on the GPUs of two nodes, which are pretended; a kernel of Kernel Tuner's is in C.

Helion binds its kernel for a GPU that is pretended, too; compiling and timing are fake stages.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import llamea
from support.dot_script import write_dot_script
from support.recorder_stages import FakeStage, fake_engine, fake_stages_on_node, opened, trail
from support.waiting import GENEROUS_S

from llamea_gpu.cluster.connection import connected
from llamea_gpu.cluster.engine import EngineSpec, Script
from llamea_gpu.cluster.pipeline import ClusterPipeline, Gpus, find_gpus
from llamea_gpu.engine.journal import journal_path
from llamea_gpu.engine.limits import Limits
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.kernel_script import find_script
from llamea_gpu.frameworks.helion.stages import PRELOAD
from llamea_gpu.frameworks.helion.static import GPUS
from llamea_gpu.recording._base import HelionSettings, RecordProgress
from llamea_gpu.recording.clouds import MixtureSettings
from llamea_gpu.recording.helion import cloud
from llamea_gpu.recording.helion.cloud import record_cloud
from llamea_gpu.recording.helion.grid import Grid
from llamea_gpu.recording.helion.record import (
    RecordingPlan,
    measure,
)
from llamea_gpu.spaces.catalogue import load_cloud
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
    settings = HelionSettings(command="llamea-gpu spaces record helion k.py", cluster="here")
    compiling, timing = [FakeStage("compile", tmp_path)] * 2, [FakeStage("time", tmp_path)]
    here = functools.partial(opened, compiling, timing, settings)
    expected = measure(PLAN, here, (2, 1), tmp_path / "here.parquet", settings).recording
    spec = EngineSpec(functools.partial(fake_engine, tmp_path, 0.0, ""), Limits(start_s=GENEROUS_S))
    output = tmp_path / "there.parquet"
    with connected(nodes.address):
        gpus = find_gpus()
        found = measure(
            PLAN, lambda _: ClusterPipeline(spec, gpus, 2), (2, gpus.count), output, settings
        ).recording
    assert expected is not None
    assert found is not None
    for name in ("time_ms", "compile_s", "benchmark_s", "status"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()
    provenance = {**found.info.provenance, "devices": ""}
    assert provenance == {**expected.info.provenance, "devices": ""}
    assert found.info.provenance["devices"] == "2"


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_a_cloud_of_kernel_tuner_is_measured_on_the_nodes(nodes: Any, tmp_path: Path) -> None:
    script = write_dot_script(tmp_path, unroll=(1, 2, 3), width=(1,), fault=(0, 1))
    output = tmp_path / "dot.cloud.parquet"
    command = ("spaces", "record", "kernel-tuner", script, "-o", output, "--iterations", 2)
    llamea(*command, "--whole", 6, "--searcher", "random_search", "--cluster", nodes.address)
    found = load_cloud(str(output))
    assert len(found) == 6
    for row in range(6):
        values = found.value_dict(found.configuration(row))
        assert found.ok[row] == (values["unroll"] != 3 and not values["fault"])
    assert found.info.provenance["devices"] == "2"
    assert not journal_path(output).exists()


def test_a_cloud_of_helion_is_measured_on_the_nodes_and_goes_on(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it but for the GPUs: what one is, and the lock that two share here."""
    pytest.importorskip("helion")
    asked: list[Any] = []

    def on_a_node(gpus: Gpus, function: Any, *arguments: Any) -> Any:
        asked.append((gpus.kind, function.__name__, *arguments))
        return GPUS[gpus.kind]

    def unheld(
        build: Any, limits: Limits, preload: Sequence[str], *, exclusive: bool, **others: Any
    ) -> EngineSpec:
        assert (preload, exclusive) == (PRELOAD, True)
        return EngineSpec(build, limits, **others)  # fake stages need no Helion

    def stop(progress: RecordProgress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(cloud, "run_on", on_a_node)
    monkeypatch.setattr(cloud, "EngineSpec", unheld)
    monkeypatch.setattr(
        cloud, "stages_on_node", functools.partial(fake_stages_on_node, tmp_path, 0.05)
    )
    output = tmp_path / "sum.cloud.parquet"
    mixture = MixtureSettings(12, searchers=("random_search",))
    settings = HelionSettings(**cloud.TIMEOUTS_S, shape="small", compilers=2, cluster=nodes.address)
    first = record_cloud(find_script("row_sum"), output, mixture, settings, stop)
    assert (first.done, first.interrupted, first.journal.exists()) == (3, True, True)
    command = ("spaces", "record", "helion", "row_sum", "-o", output, "--whole", 12)
    command += ("--searcher", "random_search", "--shape", "small", "--compilers", 2)
    said = llamea(*command, "--cluster", nodes.address, "--gpu", "H200").stdout
    assert "a cloud of 12 measurements, 0.0% failing" in said
    assert asked == [("H200", "facts_of_device", 0)] * 2
    found = load_cloud(str(output))
    assert np.bincount(found.run).tolist() == [3, 9]
    assert found.info.device == "NVIDIA H200"
    assert found.info.provenance["devices"] == "2"
    assert len({tuple(found.configuration(row)) for row in range(12)}) == 12
    assert len({line["pid"] for line in trail(tmp_path) if line["kind"] == "time"}) >= 3
    assert not journal_path(output).exists()


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
        HelionSettings(cluster="ray", devices=(0,))


@pytest.mark.parametrize("framework", ["helion", "kernel-tuner"])
def test_a_kind_of_gpu_without_a_cluster_is_refused(framework: str, tmp_path: Path) -> None:
    command = ("spaces", "record", framework, "row_sum", "-o", tmp_path / "a.parquet")
    said = llamea(*command, "--gpu", "H100", status=2).stderr
    assert "got 'H100' and no cluster: name one with" in " ".join(said.split())
