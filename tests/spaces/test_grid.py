"""Grid files: the eight real ones, and malformed ones."""

from __future__ import annotations

import gzip
import itertools
import json

import numpy as np
import pytest

from llamea_gpu.errors import SpaceFormatError
from llamea_gpu.spaces.formats import import_recording
from llamea_gpu.spaces.recording import STATUSES


def grid(**changed):
    return {
        "space": "toy-4x4",
        "framework": "helion 1.5.0",
        "device": "NVIDIA H200",
        "kernel_source": "@helion.kernel()\ndef toy(x):\n    return x\n",
        "arguments": [[[4, 4], "torch.float32"]],
        "default_config": {"block_sizes": [1, 512], "num_warps": 4, "indexing": ["pointer"] * 3},
        "parameters": {"block_m": [32, 64], "indexing": ["pointer", "tensor_descriptor"]},
        "torch_reference_ms": 0.5,
        "helion_default_ms": 0.25,
        "parallel_compile_jobs": 16,
        "rows": [[0, "ok", 2.5, 0.5], [1, "error", None, 0.25], [3, "timeout", None, 20.0]],
        **changed,
    }


def test_every_real_grid_file_is_read_row_by_row(shared_spaces):
    files = sorted((shared_spaces / "helion_h200").iterdir())
    assert len(files) == 8
    for path in files:
        document = json.loads(gzip.decompress(path.read_bytes()))
        recording, warnings = import_recording(path)
        space = recording.space
        assert warnings == ()
        assert recording.info.exhaustive
        assert recording.info.name == document["space"]
        assert recording.info.kernel == document["space"].split("-")[0]
        points = list(itertools.product(*document["parameters"].values()))
        for index, status, time_ms, compile_s in document["rows"]:
            values = zip(space.values, points[index], strict=True)
            row = space.row(tuple(vs.index(v) for vs, v in values))
            assert STATUSES[recording.status[row]] == status
            assert recording.time_ms[row] == (np.inf if time_ms is None else time_ms)
            assert recording.compile_s[row] == compile_s
            assert recording.benchmark_s[row] == (0.07 if status == "ok" else 0.0)


def test_missing_grid_points_are_a_warning(write):
    recording, warnings = import_recording(write(grid()))
    assert warnings == ("1 of 4 grid points were not recorded",)
    assert recording.space.size == 3
    assert not recording.info.exhaustive


def test_what_the_file_says_of_its_origin_is_kept(write):
    info = import_recording(write(grid()))[0].info
    assert info.name == "toy-4x4"
    assert info.kernel == "toy"
    assert info.parallel_workers == 16
    assert info.references_ms == {"torch": 0.5, "helion_default": 0.25}
    assert info.arguments == ({"shape": [4, 4], "dtype": "torch.float32"},)
    assert json.loads(info.provenance["default_config"])["num_warps"] == 4
    assert "0.07" in info.provenance["benchmark_s"]


def test_the_default_is_given_in_the_grids_parameters_even_off_the_grid(write):
    info = import_recording(write(grid()))[0].info
    assert info.default_configuration == {"block_m": 512, "indexing": "pointer"}


def test_a_default_that_the_grid_cannot_express_is_none(write):
    document = grid(default_config={"num_warps": 4})
    assert import_recording(write(document))[0].info.default_configuration is None


BAD = {
    "an index beyond": ({"rows": [[4, "ok", 1.0, 1.0]]}, r"rows\[0\]: 0 <= grid index < 4"),
    "a negative index": ({"rows": [[-1, "ok", 1.0, 1.0]]}, "grid index"),
    "an index a float": ({"rows": [[0.0, "ok", 1.0, 1.0]]}, "grid index"),
    "an index a bool": ({"rows": [[True, "ok", 1.0, 1.0]]}, "grid index"),
    "a point twice": ({"rows": [[0, "ok", 1, 1]] * 2}, r"rows\[1\]: the same configuration as"),
    "a short row": ({"rows": [[0, "ok", 1.0]]}, "must be .grid index, status"),
    "not a row": ({"rows": [7]}, "'row' must be a JSON array"),
    "unknown status": ({"rows": [[0, "fine", 1.0, 1.0]]}, "but is 'fine'"),
    "status a list": ({"rows": [[0, ["ok"], 1.0, 1.0]]}, "status must be one of"),
    "ok without a time": ({"rows": [[0, "ok", None, 1.0]]}, "number > 0 when ok"),
    "time zero": ({"rows": [[0, "ok", 0, 1.0]]}, "number > 0 when ok"),
    "a failure with a time": ({"rows": [[0, "error", 1.0, 1.0]]}, "must be null when not ok"),
    "negative seconds": ({"rows": [[0, "ok", 1.0, -1]]}, "compile_s must be a finite"),
    "no rows": ({"rows": []}, "no configuration was measured"),
    "rows an object": ({"rows": {}}, "'rows' must be a JSON array"),
    "no values": ({"parameters": {"a": []}}, "1 to .* points, but has 0"),
    "values a text": ({"parameters": {"a": "abc"}}, "array of single values"),
    "a nested value": ({"parameters": {"a": [[1]]}}, "array of single values"),
    "repeated values": ({"parameters": {"a": [1, 2, 3, 1]}, "rows": [[0, "ok", 1, 1]]}, "distinct"),
    "an astronomic grid": (
        {"parameters": {f"p{i}": list(range(100)) for i in range(50)}},
        "a grid must have 1 to",
    ),
    "no device": ({"device": None}, "'device' must be a string"),
    "odd arguments": ({"arguments": [[1]]}, r"array of \[shape, dtype\]"),
    "arguments a number": ({"arguments": 5}, r"array of \[shape, dtype\]"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_grid_files_are_refused_with_their_place(write, case):
    changed, complaint = BAD[case]
    with pytest.raises(SpaceFormatError, match=complaint):
        import_recording(write(grid(**changed)))


@pytest.mark.parametrize("config", [7, {"block_sizes": 5}, {"block_sizes": [[1], [2]]}, {}])
def test_an_odd_default_does_not_stop_the_import(write, config):
    info = import_recording(write(grid(default_config=config)))[0].info
    assert info.default_configuration is None


def test_a_t1_file_makes_no_sense_with_it(write):
    path = write(grid())
    with pytest.raises(SpaceFormatError, match="no T1 file"):
        import_recording(path, t1=path)
