"""The report of a run under way, and the command."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from support.command_line import llamea, process
from support.programs import BROKEN, answer, climber_program
from support.recordings import small_recording
from support.report_material import candidate, feedback, program, write_archive

from llamea_gpu.archive import Archive
from llamea_gpu.cli import evolve
from llamea_gpu.llm import ChatAnswer, ChatRequest, Message, Usage, load_prices, save_recording
from llamea_gpu.report import LiveReport, read_source
from llamea_gpu.spaces.formats import export_recording


@pytest.fixture
def recorded(tmp_path: Path) -> list[str]:
    """Arguments of an evolution of four candidates that replays answers, on one small space."""
    spaces = tmp_path / "spaces"
    spaces.mkdir()
    export_recording(small_recording("small"), spaces / "small.parquet", "native")
    sources = [climber_program(2), BROKEN, BROKEN.replace("Faller", "Second"), climber_program(5)]
    exchanges = [
        (
            ChatRequest(f"1-{slot:04d}-0", "canned", (Message("user", f"{slot}"),)),
            ChatAnswer(answer(source), "canned", Usage(10, 5), "stop", "2026-01-01T00:00:00Z", 0.0),
        )
        for slot, source in enumerate(sources)
    ]
    recording = tmp_path / "answers.jsonl"
    save_recording(recording, exchanges)
    settings = {"repeats": 2, "max_repairs": 0, "offspring": 2, "replay_strict": "false"}
    settings |= {"seed_programs": "['random_search']", "bootstrap": 10}
    arguments = ["--route", "replay", "--replay", str(recording), "--candidates", "4"]
    arguments += ["--space", "small", "--spaces-path", str(spaces), "--plain"]
    return arguments + [f"--set={name}={value}" for name, value in settings.items()]


def test_a_run_writes_its_report_and_the_command_writes_the_same(recorded, tmp_path) -> None:
    run, live, later = tmp_path / "run", tmp_path / "live.html", tmp_path / "later.html"
    llamea("evolve", "-o", run, *recorded, "--live-report", live)
    assert "4 of 4" in live.read_text()
    assert "data-running" not in live.read_text().split("<main")[0]
    done = process("report", run, "-o", later)
    assert "MB" in done.stdout
    assert later.read_bytes() == live.read_bytes()


def test_a_report_that_cannot_be_written_ends_no_run(recorded, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    drive = evolve.drive

    def without_folder(*arguments: Any) -> Any:
        shutil.rmtree(folder)
        return drive(*arguments)

    monkeypatch.setattr(evolve, "drive", without_folder)
    done = llamea(
        *("evolve", "-o", tmp_path / "run", *recorded), "--live-report", folder / "live.html"
    )
    assert done.stderr.count("the live report could not be written") == 1
    assert (tmp_path / "run" / "best.py").is_file()


def test_it_follows_the_run_and_says_that_it_is_under_way(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "run", [candidate(-1, 0.1)], ended="")
    file = tmp_path / "live.html"
    warnings: list[str] = []
    with LiveReport(folder, file, load_prices(), warnings.append, every_s=0.01) as report:
        archive = Archive.open(folder)
        for slot in range(2):
            found = candidate(slot, 0.5, program=program(slot), feedback=feedback(0.5))
            archive.record_candidate(slot, found.to_document())
            before = file.read_bytes() if file.exists() else b""
            report.notify("settled", slot, {})
            for _ in range(3000):
                if file.exists() and file.read_bytes() != before:
                    break
                time.sleep(0.01)
            text = file.read_text()
            assert f"candidate={slot}" in text
            assert "This is how it stood at" in text
        archive.close()
    assert "This is how it stood at" not in file.read_text()
    assert warnings == []


def test_only_a_settled_candidate_is_worth_a_report(tmp_path: Path) -> None:
    folder, file = write_archive(tmp_path / "run", [], ended=""), tmp_path / "live.html"
    with LiveReport(folder, file, {}, pytest.fail, every_s=0) as report:
        for kind in ("started", "asked", "answered", "evaluating"):
            report.notify(kind, 0, {})
        time.sleep(0.1)
        assert not file.exists()
    assert file.is_file()  # once, at the end


@pytest.mark.parametrize("arguments", [("report", "."), ("report", ".", "-o", "nowhere/x.html")])
def test_a_mistake_is_one_message(arguments, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = llamea(*arguments, status=2)
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_archive_is_an_error_not_a_page(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "run", [candidate(0, 0.5)])
    data = bytearray((folder / "archive.sqlite").read_bytes())
    data[5000:9000] = b"\xff" * 4000
    (folder / "archive.sqlite").write_bytes(data)
    done = llamea("report", folder, "-o", tmp_path / "x.html", status=2)
    assert "archive.sqlite" in done.stderr.replace("\n", "")
    assert not (tmp_path / "x.html").exists()


def test_a_bench_is_read_from_its_folder(bench_folder: Path, tmp_path: Path) -> None:
    llamea("report", bench_folder, "-o", tmp_path / "b.html", "--title", "Mine")
    text = (tmp_path / "b.html").read_text()
    assert "<h1>Mine</h1>" in text
    for searcher in (s.searcher for s in read_source(bench_folder).analysis.standings):
        assert searcher in text
