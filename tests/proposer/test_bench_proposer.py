"""``scripts/bench_proposer.py``: its arithmetic by hand, and kept answers replayed through it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from llamea_gpu.resources import resource_dir

FOLDER = resource_dir("generated_optimizers") / "proposer"
SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_proposer.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_proposer", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_yardstick_compares_every_run_with_every_run_of_the_other(bench: ModuleType) -> None:
    theirs = {"a": [np.array([4.0, 2.0, 1.0]), np.array([4.0, 4.0, 4.0])]}  # ends: 1 and 4
    cells = bench.yardstick_cells({"a": [(2, 2.0), (4, 4.0)]}, theirs, whole=6.0)
    # Pairs need 2, never, 1 and 1 configurations: 1, inf, .25 and .25 of what the proposer used.
    # Its geometric mean is the root of 8, theirs in the end is 2.
    assert cells == "3 | 50% | 1.4142 (1.414) | 1 of 1 | 2 | 0.6 times | 25%"


def test_failures_before_the_first_success_are_counted_apart(bench: ModuleType) -> None:
    curves = [np.array([np.inf, 2.0]), np.array([1.5, 1.5])]
    assert bench.after(curves, 1) == "1.5000 (1 of none)"
    assert bench.after(curves, 2) == "1.7321"
    assert bench.after(curves, 9) == "1.7321"  # a run that has ended keeps its best
    assert bench.after(curves[:1], 1) == "–"


def test_names_are_short_and_never_alike(bench: ModuleType) -> None:
    specs = [
        "llm:m?rounds=2&batch=20",
        "hybrid:llm:m?rounds=2&tag=+helion:LFBOTreeSearch?effort=full",
        "helion:LFBOTreeSearch?effort=full",
        "helion:LFBOTreeSearch?effort=quick",
        "/somewhere/runs/first/best.py",
    ]
    assert list(bench.names_of(specs).values()) == [
        "llm:m",
        "hybrid:llm:m+helion:LFBOTreeSearch",
        "helion:LFBOTreeSearch",
        "helion:LFBOTreeSearch?effort=quick",
        "first/best.py",
    ]


def test_kept_answers_make_the_tables_again_without_a_model(tmp_path: Path) -> None:
    space = "reduction-16384x4096"
    command = [sys.executable, SCRIPT, "claude", "--space", space, "--repeats", "1"]
    command += ["--evaluations", "60", "--against", "random_search", "--workers", "1"]
    command += ["--record", tmp_path / "again", "-o", tmp_path / "results.jsonl"]
    environment = {
        **os.environ,
        "LLAMEA_GPU_LLM_ROUTE": "replay",
        "LLAMEA_GPU_LLM_RECORDING": str(FOLDER),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (noted,) = (tmp_path / "again").glob("*.rounds.json")
    rounds = json.loads(noted.read_text())["rounds"]
    assert rounds == json.loads((FOLDER / noted.name).read_text())["rounds"]
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith(f"| {space}")]
    assert [row[2:4] for row in rows[:2]] == [
        [str(each["number"]), f"{each['measured']:.1f}"] for each in rounds
    ]
    assert str(tmp_path.parent) not in done.stdout
