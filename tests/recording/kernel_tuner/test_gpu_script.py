"""The script for a machine with a GPU, which is lent for minutes: here with kernels in C."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from llamea_gpu.spaces.formats import import_recording

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "h200_kernel_tuner.py"
NAMES = ("convolution", "stencil")


def test_it_tunes_and_records_and_says_what_failed(write_script: Any, tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    for name in NAMES:
        written = write_script(kernels, unroll=(1, 2), width=(1,), fault=(0,))
        written.rename(kernels / f"{name}.py")
    (kernels / "stencil.py").write_text("raise OSError('no such kernel')")
    out = tmp_path / "out"
    options = ["--kernels", str(kernels), "--backend", "C", "--names", *NAMES]
    options += ["--tune-seconds", "0.3", "--rounds", "1"]
    options += ["--optimizer", "random_search", "--compilers", "1", "--steps", "tune", "record"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(out), *options],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in (out / "tuning.jsonl").read_text().splitlines()]
    assert len({run["way"] for run in runs}) == 3
    assert all(run["evaluations"] for run in runs)
    best = json.loads((out / "tuning_best.json").read_text())
    assert set(best) == {"default", *(run["way"] for run in runs)}
    for name in set(NAMES) - {"stencil"}:
        recording, _ = import_recording(out / f"{name}.parquet")
        assert recording.space.size == 2
        assert recording.info.provenance["command"].endswith("--compilers 1 --backend C")
    log = (out / "log.txt").read_text()
    assert log.startswith("stencil:\n")
    assert "no such kernel" in log
