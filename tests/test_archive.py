"""What the archive gives back, also of files that earlier versions wrote."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from llamea_gpu.archive import FILE_NAME, Archive
from llamea_gpu.errors import ArchiveError
from llamea_gpu.tasks import Trace

TRACE = Trace(
    rows=np.array([5, 2, 9], np.int32),
    elapsed_s=np.array([1.0, 1.5, 3.0]),
    cost_ms=np.array([0.5, np.inf, 0.25]),
    outcome="budget",
    asks=4,
    revisits=1,
    seed=2**40,
    cpu_s=0.125,
    batch=np.array([0, 0, 1], np.int32),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(Archive.create(tmp_path, {})) as archive:
        archive.record_trace(0, 0, "toy", 3, TRACE)
    return tmp_path


def stored(folder: Path) -> Trace:
    with closing(Archive.open(folder, read_only=True)) as archive:
        return archive.traces(0, 0, "toy")[3]


def overwrite(folder: Path, data: bytes) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE evaluations SET trace = ?", (zlib.compress(data),))


def test_a_trace_comes_back_with_its_batches(folder: Path) -> None:
    found = stored(folder)
    assert found.batch is not None
    for name in ("rows", "elapsed_s", "cost_ms", "batch"):
        assert np.array_equal(getattr(found, name), getattr(TRACE, name))
    assert (found.seed, found.asks, found.revisits, found.cpu_s) == (2**40, 4, 1, 0.125)


@pytest.mark.parametrize("visits", [3, 6, 30])
def test_a_trace_from_before_batches_were_kept(folder: Path, visits: int) -> None:
    rows, times = np.arange(visits, dtype="<i4"), np.arange(1.0, visits + 1)
    overwrite(folder, rows.tobytes() + times.tobytes() + times.tobytes())
    found = stored(folder)
    assert found.batch is None
    assert found.rows.tolist() == rows.tolist()
    assert found.cost_ms.tolist() == times.tolist()


@pytest.mark.parametrize("data", [b"abcd", b"\0" * 23, b"\xff" * 49])
def test_a_damaged_trace_is_an_error(folder: Path, data: bytes) -> None:
    overwrite(folder, data)
    with pytest.raises(ArchiveError, match="damaged"):
        stored(folder)


def test_a_run_that_is_there_is_not_replaced(folder: Path) -> None:
    with closing(Archive.open(folder)) as archive:
        archive.record_trace(0, 0, "toy", 3, Trace(*([np.zeros(0)] * 3), "error", 0, 0, 1))
    assert stored(folder).rows.tolist() == TRACE.rows.tolist()
