"""Which crashes are believed, and who shares a device: measuring processes that follow a script."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import IO, Any

import pytest

from llamea_gpu.engine.device_lock import device_lock
from llamea_gpu.errors import RecordingError
from llamea_gpu.recording.kernel_tuner import pool as pool_module
from llamea_gpu.recording.kernel_tuner.pool import MeasuringPool
from llamea_gpu.recording.kernel_tuner.settings import RecordSettings
from llamea_gpu.recording.kernel_tuner.worker import Order

CRASH = {"status": "runtime_error", "message": "the device is gone", "broken": True}
HANG = {"status": "timeout", "message": "over 60 s", "broken": True}
OK = {"status": "ok", "message": "", "broken": False}
UNCOMPILED = {"status": "compile_error", "message": "no", "broken": False}


class Scripted:
    """A process whose configurations are numbers of results in ``results``."""

    results: tuple[dict[str, Any], ...] = ()
    facts = dict.fromkeys(("device", "names", "values", "configurations"))
    deadline = math.inf

    def __init__(self, order: Order) -> None:
        self.order = order
        self.running: tuple[int, ...] | None = None
        reading, self._writing = os.pipe()
        self.pipe: IO[bytes] = os.fdopen(reading, "rb", buffering=0)

    def begin(self, configuration: tuple[int, ...]) -> None:
        self.running = configuration
        os.write(self._writing, b".")

    def hear(self) -> dict[str, Any]:
        assert self.running is not None
        self.pipe.read(1)
        return dict(self.results[self.running[0]])

    def stop(self) -> None:
        os.close(self._writing)
        self.pipe.close()


def measured(
    monkeypatch: pytest.MonkeyPatch, *results: dict[str, Any], until: float | None = None
) -> list[tuple[int, str]]:
    """Number and status of what is yielded, in order, up to an error."""
    monkeypatch.setattr(pool_module, "_Process", Scripted)
    monkeypatch.setattr(Scripted, "results", results)
    found: list[tuple[int, str]] = []
    with MeasuringPool(Path("kernel.py"), RecordSettings()) as pool:
        pool.start()
        try:
            for result in pool.measure([(i,) for i in range(len(results))], until):
                found.append((result["configuration"][0], result["status"]))
        except RecordingError as error:
            found.append((-1, str(error)))
    return found


def test_a_crash_is_believed_once_something_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(monkeypatch, CRASH, UNCOMPILED, CRASH, OK, CRASH)
    assert [number for number, _ in found] == [1, 0, 2, 3, 4]


def test_twenty_crashes_in_a_row_are_none_of_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(monkeypatch, OK, *[CRASH, UNCOMPILED] * 20, OK)
    assert found[0] == (0, "ok")
    assert found[-1][0] == -1
    assert "the last 20 crashed: the device is gone" in found[-1][1]
    assert {status for _, status in found[1:-1]} == {"compile_error"}


def test_crashes_among_what_runs_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(measured(monkeypatch, *[*[CRASH] * 19, OK] * 2)) == 40


def test_what_hangs_is_believed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch, HANG, HANG) == [(0, "timeout"), (1, "timeout")]


def test_after_the_deadline_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch, OK, OK, until=0.0) == []


def test_crashes_at_the_deadline_are_left_to_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([1.0, *[9.0] * 20])
    monkeypatch.setattr(pool_module, "monotonic", lambda: next(clock))
    assert measured(monkeypatch, CRASH, OK, OK, until=5.0) == []


def test_all_recorders_of_a_device_wait_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    locks = []
    for _ in range(2):
        with MeasuringPool(Path("kernel.py"), RecordSettings()) as pool:
            locks.append(pool._order(0).lock)
    assert locks[0] == locks[1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 0")
    assert device_lock(1) == Path(locks[0])
    assert device_lock(0) != Path(locks[0])
