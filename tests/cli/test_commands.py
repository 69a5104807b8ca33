"""The command line as a user meets it: arguments, real files, what is printed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import llamea, process
from support.programs import BROKEN, climber_program

from llamea_gpu.cli import _COMMANDS, _load
from llamea_gpu.llm import BatchExchange, ChatRequest, Message

SPACE = "softmax-4096x4096"


def test_version_and_help() -> None:
    assert process("--version").stdout.startswith("llamea-gpu ")
    assert "evolve" in llamea("--help").stdout


def test_the_list_of_commands_says_what_each_says_of_itself_and_imports_none() -> None:
    code = (
        "import contextlib, sys, llamea_gpu.cli as cli\n"
        "sys.argv[1:] = ['--help']\n"
        "with contextlib.suppress(SystemExit):\n"
        "    cli.main()\n"
        "print(sorted({'numpy', 'pydantic'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=True,
    )
    *listed, imported = done.stdout.splitlines()
    assert imported == "[]"
    for name, (_, what) in _COMMANDS.items():
        assert any(line.strip("│ ") == f"{name:9}  {what}" for line in listed), name
        of_its_own = (_load(name).help or "").partition("\n\n")[0]
        assert " ".join(of_its_own.split()) == what


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    assert f"{name} [OPTIONS]" in llamea(name, "--help").stdout


def test_a_misspelt_command_is_suggested() -> None:
    assert "Did you mean 'bench'" in llamea("benhc", status=2).stderr


def test_the_shipped_recordings_are_listed_with_their_splits() -> None:
    rows = json.loads(llamea("spaces", "list", "--json").stdout)
    assert len([row for row in rows if row["kind"] == "recording"]) == 36
    splits = [row["split"] for row in rows]
    assert splits.count("train") == 13
    assert splits.count("validation") == 7


def test_show_and_features() -> None:
    shown = json.loads(llamea("spaces", "show", SPACE, "--json").stdout)
    assert shown["configurations"] == 1920
    assert shown["best"][0]["time_ms"] == shown["optimum_ms"]
    text = llamea("spaces", "show", SPACE).stdout
    assert "1920, exhaustive" in text
    for name in ("references_ms", "default_configuration"):
        assert all(key in text for key in shown[name])
    assert f"{shown['optimum_ms']:.6g} ms" in text
    features = json.loads(llamea("spaces", "features", SPACE, "--json").stdout)
    assert features["size"] == 1920
    assert "block_m" in llamea("spaces", "features", SPACE).stdout


def test_export_import_round_trip(tmp_path: Path) -> None:
    for fmt, name in (("t4", "a.json.gz"), ("kernel-tuner", "b.json"), ("native", "c.parquet")):
        llamea("spaces", "export", SPACE, "--to", fmt, "-o", tmp_path / name)
        packed = (tmp_path / name).read_bytes().startswith(b"\x1f\x8b")
        assert packed == name.endswith(".gz")
        back = tmp_path / f"{name}.parquet"
        llamea("spaces", "import", tmp_path / name, "-o", back, "--name", "again")
        shown = json.loads(llamea("spaces", "show", back, "--json").stdout)
        assert shown["name"] == "again"
        assert shown["configurations"] == 1920


def test_a_broken_file_is_an_error_that_names_it_and_leaves_nothing(
    tmp_path: Path, shared_spaces: Path
) -> None:
    broken = shared_spaces / "broken" / "truncated_T4.json.gz"
    done = llamea("spaces", "import", broken, "-o", tmp_path / "out.parquet", status=2)
    assert broken.name in done.stderr.replace("\n", "")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_cache_is_salvaged_with_a_warning(
    tmp_path: Path, shared_spaces: Path
) -> None:
    broken = shared_spaces / "broken" / "interrupted_run_unclosed.json.gz"
    done = llamea("spaces", "import", broken, "-o", tmp_path / "out.parquet")
    assert "4,214" in done.stderr  # the last row is whole: only the closing brackets are missing


def test_an_unknown_space_suggests_a_name() -> None:
    assert "matmul-2048" in llamea("spaces", "show", "matmul-2084", status=2).stderr


@pytest.mark.usefixtures("own_sandboxes")
@pytest.mark.parametrize("searcher", ["random_search", "genetic_algorithm?population_size=12"])
def test_a_run_depends_on_its_seed_alone(searcher: str) -> None:
    arguments = ("run", searcher, "--space", SPACE, "--json", "--seed")
    first, second, other = (json.loads(llamea(*arguments, seed).stdout) for seed in (1, 1, 2))
    for document in (first, second, other):
        del document["host"]
    assert first == second
    assert first["trace"] != other["trace"]
    assert first["trace"][0]["elapsed_s"] > 0


def test_own_cpu_can_be_charged() -> None:
    arguments = ("run", "iterated_local_search", "--space", SPACE, "--json")
    free, charged = (
        json.loads(llamea(*arguments, *more).stdout) for more in ((), ("--charge-cpu",))
    )
    assert charged["trace"][1]["elapsed_s"] >= free["trace"][1]["elapsed_s"]
    assert charged["trace"] != free["trace"]


def test_a_candidate_that_fails_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    done = llamea("run", file, "--space", SPACE, status=2)
    assert "return 1 / self.divisor" in done.stderr


def test_score_of_foreign_traces(tmp_path: Path) -> None:
    document = json.loads(llamea("run", "random_search", "--space", SPACE, "--json").stdout)
    file = tmp_path / "traces.csv"
    rows = [f"0,{p['elapsed_s']},{p['cost_ms'] or ''}" for p in document["trace"]]
    file.write_text("\n".join(["run,elapsed_s,cost", *rows]))
    found = json.loads(llamea("score", file, "--space", SPACE, "--json").stdout)
    assert found["runs"] == 1
    assert len(found["axis_s"]) == len(found["p_curve"]) == 1000
    assert "P " in llamea("score", file, "--space", SPACE).stdout


def test_a_bad_csv_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "traces.csv"
    file.write_text("run,elapsed_s,cost\n0,1.0,fast\n")
    assert "line 2" in llamea("score", file, "--space", SPACE, status=2).stderr


def test_bench_pairs_searchers(tmp_path: Path) -> None:
    file = tmp_path / "climber.py"
    file.write_text(climber_program(8))
    done = llamea(
        *("bench", file, "random_search", "--spaces", SPACE, "--repeats", 3, "--json"),
    )
    found = json.loads(done.stdout)["analysis"]["standings"]
    assert {entry["searcher"] for entry in found} == {str(file), "random_search"}
    assert found[0]["p"] >= found[1]["p"]


def test_bench_keeps_resumes_and_logs(tmp_path: Path) -> None:
    kept, logs = tmp_path / "kept", tmp_path / "logs"
    arguments = ("bench", "random_search", "--suite", "quick", "--repeats", 2, "-o", kept)
    llamea(*arguments, "--ioh", logs, "--report", tmp_path / "r.html")
    assert "</html>" in (tmp_path / "r.html").read_text()
    assert sorted(path.name for path in kept.iterdir()) == [
        "bench.json",
        "bench.jsonl",
        "bench.parquet",
    ]
    assert len(list(logs.rglob("*.dat"))) == 4
    table = (kept / "bench.parquet").read_bytes()
    done = llamea(*arguments)
    assert (kept / "bench.parquet").read_bytes() == table
    assert "random_search has the highest P" in done.stdout
    assert "Fewer than 5 repeats" in done.stdout
    assert "not empty" in llamea(*arguments, "--ioh", logs, status=2).stderr
    assert "a report must be" in llamea(*arguments, "--report", tmp_path, status=2).stderr
    again = ("bench", "random_search", "--suite", "quick", "--seed", 2, "-o", kept)
    assert "began with --seed 1" in llamea(*again, status=2).stderr


def test_bench_compares_with_results_from_elsewhere(tmp_path: Path) -> None:
    known = tmp_path / "known"
    common = ("--spaces", "softmax*", "--repeats", 5, "--json")
    llamea("bench", "random_search", *common, "-o", known)
    done = llamea("bench", "genetic_algorithm", *common, "--baseline-from", known)
    document = json.loads(done.stdout)
    assert {s["searcher"] for s in document["analysis"]["standings"]} == {
        "random_search",
        "genetic_algorithm",
    }
    assert len(document["analysis"]["comparisons"]) == 1


def test_bench_takes_one_choice_of_spaces() -> None:
    done = llamea("bench", "random_search", "--suite", "quick", "--spaces", SPACE, status=2)
    assert "got both" in done.stderr
    assert "benchmark_hub" in llamea("bench", "random_search", "--suite", "hub", status=2).stderr


def test_doctor_reports_a_verified_level() -> None:
    report = json.loads(llamea("doctor", "--brief", "--json").stdout)
    assert report["level"] in (1, 2, 3)


def test_exchange_by_hand(tmp_path: Path) -> None:
    request = ChatRequest("r-1", "m", (Message("user", "What is it?"),))
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(asyncio.wait_for(BatchExchange(tmp_path).complete(request), 0.2))
    assert json.loads(llamea("exchange", "pending", tmp_path, "--json").stdout) == ["r-1"]
    assert "What is it?" in llamea("exchange", "show", tmp_path, "r-1").stdout
    answer = tmp_path / "answer.md"
    answer.write_text("It is this.")
    llamea("exchange", "answer", tmp_path, "r-1", answer, "--model", "a model")
    assert json.loads(llamea("exchange", "pending", tmp_path, "--json").stdout) == []


def test_estimate_prints_and_starts_nothing(tmp_path: Path) -> None:
    done = llamea("evolve", "-o", tmp_path / "run", "--model", "m", "--estimate")
    assert "at most 48 requests" in done.stdout
    assert not (tmp_path / "run").exists()


def test_settings_errors_are_one_message(tmp_path: Path) -> None:
    done = llamea("evolve", "-o", tmp_path / "run", "--set", "repeats=1", "--model", "m", status=2)
    assert "repeats" in done.stderr
    assert "Traceback" not in done.stderr


def test_running_without_isolation_warns_and_is_recorded() -> None:
    done = llamea("run", "random_search", "--space", SPACE, "--json", "--unsafe-no-sandbox")
    assert "WARNING" in done.stderr
    assert json.loads(done.stdout)["host"]["sandbox_level"] == 0


def test_an_output_is_not_overwritten_by_accident(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    llamea("spaces", "export", SPACE, "--to", "native", "-o", file)
    assert "--force" in llamea("spaces", "import", file, "-o", file, status=2).stderr
    llamea("spaces", "export", SPACE, "--to", "native", "-o", file, "--force")
    nowhere = tmp_path / "nowhere" / "a.json"
    assert (
        "folder" in llamea("spaces", "export", SPACE, "--to", "t4", "-o", nowhere, status=2).stderr
    )


def test_one_run_takes_one_recording() -> None:
    done = llamea("run", "random_search", "--space", "validation", status=2)
    assert "validation" in done.stderr


def test_a_failing_searcher_is_named_by_bench_with_its_error(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    done = llamea("bench", file, "random_search", "--spaces", SPACE, "--repeats", 2, "--json")
    standings = json.loads(done.stdout)["analysis"]["standings"]
    found = {entry["searcher"]: entry for entry in standings}
    assert found[str(file)]["failed_runs"] == 2
    assert "ZeroDivisionError" in found[str(file)]["first_error"]
    assert found["random_search"]["first_error"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("exchange", "pending", "nowhere"),
        ("runs", "list", "nowhere"),
        ("evolve", "-o", "run", "--route", "replay", "--replay", "nowhere.jsonl"),
        ("evolve", "-o", "run", "--set", "workers=0", "--model", "m"),
        ("evolve", "-o", "run", "--set", "candidats=3", "--model", "m"),
        ("run", "random_search", "--space", SPACE, "--seed", "-1"),
    ],
    ids=lambda arguments: " ".join((*arguments[:2], arguments[-3])),
)
def test_a_mistake_is_one_message_and_leaves_nothing(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = llamea(*arguments, status=2, cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_no_program(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    done = llamea("run", tmp_path / "pipe.py", "--space", SPACE, status=2)
    assert "not a regular file" in done.stderr
