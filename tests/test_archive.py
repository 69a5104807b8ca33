"""What the archive gives back, also of files that earlier versions wrote."""

from __future__ import annotations

import sqlite3
import sys
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


@pytest.mark.parametrize(
    ("elapsed_s", "cost_ms", "fine"),
    [
        (1.0, 1.0, True),
        (1.0, np.inf, True),
        (1.0, 1e-310, False),
        (1.0, 1e300, False),
        (1.0, -np.inf, False),
        (1.0, np.nan, False),
        (np.nan, 1.0, False),
        (np.inf, 1.0, False),
        (-1.0, 1.0, False),
    ],
)
def test_a_trace_with_numbers_that_no_run_gives_is_an_error(
    folder: Path, elapsed_s: float, cost_ms: float, fine: bool
) -> None:
    overwrite(folder, np.int32(1).tobytes() + np.array([elapsed_s, cost_ms]).tobytes())
    if fine:
        assert stored(folder).cost_ms.tolist() == [cost_ms]
        return
    with pytest.raises(ArchiveError, match="damaged or foreign"):
        stored(folder)


def test_a_run_that_is_there_is_not_replaced(folder: Path) -> None:
    with closing(Archive.open(folder)) as archive:
        archive.record_trace(0, 0, "toy", 3, Trace(*([np.zeros(0)] * 3), "error", 0, 0, 1))
    assert stored(folder).rows.tolist() == TRACE.rows.tolist()


# -- from elsewhere ---------------------------------------------------------------------------


_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
_FOREIGN = {
    "a view beside the tables": "CREATE VIEW more AS SELECT * FROM facts",
    "a view that never ends": f"DROP TABLE events; CREATE VIEW events AS {_ENDLESS} "
    "i AS number, '' AS at, '' AS kind, 0 AS slot, '{}' AS detail FROM n",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM facts; END",
    "a table": "CREATE TABLE more (x)",
    "an index": "CREATE INDEX more ON calls (model)",
    "a virtual table": "CREATE VIRTUAL TABLE more USING fts5(x)",
    "another column": "ALTER TABLE events ADD COLUMN more TEXT",
    "a computed column": "DROP TABLE events; CREATE TABLE events (number INTEGER PRIMARY KEY, "
    "at TEXT NOT NULL, kind TEXT NOT NULL, slot INTEGER, "
    "detail TEXT NOT NULL AS (hex(zeroblob(900000000))))",
    "a check": "DROP TABLE losses; CREATE TABLE losses (number INTEGER PRIMARY KEY, "
    "request_id TEXT NOT NULL REFERENCES calls, attempts INTEGER NOT NULL CHECK (attempts > 0))",
    "a table too few": "DROP TABLE events",
    "text for a number": "UPDATE evaluations SET asks = 'many'",
    "a number for text": "UPDATE evaluations SET outcome = x'00'",
    "nothing for a number": "PRAGMA writable_schema = ON; UPDATE sqlite_master SET "
    "sql = replace(sql, 'asks INTEGER NOT NULL', 'asks INTEGER'); PRAGMA writable_schema = OFF",
    "another version": "UPDATE facts SET value = '2' WHERE key = 'schema_version'",
}


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("what", [*_FOREIGN, None])
def test_a_file_with_anything_else_in_it_is_not_opened(
    folder: Path, what: str | None, read_only: bool
) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        connection.executescript(_FOREIGN[what] if what else "UPDATE evaluations SET asks = 5")
        connection.commit()
    if what is None:  # the control: a change that is none of these
        assert stored(folder).asks == 5
        return
    with pytest.raises(ArchiveError, match=r"must have|must hold") as caught:
        Archive.open(folder, read_only=read_only)
    assert len(str(caught.value)) < 1000


def test_a_definition_that_sqlite_cannot_read_is_one_message(folder: Path) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        connection.executescript(
            "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE events ('"
            " WHERE name = 'events'"
        )
    with pytest.raises(ArchiveError, match="SQLite says"):
        Archive.open(folder, read_only=True)


def test_reading_leaves_the_folder_as_it_was(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    stored(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python's sqlite3 sets no limits")
def test_a_row_without_measure_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE evaluations SET error = hex(zeroblob(3000000))")
    assert len(stored(folder).error or "") == 6_000_000
    monkeypatch.setattr("llamea_gpu.archive._MAX_ROW_BYTES", 5_000_000)
    with pytest.raises(ArchiveError, match="too big"):
        stored(folder)


def test_a_file_without_measure_is_not_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamea_gpu.archive.MAX_ARCHIVE_BYTES", 4096)
    with pytest.raises(ArchiveError, match="at most 4096 bytes"):
        Archive.open(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "[[1, 2, 3]]"])
def test_json_that_breaks_the_parser_is_one_message(folder: Path, text: str) -> None:
    with closing(Archive.open(folder)) as archive:
        archive.record_candidate(0, {})
        archive.record_event("kind")
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE candidates SET document = ?", (text,))
        connection.execute("UPDATE events SET detail = ?", (text,))
    with closing(Archive.open(folder, read_only=True)) as archive:
        for read in (archive.candidates, archive.events):
            with pytest.raises(ArchiveError, match="damaged or foreign"):
                read()
