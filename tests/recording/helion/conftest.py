"""Compilers keep what they make in a folder of the test session; kernels run in an interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def _cold_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("compilers")
    names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(folder)))
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name)
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What tests/support/helion_interpreted.py found."""
    pytest.importorskip("helion")
    program = Path(__file__).resolve().parents[2] / "support" / "helion_interpreted.py"
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path_factory.mktemp("interpreted"))],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
