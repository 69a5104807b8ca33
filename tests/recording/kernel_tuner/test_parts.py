"""The recorder's parts on their own: sample, journal, GPU facts, command."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from llamea_gpu.engine.journal import open_journal
from llamea_gpu.engine.nvidia import gpu_facts
from llamea_gpu.engine.pipeline import Outcome
from llamea_gpu.engine.worker import WAITING
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.kernel_tuner.stage import Phases, _gpus, measurement, report
from llamea_gpu.frameworks.kernel_tuner.transfers import Transfers, use
from llamea_gpu.recording.sampling import stratified_rows
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.space import SearchSpace

IDENTITY = {"journal": 1, "device": "a GPU"}


@pytest.fixture(scope="module")
def space() -> SearchSpace:
    """An uneven space: the higher the first index, the fewer configurations have it."""
    rows = [
        (a, b, c, d)
        for a in range(8)
        for b in range(8 - a)
        for c in range(6)
        for d in range(5)
        if (a * b + c) % 3 != 1 or d == 0
    ]
    return SearchSpace("abcd", [range(8), range(8), range(6), range(5)], np.array(rows))


def shares(space: SearchSpace, rows: np.ndarray) -> np.ndarray:
    """Share of each value of each parameter among some rows."""
    columns = space.configurations[rows].T.astype(int)
    counts = [
        np.bincount(c, minlength=n) for c, n in zip(columns, space.cardinalities, strict=True)
    ]
    return np.concatenate(counts) / len(rows)


def test_a_sample_is_distinct_of_its_size_and_the_same_for_a_seed(space: SearchSpace) -> None:
    rows = stratified_rows(space, 100, np.random.default_rng(1))
    assert len(set(rows.tolist())) == 100
    assert rows.tolist() == stratified_rows(space, 100, np.random.default_rng(1)).tolist()
    assert rows.tolist() != stratified_rows(space, 100, np.random.default_rng(2)).tolist()


def test_a_sample_has_every_value_in_about_its_share(space: SearchSpace) -> None:
    everything = shares(space, np.arange(space.size))
    errors = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        stratified = shares(space, stratified_rows(space, 60, rng))
        random = shares(space, rng.choice(space.size, size=60, replace=False))
        assert (stratified > 0).all()
        errors.append([np.abs(found - everything).max() for found in (stratified, random)])
    worst_stratified, worst_random = np.max(errors, axis=0)
    assert worst_stratified < worst_random / 2


def test_a_sample_of_a_real_space_has_every_value(space: SearchSpace) -> None:
    real = load_space("matmul-2048").space
    rows = stratified_rows(real, 40, np.random.default_rng(0))
    for column, cardinality in zip(real.configurations[rows].T, real.cardinalities, strict=True):
        assert len(set(column.tolist())) == cardinality


def test_a_sample_of_all_or_more_is_all_and_too_small_a_one_is_refused(space: SearchSpace) -> None:
    rng = np.random.default_rng(0)
    assert stratified_rows(space, space.size, rng).tolist() == list(range(space.size))
    assert len(stratified_rows(space, space.size + 1, rng)) == space.size
    with pytest.raises(RecordingError, match="each value of each parameter once, which takes"):
        stratified_rows(space, 5, rng)


def test_a_journal_continues_after_a_line_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with open_journal(path, IDENTITY) as journal:
        journal.append({"n": 1})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"n": 2')
    with open_journal(path, IDENTITY) as journal:
        assert journal.entries == [{"n": 1}]
        journal.append({"n": 3})
    assert path.read_bytes() == whole + b'{"n": 3}\n'


def test_a_journal_that_is_cut_in_its_first_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'{"journal": ')
    with open_journal(path, IDENTITY) as journal:
        assert journal.entries == []
    with open_journal(path, IDENTITY) as journal:
        assert journal.entries == []


def test_a_journal_of_something_else_or_damaged_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with open_journal(path, IDENTITY) as journal:
        journal.append({"n": 1})
    kept = path.read_bytes()
    with pytest.raises(RecordingError, match="differs in device"):  # noqa: SIM117
        with open_journal(path, {**IDENTITY, "device": "another"}):
            pass
    assert path.read_bytes() == kept
    path.write_bytes(kept + b"not JSON\n" + b'{"n": 2}\n')
    with pytest.raises(RecordingError, match="but line 3 of"):  # noqa: SIM117
        with open_journal(path, IDENTITY):
            pass


def fake_nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_gpu_facts_are_nvidia_smis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = "NVIDIA H200, 580.95.05, 9.0, 1980, 1980, 3201, [N/A], 31"
    fake_nvidia_smi(tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/asked; echo "{answer}"')
    facts = gpu_facts("0000:0f:00.0")
    assert facts["gpu"] == "NVIDIA H200"
    assert facts["driver"] == "580.95.05"
    assert facts["sm_clock_mhz"] == "1980"
    assert "power_limit_w" not in facts
    assert "-i 0000:0f:00.0" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize("script", ["exit 9", "echo 'No devices were found'"])
def test_without_answers_there_are_no_gpu_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    fake_nvidia_smi(tmp_path, monkeypatch, script)
    assert gpu_facts(0) == {}
    (tmp_path / "nvidia-smi").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_facts(0) == {}


class Device:
    """The methods of Kernel Tuner's DeviceInterface that a worker watches."""

    def __init__(self, units: dict[str, str] | None = None) -> None:
        self.dev = SimpleNamespace(units=units or {}, refresh_memory=lambda *_: None)

    def compile_kernel(self) -> str:
        return "compiled"

    def check_kernel_output(self) -> str:
        raise RuntimeError("incorrect")

    def benchmark(self) -> str:
        return "measured"

    def retrieve_results_to_host(self) -> list[Any]:
        return [np.zeros(3), None]


def test_what_uses_a_device_waits_until_it_is_free(tmp_path: Path) -> None:
    waiting = threading.Event()
    heard: list[str] = []

    def announce(phase: str) -> None:
        heard.append(phase)
        if phase == WAITING:
            waiting.set()

    lock = tmp_path / "device"
    device = Device()
    phases = Phases(announce, lock)
    phases.watch(device)
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert device.compile_kernel() == "compiled"
        measuring = threading.Thread(target=device.benchmark)
        measuring.start()
        assert waiting.wait(timeout=60)
        assert heard == ["compile", WAITING]
        assert set(phases.seconds) == {"compile"}
    measuring.join(timeout=60)
    assert heard == ["compile", WAITING, "benchmark"]
    assert set(phases.seconds) == {"compile", "benchmark"}


def test_of_cupys_description_the_gpus_are_enough() -> None:
    runtime = SimpleNamespace(
        getDeviceCount=lambda: 2,
        getDeviceProperties=lambda i: {"name": f"NVIDIA H{i}00".encode()},
        deviceGetPCIBusId=lambda i: f"0000:0{i}:00.0",
    )
    lines = _gpus(runtime, dict).split("\n")[:-1]  # as Kernel Tuner reads it
    found = {key.strip(): value.strip() for key, value in (line.split(":", 1) for line in lines)}
    assert found["Device 1 Name"] == "NVIDIA H100"
    assert found["Device 1 PCI Bus ID"] == "0000:01:00.0"
    del runtime.deviceGetPCIBusId
    assert _gpus(runtime, lambda: "all of it") == "all of it"


@pytest.mark.parametrize(("units", "free"), [({"time": "ms"}, True), ({}, False)])
def test_results_are_compared_while_the_next_one_has_the_gpu(
    tmp_path: Path, units: dict[str, str], free: bool
) -> None:
    lock = tmp_path / "device"
    device = Device(units)
    found: list[bool] = []

    def check() -> None:
        device.dev.refresh_memory()
        device.retrieve_results_to_host()
        with lock.open("a") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(False)
            else:
                found.append(True)

    device.check_kernel_output = check  # type: ignore[method-assign, assignment]
    Phases(lambda _: None, lock).watch(device)
    device.check_kernel_output()
    assert found == [free]


def test_a_check_has_a_gpu_from_the_refreshing_of_its_outputs_on(tmp_path: Path) -> None:
    lock = tmp_path / "device"
    heard: list[str] = []
    waiting = threading.Event()

    def announce(phase: str) -> None:
        heard.append(phase)
        if phase == WAITING:
            waiting.set()

    device = Device({"time": "ms"})
    copied = threading.Event()

    def check() -> str:
        copied.set()  # the right results, on the host
        device.dev.refresh_memory()
        return "right"

    device.check_kernel_output = check  # type: ignore[method-assign]
    phases = Phases(announce, lock)
    phases.watch(device)
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        checking = threading.Thread(target=device.check_kernel_output)
        checking.start()
        assert copied.wait(timeout=60)
        assert waiting.wait(timeout=60)
        time.sleep(0.3)
    checking.join(timeout=60)
    assert heard == ["check", WAITING, "check"]
    assert phases.seconds["check"] < 0.25  # the waiting is not charged


class GpuArray:
    """What of CuPy's arrays is used; counts the copies from the host."""

    def __init__(self, content: Any) -> None:
        self.content = np.array(content)
        self.shape, self.dtype = self.content.shape, self.content.dtype

    def copy(self) -> GpuArray:
        return GpuArray(self.content)

    def get(self, out: Any) -> None:
        out[...] = self.content

    def __setitem__(self, place: Any, other: GpuArray) -> None:
        self.content[place] = other.content


def test_outputs_are_refreshed_on_the_gpu_and_fetched_to_memory_that_is_kept() -> None:
    from_host: list[int] = []
    fetched: list[int] = []

    class Backend:
        def refresh_memory(self, gpu: Any, host: Any, wanted: Any) -> None:
            for i, each in enumerate(host):
                if wanted[i]:
                    from_host.append(i)
                    if isinstance(gpu[i], GpuArray):
                        gpu[i].content[...] = each

    class Interface:
        def __init__(self) -> None:
            self.dev = Backend()

        def retrieve_results_to_host(self, host: Any, wanted: Any, gpu: Any, _: Any) -> list[Any]:
            fetched.extend(i for i, each in enumerate(wanted) if each)
            return [np.asarray(gpu[i]) if wanted[i] else None for i in range(len(host))]

    device: Any = Interface()
    use(device, Transfers(GpuArray, np.empty_like))
    turned = np.arange(6.0).reshape(2, 3).T  # Kernel Tuner's own ways for what is not plain
    host = [np.ones(4), np.zeros((2, 3)), turned, np.float32(2.0)]
    gpu = [GpuArray(host[0]), GpuArray(host[1]), turned.copy(), host[3]]
    wanted = [False, True, True, False]
    for written in (5.0, 7.0):
        device.dev.refresh_memory(gpu, host, wanted)
        assert np.array_equal(gpu[1].content, np.zeros((2, 3)))
        gpu[1].content[...] = written  # by the kernel
        results = device.retrieve_results_to_host(host, wanted, gpu, None)
        assert np.array_equal(results[1], np.full((2, 3), written))
        assert np.array_equal(results[2], turned)
        assert results[0] is None
        assert results[3] is None
    assert from_host == [1, 2, 2]  # the plain one once
    assert fetched == [2, 2]
    assert np.array_equal(host[1], np.zeros((2, 3)))  # the kernel's work is not on the host
    other = [host[0], np.full((2, 3), 9.0), turned, host[3]]  # for another configuration
    device.dev.refresh_memory(gpu, other, wanted)
    assert np.array_equal(gpu[1].content, other[1])


def test_what_fails_in_a_phase_is_timed_and_frees_the_device(tmp_path: Path) -> None:
    device = Device()
    phases = Phases(lambda _: None, tmp_path / "device")
    phases.watch(device)
    with pytest.raises(RuntimeError, match="incorrect"):
        device.check_kernel_output()
    assert phases.current == "check"
    assert phases.seconds["check"] > 0
    assert device.benchmark() == "measured"


def test_waiting_for_the_device_is_not_charged() -> None:
    result = {"time": 2.0, "times": [1.0, 3.0], "compile_time": 500.0}
    result |= {"verification_time": 9e9, "benchmark_time": 9e9}
    details = dict(report(result, {"compile": 0.5, "check": 0.25, "benchmark": 0.5}))
    found = measurement(Outcome(0, details.pop("status"), 0.0, 0.0, details, {"compile": 7.0}))
    assert found["status"] == "ok"
    assert (found["time_ms"], found["compile_s"], found["benchmark_s"]) == (2.0, 0.5, 0.75)
    assert found["spread"] == 0.5


def test_of_what_could_not_report_the_phases_count() -> None:
    seconds = {"": 9.0, "compile": 0.5, WAITING: 9.0, "check": 0.25, "benchmark": 3.0}
    found = measurement(Outcome(0, "timeout", 0.0, 60.0, {"message": "over 60 s"}, seconds))
    assert found == {
        "status": "timeout",
        "time_ms": None,
        "compile_s": 0.5,
        "benchmark_s": 3.25,
        "spread": None,
        "message": "over 60 s",
    }


def test_a_time_that_is_none_is_an_error() -> None:
    for time_ms in (0.0, float("nan"), float("inf")):
        result = {"time": time_ms, "compile_time": 1.0}
        assert report(result, {})["status"] == "error"


def test_the_command_refuses_an_output_that_exists(tmp_path: Path) -> None:
    output = tmp_path / "there.parquet"
    output.touch()
    command = [sys.executable, "-m", "llamea_gpu", "spaces", "record", "kernel-tuner", "k.py"]
    done = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "must be a new file" in done.stderr
