"""Runs as a Parquet table, and back into traces that were checked.

What it does not do: say what the columns mean (`llamea_gpu.bench.results` does).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from llamea_gpu.bench.plan import MAX_RUNS, Plan, RunKey, SpaceInfo
from llamea_gpu.bench.samples import TARGETS_PERCENT, first_hit
from llamea_gpu.errors import BenchError, TaskError
from llamea_gpu.files import read_bytes
from llamea_gpu.scoring import regret
from llamea_gpu.spaces.parquet import open_parquet
from llamea_gpu.tasks import Trace

_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("searcher", "space")),
        *((name, pa.int64()) for name in ("repeat", "seed")),
        *((name, pa.string()) for name in ("outcome", "error")),
        *((name, pa.int64()) for name in ("asks", "revisits", "evaluations")),
        ("failed_evaluations", pa.int64()),
        *((name, pa.float64()) for name in ("best_ms", "regret", "cpu_s")),
        *((f"evaluations_to_{percent}_percent", pa.int64()) for percent in TARGETS_PERCENT),
        *((f"seconds_to_{percent}_percent", pa.float64()) for percent in TARGETS_PERCENT),
        ("rows", pa.list_(pa.int32())),
        ("elapsed_s", pa.list_(pa.float64())),
        ("cost_ms", pa.list_(pa.float64())),
    ]
)
# What a trace is made of; the other columns follow from it.
_READ = (
    *("searcher", "space", "repeat", "seed", "outcome", "error", "asks", "revisits", "cpu_s"),
    *("rows", "elapsed_s", "cost_ms"),
)
_MAX_BYTES = 1 << 30
_MAX_VISITS = 100_000_000
_MOST_VISITS = 1 << 30  # of a whole space, whose rows count visits
_MAX_ERROR_CHARACTERS = 10_000


def write_runs(path: Path, plan: Plan, runs: Mapping[RunKey, Trace]) -> None:
    """Write ``runs``, in the order of the plan."""
    spaces = {space.name: space for space in plan.spaces}
    rows = [_row(key, spaces[key.space], runs[key]) for key in plan.runs() if key in runs]
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    words = ["searcher", "space", "outcome", "error", "rows.list.element", "cost_ms.list.element"]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=words,
        column_encoding={"elapsed_s.list.element": "BYTE_STREAM_SPLIT"},
        write_page_checksum=True,
    )


def read_runs(path: Path, plan: Plan) -> dict[RunKey, Trace]:
    """Read runs of ``plan``; they need not be all.

    Raises:
        BenchError: there is no such file, it is not such a table, or a run breaks a rule.
    """
    table = _read_table(path)
    columns = {name: table.column(name).combine_chunks() for name in _READ}
    lists = {name: _arrays(path, columns.pop(name)) for name in ("rows", "elapsed_s", "cost_ms")}
    plain = {name: column.to_pylist() for name, column in columns.items()}
    spaces = {space.name: space for space in plan.spaces}
    plan_keys = set(plan.runs())
    runs: dict[RunKey, Trace] = {}
    for place in range(table.num_rows):
        cells = {name: column[place] for name, column in plain.items()}
        cells |= {name: arrays[place] for name, arrays in lists.items()}
        key = RunKey(cells["searcher"], cells["space"], cells["repeat"])
        if key not in plan_keys or key in runs:
            raise BenchError(
                f"{path}: row {place}: each run must be of the bench and come once, but "
                f"{key!r:.200} is not or does not"
            )
        try:
            runs[key] = checked_trace(cells, spaces[key.space], plan.seed_of(key))
        except BenchError as error:
            raise BenchError(f"{path}: row {place}: {error}") from error
    return runs


def checked_trace(cells: Mapping[str, Any], space: SpaceInfo, seed: int) -> Trace:
    """The trace of a run that came from a file.

    Raises:
        BenchError: it breaks a rule of traces, of its space, or has another seed than its bench.
    """
    rows = np.asarray(cells["rows"], dtype=np.int64)
    elapsed_s = np.asarray(cells["elapsed_s"], dtype=np.float64)
    cost_ms = np.asarray(cells["cost_ms"], dtype=np.float64)
    asks, revisits, cpu_s, message = (cells[k] for k in ("asks", "revisits", "cpu_s", "error"))
    rules = {
        "as many times and costs as rows": rows.shape == elapsed_s.shape == cost_ms.shape,
        "rows of the space, each once": np.unique(rows).size == rows.size
        and bool(((rows >= 0) & (rows < (space.configurations or _MOST_VISITS))).all()),
        "finite times that do not decrease": bool(np.isfinite(elapsed_s).all())
        and bool((np.diff(elapsed_s, prepend=0.0) >= 0).all()),
        # nan fails the comparison
        "costs that are no better than the optimum": bool((cost_ms >= space.optimum_ms).all()),
        "the seed of its repeat": cells["seed"] == seed,
        "its asks be its evaluations and revisits": None not in (asks, revisits)
        and asks == rows.size + revisits,
        "own CPU seconds that are finite": cpu_s is None or 0 <= cpu_s < math.inf,
        "a short text as error": message is None or len(message) <= _MAX_ERROR_CHARACTERS,
    }
    for rule, holds in rules.items():
        if not holds:
            raise BenchError(f"a run must have {rule}, but does not")
    try:
        return Trace(
            rows=rows.astype(np.int32),
            elapsed_s=elapsed_s,
            cost_ms=cost_ms,
            outcome=cells["outcome"],
            asks=asks,
            revisits=revisits,
            seed=seed,
            cpu_s=cpu_s,
            error=message,
        )
    except TaskError as error:
        raise BenchError(str(error)) from error


def cells_of(key: RunKey, trace: Trace) -> dict[str, object]:
    """What is kept of a run (of its error the end), by column; `checked_trace` reads it."""
    cells = {name: getattr(trace, name) for name in _READ if name not in RunKey._fields}
    cells["error"] = trace.error[-_MAX_ERROR_CHARACTERS:] if trace.error else None
    return {**key._asdict(), **cells}


def _row(key: RunKey, space: SpaceInfo, trace: Trace) -> dict[str, object]:
    hits = {percent: first_hit(space, trace, percent) for percent in TARGETS_PERCENT}
    return {
        **cells_of(key, trace),
        "evaluations": int(trace.rows.size),
        "failed_evaluations": int(np.isinf(trace.cost_ms).sum()),
        "best_ms": trace.best_ms,
        "regret": regret(trace.cost_ms, space.optimum_ms, space.median_ms),
        **{
            f"evaluations_to_{p}_percent": hit.evaluations if hit else None
            for p, hit in hits.items()
        },
        **{f"seconds_to_{p}_percent": hit.elapsed_s if hit else None for p, hit in hits.items()},
    }


def _read_table(path: Path) -> pa.Table:
    try:
        data = read_bytes(path, _MAX_BYTES)
    except OSError as error:
        raise BenchError(f"{path} must be readable, but: {error}") from error
    with _parquet_errors(path):
        file = open_parquet(data)
        meta = file.metadata
        groups = [meta.row_group(index) for index in range(meta.num_row_groups)]
        if meta.num_rows > MAX_RUNS or sum(g.total_byte_size for g in groups) > _MAX_BYTES:
            raise BenchError(f"{path} must hold at most {MAX_RUNS} runs, but holds more")
        for name in _READ:
            expected, names = _SCHEMA.field(name).type, file.schema_arrow.names
            if names.count(name) != 1 or file.schema_arrow.field(name).type != expected:
                raise BenchError(f"{path} must have one column {name!r} of {expected}")
        table = file.read(columns=list(_READ))
        table.validate(full=True)
    return table


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
        raise BenchError(f"{path} must be a whole Parquet file, but: {str(error)[:400]}") from error


def _arrays(path: Path, column: pa.ListArray) -> list[NDArray[Any]]:
    """One array a run."""
    values = column.flatten()
    if column.null_count or values.null_count or len(values) > _MAX_VISITS:
        raise BenchError(f"{path}: traces must have no empty cells, but have")
    ends = np.cumsum(column.value_lengths().to_numpy(zero_copy_only=False))
    return np.split(values.to_numpy(zero_copy_only=False), ends[:-1]) if len(ends) else []
