"""What a user sees of a run, and what Ctrl-C does to it."""

from __future__ import annotations

import io
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

from rich.console import Console
from support.command_line import COMMAND, llamea
from support.programs import answer, climber_program

from llamea_gpu.archive import Archive
from llamea_gpu.cli.evolve import RunView
from llamea_gpu.evolution.settings import recorded_settings
from llamea_gpu.scoring import MEASURED


def shown(view: RunView, console: Console) -> str:
    stream = console.file
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


async def test_the_live_view_shows_generation_best_candidates_spending_and_time(
    harness, settings, scripted
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    answers = {(slot, 0): answer(climber_program(slot + 2)) for slot in range(4)}
    answers[(3, 0)] = answers[(3, 1)] = "no program"
    with RunView(settings, MEASURED, console, plain=False) as view:
        harness.observer = view.notify
        await harness.run(settings, scripted(answers))
    text = shown(view, console)
    for expected in ("generation", "4 of 4", "best", "no-class", "5 answers", "tokens", "s left"):
        assert expected in text


async def test_the_plain_view_is_a_line_a_candidate(harness, settings, scripted) -> None:
    console = Console(file=io.StringIO(), width=120)
    answers = {(slot, 0): answer(climber_program(slot + 2)) for slot in range(4)}
    with RunView(settings, MEASURED, console, plain=True) as view:
        harness.observer = view.notify
        await harness.run(settings, scripted(answers))
    lines = shown(view, console).splitlines()
    assert [line.split()[0] for line in lines] == ["seed", "seed", "#0", "#1", "#2", "#3"]


def test_control_c_keeps_everything_and_says_how_to_go_on(
    spaces_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    command = [*COMMAND, "evolve", "-o", str(folder), "--plain"]
    command += ["--route", "batch", "--space", "small0", "--spaces-path", str(spaces_folder)]
    command += ["--set", "repeats=2", "--set", 'seed_programs=["random_search"]']
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    requests = folder / "exchange" / "requests"
    deadline = time.monotonic() + 60
    while not (requests.is_dir() and list(requests.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "--resume" in output
    assert "Traceback" not in output
    archive = Archive.open(folder, read_only=True)
    assert list(archive.candidates()) == [-1]
    assert len(archive.calls()) > 0
    archive.close()


def test_flags_of_the_search_reach_the_run(spaces_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(climber_program(3))
    command = ["evolve", "-o", "run", "--plain"]
    command += ["--route", "batch", "--space", "small0", "--spaces-path", str(spaces_folder)]
    command += ["--model", "one", "--model", "two", "--strategy", "independent", "--seed", "3"]
    command += ["--inspire", "mine.py", "--inspire", "simulated_annealing", "--max-wall-s", "0.2"]
    command += ["--set", "repeats=2"]
    command += ["--set", 'seed_programs=["random_search"]']
    llamea(*command, cwd=tmp_path)
    with closing(Archive.open(tmp_path / "run", read_only=True)) as archive:
        settings = recorded_settings(archive.facts["settings"])
        prompts = [call.request.messages[-1].content for call in archive.calls()]
        first = [d["operator"] for d in archive.candidates().values()]
        models = {call.request.model for call in archive.calls()}
    assert settings.models == ("one", "two")
    assert settings.strategy == "independent"
    assert models <= {"one", "two"}
    assert settings.inspirations == (str(tmp_path / "mine.py"), "simulated_annealing")
    assert first == ["simulated_annealing", "mine.py", "random_search"]
    assert prompts
    assert all("small0" in prompt for prompt in prompts)
