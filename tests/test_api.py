"""What a notebook calls: the same runs as the command line's, as data, tables and figures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from support.command_line import llamea

import llamea_gpu.api as lg
from llamea_gpu.errors import LlameaGpuError

SPACE = "softmax-4096x4096"


@pytest.fixture(scope="module")
def found() -> lg.Search:
    return lg.run("random_search", lg.load_space(SPACE), seed=3, evaluations=30)


def test_a_run_is_the_command_lines(found: lg.Search) -> None:
    done = llamea(
        "tune", "--space", SPACE, "--with", "random_search", "--seed", 3, "--evaluations", 30,
        "--json",
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert found.best_ms == told["best"]["time_ms"]
    assert found.best == told["best"]["configuration"]
    assert found.code == told["code"]
    costs = [math.inf if t["time_ms"] is None else t["time_ms"] for t in told["trace"]]
    assert found.times_ms.tolist() == costs
    assert repr(found) == f"<random_search: {found.best_ms:.6g} ms after 30 configurations>"


def test_the_best_so_far_never_gets_worse_and_ends_with_the_best(found: lg.Search) -> None:
    best = found.best_so_far
    assert best.shape == (30,)
    assert (best[1:] <= best[:-1]).all()
    assert best[-1] == found.best_ms == found.times_ms.min()


def test_a_search_is_a_table(found: lg.Search) -> None:
    table = found.to_pandas()
    assert table["time_ms"].tolist() == found.times_ms.tolist()
    assert table["best_so_far_ms"].tolist() == found.best_so_far.tolist()
    row = table.loc[table["time_ms"].idxmin()]
    assert {name: row[name] for name in found.best} == found.best


def test_searches_are_drawn_together_with_what_is_known(found: lg.Search) -> None:
    other = lg.run("genetic_algorithm", SPACE, seed=1, evaluations=10)
    figure = found.plot(other, by="seconds")
    assert [trace.name for trace in figure.data] == [
        "random_search (seed 3)",
        "genetic_algorithm (seed 1)",
    ]
    for trace, search in zip(figure.data, (found, other), strict=True):
        works = np.isfinite(search.best_so_far)
        assert list(trace.y) == search.best_so_far[works].tolist()
    assert {note.text for note in figure.layout.annotations} == {"default", "optimum"}


def test_a_bench_is_a_table_and_curves(tmp_path: Path) -> None:
    searchers = ("random_search", "iterated_local_search")
    done = lg.bench(searchers, [SPACE], repeats=5, folder=tmp_path / "kept", workers=1)
    table = done.to_pandas().set_index("searcher")
    assert set(table.index) == set(searchers)
    assert (table["low"] < table["p"]).all()
    row = table.loc["iterated_local_search"]
    assert 1.0 < row["speed_up"] < 1.1
    assert row["evaluations_to_10_percent"] >= 1
    assert "has the highest P" in repr(done)
    figure = done.plot()
    curves = [trace for trace in figure.data if trace.name]
    assert sorted(trace.name for trace in curves) == sorted(searchers)
    assert len({trace.line.color for trace in curves}) == 2
    assert "rgba(" in curves[0].line.color
    again = lg.bench(searchers, SPACE, repeats=5, folder=tmp_path / "kept", workers=1)
    assert again.results.runs.keys() == done.results.runs.keys()
    assert repr(again) == repr(done)


def test_what_is_wrong_is_said_as_everywhere() -> None:
    with pytest.raises(LlameaGpuError, match="did you mean genetic_algorithm"):
        lg.run("genetic_algoritm", SPACE)
    with pytest.raises(LlameaGpuError, match="did you mean"):
        lg.load_space("softmax-4096x409")
    with pytest.raises(LlameaGpuError, match="did you mean helion/matmul"):
        lg.tune("helion/matmull", "random_search")
