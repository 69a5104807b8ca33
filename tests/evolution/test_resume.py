"""SIGKILL at any moment costs nothing but time."""

from __future__ import annotations

import concurrent.futures
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from support.answering import Answerer
from support.command_line import COMMAND, Done, llamea
from support.essence import essence
from support.programs import BROKEN, answer, climber_program, random_program
from support.recordings import small_recording

from llamea_gpu.archive import Archive
from llamea_gpu.errors import ArchiveError
from llamea_gpu.spaces.formats import export_recording

ANSWERS = {
    "1-0000-0": answer(climber_program(2)),
    "1-0001-0": "No program here.",
    "1-0001-1": answer(random_program(4)),
    "1-0002-0": answer(BROKEN),
    "1-0002-1": answer(climber_program(6)),
    "1-0003-0": answer(climber_program(2)),  # a duplicate of slot 0
    "1-0003-1": answer(climber_program(8)),
    "1-0004-0": answer(random_program(7)),
    "1-0005-0": answer(climber_program(5)),
    "1-0006-0": answer(climber_program(11)),
    "1-0007-0": answer(climber_program(12)),
}


@pytest.fixture(scope="module")
def config(spaces_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("config") / "run.toml"
    file.with_name("brought.py").write_text(climber_program(3))
    file.write_text(
        f"""
        route = "batch"
        model = "canned"
        poll_s = 0.05
        spaces = ["small0", "small1", "small2"]
        spaces_path = ["{spaces_folder}"]
        candidates = 6
        offspring = 2
        parents = 2
        repeats = 3
        cascade_spaces = 1
        bootstrap = 10
        max_repairs = 1
        workers = 1
        further_models = ["second"]
        operators = {{ refine = 1.0, explore = 1.0, crossover = 1.0, diff-edit = 0.0 }}
        inspirations = ["brought.py"]
        seed_programs = ["random_search"]
        fresh_seeds = true
        race_repeats = 1
        tuned_variants = 2
        """
    )
    return file


def evolve(folder: Path, *arguments: str, status: int = 0) -> Done:
    return llamea("evolve", "-o", folder, "--plain", *arguments, status=status)


def command(folder: Path, *arguments: str) -> list[str]:
    return [*COMMAND, "evolve", "-o", str(folder), "--plain", *arguments]


def start_or_resume(folder: Path, config: Path) -> list[str]:
    try:
        Archive.open(folder).close()
    except ArchiveError:  # killed before there was a run
        return ["--config", str(config)]
    return ["--resume"]


def complete(folder: Path, *arguments: str) -> None:
    done = subprocess.run(command(folder, *arguments), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def uninterrupted(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    with Answerer(folder, ANSWERS):
        started = time.monotonic()
        complete(folder, "--config", str(config))
        return folder, time.monotonic() - started


def test_a_finished_run_says_so(uninterrupted: tuple[Path, float], tmp_path: Path) -> None:
    folder = shutil.copytree(uninterrupted[0], tmp_path / "run")
    before = essence(folder)
    assert "this run is finished" in evolve(folder, "--resume").stdout
    assert essence(folder) == before


def kill_and_continue(folder: Path, config: Path, moments_s: list[float]) -> Answerer:
    with Answerer(folder, ANSWERS) as answerer:
        for moment_s in moments_s:
            process = subprocess.Popen(
                command(folder, *start_or_resume(folder, config)),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            time.sleep(moment_s)
            process.send_signal(signal.SIGKILL)
            process.wait()
        complete(folder, *start_or_resume(folder, config))
    return answerer


@pytest.mark.parametrize(
    ("runs", "kills"),
    [pytest.param(1, 3, id="three"), pytest.param(10, 5, id="fifty", marks=pytest.mark.slow)],
)
def test_kills_at_any_moment(
    config: Path, uninterrupted: tuple[Path, float], tmp_path: Path, runs: int, kills: int
) -> None:
    reference, duration = uninterrupted
    expected = essence(reference)
    assert [len(expected[table]) for table in ("calls", "candidates")] == [9, 8]
    models = {json.loads(row[5]) for row in expected["calls"]}
    assert models == {"canned", "second"}
    rng = random.Random(0)
    moments_s = [duration * (n + rng.random()) / (runs * kills) for n in range(runs * kills)]
    rng.shuffle(moments_s)
    folders = [tmp_path / f"run{number}" for number in range(runs)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(kill_and_continue, folder, config, moments_s[number::runs])
            for number, folder in enumerate(folders)
        ]
    answerers = [job.result() for job in jobs]
    for folder, answerer in zip(folders, answerers, strict=True):
        found = essence(folder)
        for table, rows in expected.items():
            assert found[table] == rows, table
        assert set(answerer.requests().values()) == {1}  # nothing was asked for twice


def test_a_replay_of_the_recorded_run_gives_its_archive(
    uninterrupted: tuple[Path, float], config: Path, tmp_path: Path
) -> None:
    reference, _ = uninterrupted
    recording = tmp_path / "answers.jsonl"
    runs("record", reference, "-o", recording)
    evolve(
        *(tmp_path / "run", "--config", str(config)),
        *("--route", "replay", "--replay", str(recording)),
    )
    assert essence(tmp_path / "run") == essence(reference)


def test_a_finished_run_can_be_extended(uninterrupted: tuple[Path, float], tmp_path: Path) -> None:
    reference, _ = uninterrupted
    longer = tmp_path / "run"
    shutil.copytree(reference, longer)
    with Answerer(longer, ANSWERS) as answerer:
        evolve(longer, "--resume", "--candidates", "8")
    assert len(essence(longer)["candidates"]) == 10
    assert set(answerer.requests().values()) == {1}
    refused = evolve(reference, "--resume", "--repeats", "9", status=2)
    assert "repeats" in refused.stderr


def test_a_run_goes_on_only_with_the_recordings_it_began_with(
    uninterrupted: tuple[Path, float], tmp_path: Path
) -> None:
    reference, _ = uninterrupted
    other = tmp_path / "spaces"
    other.mkdir()
    for number in range(3):
        recording = small_recording(f"small{number}", seed=number + 50)
        export_recording(recording, other / f"small{number}.parquet", "native")
    arguments = ("--resume", "--candidates", "9", "--spaces-path", str(other))
    refused = evolve(reference, *arguments, status=2)
    assert "began with" in refused.stderr.replace("\n", " ")


def test_a_mistake_in_the_settings_leaves_no_run_behind(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    refused = evolve(folder, "--config", str(config), "--space", "smal0", status=2)
    assert "small0" in refused.stderr
    assert not folder.exists()


def test_an_estimate_never_starts_or_continues(uninterrupted: tuple[Path, float]) -> None:
    reference, _ = uninterrupted
    before = (reference / "archive.sqlite").read_bytes()
    done = evolve(reference, "--resume", "--candidates", "9", "--estimate")
    assert "at most 9 requests" in done.stdout
    assert (reference / "archive.sqlite").read_bytes() == before


def test_a_finished_run_is_read_from_a_folder_that_cannot_be_written(
    uninterrupted: tuple[Path, float], tmp_path: Path
) -> None:
    reference, _ = uninterrupted
    copied = tmp_path / "run"
    copied.mkdir()
    shutil.copy(reference / "archive.sqlite", copied)
    runs("show", copied)
    assert [path.name for path in copied.iterdir()] == ["archive.sqlite"]


def test_two_processes_on_one_run_are_refused(
    uninterrupted: tuple[Path, float], config: Path
) -> None:
    import fcntl

    reference, _ = uninterrupted
    with (reference / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused = evolve(reference, "--resume", status=2)
    assert "one process at a time" in refused.stderr


def runs(*arguments: object, status: int | tuple[int, ...] = 0) -> Done:
    return llamea("runs", *arguments, status=status)


def test_runs_are_listed_and_shown(uninterrupted: tuple[Path, float]) -> None:
    reference, _ = uninterrupted
    (row,) = json.loads(runs("list", reference.parent, "--json").stdout)
    assert (row["run"], row["candidates"]) == (str(reference), 6)
    shown = runs("show", reference).stdout
    assert "best so far by generation" in shown
    assert "answers: 9" in shown
    assert "licence not stated" in " ".join(shown.split())
    assert "operators and models" in shown
    document = json.loads(runs("show", reference, "--json").stdout)
    assert len(document["candidates"]) == 8


def test_one_candidate_is_shown_with_its_program(uninterrupted: tuple[Path, float]) -> None:
    reference, _ = uninterrupted
    assert "class Climber" in runs("show", reference, "--candidate", 0).stdout
    document = json.loads(runs("show", reference, "--candidate", 2, "--json").stdout)
    assert (document["slot"], document["attempts"]) == (2, 2)
    assert "-2 to 5" in runs("show", reference, "--candidate", 99, status=2).stderr


def test_a_foreign_or_damaged_run_folder_is_one_message(tmp_path: Path) -> None:
    assert "archive.sqlite" in runs("show", tmp_path, status=2).stderr
    (tmp_path / "archive.sqlite").write_bytes(b"SQLite format 3\x00" + b"\xff" * 4096)
    assert "archive" in runs("show", tmp_path, status=2).stderr
    assert "warning" in runs("list", tmp_path).stderr


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TABLE answers",
        "UPDATE candidates SET document = '{'",
        "UPDATE candidates SET document = replace(document, 'scored', 'Scored')",
        "UPDATE calls SET messages = '[1]'",
        "UPDATE facts SET value = '{}' WHERE key = 'settings'",
        "UPDATE facts SET value = '[7]' WHERE key = 'inspirations'",
        "UPDATE candidates SET document = json_set(document, '$.behaviour[0].style', '[1]')",
    ],
)
def test_a_damaged_archive_is_one_message_or_harmless(
    uninterrupted: tuple[Path, float], tmp_path: Path, damage: str
) -> None:
    shutil.copy(uninterrupted[0] / "archive.sqlite", tmp_path)
    with closing(sqlite3.connect(tmp_path / "archive.sqlite")) as db:
        db.execute(damage)
        db.commit()
    done = runs("show", tmp_path, status=(0, 2))
    assert "Traceback" not in done.stderr


def test_what_a_model_wrote_cannot_steer_the_terminal(
    uninterrupted: tuple[Path, float], tmp_path: Path
) -> None:
    shutil.copy(uninterrupted[0] / "archive.sqlite", tmp_path)
    with closing(sqlite3.connect(tmp_path / "archive.sqlite")) as db:
        db.execute(
            "UPDATE candidates SET document = json_set(document, '$.operator', ?, "
            "'$.program.source', ?)",
            ("[/x]\x1b]0;title\x07", "x = 1  # \x1b[2J\n"),
        )
        db.commit()
    for arguments in ((), ("--candidate", 0)):
        assert "\x1b" not in runs("show", tmp_path, *arguments).stdout
