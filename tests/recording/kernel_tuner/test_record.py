"""What a recording of a live kernel holds, and that its recorder survives kernels and kills."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamea_gpu.errors import RecordingError
from llamea_gpu.recording._base import KernelTunerSettings, RecordProgress
from llamea_gpu.recording.kernel_tuner.record import record_kernel
from llamea_gpu.spaces.formats import import_recording
from llamea_gpu.spaces.recording import STATUSES, Recording

SETTINGS = KernelTunerSettings(iterations=3, command="llamea-gpu spaces record kernel-tuner dot.py")
FAULT_STATUS = {0: "ok", 1: "incorrect", 2: "runtime_error"}


@pytest.fixture(scope="module")
def recorded(
    write_script: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Recording, list[RecordProgress], Path]:
    folder = tmp_path_factory.mktemp("whole")
    seen: list[RecordProgress] = []
    output = folder / "dot.parquet"
    outcome = record_kernel(write_script(folder, unroll=(1, 2, 3)), output, SETTINGS, seen.append)
    assert outcome.recording is not None
    return outcome.recording, seen, output


def test_every_valid_configuration_is_there_and_no_other(recorded: Any) -> None:
    recording, _, _ = recorded
    found = {tuple(recording.space.value_dict(c).values()) for c in recording.space.tuples}
    product = ((u, w, f) for u in (1, 2, 3) for w in (1, 2) for f in (0, 1, 2))
    assert found == {(u, w, f) for u, w, f in product if w <= u and f * (w - 1) == 0}
    assert recording.info.exhaustive


def test_failures_keep_their_kind(recorded: Any) -> None:
    recording, _, _ = recorded
    for row in range(recording.space.size):
        values = recording.space.value_dict(recording.space.configuration(row))
        expected = "compile_error" if values["unroll"] == 3 else FAULT_STATUS[values["fault"]]
        assert STATUSES[recording.status[row]] == expected, values


def test_seconds_are_those_of_the_phases_that_were_reached(recorded: Any) -> None:
    recording, _, _ = recorded
    assert (recording.compile_s > 0).all()
    compiled = recording.status != STATUSES.index("compile_error")
    assert (recording.benchmark_s[compiled] > 0).all()
    assert (recording.benchmark_s[~compiled] == 0).all()


def test_the_file_says_how_it_came_about(recorded: Any) -> None:
    recording, _, output = recorded
    read, warnings = import_recording(output)
    assert not warnings
    assert read.info == recording.info
    assert np.array_equal(read.time_ms, recording.time_ms)
    assert (read.info.name, read.info.kernel) == ("dot-1200", "dot")
    assert read.info.framework == "kernel_tuner (C)"
    assert "clock_gettime" in read.info.kernel_source
    assert read.info.default_configuration == {"unroll": 1, "width": 1, "fault": 0}
    assert read.info.arguments[0] == {"shape": [1], "dtype": "float32"}
    assert read.info.arguments[3] == {"dtype": "int32", "value": 1200}
    provenance = read.info.provenance
    assert provenance["constraints"] == "width <= unroll\nfault * (width - 1) == 0"
    assert provenance["command"] == SETTINGS.command
    assert provenance["note"] == "a dot product"
    assert "sample" not in provenance


def test_progress_counts_up_to_all_and_estimates_the_rest(recorded: Any) -> None:
    recording, seen, _ = recorded
    assert [p.done for p in seen] == list(range(recording.space.size + 1))
    assert {p.total for p in seen} == {recording.space.size}
    assert seen[0].left_s is None
    assert all(p.left_s is not None and p.left_s > 0 for p in seen[1:-1])
    assert seen[-1].left_s == 0
    assert seen[-1].failed == int((~recording.ok).sum())


def test_the_journal_goes_once_the_recording_is_there(recorded: Any) -> None:
    _, _, output = recorded
    assert [path.name for path in output.parent.glob("dot.parquet*")] == ["dot.parquet"]


def entries(journal: Path) -> list[dict[str, Any]]:
    lines = journal.read_bytes().split(b"\n")[1:-1]
    return [entry for entry in map(json.loads, lines) if "configuration" in entry]


def test_killed_it_continues_and_measures_nothing_twice(write_script: Any, tmp_path: Path) -> None:
    script = write_script(tmp_path, unroll=(1, 2, 4, 5, 6, 8, 10, 12), width=(1,), fault=(0, 1))
    output = tmp_path / "dot.parquet"
    journal = tmp_path / "dot.parquet.journal"
    command = [sys.executable, "-m", "llamea_gpu", "spaces", "record", "kernel-tuner", str(script)]
    command += ["-o", str(output), "--iterations", "3"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (journal.exists() and len(entries(journal)) >= 3):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = entries(journal)
    assert len(before) < 16
    with journal.open("ab") as file:
        file.write(b'{"configuration": [0, 0')  # a line that the kill cut short

    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"{len(before)} of 16" in done.stderr
    recording, _ = import_recording(output)
    assert recording.space.size == 16
    rows = recording.space.rows([entry["configuration"] for entry in before])
    kept = [np.inf if entry["time_ms"] is None else entry["time_ms"] for entry in before]
    assert recording.time_ms[rows].tolist() == kept
    assert recording.compile_s[rows].tolist() == [entry["compile_s"] for entry in before]


@pytest.fixture(scope="module")
def interrupted(write_script: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script and the journal of a recording whose time was up at once."""
    folder = tmp_path_factory.mktemp("interrupted")
    script = write_script(folder, unroll=(1, 2), width=(1,), fault=(0,))
    output = folder / "dot.parquet"
    first = record_kernel(script, output, replace(SETTINGS, seconds=1e-3))
    assert first.recording is None
    assert (first.done, first.total) == (0, 2)
    assert not output.exists()
    assert first.journal.exists()
    return folder


@pytest.fixture
def begun(interrupted: Path, tmp_path: Path) -> Path:
    """A copy of it to go on with."""
    return Path(shutil.copytree(interrupted, tmp_path / "begun"))


def test_when_the_time_is_up_it_ends_in_order_and_continues(begun: Path) -> None:
    second = record_kernel(begun / "dot.py", begun / "dot.parquet", SETTINGS)
    assert second.recording is not None
    assert second.recording.space.size == 2


@pytest.mark.parametrize(
    ("found", "changed", "key"),
    [
        ("total + ", "total * 1 + ", "kernel_source"),
        ('lang="C",', 'lang="C", grid_div_x=["width"],', "launch"),
    ],
)
def test_another_kernel_does_not_continue_a_journal(
    begun: Path, found: str, changed: str, key: str
) -> None:
    script, journal = begun / "dot.py", begun / "dot.parquet.journal"
    kept = journal.read_bytes()
    script.write_text(script.read_text().replace(found, changed))
    with pytest.raises(RecordingError, match=rf"differs in {key} .*remove the journal"):
        record_kernel(script, begun / "dot.parquet", SETTINGS)
    assert journal.read_bytes() == kept


def test_nothing_but_failures_is_no_recording(write_script: Any, tmp_path: Path) -> None:
    script = write_script(tmp_path, unroll=(3,), width=(1, 2), fault=(0,))
    with pytest.raises(RecordingError, match=r"all 2 so far failed, the last with compile_error"):
        record_kernel(script, tmp_path / "dot.parquet", SETTINGS)
    # A compiler that was missing is no reason to believe the failures the next time.
    assert not list(tmp_path.glob("dot.parquet*"))


def test_two_recorders_do_not_share_a_journal(write_script: Any, tmp_path: Path) -> None:
    script = write_script(tmp_path, unroll=(1,), width=(1,), fault=(0,))
    with (tmp_path / "dot.parquet.journal").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RecordingError, match="another one has"):
            record_kernel(script, tmp_path / "dot.parquet", SETTINGS)


def test_what_hangs_is_stopped_and_recorded(
    write_script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    script = write_script(tmp_path, unroll=(1,), width=(1,), fault=(0, 3))
    outcome = record_kernel(
        script, tmp_path / "dot.parquet", replace(SETTINGS, timeout_s=8, devices=(0, 1))
    )
    assert outcome.recording is not None
    assert [STATUSES[s] for s in outcome.recording.status] == ["ok", "timeout"]
    assert outcome.recording.evaluation_s[1] >= 5  # of a sleep of 60 s
    assert not list(scratch.glob("llamea-gpu-record-*"))  # of who was killed, too


def test_a_sample_says_that_it_is_one(write_script: Any, tmp_path: Path) -> None:
    script = write_script(tmp_path, unroll=(1, 2, 4), width=(1, 2), fault=(0,))
    outcome = record_kernel(script, tmp_path / "dot.parquet", replace(SETTINGS, sample=3))
    recording = outcome.recording
    assert recording is not None
    assert recording.space.size == 3
    assert not recording.info.exhaustive
    assert "sample of 3 of 5 valid" in recording.info.provenance["sample"]
    assert {c[0] for c in recording.space.tuples} == {0, 1, 2}


def test_another_size_is_another_recording(begun: Path) -> None:
    script = begun / "dot.py"
    larger = replace(SETTINGS, sizes={"count": 2400})
    with pytest.raises(RecordingError, match="differs in arguments"):
        record_kernel(script, begun / "dot.parquet", larger)
    outcome = record_kernel(script, begun / "larger.parquet", larger)
    assert outcome.recording is not None
    info = outcome.recording.info
    assert (info.name, info.arguments[3]["value"]) == ("dot-2400", 2400)
    assert outcome.recording.ok.all()  # checked against a reference of that size


def test_a_script_that_ends_the_process_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text("import os, sys\nprint('the last words', file=sys.stderr)\nos._exit(3)\n")
    with pytest.raises(
        RecordingError, match=r"must start, but .*\(exit status 3\): the last words"
    ):
        record_kernel(script, tmp_path / "dot.parquet", SETTINGS)


def test_a_backend_that_is_not_installed_is_named(write_script: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cupy not installed"):
        record_kernel(
            write_script(tmp_path), tmp_path / "dot.parquet", replace(SETTINGS, backend="CUPY")
        )


@pytest.mark.parametrize("wrong", [{"iterations": 0}, {"timeout_s": 0.0}, {"devices": (0, 0)}])
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RecordingError, match=r"must be (> 0|distinct), but got"):
        replace(SETTINGS, **wrong)


def test_compilers_side_by_side_use_the_device_one_by_one(
    write_script: Any, tmp_path: Path
) -> None:
    script = write_script(tmp_path, unroll=(1, 2, 4, 5), width=(1,), fault=(0,))
    log = tmp_path / "log"
    write = f'{{ FILE *f = fopen("{log}", "a"); fprintf(f, "%d\\n", getpid()); fclose(f); }}'
    text = script.read_text().replace(
        "#include <stdlib.h>", "#include <stdio.h>\n#include <stdlib.h>"
    )
    text = text.replace("struct timespec", f"{write} usleep(20000); struct timespec", 1)
    script.write_text(text.replace("    return (end", f"    {write}\n    return (end"))
    outcome = record_kernel(script, tmp_path / "dot.parquet", replace(SETTINGS, compilers=3))
    assert outcome.recording is not None
    assert outcome.recording.ok.all()
    begins_and_ends = log.read_text().split()
    assert len(set(begins_and_ends)) == 3
    assert begins_and_ends[::2] == begins_and_ends[1::2]
