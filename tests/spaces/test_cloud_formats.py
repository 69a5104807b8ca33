"""Clouds in files: the native format, JSON lines, and what must be refused of both."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.clouds import same_cloud, small_cloud
from support.recordings import small_recording

from llamea_gpu.errors import SpaceError, SpaceFormatError, UnknownSpaceError
from llamea_gpu.spaces.cloud import RECIPES, merged
from llamea_gpu.spaces.formats import (
    export_cloud,
    export_recording,
    holds_cloud,
    import_cloud,
    import_recording,
)

HEADER: dict[str, Any] = {
    "kernel": "toy",
    "script": "toy",
    "shape": "medium",
    "arguments": [{"shape": [64], "dtype": "torch.float32"}],
    "names": ["block_sizes[0]", "block_sizes[1]", "loop_orders[0].0", "loop_orders[0].1", "stages"],
    "values": [[16, 32], [8, 16], [0, 1, 2], [0, 1], [None, True, 1.5]],
    "ordinal": [True, True, False, False, False],
    "default": {"block_sizes": [32, 16], "loop_orders": [[1, 0, 2]], "stages": None, "x": [1]},
    "starts": [[0, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 1]],
    "facts": {"default_ms": 1.25, "reference_ms": 2, "cuda": "13.0", "more": [1]},
}
ROW: dict[str, Any] = {
    "c": [1, 1, 1, 0, 0],
    "how": "start",
    "status": "ok",
    "ms": 1.25,
    "lo": 1.0,
    "hi": 1.5,
    "compile_s": 2.0,
    "bench_s": 0.25,
    "source": "aa",
    "at": 3.5,
    "message": None,
    "control": None,
}
FAILED = {**ROW, "status": "timeout", "ms": None, "lo": None, "hi": None, "source": None, "at": 9}


def text(*rows: Any, header: Any = HEADER) -> str:
    return "".join(json.dumps(line) + "\n" for line in (header, *rows))


@pytest.fixture
def native(tmp_path):
    path = tmp_path / "toy.cloud.parquet"
    export_cloud(small_cloud(), path)
    return path


# -- JSON lines ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["toy.jsonl", "toy.jsonl.gz"])
def test_lines_become_rows(write, name):
    path = write(text(ROW, FAILED, {**ROW, "control": 1.3, "at": 10, "extra": {}}), name)
    assert holds_cloud(path)
    cloud, notes = import_cloud(path)
    assert notes == ()
    assert cloud.info.name.endswith("-toy")
    assert (cloud.info.kernel, cloud.script, cloud.shape) == ("toy", "toy", "medium")
    assert cloud.info.references_ms == {"torch": 2.0, "helion_default": 1.25}
    assert cloud.configurations.tolist() == [[1, 1, 1, 0, 0]] * 3
    assert cloud.ok.tolist() == [True, False, True]
    assert np.isnan(cloud.times_ms[1])
    assert cloud.control_ms.tolist()[2] == 1.3
    assert cloud.source.tolist() == ["aa", "", "aa"]
    assert cloud.at_s.tolist() == [3.5, 9, 10]
    assert cloud.runs == (
        {"file": name, "default_ms": "1.25", "reference_ms": "2", "cuda": "13.0"},
    )


def test_the_default_is_the_start_that_has_its_values(write):
    cloud, _ = import_cloud(write(text(ROW)))
    assert cloud.default == (1, 1, 1, 0, 0)
    assert cloud.info.default_configuration == {
        "block_sizes[0]": 32,
        "block_sizes[1]": 16,
        "loop_orders[0].0": 1,
        "loop_orders[0].1": 0,
        "stages": None,
    }


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ([0, 0, 2, 1, 2], (0, 0, 2, 1, 2)),
        (None, None),
        ({"block_sizes": [16, 16]}, None),  # no start has both
        ({"stages": 1}, (0, 0, 0, 0, 0)),  # 1 is not True: nothing to go by
        ({"stages": True}, (1, 1, 1, 0, 1)),
        ({"block_sizes": "no list", "loop_orders": [["a", 1]], "stages": True}, (1, 1, 1, 0, 1)),
    ],
)
def test_other_ways_to_say_the_default(write, default, expected):
    cloud, _ = import_cloud(write(text(ROW, header={**HEADER, "default": default})))
    assert cloud.default == expected


def test_a_journal_says_more_and_has_runs(write):
    header = {k: v for k, v in HEADER.items() if k != "facts"} | {
        "journal": 1,
        "name": "toy-64",
        "device": "NVIDIA H200",
        "framework": "helion 1.5.0",
        "kernel_source": "def toy(): ...",
        "compilers": 15,
    }
    first, second = {"run": {"cuda": "13.0"}}, {"run": {"cuda": "13.1"}}
    path = write(text(first, ROW, {"note": "not ours"}, FAILED, second, ROW, header=header))
    cloud, _ = import_cloud(path)
    info = cloud.info
    assert (info.name, info.device, info.framework) == ("toy-64", "NVIDIA H200", "helion 1.5.0")
    assert (info.kernel_source, info.parallel_workers) == ("def toy(): ...", 15)
    assert [run["cuda"] for run in cloud.runs] == ["13.0", "13.1"]
    assert cloud.run.tolist() == [0, 0, 1]
    assert import_cloud(path, name="mine")[0].info.name == "mine"


def test_a_last_line_cut_short_is_left_out(write):
    path = write(text(ROW, FAILED)[:-30])
    cloud, notes = import_cloud(path)
    assert len(cloud) == 1
    assert notes == ("line 3 is cut short and was left out",)


def test_a_last_line_without_its_line_break_counts(write):
    cloud, notes = import_cloud(write(text(ROW, FAILED)[:-1]))
    assert len(cloud) == 2
    assert notes == ()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (text(), "line 1: no configuration was measured"),
        (text(ROW).replace("}", "", 1), "line 1"),
        (text(ROW, ROW).replace('"how"', "how", 1), "line 2 column"),
        (text({**ROW, "c": [1, 1]}), "line 2: a configuration must be 5 value indices"),
        (text({**ROW, "c": [1, 1, 1, 0, True]}), "line 2: a configuration must be value indices"),
        (text({**ROW, "c": [1, 1, 1, 0, 1 << 70]}), "line 2: a configuration must be 5"),
        (text({**ROW, "c": [1, 1, 1, 0, 9]}), "configurations must be indices below"),
        (text({**ROW, "status": "fine"}), "line 2: status must be one of"),
        (text({**ROW, "ms": "fast"}), "line 2: ms must be a number or null, but is 'fast'"),
        (text({**ROW, "ms": None}), "times_ms must be"),
        (text({**ROW, "ms": -1}), "times_ms must be"),
        (text({**ROW, "lo": 2.0}), "low_ms must be at most"),
        (text({**ROW, "compile_s": None}), "line 2: compile_s must be a finite number"),
        (text({**ROW, "at": "now"}), "line 2: at must be a finite number"),
        (text({**ROW, "source": 7}), "line 2: 'source' must be a string"),
        (text({**ROW, "source": "x" * 300}), "line 2: source must have at most"),
        (text(ROW, header={**HEADER, "names": ["a"] * 5}), "distinct"),
        (text(ROW, header={**HEADER, "names": [1, 2, 3, 4, 5]}), "must be non-empty strings"),
        (text(ROW, header={**HEADER, "values": [1] * 5}), "values must be an array"),
        (text(ROW, header={**HEADER, "values": [[[]]] * 5}), "values must be finite"),
        (text(ROW, header={**HEADER, "ordinal": [1] * 5}), "ordinal must be True or False"),
        (text(ROW, header={**HEADER, "starts": [[0]]}), "line 1: a configuration must be 5"),
        (text(ROW, header={**HEADER, "default": "x"}), "'default' must be value indices or"),
        (text(ROW, header={**HEADER, "facts": []}), "facts of a run must be an object"),
        (text(ROW, header={**HEADER, "arguments": [1]}), "must be an array of objects"),
        (text(ROW, header={**HEADER, "compilers": "many"}), "parallel_workers"),
        (text(ROW, header={**HEADER, "kernel": None}), "'kernel' must be a string"),
        ("[1]\n", "looks like no cloud"),
    ],
)
def test_lines_that_cannot_be_are_refused(write, lines, problem):
    with pytest.raises(SpaceFormatError) as raised:
        import_cloud(write(lines))
    assert problem in str(raised.value)
    assert len(str(raised.value)) < 2_000


def test_a_long_name_of_a_searcher_is_cut(write):
    cloud, _ = import_cloud(write(text({**ROW, "how": "x" * 5000})))
    assert cloud.how.tolist() == ["x" * 200]


def test_a_cloud_is_no_recording_and_the_other_way_round(write, native, tmp_path):
    recording = tmp_path / "small.parquet"
    export_recording(small_recording(), recording, "native")
    assert not holds_cloud(recording)
    with pytest.raises(SpaceFormatError, match="this is not a cloud"):
        import_cloud(recording)
    for path in (native, write(text(ROW), "toy.jsonl.gz")):
        assert holds_cloud(path)
        with pytest.raises(SpaceFormatError, match="no recording"):
            import_recording(path)
    with pytest.raises(UnknownSpaceError):
        import_cloud(tmp_path / "nothing")


def test_a_truncated_archive_is_refused(tmp_path):
    path = tmp_path / "toy.jsonl.gz"
    path.write_bytes(gzip.compress(text(*[ROW] * 50).encode())[:-20])
    with pytest.raises(SpaceFormatError, match="truncated"):
        import_cloud(path)


# -- native -------------------------------------------------------------------------------------


def rewrite(path, columns=None, header=None, without=""):
    table = pq.read_table(path)
    for name, column in (columns or {}).items():
        table = table.set_column(table.column_names.index(name), name, column)
    changed = json.loads(table.schema.metadata[b"llamea_gpu"]) | (header or {})
    changed.pop(without, None)
    table = table.replace_schema_metadata({b"llamea_gpu": json.dumps(changed).encode()})
    pq.write_table(table, path)


def test_the_native_format_keeps_everything(native):
    assert same_cloud(import_cloud(native)[0], small_cloud())


def test_a_cloud_keeps_its_recipe_and_one_that_names_none_is_of_the_second(native):
    for recipe in RECIPES:
        export_cloud(small_cloud(recipe=recipe), native)
        assert import_cloud(native)[0].recipe == recipe
    rewrite(native, without="recipe")
    assert import_cloud(native)[0].recipe == 2


def test_words_as_plain_strings_are_read_too(native):
    rewrite(native)
    assert same_cloud(import_cloud(native)[0], small_cloud())


@pytest.mark.parametrize(
    ("columns", "header", "problem"),
    [
        ({"times_ms": pa.array([1] * 7)}, None, "column 'times_ms': must hold float64"),
        ({"how": pa.array([1] * 7)}, None, "column 'how': must hold strings"),
        ({"how": pa.array([None, *"abcdef"])}, None, "column 'how': has empty cells"),
        ({"how": pa.array(["x" * 100_000] * 7)}, None, "column 'how': a word may have at most 200"),
        ({"status": pa.array(["fine"] * 7)}, None, "column 'status': must be one of"),
        ({"run": pa.array([5] * 7)}, None, "run must be an index"),
        ({"num_warps": pa.array([2] * 7)}, None, "configurations must be indices below"),
        ({"num_warps": pa.array([1 << 63] * 7, pa.uint64())}, None, "must fit"),
        (None, {"format_version": 2}, "format_version must be 1"),
        (None, {"kind": "model"}, "this is not a cloud (kind 'model')"),
        (None, {"starts": [[0, 0, "x"]]}, "a configuration must be value indices"),
        (None, {"starts": [[0, 0, 1 << 80]]}, "a configuration must be value indices"),
        (None, {"default": [0]}, "default must be value indices"),
        (None, {"ordinal": [1, 2, 3]}, "ordinal must be True or False"),
        (None, {"runs": [[]]}, "a run must map names to texts"),
        (None, {"runs": []}, "runs must be 1 to"),
        (None, {"parameters": [{"name": "how", "values": [1]}]}, "named like a column"),
        (None, {"parameters": []}, "at least one parameter"),
        (None, {"script": 3}, "'script' must be a string"),
        (None, {"recipe": 4}, "recipe of a cloud's model must be one of (2, 3), but is 4"),
        (None, {"recipe": None}, "one of (2, 3), but is None"),
        (None, {"recipe": 2.0}, "one of (2, 3), but is 2.0"),
        (None, {"recipe": [2]}, "one of (2, 3), but is [2]"),
    ],
)
def test_native_files_that_cannot_be_are_refused(native, columns, header, problem):
    rewrite(native, columns, header)
    with pytest.raises(SpaceFormatError) as raised:
        import_cloud(native)
    assert problem in str(raised.value)
    assert len(str(raised.value)) < 2_000


def test_a_parameter_named_like_a_column_is_refused(tmp_path):
    with pytest.raises(SpaceError, match="named like a column"):
        export_cloud(small_cloud(names=("how", "b", "c")), tmp_path / "x.cloud.parquet")
    assert list(tmp_path.iterdir()) == []


# -- real ones ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "rows", "best_ms"),
    [
        ("attention", 346 + 499, 1.40739),
        ("chunk_scan", 4321 + 853, 0.21258),
        ("grouped_matmul", 2030 + 476, 0.12298),
        ("rope", 1613 + 417, 0.06784),
    ],
)
def test_real_clouds_merge_with_what_was_measured_near_their_best(
    shared_spaces, tmp_path, kernel, rows, best_ms
):
    folder = shared_spaces / "helion_whole_h200"
    names = (f"{kernel}-medium.jsonl.gz", f"{kernel}-medium-near.jsonl.gz")
    both = merged(import_cloud(folder / name)[0] for name in names)
    assert len(both) == rows
    assert both.best_ms == pytest.approx(best_ms, abs=1e-5)
    assert both.default in both.starts
    assert set(both.how) == {"start", "random", "near", "cross", "step"}
    spreads = [both.times_ms[r].std() / both.times_ms[r].mean() for r in both.repeats()]
    assert 0.0005 < np.median(spreads) < 0.01  # measured one by one: they do differ
    export_cloud(both, tmp_path / "both.cloud.parquet")
    assert same_cloud(import_cloud(tmp_path / "both.cloud.parquet")[0], both)
