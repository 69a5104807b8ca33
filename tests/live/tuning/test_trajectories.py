"""``scripts/tuning_trajectories.py``: live runs read by the recording of the same kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu.spaces.catalogue import load_space

SCRIPT = Path(__file__).parents[3] / "scripts" / "tuning_trajectories.py"
SPACE = "convolution-2048x2048x21"


def test_a_configuration_counts_once_by_its_recorded_time(tmp_path: Path) -> None:
    recording = load_space(SPACE)
    rows = np.argsort(recording.time_ms)
    slow, best = int(rows[-1]), int(rows[0])

    def evaluation(row: int, second: int) -> dict[str, Any]:
        values = recording.space.value_dict(recording.space.configuration(row))
        stamp = f"2026-01-01 10:00:{second:02d}+00:00"
        return {"configuration": values, "time_ms": 9.0, "seconds": 1.5, "timestamp": stamp}

    evaluations = [evaluation(slow, 0), evaluation(slow, 1), evaluation(best, 4)]
    run = {"way": "mine", "optimizer": "a.py", "seconds": 5.0, "evaluations": evaluations}
    path = tmp_path / "tuning.jsonl"
    path.write_text(json.dumps(run) + "\n")
    command = [sys.executable, SCRIPT, path, "--space", SPACE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ratio = recording.time_ms[slow] / recording.optimum_ms
    assert done.stdout.splitlines()[-1] == (
        "| mine (a.py) | 3 | 2 | 3.0 of 5.0 s | 2 (4.0 s) | 2 (4.0 s) | 2 (4.0 s) | 2 (4.0 s) | "
        f"{ratio:.4f} (1) | 1.0000 (2) | 1.0000 (2) | 1.0000 (2) |"
    )
