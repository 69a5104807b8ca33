"""Kernel scripts in C: real compilers, real crashes, no GPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.dot_script import write_dot_script
from support.imports import hidden_from_processes


@pytest.fixture(scope="session", autouse=True)
def _compiler() -> None:
    if shutil.which("g++") is None:
        if os.environ.get("LLAMEA_GPU_REQUIRE_ALL"):
            pytest.fail("recording is tested on kernels in C: install g++")
        pytest.skip("no g++")


@pytest.fixture(scope="module", autouse=True)
def _no_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernel Tuner imports PyTorch where it is: four fifths of a recorder's start, of no use here.

    Live tuning is tested with it.
    """
    with hidden_from_processes("torch", tmp_path_factory.mktemp("hidden")):
        yield


WriteScript = Callable[..., Path]


@pytest.fixture(scope="session")
def write_script() -> WriteScript:
    return write_dot_script
