"""Files made to fill the memory, to hang the import, or to break it in unforeseen ways."""

from __future__ import annotations

import copy
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.clouds import small_cloud
from support.recordings import small_recording

from llamea_gpu.errors import SpaceError, SpaceFormatError, UnknownSpaceError
from llamea_gpu.spaces.catalogue import list_spaces, load_space
from llamea_gpu.spaces.formats import (
    export_cloud,
    export_recording,
    import_cloud,
    import_recording,
)
from llamea_gpu.spaces.formats._base import parse_json
from llamea_gpu.spaces.parameters import checked_names, checked_values
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.recording import RecordingInfo
from llamea_gpu.spaces.space import SearchSpace

MESSAGE = 2_000  # characters: what a person can still read


def t4(*configurations: dict[str, Any], **changed: Any) -> dict[str, Any]:
    one = {
        "times": {"compilation": 1.0, "runtimes": [1.0]},
        "invalidity": "correct",
        "measurements": [{"name": "time", "value": 1.0, "unit": "ms"}],
    }
    return {"results": [{"configuration": c, **one, **changed} for c in configurations]}


def t1(parameters: dict[str, Any], *conditions: str) -> dict[str, Any]:
    return {
        "ConfigurationSpace": {
            "TuningParameters": [{"Name": n, "Values": v} for n, v in parameters.items()],
            "Conditions": [{"Expression": e} for e in conditions],
        }
    }


CACHE = {
    "device_name": "d",
    "kernel_name": "k",
    "problem_size": 1,
    "tune_params_keys": ["x"],
    "tune_params": {"x": [1, 2]},
    "cache": {
        str(x): {
            "x": x,
            "time": 1.0 * x,
            "compile_time": 1,
            "verification_time": 0,
            "benchmark_time": 1,
        }
        for x in (1, 2)
    },
}
INFO = {  # what this package adds to a file that it writes
    "name": "n",
    "kernel": "k",
    "device": "d",
    "framework": "f",
    "kernel_source": "",
    "arguments": [{"shape": [4, 4], "dtype": "float32"}],
    "default_configuration": {"x": 2},
    "references_ms": {"torch": 1.5},
    "parallel_workers": 2,
    "provenance": {"version": "1"},
    "exhaustive": True,
}
OURS = {**CACHE, "llamea_gpu": INFO}
EVENT = {
    "event": "trial",
    "run_id": "r",
    "schema_version": 1,
    "status": "ok",
    "config": {"a": 1},
    "perf_ms": 1.0,
    "elapsed_s": 1.0,
}
T1 = {
    "General": {"BenchmarkName": "toy"},
    **t1({"x": "[1, 2]", "y": [1, 2]}, "x > 0"),
    "KernelSpecification": {"Language": "CUDA", "KernelName": "k", "Arguments": [{"Name": "p"}]},
}
TWO = t4({"x": 1, "y": 1}, {"x": 2, "y": 2})


# -- memory -------------------------------------------------------------------------------------


# A buffer goes back to the pool it came from, maybe long after its test: pools must outlive it.
_POOLS: list[pa.MemoryPool] = []


@pytest.fixture
def arrow_memory() -> Iterator[pa.MemoryPool]:
    """Counts what Arrow allocates from here on."""
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    _POOLS.append(counting)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(usual)


@pytest.fixture
def status_bomb(tmp_path) -> Path:
    """A column of plain strings with one long word, 60 MB, in a dictionary page of a few kB."""
    path = tmp_path / "bomb.parquet"
    export_recording(small_recording(), path, "native")
    table = pq.read_table(path)
    words = pa.array(["x" * 500_000] * table.num_rows)
    table = table.set_column(table.column_names.index("status"), "status", words)
    pq.write_table(table, path, compression="zstd", use_dictionary=["status"])
    assert path.stat().st_size < 20_000
    return path


def test_a_long_status_word_in_a_dictionary_is_not_written_out(status_bomb, arrow_memory):
    with pytest.raises(SpaceFormatError, match="'status': must be one of") as raised:
        import_recording(status_bomb)
    assert len(str(raised.value)) < MESSAGE
    assert 0 < arrow_memory.max_memory() < 20_000_000


@pytest.mark.parametrize("unit", ["[],", "{},"])
def test_text_that_would_grow_in_memory_is_refused(tmp_path, unit):
    path = tmp_path / "bomb.json"
    path.write_text('{"results":[' + unit * 8_000_001 + "0]}")
    with pytest.raises(SpaceFormatError, match="at most 8000000 arrays and objects"):
        import_recording(path)


def test_gzip_that_swells_without_measure_is_refused(tmp_path):
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"results":[' + b" " * 30_000_000 + b"]}"))
    with pytest.raises(SpaceFormatError, match="swell more than 200-fold"):
        import_recording(path)


def test_columns_times_rows_are_bounded(tmp_path, monkeypatch):
    path = tmp_path / "wide.parquet"
    export_recording(small_recording(), path, "native")
    monkeypatch.setattr("llamea_gpu.spaces.formats.native._MAX_CELLS", 200)
    with pytest.raises(SpaceFormatError, match=r"configurations in . columns are read, but"):
        import_recording(path)


# -- time ---------------------------------------------------------------------------------------


def test_a_repeated_key_among_many_costs_no_quadratic_search(tmp_path):
    # A search that is quadratic would take about an hour.
    keys = ",".join(f'"k{i}":1' for i in range(400_000))
    with pytest.raises(SpaceFormatError, match="key 'z'"):
        parse_json(tmp_path, "{" + keys + ',"z":1,"z":2}')


def test_more_than_1024_parameters_are_refused(write):
    path = write(t4({f"p{i}": 1 for i in range(1_025)}))
    with pytest.raises(SpaceFormatError, match="at most 1024 parameters, but got 1025"):
        import_recording(path)
    assert len(checked_names([f"p{i}" for i in range(1_024)])) == 1_024


@pytest.mark.parametrize("load", [import_recording, lambda path: load_space(str(path))])
def test_a_pipe_is_refused_without_waiting_for_it(tmp_path, load):
    path = tmp_path / "pipe.json"
    os.mkfifo(path)
    with pytest.raises(UnknownSpaceError, match="not a regular file"):
        load(path)


def test_a_long_constraint_over_many_combinations_is_checked_on_the_rows_only(write):
    values = "list(range(1400))"
    long = " and ".join(["x*y>=0"] * 180)
    description = write(t1({"x": values, "y": values}, long), "T1.json")
    _, warnings = import_recording(write(TWO), t1=description)
    assert warnings == ("too many combinations to tell whether all valid ones were measured",)


def test_constraints_that_take_too_long_on_the_rows_are_refused(write, monkeypatch):
    monkeypatch.setattr("llamea_gpu.spaces.formats._t1._MAX_ROW_WORK", 100)
    values = "list(range(1500))"
    description = write(t1({"x": values, "y": values}, "x*y" + " + 0" * 20 + ">=0"), "T1.json")
    with pytest.raises(SpaceFormatError, match="Conditions: the constraints must be computable"):
        import_recording(write(TWO), t1=description)


# -- every fault is a SpaceFormatError ----------------------------------------------------------


HOSTILE = {
    "measurements a number": t4({"x": 1}, measurements=5),
    "unit a list": t4({"x": 1}, measurements=[{"name": "time", "value": 1, "unit": [1]}]),
    "surrogate in a name": t4({"\ud800": 1}),
    "surrogate in a value": t4({"x": "\ud800"}),
    "surrogate in the recording's name": {**OURS, "llamea_gpu": {**INFO, "name": "\ud800"}},
    "no name": {**OURS, "llamea_gpu": {**INFO, "name": ""}},
    "too many workers": {**OURS, "llamea_gpu": {**INFO, "parallel_workers": 10**12}},
    "arguments nested deeply": {**CACHE, "problem_size": json.loads("[" * 101 + "]" * 101)},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_by_name(write, case):
    path = write(HOSTILE[case])
    with pytest.raises(SpaceFormatError, match=r"^/.*file\.json: "):
        import_recording(path)


@pytest.mark.parametrize("conditions", [(), ("p0 > 0",), ("p0 > 0", "p69 + p1 < 9")])
def test_t1_may_have_more_parameters_than_numpy_has_axes(write, conditions):
    names = [f"p{i}" for i in range(70)]
    path = write(t4(*(dict.fromkeys(names, v) for v in (1, 2))))
    description = write(t1({name: [1, 2] for name in names}, *conditions), "T1.json")
    recording, warnings = import_recording(path, t1=description)
    assert recording.space.size == 2
    assert warnings == (f"{2**70 - 2:,} of {2**70:,} valid configurations were not measured",)


def test_t1_with_only_invalid_rows_is_refused(write):
    path = write(t4({"x": 1, "y": 1}, invalidity="constraints"))
    with pytest.raises(SpaceFormatError, match="no configuration was measured"):
        import_recording(path, t1=write(t1({"x": [1, 2], "y": [1]}, "x > 0"), "T1.json"))


def test_integers_beyond_1024_bits_are_refused(write):
    description = write(t1({"x": f"[1, 2, 0x{'f' * 6000}]", "y": [1, 2]}), "T1.json")
    with pytest.raises(SpaceFormatError, match="integers of at most 1024 bits") as raised:
        import_recording(write(TWO), t1=description)
    assert len(str(raised.value)) < MESSAGE
    assert checked_values("x", [2**1023]) == (2**1023,)


@pytest.mark.parametrize(
    "text", ["spaces = 3", "spaces = []", "spaces = " + "[" * 900 + "]" * 900], ids=len
)
def test_splits_of_another_shape_are_refused(tmp_path, text):
    (tmp_path / "splits.toml").write_text(text)
    with pytest.raises(SpaceFormatError, match=r"splits\.toml"):
        list_spaces([tmp_path])


@pytest.mark.parametrize("spec", ["a\0b", "a" * 5_000, "a/" * 3_000])
@pytest.mark.parametrize("load", [import_recording, load_space])
def test_a_path_that_cannot_be_one_is_unknown(spec, load):
    with pytest.raises(UnknownSpaceError) as raised:
        load(spec)
    assert len(str(raised.value)) < MESSAGE


def leaves(node: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value inside, containers included."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in items:
        yield (*place, key)
        if isinstance(child, dict | list):
            yield from leaves(child, (*place, key))


def spoilt(document: Any) -> Iterator[tuple[tuple[Any, ...], str]]:
    """The document as JSON with each leaf in turn replaced by something else."""
    for place in leaves(document):
        for replacement in ("5", "[1]", "{}", '"x"', "null", "1e400", '"\\ud800"', "true", "-1"):
            changed = copy.deepcopy(document)
            node = changed
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = "@"
            yield place, json.dumps(changed).replace('"@"', replacement)


FORMATS = {"t4": TWO, "ours": OURS, "cache": CACHE, "trace": EVENT, "t1": T1}


@pytest.mark.parametrize("name", FORMATS)
def test_any_leaf_replaced_is_imported_or_refused(tmp_path, name):
    path, description = tmp_path / "a.json", tmp_path / "T1.json"
    imported = refused = 0
    for place, text in spoilt(FORMATS[name]):
        second = json.dumps({**EVENT, "config": {"a": 2}})
        path.write_text(json.dumps(TWO) if name == "t1" else text)
        if name == "trace":
            path.write_text(f"{text}\n{second}\n")
        description.write_text(text)
        try:
            recording, _ = import_recording(path, t1=description if name == "t1" else None)
            for fmt in ("native", "t4"):
                export_recording(recording, tmp_path / "out", fmt)
            imported += 1
        except SpaceError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{place} in {text}") from error
    assert imported > 0
    assert refused > 0


# -- messages -----------------------------------------------------------------------------------


LONG = "x" * 1_000_000
VERBOSE = {
    "invalidity": t4({"x": 1}, invalidity=LONG),
    "parameter": t4({"x": 1}, {LONG: 1}),
    "more parameters": {"results": t4({"x": 1})["results"] + t4({"x": 1, LONG: 1})["results"]},
    "value repeated": {**CACHE, "tune_params": {"x": [LONG, LONG]}},
    "workers": {**OURS, "llamea_gpu": {**INFO, "name": LONG, "parallel_workers": 10**12}},
    "references": {**OURS, "llamea_gpu": {**INFO, "references_ms": {LONG: LONG}}},
    "cache key": {**CACHE, "cache": {LONG: 5}},
    "cache time": {**CACHE, "cache": {"1": {**CACHE["cache"]["1"], "time": LONG}}},
    "names twice": {**CACHE, "tune_params_keys": [LONG, LONG]},
}


@pytest.mark.parametrize("case", VERBOSE)
def test_a_message_is_short_however_large_the_file(write, case):
    with pytest.raises(SpaceError) as raised:
        import_recording(write(VERBOSE[case]))
    assert len(str(raised.value)) < MESSAGE


def test_quoting_survives_integers_that_python_does_not_spell():
    assert quoted([10**5_000, "a"]) == "[<an integer of 16610 bits>, 'a']"


# -- the rest -----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [True, 0, 1_000_000, 2.0, "2"])
def test_parallel_workers_is_an_integer_within_bounds(workers):
    with pytest.raises(SpaceError, match="parallel_workers >= 1 and <= 999999"):
        RecordingInfo("n", "k", "d", "f", parallel_workers=workers)


def test_repair_far_out_of_range_gives_the_nearest():
    grid = np.argwhere(np.ones((6, 6)))
    space = SearchSpace(["a", "b"], [range(6), range(6)], grid)
    assert space.configuration(space.repair_row((1e16, -1e16))) == (5, 0)


def test_repair_far_out_of_range_favours_no_category():
    grid = [[0, 0], [1, 0], [2, 1]]
    space = SearchSpace(["a", "b"], [("u", "v", "w"), (1, 2)], grid)
    assert space.configuration(space.repair_row((1e16, 0))) == (0, 0)
    assert space.configuration(space.repair_row((-1e16, 1))) == (2, 1)


def test_encode_refuses_another_shape():
    space = SearchSpace(["a", "b"], [(1, 2), (1, 2)], [[0, 0], [1, 1]])
    assert space.encode([]).shape == (0, 2)
    assert space.encode([1, 1]).tolist() == [[1.0, 1.0]]
    for wrong in ([[0, 0, 1, 1]], [0, 0, 1, 1], 3):
        with pytest.raises(ValueError, match=r"\(n, 2\) indices, but got shape"):
            space.encode(wrong)


@pytest.mark.parametrize("fmt", ["native", "t4", "kernel-tuner"])
def test_an_export_follows_the_umask(tmp_path, fmt):
    path = tmp_path / "out"
    before = os.umask(0o027)
    try:
        export_recording(small_recording(), path, fmt)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


CLOUD = {
    "header": {
        "kernel": "k",
        "arguments": [{"shape": [4]}],
        "names": ["a", "b[0]"],
        "values": [[1, 2], [None, "x"]],
        "ordinal": [True, False],
        "default": {"a": 1, "b": ["x"]},
        "starts": [[0, 1]],
        "facts": {"default_ms": 1.0, "cuda": "13"},
        "compilers": 2,
        "provenance": {"p": "q"},
    },
    "row": {
        "c": [0, 1],
        "how": "start",
        "status": "ok",
        "ms": 1.0,
        "lo": 0.5,
        "hi": 2.0,
        "compile_s": 1.0,
        "bench_s": 1.0,
        "source": "s",
        "at": 1.0,
        "control": 1.0,
    },
    "run": {"run": {"x": 1}},
}


def test_any_leaf_of_a_cloud_replaced_is_imported_or_refused(tmp_path):
    path, read, messages = tmp_path / "cloud.jsonl", 0, []
    for _, text in spoilt(CLOUD):
        lines = json.loads(text)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines.values()))
        try:
            import_cloud(path)
            read += 1
        except SpaceFormatError as error:
            messages.append(len(str(error)))
    assert read > 50
    assert len(messages) > 150
    assert max(messages) < MESSAGE


def test_any_leaf_of_a_native_clouds_header_replaced_is_imported_or_refused(tmp_path):
    path, messages = tmp_path / "cloud.cloud.parquet", []
    export_cloud(small_cloud(), path)
    table = pq.read_table(path)
    for _, text in spoilt(json.loads(table.schema.metadata[b"llamea_gpu"])):
        pq.write_table(table.replace_schema_metadata({b"llamea_gpu": text}), path)
        try:
            import_cloud(path)
        except SpaceFormatError as error:
            messages.append(len(str(error)))
    assert len(messages) > 200
    assert max(messages) < MESSAGE
