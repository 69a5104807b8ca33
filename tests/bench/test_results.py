"""A bench's folder: whole, checked, and never half read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.simulated import simulated_bench, small_tasks

from llamea_gpu.bench import BenchResults
from llamea_gpu.bench.analysis import analyse
from llamea_gpu.bench.results import RUNS, SUMMARY
from llamea_gpu.errors import BenchError


@pytest.fixture(scope="module")
def results() -> BenchResults:
    plan, tasks, runs = simulated_bench({"a": 0.0, "b": 1.0, "c": 2.0}, small_tasks(3), 5)
    return BenchResults(plan, runs, analyse(plan, tasks, runs, 20), ("llamea-gpu", "bench", "a"))


@pytest.fixture
def folder(results: BenchResults, tmp_path: Path) -> Path:
    results.save(tmp_path / "bench")
    return tmp_path / "bench"


def test_a_round_trip_changes_nothing(results: BenchResults, folder: Path) -> None:
    found = BenchResults.load(folder)
    assert (found.plan, found.analysis, found.command, found.version) == (
        results.plan,
        results.analysis,
        results.command,
        results.version,
    )
    assert list(found.runs) == list(results.plan.runs())
    for key, trace in results.runs.items():
        again = found.runs[key]
        for column in ("rows", "elapsed_s", "cost_ms"):
            assert np.array_equal(getattr(again, column), getattr(trace, column))
        assert (again.outcome, again.asks, again.seed, again.cpu_s) == (
            trace.outcome,
            trace.asks,
            trace.seed,
            trace.cpu_s,
        )
    assert found.to_json() == results.to_json()


def test_the_table_is_readable_without_us(results: BenchResults, folder: Path) -> None:
    rows = pq.read_table(folder / RUNS).to_pylist()
    assert len(rows) == 3 * 3 * 5
    optima_ms = {space.name: space.optimum_ms for space in results.plan.spaces}
    for row in rows:
        optimum = optima_ms[row["space"]]
        assert row["best_ms"] == min(row["cost_ms"])
        assert row["regret"] == pytest.approx(row["best_ms"] / optimum - 1)
        near = [cost <= 1.05 * optimum for cost in row["cost_ms"]]
        expected = near.index(True) + 1 if any(near) else None
        assert row["evaluations_to_5_percent"] == expected
        if expected:
            assert row["seconds_to_5_percent"] == row["elapsed_s"][expected - 1]
        assert row["evaluations"] == len(row["rows"])
        assert row["failed_evaluations"] == sum(np.isinf(row["cost_ms"]))


def change_summary(change: Callable[[Any], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        document = json.loads((folder / SUMMARY).read_text())
        change(document)
        (folder / SUMMARY).write_text(json.dumps(document))

    return apply


def change_run(column: str, value: object) -> Callable[[Path], None]:
    """The first run's cell, with everything else as it is."""

    def apply(folder: Path) -> None:
        table = pq.read_table(folder / RUNS)
        cells = table.column(column).to_pylist()
        cells[0] = value(cells[0]) if callable(value) else value
        place = table.schema.get_field_index(column)
        changed = pa.array(cells, type=table.schema.field(column).type)
        pq.write_table(table.set_column(place, column, changed), folder / RUNS)

    return apply


def drop_column(folder: Path) -> None:
    pq.write_table(pq.read_table(folder / RUNS).drop_columns(["seed"]), folder / RUNS)


def drop_runs(folder: Path) -> None:
    pq.write_table(pq.read_table(folder / RUNS).slice(1), folder / RUNS)


def repeat_run(folder: Path) -> None:
    table = pq.read_table(folder / RUNS)
    pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), folder / RUNS)


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no summary": (lambda f: (f / SUMMARY).unlink(), "must hold bench.json"),
    "no runs": (lambda f: (f / RUNS).unlink(), "must be readable"),
    "torn summary": (lambda f: (f / SUMMARY).write_text('{"format_version": 1'), "JSON"),
    "torn runs": (lambda f: (f / RUNS).write_bytes((f / RUNS).read_bytes()[:-9]), "whole Parquet"),
    "pickle": (lambda f: (f / RUNS).write_bytes(b"\x80\x04K\x01."), "whole Parquet"),
    "version": (change_summary(lambda d: d.update(format_version=2)), "format_version"),
    "infinite P": (
        change_summary(lambda d: d["analysis"]["standings"][0].update(p=1e999)),
        "standings.0.p",
    ),
    "short curve": (
        change_summary(lambda d: d["analysis"]["standings"][0].update(curve=[0.0])),
        "curve",
    ),
    "text for a number": (
        change_summary(lambda d: d["plan"]["spaces"][0].update(budget_s="<b>")),
        "budget_s",
    ),
    "foreign standing": (
        change_summary(lambda d: d["analysis"]["standings"][0].update(searcher="z")),
        "one standing for each searcher",
    ),
    "foreign pair": (
        change_summary(lambda d: d["analysis"]["comparisons"][0].update(first="z")),
        "comparisons of its searchers",
    ),
    "same name twice": (
        change_summary(lambda d: d["plan"]["searchers"][0].update(name="b")),
        "distinct searchers",
    ),
    "endless plan": (
        change_summary(
            lambda d: d["plan"].update(
                repeats=10_000,
                searchers=[{**d["plan"]["searchers"][0], "name": str(i)} for i in range(99)],
            )
        ),
        "at most 1000000 runs",
    ),
    "unfinished": (change_summary(lambda d: d.update(analysis=None)), "must be finished"),
    "missing runs": (drop_runs, "1 runs are missing"),
    "run twice": (repeat_run, "come once"),
    "missing column": (drop_column, "one column 'seed'"),
    "foreign run": (change_run("searcher", "z"), "of the bench"),
    "outcome": (change_run("outcome", "great"), "outcome"),
    "no outcome": (change_run("outcome", None), "outcome"),
    "seed": (change_run("seed", 5), "the seed of its repeat"),
    "row beyond": (change_run("rows", lambda rows: [120, *rows[1:]]), "rows of the space"),
    "row twice": (change_run("rows", lambda rows: [rows[1], *rows[1:]]), "rows of the space"),
    "too good": (change_run("cost_ms", lambda c: [0.001, *c[1:]]), "no better than the optimum"),
    "no number": (change_run("cost_ms", lambda c: [np.nan, *c[1:]]), "no better than the optimum"),
    "lengths": (change_run("cost_ms", lambda c: c[1:]), "as many times"),
    "time runs back": (change_run("elapsed_s", lambda t: t[::-1]), "do not decrease"),
    "asks": (change_run("asks", 1), "its asks"),
    "empty cell": (change_run("cost_ms", lambda c: [None, *c[1:]]), "no empty cells"),
    "endless text": (change_run("error", "x" * 20_000), "short text"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_is_wrong_is_an_error_that_says_so(folder: Path, fault: str) -> None:
    spoil, said = FAULTS[fault]
    spoil(folder)
    with pytest.raises(BenchError, match=said) as error:
        BenchResults.load(folder)
    assert len(str(error.value)) < 1500
