"""The process that times a live kernel, on a CPU: what it is given, and its checks."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("helion")

import torch
import triton
from support.recorder_stages import served

from llamea_gpu.frameworks.helion import timing
from llamea_gpu.live.helion import stages
from llamea_gpu.live.helion.stages import ArgumentsTimingStage, CorrectResult, TimingData, save

RIGHT = CorrectResult(1e-2, 1e-2, scaled=False)


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = SimpleNamespace(get_empty_cache_for_benchmark=lambda: None)
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=driver))
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for module in (timing, stages):
        monkeypatch.setattr(module, "time_call", lambda call, **_: {"time_ms": called(call)})
    monkeypatch.setattr(timing, "time_window", lambda call, seconds: called(call))


def called(call: Any) -> float:
    """A "kernel" takes as many milliseconds as the first element of its result."""
    return float(call()[0])


def run(
    folder: Path,
    arguments: Any,
    data: TimingData,
    codes: dict[str, str],
    *tasks: dict[str, Any],
) -> tuple[Any, Any]:
    for name, body in codes.items():
        (folder / f"{name}.py").write_text(f"def double(x):\n    {body}\n")
    files = folder / "arguments.pt", folder / "right.pt"
    save(arguments, files[0])
    save(data, files[1])
    stage = ArgumentsTimingStage("double", *files, "cpu", {"TRITON_X": "1"})
    return served(stage, tasks)


def noting(folder: Path) -> str:
    """A right "kernel" that leaves a letter for each call."""
    opened = f"with open({str(folder / 'calls')!r}, 'a') as file:"
    return f"{opened}\n        file.write('x')\n    return 2 * x"


def test_right_ones_are_timed_and_wrong_ones_are_not(tmp_path: Path) -> None:
    x = torch.arange(1.0, 5.0)
    codes = {"right": "return 2 * x", "wrong": "return 3 * x", "raises": "raise ValueError('no')"}
    tasks = [{"path": str(tmp_path / f"{name}.py")} for name in codes]
    facts, found = run(tmp_path, (x,), TimingData(2 * x, None, RIGHT), codes, *tasks)
    assert [each["status"] for each in found] == ["ok", "incorrect", "runtime_error"]
    assert found[0]["time_ms"] == 2.0
    assert "no" in found[2]["message"]
    assert list(facts["opened_s"]) == ["imports", "cuda", "arguments", "what is right"]


def test_who_stands_by_has_gone_through_what_works(tmp_path: Path) -> None:
    x = torch.ones(3)
    codes = {"wrong": "return 3 * x", "right": noting(tmp_path)}
    tasks = [{"path": str(tmp_path / f"{name}.py")} for name in ("wrong", "right")]
    data = TimingData(2 * x, None, RIGHT)
    first, _ = run(tmp_path, (x,), data, codes, *tasks)
    assert "rehearsal" not in first["opened_s"]
    calls = (tmp_path / "calls").read_text()
    second, found = run(tmp_path, (x,), data, codes)
    assert "rehearsal" in second["opened_s"]
    assert not found
    assert len((tmp_path / "calls").read_text()) > len(calls)


def test_who_stands_by_disturbs_no_reading(tmp_path: Path) -> None:
    """What it goes through waits for the device."""
    x = torch.ones(3)
    codes = {"right": noting(tmp_path)}
    data = TimingData(2 * x, None, RIGHT)
    run(tmp_path, (x,), data, codes, {"path": str(tmp_path / "right.py")})
    calls = (tmp_path / "calls").read_text()
    with (tmp_path / "device").open("a") as reading:
        fcntl.flock(reading, fcntl.LOCK_EX)
        done = threading.Event()
        thread = threading.Thread(
            target=lambda: (run(tmp_path, (x,), data, codes), done.set()), daemon=True
        )
        thread.start()
        assert not done.wait(0.5)
        assert (tmp_path / "calls").read_text() == calls
        fcntl.flock(reading, fcntl.LOCK_UN)
        assert done.wait(30)
    assert (tmp_path / "calls").read_text() != calls


def test_what_a_kernel_changes_is_given_anew_and_compared(tmp_path: Path) -> None:
    x = torch.ones(3)
    right = CorrectResult(1e-2, 1e-2, scaled=False, changed=(0,))
    data = TimingData(2 * x, (2 * x,), right)
    codes = {
        "right": "return x.mul_(2)",
        "left_alone": "return 2 * x",
    }
    tasks = [{"path": str(tmp_path / f"{name}.py")} for name in ("right", "right", "left_alone")]
    _, found = run(tmp_path, (x,), data, codes, *tasks)
    assert [each["status"] for each in found] == ["ok", "ok", "incorrect"]


def test_finalists_are_read_side_by_side(tmp_path: Path) -> None:
    x = torch.ones(3)
    codes = {"a": "return 1.5 * x", "b": "return 1.2 * x"}
    paths = [str(tmp_path / f"{name}.py") for name in codes]
    task = {"paths": paths, "seconds": 0.01}
    _, (found,) = run(tmp_path, (x,), TimingData(x, None, RIGHT), codes, task)
    assert found["status"] == "ok"
    assert [standing[0] for standing in found["standings"]] == pytest.approx([1.5, 1.2])
    assert [len(standing) for standing in found["standings"]] == [4, 4]


def test_a_finalist_that_does_not_load_is_said(tmp_path: Path) -> None:
    task = {"paths": [str(tmp_path / "nothing.py")], "seconds": 0.01}
    x = torch.ones(3)
    _, (found,) = run(tmp_path, (x,), TimingData(x, None, RIGHT), {}, task)
    assert found["status"] == "runtime_error"
    assert not found["broken"]


def test_arguments_are_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(data: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", cut)
    with pytest.raises(OSError, match="No space"):
        save((), tmp_path / "arguments.pt")
    assert not (tmp_path / "arguments.pt").exists()
