"""What a user installs: the wheel carries the folders that the code looks for."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from llamea_gpu.bench.suites import suites

ROOT = Path(__file__).resolve().parents[1]

INSTALLED = """
import llamea_gpu
from llamea_gpu.bench.results import load_baseline
from llamea_gpu.bench.suites import suite_spaces
from llamea_gpu.errors import BenchError, UnknownSpaceError
from llamea_gpu.modelled import load_tasks
from llamea_gpu.promotion.incumbents import reusable_runs
from llamea_gpu.programs.shipped import shipped
from llamea_gpu.spaces.catalogue import list_spaces
print(llamea_gpu.__file__)
print(len(list_spaces()))
print(*shipped())
print(reusable_runs(None))
try:
    load_baseline()
except BenchError as error:
    print(error)
try:
    suite_spaces("whole-test")
except BenchError as error:
    print(error)
try:
    load_tasks(["clouds/helion/grouped_matmul-8192x2048-h200"])
except UnknownSpaceError as error:
    print(error)
print(len(suite_spaces("whole")), len(suite_spaces("whole-train")))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_prompts_spaces_and_the_demos_run(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "llamea_gpu/py.typed",
        "llamea_gpu/llm/prices.toml",
        "llamea_gpu/report/assets/page.html.j2",
        "llamea_gpu/programs/classical/random_search.py",
        "llamea_gpu/_resources/prompts/new.j2",
        "llamea_gpu/_resources/tuning_spaces/matmul-2048.parquet",
        "llamea_gpu/_resources/tuning_spaces/splits.toml",
        "llamea_gpu/_resources/tuning_spaces/clouds/helion/rope-4x32x4096x128-h200.cloud.parquet",
        "llamea_gpu/_resources/generated_optimizers/README.md",
        "llamea_gpu/_resources/generated_optimizers/growing_foresight.json",
        "llamea_gpu/_resources/generated_optimizers/runs/h200-helion/answers.jsonl",
    ):
        assert wanted in names


def test_the_wheel_leaves_the_archives_of_the_repository_out(wheel: Path) -> None:
    assert wheel.stat().st_size <= 4_000_000
    folders = {tuple(Path(name).parts[:5]) for name in zipfile.ZipFile(wheel).namelist()}
    resources = ("llamea_gpu", "_resources")
    runs = {parts for parts in folders if parts[:4] == (*resources, "generated_optimizers", "runs")}
    assert {parts[4] for parts in runs} == {"h200-helion"}
    for left_out in ("generated_optimizers/proposer", "tuning_spaces/baselines"):
        parts = (*resources, *left_out.split("/"))
        assert not [found for found in folders if found[:4] == parts]
    tops = {parts[0] for parts in folders if not parts[0].endswith(".dist-info")}
    assert tops == {"llamea_gpu"}


def test_the_wheel_has_the_clouds_that_evolution_and_promotion_need(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    folder = "llamea_gpu/_resources/tuning_spaces"
    held = {n.removeprefix(f"{folder}/") for n in names}
    known = suites()
    wanted = {*known["whole-train"]["spaces"], *known["whole-validation"]["spaces"]}
    for suffix in (".cloud.parquet", ".model.json"):
        found = {n.removesuffix(suffix) for n in held if n.startswith("clouds/") and suffix in n}
        assert found == wanted
    assert sum(n.endswith(".yardstick.json") for n in held) == len(wanted)


def test_the_installed_wheel_finds_its_resources(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", INSTALLED],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    file, spaces, searchers, reusable, refusal, suite, cloud, held = done.stdout.splitlines()
    assert file == str(tmp_path / "llamea_gpu" / "__init__.py")
    assert spaces == "36"
    assert {"random_search", "growing_foresight"} <= set(searchers.split())
    assert reusable == "None"  # promotion runs the incumbents itself
    assert "a wheel leaves them out: give a bench's folder with --baseline-from" in refusal
    for missing in (suite, cloud):
        assert "grouped_matmul-8192x2048" in missing
        assert "give its folder tuning_spaces with --spaces-path or LLAMEA_GPU_SPACES" in missing
    assert held == "12 7"
