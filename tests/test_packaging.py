"""What a user installs: the wheel carries the folders that the code looks for."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_prompts_spaces_and_recorded_runs(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "llamea_gpu/py.typed",
        "llamea_gpu/llm/prices.toml",
        "llamea_gpu/report/assets/page.html.j2",
        "llamea_gpu/searchers/classical/random_search.py",
        "llamea_gpu/_resources/prompts/new.j2",
        "llamea_gpu/_resources/tuning_spaces/matmul-2048.parquet",
        "llamea_gpu/_resources/tuning_spaces/splits.toml",
        "llamea_gpu/_resources/generated_optimizers/README.md",
    ):
        assert wanted in names


def test_the_installed_wheel_finds_its_resources(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import llamea_gpu, sys\n"
        "from llamea_gpu.spaces.catalogue import list_spaces\n"
        "from llamea_gpu.searchers.registry import searcher_names\n"
        "print(llamea_gpu.__file__, len(list_spaces()), len(searcher_names()) >= 5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(tmp_path / "llamea_gpu" / "__init__.py"), "36", "True"]
