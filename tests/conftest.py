"""Fixtures shared by every test: where the third-party recordings lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def skip_or_fail(reason: str) -> None:
    """Skip; fail where LLAMEA_GPU_REQUIRE_ALL says that everything must be here."""
    if os.environ.get("LLAMEA_GPU_REQUIRE_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_spaces() -> Path:
    """Third-party recordings that are not committed: helion_h200, kernel_tuner, broken."""
    default = Path(__file__).resolve().parents[2] / "shared" / "spaces"
    folder = Path(os.environ.get("LLAMEA_GPU_SHARED_SPACES", default))
    if not (folder / "kernel_tuner").is_dir():
        skip_or_fail(f"no third-party recordings at {folder}: set LLAMEA_GPU_SHARED_SPACES")
    return folder
