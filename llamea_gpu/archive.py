"""The archive of an evolution run: one SQLite file that holds everything paid for or measured.

Append-only: a request is recorded before it is sent, an answer before it is parsed, a run's trace
before it is scored, a candidate when its slot is settled. A row is never changed, so whatever a
crash leaves behind is a prefix of the run, and resuming is replaying against it.

It does not decide anything: what to ask, evaluate or keep is the evolution's business. A run folder
may come from elsewhere: a file is opened only if it holds this module's tables and nothing else (a
view or trigger in it would run), with values of their types and of bounded size; what it holds is
read as numbers, text and JSON, never unpickled.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from llamea_gpu.errors import ArchiveError, TaskError
from llamea_gpu.llm import ChatAnswer, ChatRequest, Message, Usage
from llamea_gpu.spaces.recording import LEAST_TIME_MS, MOST_TIME_MS
from llamea_gpu.tasks import Trace

SCHEMA_VERSION = 1
FILE_NAME = "archive.sqlite"
MAX_TRACE_BYTES = 64 << 20  # a compressed trace from elsewhere must not unpack without bound
MAX_ARCHIVE_BYTES = 8 << 30
# Of one row, text or blob. A trace of 64 MiB that does not compress at all fits.
_MAX_ROW_BYTES = 2 * MAX_TRACE_BYTES

_SCHEMA = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE calls (
    request_id TEXT PRIMARY KEY, slot INTEGER NOT NULL, attempt INTEGER NOT NULL,
    operator TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, messages TEXT NOT NULL,
    temperature REAL, max_tokens INTEGER, route TEXT NOT NULL, requested_at TEXT NOT NULL,
    UNIQUE (slot, attempt));
CREATE TABLE losses (
    number INTEGER PRIMARY KEY, request_id TEXT NOT NULL REFERENCES calls,
    attempts INTEGER NOT NULL);
CREATE TABLE answers (
    request_id TEXT PRIMARY KEY REFERENCES calls, text TEXT NOT NULL, model TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, estimated INTEGER NOT NULL,
    finish_reason TEXT, created TEXT NOT NULL, elapsed_s REAL, lost_attempts INTEGER NOT NULL,
    problem TEXT);
CREATE TABLE evaluations (
    slot INTEGER NOT NULL, attempt INTEGER NOT NULL, space TEXT NOT NULL, repeat INTEGER NOT NULL,
    seed TEXT NOT NULL, outcome TEXT NOT NULL, asks INTEGER NOT NULL, revisits INTEGER NOT NULL,
    cpu_s REAL, error TEXT, trace BLOB NOT NULL, PRIMARY KEY (slot, attempt, space, repeat));
CREATE TABLE candidates (
    slot INTEGER PRIMARY KEY, document TEXT NOT NULL, settled_at TEXT NOT NULL);
CREATE TABLE events (
    number INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, slot INTEGER,
    detail TEXT NOT NULL);
"""


# Made with a run's first look, so that runs from before there were any need no other version.
_LOOKS = """
CREATE TABLE IF NOT EXISTS looks (
    number INTEGER PRIMARY KEY, at TEXT NOT NULL, slot INTEGER NOT NULL, digest TEXT NOT NULL,
    space TEXT NOT NULL, UNIQUE (digest, space))
"""
# With the first candidate that is scored again.
_RESCORES = """
CREATE TABLE IF NOT EXISTS rescores (
    slot INTEGER NOT NULL, generation INTEGER NOT NULL, document TEXT NOT NULL, at TEXT NOT NULL,
    PRIMARY KEY (slot, generation))
"""
_LATER = ("looks", "rescores")  # which not every archive has
_RUN_COLUMNS = ("seed", "outcome", "asks", "revisits", "cpu_s", "error")  # beside its trace


@dataclass(frozen=True, slots=True)
class Look:
    """That a program was about to be run on a validation space.

    ``digest`` is the program's, as its candidate has it; ``space`` the fingerprint of the
    recording.
    """

    at: str
    slot: int
    digest: str
    space: str


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a model, with its answer when there is one.

    ``problem`` is why an answer was unusable (refused, empty), None when it has text to parse.
    ``route`` is where the request went, ``lost`` how many of its attempts may have been billed
    although no answer arrived.
    """

    slot: int
    attempt: int
    operator: str
    request: ChatRequest
    answer: ChatAnswer | None
    problem: str | None
    route: str = ""
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run: kind, slot (None for the whole run) and details."""

    at: str
    kind: str
    slot: int | None
    detail: Mapping[str, object]


class Archive:
    """The open archive of one run. Not thread-safe: the evolution loop owns it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._db = connection
        self.path = path

    @classmethod
    def create(cls, folder: Path, facts: Mapping[str, str]) -> Archive:
        """Start a run in ``folder`` (made when missing) with its unchangeable ``facts``.

        Raises:
            ArchiveError: the folder holds a run already.
        """
        path = folder / FILE_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            connection = _connect(path, "rwc")
            _prepare_to_write(connection)
            empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        except (sqlite3.Error, OSError) as error:
            raise ArchiveError(
                f"a new run needs an empty folder, but {path} cannot be written ({error}): "
                f"name another folder"
            ) from error
        with _transaction(connection):
            if not empty:
                raise ArchiveError(
                    f"a new run needs an empty folder, but {path} holds one: "
                    f"continue it with --resume, or name another folder"
                )
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
            rows = {**facts, "schema_version": str(SCHEMA_VERSION), "created": _now()}
            connection.executemany("INSERT INTO facts VALUES (?, ?)", rows.items())
        return cls(connection, path)

    @classmethod
    def open(cls, folder: Path, *, read_only: bool = False) -> Archive:
        """Open the run in ``folder``.

        Raises:
            ArchiveError: there is none, it is damaged, or another version of the schema wrote it.
        """
        path = folder / FILE_NAME
        if not path.is_file():
            raise ArchiveError(
                f"a run folder holds {FILE_NAME}, but {folder} does not: {_instead(folder)}"
            )
        if path.stat().st_size > MAX_ARCHIVE_BYTES:
            raise ArchiveError(f"an archive has at most {MAX_ARCHIVE_BYTES} bytes, but {path} more")
        with ExitStack() as stack:
            try:
                connection = _connect(path, "ro" if read_only else "rw")
                stack.callback(connection.close)
                _check_contents(connection, path)
                if not read_only:
                    _prepare_to_write(connection)
            except sqlite3.DatabaseError as error:
                raise ArchiveError(
                    f"{path} must be an archive of this program, but SQLite says {error}: "
                    f"restore it from a copy, or start a new run"
                ) from error
            stack.pop_all()
        return cls(connection, path)

    def close(self) -> None:
        """Close the file; committed rows are safe without it."""
        self._db.close()

    # facts

    @property
    def facts(self) -> dict[str, str]:
        """What was fixed when the run was created."""
        with _foreign(self.path):
            return dict(self._db.execute("SELECT key, value FROM facts ORDER BY key"))

    # calls and answers

    def record_call(
        self, slot: int, attempt: int, operator: str, request: ChatRequest, route: str
    ) -> None:
        """Record that ``request`` is about to be sent (again after a crash: no second row)."""
        messages = json.dumps([[m.role, m.content] for m in request.messages])
        row = (
            *(request.request_id, slot, attempt, operator, request.key, request.model, messages),
            *(request.temperature, request.max_tokens, route, _now()),
        )
        with _transaction(self._db):
            self._db.execute("INSERT OR IGNORE INTO calls VALUES (?,?,?,?,?,?,?,?,?,?,?)", row)

    def record_loss(self, request_id: str, attempts: int) -> None:
        """Record that ``attempts`` at a request may have been billed and brought no answer."""
        with _transaction(self._db):
            row = (request_id, attempts)
            self._db.execute("INSERT INTO losses (request_id, attempts) VALUES (?, ?)", row)

    def record_answer(
        self, request_id: str, answer: ChatAnswer, problem: str | None = None
    ) -> None:
        """Commit an answer, before anything looks into it."""
        usage = answer.usage
        row = (
            *(request_id, answer.text, answer.model, usage.prompt_tokens, usage.completion_tokens),
            *(int(usage.estimated), answer.finish_reason, answer.created, answer.elapsed_s),
            *(answer.lost_attempts, problem),
        )
        with _transaction(self._db):
            self._db.execute("INSERT INTO answers VALUES (?,?,?,?,?,?,?,?,?,?,?)", row)

    def call(self, slot: int, attempt: int) -> Call | None:
        """The call of this attempt, or None when it was never made."""
        with _foreign(self.path):
            return next(self._calls("WHERE slot = ? AND attempt = ?", (slot, attempt)), None)

    def calls(self) -> list[Call]:
        """Every call, by slot and attempt."""
        with _foreign(self.path):
            return list(self._calls("", ()))

    def _calls(self, clause: str, parameters: tuple[int, ...]) -> Iterator[Call]:
        query = (
            "SELECT c.slot, c.attempt, c.operator, c.request_id, c.model, c.messages, "  # noqa: S608
            "c.temperature, c.max_tokens, a.text, a.model, a.prompt_tokens, a.completion_tokens, "
            "a.estimated, a.finish_reason, a.created, a.elapsed_s, a.lost_attempts, a.problem, "
            "c.route, (SELECT coalesce(sum(attempts), 0) FROM losses l "
            "WHERE l.request_id = c.request_id) "
            f"FROM calls c LEFT JOIN answers a USING (request_id) {clause} ORDER BY slot, attempt"
        )
        for row in self._db.execute(query, parameters):
            slot, attempt, operator, request_id, model, messages, temperature, max_tokens = row[:8]
            turns = tuple(Message(role, body) for role, body in json.loads(messages))
            request = ChatRequest(request_id, model, turns, temperature, max_tokens)
            answer = None
            if row[8] is not None:
                usage = Usage(row[10], row[11], bool(row[12]))
                answer = ChatAnswer(row[8], row[9], usage, *row[13:17])
            yield Call(slot, attempt, operator, request, answer, *row[17:20])

    # evaluations

    def record_trace(self, slot: int, attempt: int, space: str, repeat: int, trace: Trace) -> None:
        """Commit one sandboxed run; one that is there already stays as it is."""
        row = (
            *(slot, attempt, space, repeat, str(trace.seed), trace.outcome, trace.asks),
            *(trace.revisits, trace.cpu_s, trace.error, _pack(trace)),
        )
        with _transaction(self._db):
            self._db.execute(
                "INSERT OR IGNORE INTO evaluations VALUES (?,?,?,?,?,?,?,?,?,?,?)", row
            )

    def traces(
        self, slot: int, attempt: int, space: str, *, trials: bool = False
    ) -> dict[int, Trace]:
        """The runs of one attempt on one space, by repeat.

        ``trials``: those that its constants were tuned by, in place of its own. They have negative
        repeats.
        """
        sign = "<" if trials else ">="
        query = (
            f"SELECT repeat, trace, {', '.join(_RUN_COLUMNS)} "  # noqa: S608 - own names
            f"FROM evaluations WHERE slot = ? AND attempt = ? AND space = ? AND repeat {sign} 0 "
            "ORDER BY repeat"
        )
        with _foreign(self.path):
            return {
                repeat: _unpack(blob, dict(zip(_RUN_COLUMNS, values, strict=True)))
                for repeat, blob, *values in self._db.execute(query, (slot, attempt, space))
            }

    def cpu_s(self) -> float:
        """Own CPU seconds of all runs of programs that a model wrote."""
        query = "SELECT coalesce(sum(cpu_s), 0.0) FROM evaluations WHERE slot >= 0"
        with _foreign(self.path):
            return float(self._db.execute(query).fetchone()[0])

    # candidates and events

    def record_candidate(self, slot: int, document: Mapping[str, object]) -> None:
        """Commit a settled slot; ``document`` is JSON-ready."""
        text = json.dumps(document, sort_keys=True)
        with _transaction(self._db):
            self._db.execute("INSERT INTO candidates VALUES (?, ?, ?)", (slot, text, _now()))

    def candidates(self) -> dict[int, dict[str, object]]:
        """Settled candidates' documents by slot (seed programs have negative slots)."""
        with _foreign(self.path):
            rows = self._db.execute("SELECT slot, document FROM candidates ORDER BY slot")
            return {slot: _object(document) for slot, document in rows}

    def record_rescore(self, slot: int, generation: int, document: Mapping[str, object]) -> None:
        """Commit a candidate as it is after it was scored again on a generation's seeds.

        What is there already stays.
        """
        row = (slot, generation, json.dumps(document, sort_keys=True), _now())
        with _transaction(self._db):
            self._db.execute(_RESCORES)
            self._db.execute("INSERT OR IGNORE INTO rescores VALUES (?, ?, ?, ?)", row)

    def rescored(self) -> dict[int, dict[str, object]]:
        """The latest documents of candidates that were scored again, by slot."""
        with _foreign(self.path):
            if not self._has("rescores"):
                return {}
            rows = self._db.execute("SELECT slot, document FROM rescores ORDER BY generation")
            return {slot: _object(document) for slot, document in rows}

    def record_event(self, kind: str, slot: int | None = None, **detail: object) -> None:
        """Append to the run's diary."""
        row = (_now(), kind, slot, json.dumps(detail, sort_keys=True))
        with _transaction(self._db):
            self._db.execute("INSERT INTO events (at, kind, slot, detail) VALUES (?,?,?,?)", row)

    def events(self) -> list[Event]:
        """The run's diary, oldest first."""
        with _foreign(self.path):
            rows = self._db.execute("SELECT at, kind, slot, detail FROM events ORDER BY number")
            return [Event(at, kind, slot, _object(detail)) for at, kind, slot, detail in rows]

    # looks at validation spaces

    def record_look(self, slot: int, digest: str, spaces: Sequence[str]) -> None:
        """Commit that a program is about to see ``spaces`` (fingerprints): before it does.

        Raises:
            ArchiveError: it has seen one of them before. Nothing is recorded then.
        """
        now = _now()
        try:
            with _transaction(self._db):
                self._db.execute(_LOOKS)
                self._db.executemany(
                    "INSERT INTO looks (at, slot, digest, space) VALUES (?,?,?,?)",
                    [(now, slot, digest, space) for space in spaces],
                )
        except sqlite3.IntegrityError:
            raise ArchiveError(
                f"a program gets one look at a validation space, but that of slot {slot} has had "
                f"it (an interrupted look counts): validate on spaces that it has not seen, or "
                f"evolve another"
            ) from None

    def looks(self) -> list[Look]:
        """Every look, oldest first."""
        with _foreign(self.path):
            if not self._has("looks"):
                return []
            rows = self._db.execute("SELECT at, slot, digest, space FROM looks ORDER BY number")
            return [Look(*row) for row in rows]

    def _has(self, table: str) -> bool:
        query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
        return bool(self._db.execute(query, (table,)).fetchone()[0])


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection that runs nothing the file brings along and reads no value of any size."""
    # Without a log beside it nobody is writing, and SQLite need not make files to read it.
    if mode == "ro" and not path.with_name(f"{path.name}-wal").exists():
        mode = "ro&immutable=1"
    # isolation_level=None: transactions are ours alone, begun and ended in _transaction.
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True)
    connection.isolation_level = None
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    return connection


def _prepare_to_write(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _check_contents(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what has other tables, columns or types than an archive, or another version.

    Raises:
        ArchiveError: it does, or holds nothing.
        sqlite3.DatabaseError: it is damaged.
    """
    with closing(sqlite3.connect(":memory:")) as pattern:
        pattern.executescript(f"{_SCHEMA};{_LOOKS};{_RESCORES}")
        expected = _definitions(pattern)
        columns = {
            name: pattern.execute(f"PRAGMA table_info({name})").fetchall()
            for kind, name, *_ in expected
            if kind == "table"
        }
    definitions = _definitions(connection)
    if not definitions:
        raise ArchiveError(f"{path} holds no run yet (it was stopped at once): start it again")
    strange = sorted(f"{kind} {name}" for kind, name, *_ in definitions - expected)
    missing = sorted(name for _, name, table, _ in expected - definitions if table not in _LATER)
    if ("table", "facts") in {(kind, name) for kind, name, *_ in definitions & expected}:
        _check_version(connection, path)
    if strange or missing:
        problem = "; ".join(
            f"{phrase} {', '.join(names[:3])[:200]}"
            for phrase, names in (("it also has", strange), ("it lacks", missing))
            if names
        )
        raise ArchiveError(
            f"{path} must have the tables of an archive and nothing else, but {problem}: it is "
            f"damaged or foreign, get it again"
        )
    present = {name for kind, name, *_ in definitions if kind == "table"}
    for table in present:
        _check_types(connection, path, table, columns[table])


_Definitions = set[tuple[str, str, str, str]]


def _definitions(connection: sqlite3.Connection) -> _Definitions:
    """Type, name, table and SQL of all that the file defines; white space in the SQL is no matter.

    One definition too many is enough to refuse a file: a few more than an archive has are read.
    """
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 64")
    return {
        (str(kind), str(name), str(table), " ".join(str(sql or "").split()))
        for kind, name, table, sql in rows
    }


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    row = connection.execute("SELECT value FROM facts WHERE key = 'schema_version'").fetchone()
    version = row[0] if row else None
    if version is None:
        raise ArchiveError(f"{path} holds no run yet (it was stopped at once): start it again")
    if version != str(SCHEMA_VERSION):
        raise ArchiveError(
            f"{path} must have schema version {SCHEMA_VERSION}, but has {str(version)[:40]!r}: "
            f"open it with the version of llamea-gpu that wrote it"
        )


def _check_types(
    connection: sqlite3.Connection, path: Path, table: str, columns: Sequence[tuple[Any, ...]]
) -> None:
    """SQLite keeps a value of any type in any column: look whether all are of the declared one."""
    wrong = []
    for _, name, declared, required, *_ in columns:
        types = [declared.lower()] if required else [declared.lower(), "null"]
        wrong.append(f"typeof({name}) NOT IN ({', '.join(map(repr, types))})")
    query = f"SELECT 1 FROM {table} WHERE {' OR '.join(wrong)} LIMIT 1"  # noqa: S608 - own names
    if connection.execute(query).fetchone():
        kinds = ", ".join(f"{name} {declared}" for _, name, declared, *_ in columns)
        raise ArchiveError(
            f"every row of {table} in {path} must hold ({kinds}), but one does not: it is damaged "
            f"or foreign, get it again"
        )


@contextmanager
def _foreign(path: Path) -> Iterator[None]:
    """Turn whatever a damaged or foreign archive makes reading stumble over into one error."""
    try:
        yield
    except (
        *(sqlite3.Error, zlib.error, TaskError),
        *(ValueError, TypeError, IndexError, RecursionError),
    ) as error:
        raise ArchiveError(
            f"{path} must be an archive of this version, but reading it fails ({error}): "
            f"it is damaged or foreign, restore it from a copy"
        ) from error


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _object(text: str) -> dict[str, object]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"an object must be kept as JSON, but {text[:40]} is")
    return value


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _pack(trace: Trace) -> bytes:
    """The columns one after the other, and what says which there are.

    Batches, and a byte, where there are any; or batches, configurations, a byte and how many
    parameters these have.
    """
    parts = [
        np.asarray(trace.rows, "<i4").tobytes(),
        np.asarray(trace.elapsed_s, "<f8").tobytes(),
        np.asarray(trace.cost_ms, "<f8").tobytes(),
    ]
    if trace.batch is not None:
        parts.append(np.asarray(trace.batch, "<i4").tobytes())
        if trace.configurations is None:
            parts.append(b"b")
        else:
            parts.append(np.asarray(trace.configurations, "<i4").tobytes())
            parts.append(b"c" + trace.configurations.shape[1].to_bytes(2, "little"))
    return zlib.compress(b"".join(parts))


def _unpack(blob: bytes, fields: Mapping[str, Any]) -> Trace:
    inflater = zlib.decompressobj()
    data = inflater.decompress(blob, MAX_TRACE_BYTES)
    mark = len(data) % 4  # whole columns are a multiple of four bytes
    batched = mark in (1, 3)
    parameters = int.from_bytes(data[-2:], "little") if mark == 3 else 0
    width = (24 if batched else 20) + 4 * parameters
    n, rest = divmod(len(data) - mark, width)
    if inflater.unconsumed_tail or rest:
        raise ArchiveError(
            f"a trace must hold {width} bytes an evaluation and at most {MAX_TRACE_BYTES}, but one "
            f"has {len(data)}: the archive is damaged, restore it from a copy"
        )
    rows = np.frombuffer(data, "<i4", n)
    elapsed_s, cost_ms = (np.frombuffer(data, "<f8", n, start * n) for start in (4, 12))
    plausible = (cost_ms >= LEAST_TIME_MS) & (cost_ms <= MOST_TIME_MS) | np.isposinf(cost_ms)
    in_order = np.isfinite(elapsed_s).all() and (np.diff(elapsed_s, prepend=0.0) >= 0).all()
    if not (plausible.all() and in_order and (rows >= 0).all()):
        raise ArchiveError(
            f"a trace must hold rows, times that do not decrease, and costs from {LEAST_TIME_MS:g} "
            f"to {MOST_TIME_MS:g} ms or inf, but one does not: the archive is damaged or foreign"
        )
    return Trace(
        **{**fields, "seed": int(fields["seed"])},
        rows=rows,
        elapsed_s=elapsed_s,
        cost_ms=cost_ms,
        batch=np.frombuffer(data, "<i4", n, 20 * n) if batched else None,
        configurations=(
            np.frombuffer(data, "<i4", n * parameters, 24 * n).reshape(n, parameters)
            if parameters
            else None
        ),
    )


def _instead(folder: Path) -> str:
    """What to do about a folder that is no run's."""
    if (folder / "bench.json").is_file():
        return "it is a bench's, which 'llamea-gpu report' shows, and the command that began it"
    if not folder.is_dir():
        return "there is no such folder: check the path"
    runs = [path.parent for path in folder.glob(f"*/{FILE_NAME}")]
    return f"name one in it, such as {runs[0]}" if runs else "give what 'evolve -o' wrote"
