"""Live tuning on the GPUs of two nodes, which are pretended: kernels in C stand for CUDA's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.command_line import llamea
from support.dot_script import write_dot_script

from llamea_gpu.live.kernel_tuner import handed

# Ray leaves the files of its processes' output to the collector.
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++"),
]


def test_any_searcher_tunes_on_the_nodes(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write_dot_script(tmp_path, unroll=(1, 2, 3, 4), width=(1,), fault=(0, 1))
    journal = tmp_path / "tuning.journal"
    command = ("tune", script, "--with", "random_search", "--journal", journal, "--json")
    monkeypatch.setattr(handed, "BACKENDS", {"CUDA"})
    refused = llamea(*command, "--cluster", nodes.address, status=2)
    assert "cannot be measured on a cluster: kernels in C are measured in this" in refused.stderr
    monkeypatch.setattr(handed, "BACKENDS", {"C"})
    done = llamea(*command, "--cluster", nodes.address, "--gpu", "H200")
    found = json.loads(done.stdout)
    assert found["best"]["configuration"]["fault"] == 0
    assert found["best"]["configuration"]["unroll"] != 3
    assert len(journal.read_text().splitlines()) == 1 + 8  # on the driver
    other = llamea(*command, "--cluster", nodes.address, "--engine", "framework", status=2)
    assert "the engine must be 'pipelined', but got 'framework'" in other.stderr
