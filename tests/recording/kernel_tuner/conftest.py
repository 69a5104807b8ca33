"""Kernel scripts in C: real compilers, real crashes, no GPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.dot_script import write_dot_script


@pytest.fixture(scope="session", autouse=True)
def _compiler() -> None:
    if shutil.which("g++") is None:
        if os.environ.get("LLAMEA_GPU_REQUIRE_ALL"):
            pytest.fail("recording is tested on kernels in C: install g++")
        pytest.skip("no g++")


WriteScript = Callable[..., Path]


@pytest.fixture(scope="session")
def write_script() -> WriteScript:
    return write_dot_script
