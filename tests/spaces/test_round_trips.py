"""Every export imports back to the same recording, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.formats import export_recording, import_recording
from llamea_gpu.spaces.recording import Recording

FORMATS = [("native", ".parquet"), ("t4", ".json"), ("kernel-tuner", ".json")]


@pytest.mark.parametrize(("fmt", "suffix"), FORMATS)
def test_an_awkward_recording_survives(awkward, same, tmp_path, fmt, suffix):
    path = tmp_path / f"file{suffix}"
    export_recording(awkward, path, fmt)
    again, warnings = import_recording(path)
    assert same(again, awkward)
    assert warnings == ()


@pytest.mark.parametrize(("fmt", "suffix"), FORMATS)
@pytest.mark.parametrize(
    "name",
    [
        "kernel_tuner/convolution/A4000_T4.json.gz",
        "kernel_tuner/convolution_2020/RTX_3090.json.gz",
        "broken/interrupted_run_unclosed.json.gz",
    ],
)
def test_a_real_recording_survives(shared_spaces, same, tmp_path, name, fmt, suffix):
    recording, _ = import_recording(shared_spaces / name)
    path = tmp_path / f"file{suffix}"
    export_recording(recording, path, fmt)
    assert same(import_recording(path)[0], recording)


@pytest.mark.parametrize(("fmt", "suffix"), FORMATS)
def test_a_shipped_recording_survives(same, tmp_path, fmt, suffix):
    recording = load_space("attention-2x32x1024x64")
    path = tmp_path / f"file{suffix}"
    export_recording(recording, path, fmt)
    assert same(import_recording(path)[0], recording)


@pytest.mark.parametrize(("fmt", "suffix"), FORMATS)
def test_a_second_export_writes_the_same_bytes(awkward, tmp_path, fmt, suffix):
    first, second = tmp_path / f"1{suffix}", tmp_path / f"2{suffix}"
    export_recording(awkward, first, fmt)
    export_recording(import_recording(first)[0], second, fmt)
    assert first.read_bytes() == second.read_bytes()


def test_the_name_can_be_overridden(awkward, tmp_path):
    for fmt, suffix in FORMATS:
        path = tmp_path / f"{fmt}{suffix}"
        export_recording(awkward, path, fmt)
        assert import_recording(path, name="mine")[0].info.name == "mine"


def test_an_unknown_format_is_refused(awkward, tmp_path):
    with pytest.raises(SpaceError, match="'csv'"):
        export_recording(awkward, tmp_path / "file.csv", "csv")


@pytest.mark.parametrize(("fmt", "suffix"), FORMATS)
def test_a_failed_export_leaves_the_old_file_and_nothing_else(tmp_path, fmt, suffix, monkeypatch):
    path = tmp_path / f"file{suffix}"
    path.write_text("old")
    broken = object.__new__(Recording)  # every attribute is missing
    with pytest.raises(AttributeError):
        export_recording(broken, path, fmt)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "old"


def test_seconds_survive_whatever_their_bits(awkward, same, tmp_path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**62, awkward.space.size, dtype=np.uint64)
    seconds = bits.view(np.float64)
    seconds = np.where(np.isfinite(seconds) & (seconds > 1e-200) & (seconds < 1e200), seconds, 1.0)
    recording = Recording(
        awkward.space, awkward.time_ms, seconds, seconds[::-1], awkward.status, awkward.info
    )
    for fmt, suffix in FORMATS:
        path = tmp_path / f"{fmt}{suffix}"
        export_recording(recording, path, fmt)
        assert same(import_recording(path)[0], recording), fmt
