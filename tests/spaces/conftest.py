"""Helpers for the tests of file formats."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamea_gpu.spaces.recording import STATUSES, Recording, RecordingInfo

DATA = Path(__file__).parent / "data"


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """Write text, or a JSON document, into a file."""

    def write(content: Any, name: str = "file.json") -> Path:
        path = tmp_path / name
        text = content if isinstance(content, str) else json.dumps(content)
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


@pytest.fixture
def awkward() -> Recording:
    """Every status, every type of value, unused values, and seconds that ms cannot express."""
    rng = np.random.default_rng(3)
    values = [
        (64, 16, 32, 128),
        ("flat", "a,b", "ü", "None"),
        (None, False, True),
        (0.5, 1e-300, 7),
    ]
    grid = np.argwhere(np.ones((3, 4, 3, 3)))  # the last value of the first is never used
    rows = rng.permutation(grid)[:80]
    status = np.arange(80) % len(STATUSES)
    return Recording.from_rows(
        names=["first", "second parameter", "third", "Größe"],
        values=values,
        configurations=rows,
        time_ms=np.where(status == 0, rng.lognormal(0, 3, 80), np.inf),
        compile_s=rng.lognormal(0, 2, 80),
        benchmark_s=np.where(rng.random(80) < 0.2, 0.0, rng.lognormal(0, 2, 80)),
        status=status,
        info=RecordingInfo(
            name="awkward",
            kernel="toy",
            device='GPU <&> "7"',
            framework="test 1.0",
            kernel_source='def toy():\n    return {"cache": {}, "results": []}\n',
            arguments=({"shape": [4, 4], "dtype": "float32"},),
            default_configuration={"first": 512, "second parameter": "flat", "third": None},
            references_ms={"torch": 0.1 + 0.2},
            parallel_workers=16,
            provenance={"note": "über", "problem_size": "[4096, 4096]"},
            exhaustive=True,
        ),
    )


@pytest.fixture
def same() -> Callable[[Recording, Recording], bool]:
    """Whether two recordings are equal to the last bit, info included."""

    def same(a: Recording, b: Recording) -> bool:
        arrays = ("time_ms", "compile_s", "benchmark_s", "status")
        return (
            a.space.fingerprint == b.space.fingerprint
            and all(np.array_equal(getattr(a, n), getattr(b, n)) for n in arrays)
            and a.info == b.info
        )

    return same
