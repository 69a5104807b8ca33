"""Which spaces there are, and finding them by name."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import os
import re
from pathlib import Path

import pytest
from support.recordings import small_recording

from llamea_gpu import toml
from llamea_gpu.bench.suites import spaces_of, suites
from llamea_gpu.errors import SpaceFormatError, UnknownSpaceError
from llamea_gpu.resources import resource_dir
from llamea_gpu.spaces.catalogue import (
    list_spaces,
    load_space,
    load_spaces,
    search_path_from_environment,
)
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.spaces.recording import STATUSES

GRIDS = {  # converted from the grid files of an earlier recorder
    "attention-2x32x1024x64",
    "cross_entropy-4096x32000",
    "layer_norm-4096x8192",
    "matmul-2048",
    "matmul_gelu-2048x8192",
    "rms_norm-16384x4096",
    "softmax-4096x4096",
    "swiglu-8192x8192",
}
KERNEL_TUNER = {
    "bilateral_filter-2048x2048",
    "convolution-2048x2048x21",
    "depthwise_convolution-32x56x56x256",
    "distance_matrix-3072x3072x256",
    "histogram-31457280",
    "matmul-2048x2048x1024",
    "nbody-24576",
    "row_norm-6144x2048",
    "reduction-16384x4096",
    "sparse_matvec-262144x64",
    "stencil-256x256x192",
}
RECORDED = {  # by this package's recorders
    "attention-4x16x4096x128",
    "chunk_scan-4x16x1x256x256",
    "fp8_matmul-4096x4096",
    "grouped_matmul-8192x2048",
    "kl_divergence-4096x16384",
    "rope-4x32x4096x128",
    *KERNEL_TUNER,
}
OTHER_SIZES_KERNEL_TUNER = {  # samples of what training kernels are at other sizes
    "bilateral_filter-4096x1024",
    "depthwise_convolution-8x112x112x256",
    "distance_matrix-6144x2048x128",
    "histogram-8388608",
    "nbody-40960",
    "sparse_matvec-524288x24",
    "stencil-512x128x192",
}
OTHER_SIZES = {
    "kl_divergence-1024x4096",
    "layer_norm-32768x2048",
    "matmul-512x4096x8192",
    "softmax-32768x1024",
    *OTHER_SIZES_KERNEL_TUNER,
}
SHIPPED = GRIDS | RECORDED | OTHER_SIZES


@pytest.fixture
def folder(tmp_path):
    """A folder with two small recordings, one of them in a subfolder, and other files."""
    (tmp_path / "deep").mkdir()
    export_recording(small_recording("one"), tmp_path / "one.parquet", "native")
    export_recording(small_recording("two"), tmp_path / "deep/two.json", "t4")
    (tmp_path / "notes.txt").write_text("no recording")
    (tmp_path / "T1.json").write_text("{}")
    (tmp_path / "run.meta.jsonl").write_text("{}")
    (tmp_path / ".hidden.parquet").write_text("")
    return tmp_path


# -- what ships ---------------------------------------------------------------------------------


def test_the_recordings_ship():
    assert {entry.name for entry in list_spaces()} == SHIPPED


def test_every_shipped_recording_loads_whole_under_its_name():
    for entry in list_spaces():
        recording = load_space(entry.name)
        assert recording.info.name == entry.name
        assert recording.info.device == "NVIDIA H200"
        one_by_one = KERNEL_TUNER | OTHER_SIZES_KERNEL_TUNER
        workers = 1 if entry.name in one_by_one else 16 if entry.name in GRIDS else 15
        assert recording.info.parallel_workers == workers
        if entry.name in OTHER_SIZES:
            assert recording.info.exhaustive != ("sample" in recording.info.provenance)
            assert 686 <= recording.space.size <= 1920
        else:
            assert recording.info.exhaustive
            assert 1536 <= recording.space.size <= 2766


def test_the_shipped_recordings_are_the_grid_files_row_by_row(shared_spaces):
    for name in GRIDS:
        packed = (shared_spaces / "helion_h200" / f"{name}.json.gz").read_bytes()
        document = json.loads(gzip.decompress(packed))
        recording = load_space(name)
        space = recording.space
        assert len(document["rows"]) == space.size
        points = list(itertools.product(*document["parameters"].values()))
        for index, status, time_ms, compile_s in document["rows"]:
            values = zip(space.values, points[index], strict=True)
            row = space.row(tuple(vs.index(v) for vs, v in values))
            assert STATUSES[recording.status[row]] == status
            assert recording.time_ms[row] == (math.inf if time_ms is None else time_ms)
            assert recording.compile_s[row] == compile_s
            assert recording.benchmark_s[row] == (0.07 if status == "ok" else 0.0)


def test_the_split_names_what_ships_and_gives_a_reason():
    document = toml.loads((resource_dir("tuning_spaces") / "splits.toml").read_text())
    assert set(document["spaces"]) <= SHIPPED
    assert len(document["reason"].split()) > 20
    for name, entry in document["spaces"].items():
        # Helion's matrix product and the CUDA one are different kernels of one name.
        assert entry["kernel"].removeprefix("cuda_") == load_space(name).info.kernel


def test_train_and_validation_share_neither_kernel_nor_shape():
    document = toml.loads((resource_dir("tuning_spaces") / "splits.toml").read_text())
    for key in ("kernel", "shape"):
        sides = [
            {e[key] for e in document["spaces"].values() if e["split"] == split}
            for split in ("train", "validation")
        ]
        assert sides[0]
        assert sides[1]
        assert not sides[0] & sides[1]


def test_other_sizes_are_those_of_training_kernels():
    suite = suites()["other-sizes"]
    assert set(suite["spaces"]) == OTHER_SIZES
    train = {load_space(name).info.kernel for name in spaces_of(["train"])}
    assert {load_space(name).info.kernel for name in OTHER_SIZES} <= train
    document = toml.loads((resource_dir("tuning_spaces") / "splits.toml").read_text())
    assert not OTHER_SIZES & set(document["spaces"])


def test_the_readme_mentions_every_shipped_recording():
    text = (resource_dir("tuning_spaces") / "README.md").read_text()
    assert all(name in text for name in SHIPPED)


# -- folders of the user ------------------------------------------------------------------------


def test_folders_are_searched_below_and_named_by_path(folder):
    found = [entry.name for entry in list_spaces([folder])]
    assert found[:-2] == sorted(SHIPPED)
    assert found[-2:] == ["deep/two", "one"]


def test_a_space_loads_by_name_from_the_search_path(folder):
    assert load_space("deep/two", [folder]).info.name == "two"


def test_a_space_loads_by_path(folder):
    assert load_space(str(folder / "deep/two.json")).info.name == "two"


def test_a_shipped_name_is_not_shadowed(folder):
    export_recording(small_recording(), folder / "matmul-2048.parquet", "native")
    assert load_space("matmul-2048", [folder]).space.size == 2304


def test_a_folders_own_splits_are_read(folder):
    (folder / "splits.toml").write_text('[spaces."deep/two"]\nsplit = "test"\n')
    splits = {entry.name: entry.split for entry in list_spaces([folder])}
    assert splits["deep/two"] == "test"
    assert splits["one"] == ""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[spaces", "malformed TOML"),
        ('[spaces.one]\nsplit = "holdout"', "spaces.one: split must be one of .* 'holdout'"),
        ('[spaces]\none = "train"', "spaces.one: split must be"),
        ("[spaces.one]", "is None"),
    ],
)
def test_bad_splits_are_refused(folder, text, complaint):
    (folder / "splits.toml").write_text(text)
    with pytest.raises(SpaceFormatError, match=complaint):
        list_spaces([folder])


def test_an_unknown_name_suggests_close_ones():
    with pytest.raises(UnknownSpaceError, match="'matmul-2084': did you mean matmul-2048"):
        load_space("matmul-2084")


def test_a_name_like_nothing_gets_a_hint():
    with pytest.raises(UnknownSpaceError, match="shows what there is"):
        load_space("zzzzzzzzzzzzzzzz")


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(UnknownSpaceError, match=re.escape(str(tmp_path / "no"))):
        list_spaces([tmp_path / "no"])


def test_the_environment_names_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("LLAMEA_GPU_SPACES", os.pathsep.join([str(tmp_path), "", "~/x"]))
    assert search_path_from_environment() == (tmp_path, Path.home() / "x")


def test_without_the_variable_there_are_none(monkeypatch):
    monkeypatch.delenv("LLAMEA_GPU_SPACES", raising=False)
    assert search_path_from_environment() == ()


def test_a_t1_beside_a_t4_file_is_used(shared_spaces):
    recording = load_space("convolution/A4000_T4", [shared_spaces / "kernel_tuner"])
    assert recording.info.exhaustive
    assert recording.info.kernel == "convolution_kernel"


def test_a_t1_beside_another_format_is_not(folder):
    (folder / "T1.json").write_text("not even JSON")
    assert load_space("one", [folder]).info.name == "one"


def test_import_warnings_become_python_warnings(shared_spaces):
    path = shared_spaces / "broken/interrupted_run_unclosed.json.gz"
    with pytest.warns(UserWarning, match="4,214 configurations kept"):
        load_space(str(path))


def test_a_split_stands_for_all_it_holds():
    found = [recording.info.name for recording in load_spaces(["validation", "matmul-2048"])]
    assert found[-1] == "matmul-2048"
    assert {entry.name for entry in list_spaces() if entry.split == "validation"} == set(found[:-1])


@pytest.mark.parametrize("specs", [[], ["training"], ["matmul-2048", "matmul-2048"], ["nowhere"]])
def test_no_space_twice_and_none_is_unknown(specs: list[str]):
    with pytest.raises(UnknownSpaceError):
        load_spaces(specs)
