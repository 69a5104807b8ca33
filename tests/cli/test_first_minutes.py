"""What somebody meets who has just installed this: slips of the pen, and what is said to them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.progress import Progress, TaskID
from support.command_line import llamea
from support.fake_openai import FakeOpenAI, error
from typer.testing import CliRunner

from llamea_gpu.archive import FILE_NAME
from llamea_gpu.cli import EXAMPLES, _load, app
from llamea_gpu.live.scripts import RECOMMENDED
from llamea_gpu.programs.shipped import shipped

SPACE = "softmax-4096x4096"


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as running:
        yield running


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "kernel_tuner:genetic", "--space", SPACE), "did you mean genetic_algorithm"),
        (("run", "nofile.py", "--space", SPACE), "there is no file nofile.py"),
        (("run", "random_search", "--space", "."), "it is a folder"),
        (("run", "random_search", "--space", "train"), "is a split"),
        (("run", "llm:m", "--space", SPACE), "OPENAI_API_KEY is not set"),
        (("tune", "--with", "llm:m", "--space", SPACE), "OPENAI_API_KEY is not set"),
        (("bench", "hybrid:llm:m+random_search", "--suite", "quick"), "OPENAI_API_KEY is not set"),
        (("bench", "random_search", "--suite", "quik"), "did you mean quick"),
        (
            ("bench", "random_search", "--spaces", "whole-train"),
            "a model must have passed its gate",
        ),
        (("export", "random_search", "--to", "kernel_tunr"), "did you mean kernel-tuner"),
        (("tune", "helion/matmull", "--with", "random_search"), "did you mean helion/matmul"),
        (("runs", "show", "nowhere"), "there is no such folder"),
        (("runs", "show", "benches"), "name one in it, such as benches/a"),
        (("runs", "show", "bench"), "it is a bench's"),
        (("bench", "random_search", "--suite", "quick", "--report", "notes"), "is no report"),
    ],
)
def test_a_slip_is_one_message_that_says_what_to_do(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "notes").write_text("mine")
    for folder, file in (("bench", "bench.json"), ("benches/a", FILE_NAME)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / file).touch()
    done = llamea(*arguments, status=2, cwd=tmp_path)
    # A message of the argument parser stands in a frame, which breaks lines.
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_framework_may_be_spelt_as_it_is_spelt_everywhere_else() -> None:
    dashed, underscored = (
        llamea("export", "random_search", "--to", spelt).stdout
        for spelt in ("kernel-tuner", "kernel_tuner")
    )
    assert dashed == underscored
    assert "class" in dashed


def test_searchers_are_listed_and_each_is_explained() -> None:
    listed = json.loads(llamea("searchers", "list", "--json").stdout)
    assert "growing_foresight" in listed["generated"]
    assert "scipy:direct" in listed["scipy"]
    table = llamea("searchers", "list").stdout
    assert all(name in table for name in ("genetic_algorithm", "LFBOTreeSearch", "hybrid:"))
    shown = json.loads(llamea("searchers", "show", "growing_foresight", "--json").stdout)
    assert shown["settings"]["model_size"] == 300
    assert shown["run"] == "h200-helion"
    assert (
        "class GrowingForesight"
        in llamea("searchers", "show", "growing_foresight", "--source").stdout
    )
    for spec in ("scipy:direct?eps=0.5", "optuna:TPESampler", "helion:LFBOTreeSearch"):
        assert json.loads(llamea("searchers", "show", spec, "--json").stdout)["settings"]
    assert "eps=0.5" in llamea("searchers", "show", "scipy:direct?eps=0.5").stdout
    assert "popsize=" in llamea("searchers", "show", "kernel_tuner:pso").stdout


def test_a_bench_that_is_stopped_says_what_is_kept_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("bench", "random_search", "--spaces", SPACE, "--repeats", 4, "--workers", 1)
    told = Progress.update

    def interrupted(bar: Progress, task: TaskID, **values: Any) -> None:
        told(bar, task, **values)
        if values["completed"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "update", interrupted)
        done = llamea(*arguments, "-o", tmp_path / "kept", status=130)
        assert f"2 of 4 runs are kept in {tmp_path / 'kept'}" in done.stderr
        assert "with -o FOLDER" in llamea(*arguments, status=130).stderr
    counts: list[int] = []
    monkeypatch.setattr(Progress, "update", lambda *_, completed, **__: counts.append(completed))
    text = llamea(*arguments, "-o", tmp_path / "kept").stdout
    assert counts[0] == 2
    assert "1.0" in text  # the speed-up over the default
    assert "0.02566 / 0.02688" in text  # the best time and the default's
    assert "Friedman" not in text


def test_a_run_that_measures_nothing_is_no_success(tmp_path: Path) -> None:
    file = tmp_path / "idle.py"
    file.write_text("class Idle:\n    def __call__(self, evaluate, space, rng):\n        pass\n")
    assert "must measure something" in llamea("run", file, "--space", SPACE, status=2).stderr


def test_a_model_without_a_price_or_a_server_is_said_before_a_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: FakeOpenAI
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none-of-yours")
    arguments = ("evolve", "-o", tmp_path / "run", "--model", "own", "--max-usd", 1)
    arguments += ("--space", SPACE, "--base-url")
    said = llamea(*arguments, "http://127.0.0.1:9/v1", status=2).stderr
    assert "--price IN,OUT" in said
    assert "--free" in said
    for free in (("--free",), ("--price", "0.5,2")):
        said = llamea(*arguments, "http://127.0.0.1:9/v1", *free, status=2).stderr
        assert "no model can be asked" in said
    server.models = error(401)
    said = llamea(*arguments, server.base_url, "--free", status=2).stderr
    assert "OPENAI_API_KEY" in said
    assert "sk-none" not in said
    assert server.received == []
    assert "two numbers" in llamea(*arguments, "x", "--price", "cheap", status=2).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_commands_help_are_of_that_command(name: str) -> None:
    command = _load(name)
    shown = llamea(name, "--help").stdout
    for example in EXAMPLES[name]:
        assert example.split()[1] in shown
        first, *arguments = shlex.split(example)
        assert first == name
        command.make_context(name, arguments)  # parses, and does not run


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name in getattr(command, "list_commands", lambda _: ())(None):
        yield from _commands(command.get_command(None, name), (*path, name))


def test_every_help_is_whole_in_a_terminal_of_80_columns() -> None:
    cut, ragged = [], []
    for path, command in _commands(typer.main.get_command(app)):
        shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"})
        assert shown.exit_code == 0
        cut += [(path, line) for line in shown.output.splitlines() if "…" in line]
        # Typer keeps the line ends of all paragraphs but the first.
        further = (command.help or "").partition("\n\n")[2]
        ragged += [(path, line) for line in further.splitlines() if len(line) > 78]
    assert cut == []
    assert ragged == []


def test_tune_has_a_searcher_of_its_own() -> None:
    assert set(RECOMMENDED.values()) <= set(shipped())
    done = llamea("tune", "--space", SPACE, "--evaluations", 3, "--json")
    assert json.loads(done.stdout)["searcher"] == RECOMMENDED["recording"]
