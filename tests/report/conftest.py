from __future__ import annotations

from pathlib import Path

import pytest
from support.report_material import small_family, write_archive, write_bench, written

from llamea_gpu.llm import load_prices
from llamea_gpu.report.run import Run, read_run


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("runs") / "first", small_family())


@pytest.fixture(scope="session")
def run(run_folder: Path) -> Run:
    return read_run(run_folder, load_prices())


@pytest.fixture(scope="session")
def bench_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bench(tmp_path_factory.mktemp("benches") / "small", names=("one", "two", "three"))


@pytest.fixture(scope="session")
def run_page(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(run_folder, tmp_path_factory.mktemp("pages") / "run.html")


@pytest.fixture(scope="session")
def bench_page(bench_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(bench_folder, tmp_path_factory.mktemp("pages") / "bench.html")
