"""``scripts/bench_live.py`` without a GPU: what it says, keeps, and leaves for the next time."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "bench_live.py"
ARMS = ["pipelined=mine", "framework=helion:LFBOTreeSearch", "pipelined=helion:LFBOTreeSearch"]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_live", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_live"] = module
    spec.loader.exec_module(module)
    return module


def made_up(kernel: str, arm: str, seed: int, factor: float = 1.0) -> dict[str, Any]:
    """A run of 20 configurations, 2 a second on the engine, that reaches 1 ms times ``factor``."""
    step = 0.5 if arm.startswith("pipelined") else 2.0
    measured = [[step * (i + 1), factor * (3.0 - 2.0 * i / 19)] for i in range(20)]
    measured[3][1] = None
    return {
        "kernel": kernel,
        "arm": arm,
        "seed": seed,
        "seconds": 10.0,
        "elapsed_s": 10.0,
        "default_ms": 3.0,
        "best_ms": factor,
        "best": {"kernel": kernel, "factor": factor},
        "trouble": "",
        "start_s": {"baseline": 1.5, "timing cuda": 0.5},
        "measured": measured,
    }


class Children:
    """Stands in for the processes: notes jobs, answers by `made_up` and by ``factor``."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.fail: list[str] = []

    def __call__(self, job: dict[str, Any], limit_s: float, place: Any) -> Any:
        job = job | {"do": job["do"].__name__}
        self.jobs.append(job)
        if job["do"] == "head_to_head":
            return [config["factor"] for config in job["configs"]], [0.8, 0.9]
        if job["arm"] in self.fail:
            return None
        if job["journal"]:
            Path(job["journal"]).write_text(f"{job['kernel']} {job['arm']}\n")
        factor = 1.0 + 0.1 * ARMS.index(job["arm"])
        return made_up(job["kernel"], job["arm"], job["seed"], factor)


def given(folder: Path, **other: Any) -> argparse.Namespace:
    wanted = {"kernels": ["rope", "matmul"], "arms": ARMS, "seeds": 2, "seconds": 10.0}
    usual = {"output": folder, "deadline": math.inf, "gpus": 1, "first_seed": 1}
    return argparse.Namespace(**{**usual, **wanted, **other})


def run_bench(script: ModuleType, arguments: argparse.Namespace, children: Children) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "child", children)
        script.bench(arguments)


def kept(folder: Path) -> list[str]:
    with tarfile.open(folder / "journals.tar.gz") as archive:
        return sorted(archive.getnames())


@pytest.mark.parametrize("gpus", [1, 2])
def test_everything_is_run_once_and_kept_in_four_files(
    script: ModuleType, tmp_path: Path, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    children = Children()
    run_bench(script, given(tmp_path, gpus=gpus), children)
    runs = [(j["kernel"], j["arm"], j["seed"]) for j in children.jobs if j["do"] == "tune"]
    assert len(runs) == len(set(runs)) == 12
    assert sorted(j["kernel"] for j in children.jobs if j["do"] != "tune") == ["matmul", "rope"]
    files = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert files == ["journals.tar.gz", "runs.jsonl", "summary.txt", "winners.jsonl"]
    assert not list((tmp_path / "journals").iterdir())
    assert len(kept(tmp_path)) == 8  # of the two arms on the engine
    assert "journals/rope-helion_LFBOTreeSearch-2.jsonl" in kept(tmp_path)


def test_what_is_there_is_not_run_again(script: ModuleType, tmp_path: Path) -> None:
    first, second, third = Children(), Children(), Children()
    first.fail = ["framework=helion:LFBOTreeSearch"]
    run_bench(script, given(tmp_path), first)
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"kernel": "rope", "arm')  # killed while it wrote
    run_bench(script, given(tmp_path), second)
    assert {j["arm"] for j in second.jobs if j["do"] == "tune"} == set(first.fail)
    assert [len(j["configs"]) for j in second.jobs if j["do"] != "tune"] == [6, 6]
    run_bench(script, given(tmp_path), third)
    assert not third.jobs
    assert len(kept(tmp_path)) == 8
    run_bench(script, given(tmp_path, first_seed=2), third)
    assert [j["seed"] for j in third.jobs if j["do"] == "tune"] == [3] * 6
    assert "2 kernels: rope, matmul" in (tmp_path / "summary.txt").read_text()


def test_the_deadline_leaves_what_there_is(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(script, "monotonic", lambda: now[0])

    class Slow(Children):
        def __call__(self, job: dict[str, Any], limit_s: float, place: Any) -> Any:
            now[0] += 20.0
            return super().__call__(job, limit_s, place)

    children = Slow()
    until = 5 * 20.0 + 10.0 + script.START_S + script.HEAD_TO_HEAD_S + 1.0
    run_bench(script, given(tmp_path, deadline=until), children)
    done = [(j["do"], j["kernel"]) for j in children.jobs]
    assert done == [("tune", "rope")] * 6 + [("head_to_head", "rope")]
    assert now[0] <= until
    assert (tmp_path / "summary.txt").read_text().count("seed") == 6


def test_the_summary_is_of_head_to_head_times_and_curves(
    script: ModuleType, tmp_path: Path
) -> None:
    run_bench(script, given(tmp_path), Children())
    lines = script.summary(tmp_path).splitlines()
    mine, worst, engine = lines[2:5]
    assert mine.startswith("  pipelined=mine")
    assert "1.250 / 1.250 |" in mine  # the cloud knew .8 ms
    assert "1.375 / 1.375 |" in worst
    assert "1.500 / 1.500 |" in engine
    assert "5 s 2.053 / 2.053" in mine  # its tenth configuration
    assert "10 s 1.000 / 1.000" in mine
    assert (
        "rate of pipelined=helion:LFBOTreeSearch to framework=helion:LFBOTreeSearch: 4.00 "
        "(rope 4.00, matmul 4.00)"
    ) in lines
    said = subprocess.run(
        [sys.executable, str(SCRIPT), "-o", str(tmp_path), "--summary"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.strip() == (tmp_path / "summary.txt").read_text().strip()
    assert "start: baseline 1.50, timing cuda 0.50" in said
    assert "20 in 10.0 s, 2.00/s, first 0.5 s, second 1.0 s" in said


def test_a_run_that_found_nothing_is_told(script: ModuleType, tmp_path: Path) -> None:
    nothing = made_up("rope", ARMS[0], 1) | {"best": None, "measured": [[1.0, None]]}
    for run in (nothing, made_up("rope", ARMS[1], 1)):
        script.add_line(tmp_path / "runs.jsonl", run)
    run_bench(script, given(tmp_path, kernels=["rope"], arms=ARMS[:2], seeds=1), Children())
    (line,) = [json.loads(x) for x in (tmp_path / "winners.jsonl").read_text().splitlines()]
    assert line["runs"] == [[ARMS[1], 1]]
    assert f"nothing worked: rope {ARMS[0]} seed 1" in script.summary(tmp_path)


def test_a_difference_has_the_interval_of_its_seeds(script: ModuleType) -> None:
    first = {"rope": [0.0, 0.02], "matmul": [1.0, 1.0]}
    other = {"rope": [0.1, 0.12], "matmul": [1.1, 1.1]}
    mean = 100 * math.expm1(0.1)
    said = script.difference(first, other)
    assert said.startswith(f"{mean:+.1f} [")
    low, high = (float(x) for x in said.split("[")[1].split("]")[0].split(","))
    # One kernel varies: its variance / 4, with the two degrees of freedom of its runs.
    width = 4.303 * math.sqrt(2 * 0.0002 / 2) / 2
    assert low == pytest.approx(100 * math.expm1(0.1 - width), abs=0.06)
    assert high == pytest.approx(100 * math.expm1(0.1 + width), abs=0.06)
    assert script.difference({"rope": [0.0]}, {"rope": [1.0, 2.0]}) is None
    assert script.difference({"rope": [0.0, math.inf]}, {"rope": [1.0, 2.0]}) is None


def test_the_best_known_are_timed_by_the_code_that_was_timed(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cloud's very best ask for tensor descriptors where pointers were timed."""
    pytest.importorskip("helion")
    from llamea_gpu.frameworks.helion.compiling import generate, source_key
    from llamea_gpu.frameworks.helion.kernel_script import find_script
    from llamea_gpu.frameworks.helion.static import pretend_gpu
    from llamea_gpu.spaces.catalogue import load_cloud

    cloud = load_cloud("clouds/helion/chunk_scan-4x16x1x256x256-h200")
    timed: dict[str, list[float]] = {}
    for source, time_ms in zip(cloud.source, cloud.times_ms, strict=True):
        timed.setdefault(str(source), []).append(float(time_ms))
    with pretend_gpu("H200") as gpu:
        case = gpu.load_case(find_script("chunk_scan"))
        bound = gpu.bind(case.kernel, case.arguments)
        known = script.best_known("chunk_scan", "medium", bound)
        codes = [source_key(generate(bound, config)) for config in known]
    assert len(set(codes)) == script.KNOWN, capsys.readouterr().err
    best_ms = min(map(min, timed.values()))
    assert all(min(timed[code]) < 1.05 * best_ms for code in codes)
