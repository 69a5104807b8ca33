"""The native Parquet format, and everything that must be refused."""

from __future__ import annotations

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.recordings import small_recording

from llamea_gpu.errors import SpaceError, SpaceFormatError, UnknownSpaceError
from llamea_gpu.spaces.formats import export_recording, import_recording
from llamea_gpu.spaces.recording import Recording


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "small.parquet"
    export_recording(small_recording(), path, "native")
    return path


def rewrite(path, columns=None, header=None):
    """Write the file again with some columns (None: dropped) or header entries changed."""
    table = pq.read_table(path)
    for name, column in (columns or {}).items():
        place = table.column_names.index(name)
        table = table.remove_column(place)
        if column is not None:
            table = table.add_column(place, name, column)
    if header is not None:
        changed = json.loads(table.schema.metadata[b"llamea_gpu"]) | header
        table = table.replace_schema_metadata({b"llamea_gpu": json.dumps(changed).encode()})
    pq.write_table(table, path)


def test_a_row_is_a_configuration_and_a_column_a_parameter(path):
    table = pq.read_table(path)
    recording = small_recording()
    assert table.column_names == [
        *recording.space.names,
        "time_ms",
        "compile_s",
        "benchmark_s",
        "status",
    ]
    assert table.num_rows == recording.space.size
    assert table.column("block").to_pylist() == recording.space.configurations[:, 0].tolist()


def test_rows_in_another_order_give_the_same_recording(path, same):
    table = pq.read_table(path)
    pq.write_table(table.take(pa.array(np.random.default_rng(0).permutation(120))), path)
    assert same(import_recording(path)[0], small_recording())


def test_status_as_plain_strings_is_read_too(path, same):
    words = pq.read_table(path).column("status").cast(pa.string())
    rewrite(path, {"status": words})
    assert same(import_recording(path)[0], small_recording())


def test_the_format_version_is_in_the_metadata(path):
    header = json.loads(pq.read_schema(path).metadata[b"llamea_gpu"])
    assert header["format_version"] == 1


BAD_COLUMNS = {
    "missing parameter": ({"warps": None}, r"\['warps'\] are not"),
    "missing measurement": ({"benchmark_s": None}, r"\['benchmark_s'\] are not"),
    "index out of range": ({"warps": pa.array([4] * 120, pa.int64())}, "0 <= index < 4"),
    "negative index": ({"warps": pa.array([-1] * 120, pa.int64())}, "has -1"),
    "index a float": ({"warps": pa.array([0.0] * 120)}, "must hold integers, but holds double"),
    "index a string": ({"warps": pa.array(["0"] * 120)}, "must hold integers"),
    "duplicates": ({"warps": pa.array([0] * 120, pa.int8())}, "must be distinct"),
    "negative time": ({"time_ms": pa.array([-1.0] * 120)}, "time_ms must be from 1e-06"),
    "NaN time": ({"time_ms": pa.array([np.nan] * 120)}, "time_ms must be from 1e-06"),
    "empty cell": ({"compile_s": pa.array([None] + [1.0] * 119)}, "has empty cells"),
    "negative seconds": ({"compile_s": pa.array([-1.0] * 120)}, "compile_s must be from 0"),
    "unknown status": ({"status": pa.array(["fine"] * 120)}, "'fine'"),
    "status a number": ({"status": pa.array([0] * 120)}, "must hold strings"),
}


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_bad_columns_are_refused(path, case):
    columns, complaint = BAD_COLUMNS[case]
    rewrite(path, columns)
    with pytest.raises(SpaceFormatError, match=complaint):
        import_recording(path)


BAD_HEADERS = {
    "older version": ({"format_version": 0}, "format_version must be 1, but is 0"),
    "newer version": ({"format_version": 2}, "update llamea_gpu"),
    "version a bool": ({"format_version": True}, "format_version must be 1"),
    "no version": ({"format_version": None}, "format_version must be 1"),
    "values missing": (
        {"parameters": [{"name": "block"}]},
        r"parameters\[0\]: 'values' is missing",
    ),
    "a nested value": ({"parameters": [{"name": "block", "values": [[1]]}]}, "list or an object"),
    "parameters missing": ({"parameters": []}, "at least one parameter"),
    "name a number": ({"name": 7}, "'name' must be a string, but is int 7"),
    "no workers": ({"parallel_workers": 0}, "parallel_workers >= 1"),
    "workers a text": ({"parallel_workers": "16"}, "whole number"),
    "exhaustive a text": ({"exhaustive": "yes"}, "true or false"),
    "references texts": ({"references_ms": {"torch": "fast"}}, "names to numbers"),
    "provenance numbers": ({"provenance": {"note": 1}}, "names to strings"),
    "arguments a text": ({"arguments": "x"}, "JSON array"),
    "default nested": ({"default_configuration": {"a": [1]}}, "single values"),
}


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_bad_headers_are_refused(path, case):
    header, complaint = BAD_HEADERS[case]
    rewrite(path, header=header)
    with pytest.raises(SpaceFormatError, match=complaint):
        import_recording(path)


@pytest.mark.parametrize("raw", [b"{", b"[]", b"\xff\xfe", b'{"format_version": 1,' * 3])
def test_a_damaged_header_is_refused(path, raw):
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"llamea_gpu": raw}), path)
    with pytest.raises(SpaceFormatError, match="metadata"):
        import_recording(path)


@pytest.mark.parametrize(
    ("large", "said"), [(12_000_000, "at most 16,777,216 bytes"), (1000, None)]
)
def test_a_footer_of_many_megabytes_is_refused_before_it_is_parsed(path, large, said):
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, b"other": b"x" * large}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    if said is None:  # the control
        assert import_recording(path)
        return
    with pytest.raises(SpaceFormatError, match=said):
        import_recording(path)


@pytest.mark.parametrize(("groups", "fine"), [(66_000, False), (600, True)])
def test_a_footer_with_long_lists_is_refused(path, groups, fine):
    with pq.ParquetWriter(path, pa.schema({"a": pa.int8()}), write_statistics=False) as writer:
        one = pa.table({"a": pa.array([], pa.int8())})
        for _ in range(groups):
            writer.write_table(one)
    with pytest.raises(SpaceFormatError) as caught:
        import_recording(path)
    assert ("has no entry 'llamea_gpu'" in str(caught.value)) == fine


def test_a_parquet_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(SpaceFormatError, match="is not a recording"):
        import_recording(path)


@pytest.mark.parametrize("kept", [4, 8, 100, 2000, -1])
def test_a_truncated_file_is_refused(path, kept):
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(SpaceFormatError, match="not a whole Parquet file"):
        import_recording(path)


def test_damaged_bytes_never_become_other_numbers(path, same):
    """A checksum guards each page; what changes elsewhere is refused or without effect."""
    data = path.read_bytes()
    pages = data.index(b"ARROW:schema")  # the footer follows the pages
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.integers(4, pages)] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            assert same(import_recording(path)[0], small_recording())
        except SpaceFormatError:
            refused += 1
    assert refused > 200


def test_a_damaged_footer_raises_nothing_but_format_errors(path):
    data = path.read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for place in rng.integers(len(data) // 2, len(data) - 8, 4):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            import_recording(path)
        except SpaceFormatError:
            refused += 1
    assert refused > 100


def test_a_t1_file_makes_no_sense_with_it(path):
    with pytest.raises(SpaceFormatError, match="no T1 file"):
        import_recording(path, t1=path)


def test_a_missing_file_is_no_format_error(tmp_path):
    with pytest.raises(UnknownSpaceError, match="No such file"):
        import_recording(tmp_path / "nothing.parquet")


def test_a_folder_is_no_recording(tmp_path):
    with pytest.raises(UnknownSpaceError, match="directory"):
        import_recording(tmp_path)


def test_a_parameter_named_like_a_measurement_is_refused(tmp_path):
    recording = Recording.from_rows(
        ["status", "b"],
        [(1, 2), (1,)],
        [[0, 0], [1, 0]],
        [1, 2],
        [1, 1],
        [1, 1],
        [0, 0],
        small_recording().info,
    )
    with pytest.raises(SpaceError, match=r"\['status'\]"):
        export_recording(recording, tmp_path / "x.parquet", "native")
    assert os.listdir(tmp_path) == []
