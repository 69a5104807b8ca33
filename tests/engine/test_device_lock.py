"""Who shares a device's lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamea_gpu.engine.device_lock import device_lock, devices_held
from llamea_gpu.errors import RecordingError


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_device_has_one_lock_whatever_its_number_is(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = device_lock(0), device_lock(1)
    assert first != second
    assert device_lock(0) == first
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 0")
    assert device_lock(1) == first
    assert device_lock(0) not in (first, second)


def test_one_holds_it_and_others_are_told() -> None:
    with devices_held([0, 1]):
        with pytest.raises(RecordingError, match="another one is at GPU 1"), devices_held([2, 1]):
            pass
        with devices_held([2]):
            pass
    with devices_held([1]):
        pass
