"""Running for real: resuming after a kill, growing, refusing, and searchers that take a process
down."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.recordings import small_recording

from llamea_gpu.bench import BenchResults, BenchSettings, make_plan, run_bench
from llamea_gpu.bench.execution import open_journal
from llamea_gpu.errors import BenchError
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.tasks import Task, build_tasks

TASKS = build_tasks([small_recording("one", seed=1), small_recording("two", seed=2)])
RANDOM = LibrarySearcher("test:RandomSearch", "support.optimizers:RandomSearch")
RETURNS = LibrarySearcher("test:Returns", "support.optimizers:Returns")


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner.open(workers=2) as opened:
        yield opened


class Counted:
    """A runner that notes what it is asked to run."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.width = runner.width
        self.asked: list[tuple[str, str, int]] = []

    def submit(self, searcher, task, seed, **settings):  # type: ignore[no-untyped-def]
        self.asked.append((searcher.name, task.name, seed))
        return self._runner.submit(searcher, task, seed, **settings)


def bench(
    runner: object,
    searchers: list[LibrarySearcher],
    folder: Path | None,
    repeats: int = 2,
    tasks: tuple[Task, ...] = TASKS,
    settings: BenchSettings | None = None,
    baseline: BenchResults | None = None,
) -> BenchResults:
    plan = make_plan(searchers, tasks, repeats, settings or BenchSettings())
    return run_bench(plan, searchers, tasks, runner, folder=folder, baseline=baseline)


def rows_of(results: BenchResults) -> dict[object, list[int]]:
    return {key: trace.rows.tolist() for key, trace in results.runs.items()}


def test_a_folder_grows_by_what_is_new(runner: Runner, tmp_path: Path) -> None:
    whole = bench(runner, [RANDOM, RETURNS], None, repeats=3)
    counted = Counted(runner)
    bench(counted, [RANDOM], tmp_path)
    assert len(counted.asked) == 4
    bench(counted, [RANDOM], tmp_path)
    assert len(counted.asked) == 4
    bench(counted, [RETURNS], tmp_path)
    assert len(counted.asked) == 8
    grown = bench(counted, [RANDOM, RETURNS], tmp_path, repeats=3)
    assert len(counted.asked) == 12
    assert len(set(counted.asked)) == 12
    assert rows_of(grown) == rows_of(whole)
    assert grown.analysis == BenchResults.load(tmp_path).analysis
    # Own CPU time alone differs between two executions.
    found, expected = grown.analysis, whole.analysis
    assert found is not None
    assert expected is not None
    assert [s.p for s in found.standings] == [s.p for s in expected.standings]
    assert found.comparisons == expected.comparisons


def test_repeats_are_paired(runner: Runner) -> None:
    counted = Counted(runner)
    bench(counted, [RANDOM, RETURNS], None)
    seeds = {
        name: [(t, s) for n, t, s in counted.asked if n == name] for name, _, _ in counted.asked
    }
    assert seeds["test:RandomSearch"] == seeds["test:Returns"]
    assert len(set(seeds["test:Returns"])) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": BenchSettings(seed=2)}, "--seed 1 and the command says --seed 2"),
        ({"settings": BenchSettings(charge_cpu=True)}, "no --charge-cpu and the command says"),
        (
            {
                "tasks": build_tasks(
                    [small_recording("one", seed=5), small_recording("two", seed=2)]
                )
            },
            "space 'one' is not what it was",
        ),
        ({"tasks": build_tasks([*(t.recording for t in TASKS)], "parallel(4)")}, "is not what"),
        ({"tasks": TASKS[:1]}, "'two'.* is not: name it too"),
        ({"searchers": [replace(RANDOM, versions={"x": "2"})]}, "searcher .* is not what it was"),
        ({"searchers": [RETURNS], "repeats": 3}, "RandomSearch.* is not: name it too"),
    ],
)
def test_a_folder_of_something_else_is_refused(
    runner: Runner, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    bench(runner, [RANDOM], tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    arguments = {"searchers": [RANDOM], **change}
    with pytest.raises(BenchError, match=said):
        bench(runner, folder=tmp_path, **arguments)  # type: ignore[arg-type]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_two_of_a_name_are_refused() -> None:
    with pytest.raises(BenchError, match="each once"):
        make_plan([RANDOM, RANDOM], TASKS, 2, BenchSettings())


def test_one_process_at_a_time(runner: Runner, tmp_path: Path) -> None:
    with (
        open_journal(tmp_path / "bench.jsonl"),
        pytest.raises(BenchError, match="for one process"),
    ):
        bench(runner, [RANDOM], tmp_path)


def test_a_searcher_that_kills_its_process_is_counted_and_others_are_not(runner: Runner) -> None:
    dies = LibrarySearcher("test:Dies", "support.optimizers:Dies")
    results = bench(runner, [RANDOM, dies], None)
    assert {t.outcome for t in results.traces("test:Dies", "one")} == {"crashed"}
    assert {t.outcome for t in results.traces("test:RandomSearch", "one")} == {"budget"}
    assert results.analysis is not None
    worst = results.analysis.standings[-1]
    assert (worst.searcher, worst.failed_runs) == ("test:Dies", 4)
    assert "ended its worker process" in (worst.first_error or "")


def test_wrong_settings_of_a_library_end_the_bench(runner: Runner) -> None:
    wrong = LibrarySearcher("test:wrong", "support.optimizers:Returns", {"no_such": 1})
    with pytest.raises(TypeError, match="Returns"):
        bench(runner, [wrong], None)


def test_a_baseline_is_not_run_again(runner: Runner) -> None:
    known = bench(runner, [RANDOM], None, repeats=3)
    counted = Counted(runner)
    results = bench(counted, [RETURNS], None, baseline=known)
    assert {name for name, _, _ in counted.asked} == {"test:Returns"}
    assert len(results.runs) == 8
    assert results.plan.repeats == 2
    assert results.analysis is not None
    assert len(results.analysis.comparisons) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": BenchSettings(seed=2)}, "the baseline does not fit: .*settings"),
        ({"repeats": 4}, "no more repeats than its baseline"),
        ({"tasks": build_tasks([small_recording("three")])}, "lacks .'three'"),
        (
            {"tasks": build_tasks([small_recording("one", seed=7)])},
            "does not fit: the space 'one'",
        ),
    ],
)
def test_a_baseline_of_something_else_is_refused(
    runner: Runner, change: dict[str, object], said: str
) -> None:
    known = bench(runner, [RANDOM], None)
    with pytest.raises(BenchError, match=said):
        bench(runner, searchers=[RETURNS], folder=None, baseline=known, **change)  # type: ignore[arg-type]


PROGRAM = """
import sys
from pathlib import Path
from llamea_gpu.bench import BenchSettings, make_plan, run_bench
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.tasks import build_tasks
from support.recordings import small_recording

tasks = build_tasks([small_recording("one", seed=1)])
searchers = [resolve("random_search"), resolve("genetic_algorithm")]
plan = make_plan(searchers, tasks, 30, BenchSettings())
with Runner.open(workers=1) as runner:
    run_bench(plan, searchers, tasks, runner, folder=Path(sys.argv[1]))
"""


def test_kill_9_loses_only_runs_in_flight(tmp_path: Path) -> None:
    journal = tmp_path / "bench.jsonl"
    tests = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{PROGRAM}"]
    process = subprocess.Popen([*command, str(tmp_path)], start_new_session=True)
    deadline = time.monotonic() + 120
    while not journal.exists() or journal.read_bytes().count(b"\n") < 8:
        assert process.poll() is None, "the bench ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = journal.read_bytes()
    journal.write_bytes(
        kept + b'{"searcher": "random_search", "spa'
    )  # a torn line, if there is none
    lines = [json.loads(line) for line in kept.splitlines()[: kept.count(b"\n")]]
    searchers = [resolve("random_search"), resolve("genetic_algorithm")]
    plan = make_plan(searchers, TASKS[:1], 30, BenchSettings())
    with Runner.open(workers=2) as runner:
        counted = Counted(runner)
        resumed = run_bench(plan, searchers, TASKS[:1], counted, folder=tmp_path)  # type: ignore[arg-type]
        whole = run_bench(plan, searchers, TASKS[:1], runner)
    assert len(counted.asked) == 60 - len(lines)
    assert rows_of(resumed) == rows_of(whole)
    for line in lines:
        trace = resumed.traces(line["searcher"], "one")[line["repeat"]]
        assert np.array_equal(trace.elapsed_s, line["elapsed_s"])
    assert journal.read_bytes() == b""


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"nonsense",
        b'{"searcher": "test:RandomSearch", "space": "one", "repeat": 0}',
        b'{"searcher": "z", "space": "one", "repeat": 0, "cost_ms": []}',
        b"[" * 100_000,
    ],
)
def test_a_journal_from_elsewhere_is_checked(runner: Runner, tmp_path: Path, line: bytes) -> None:
    bench(runner, [RANDOM], tmp_path)
    (tmp_path / "bench.jsonl").write_bytes(line + b"\n")
    with pytest.raises(BenchError, match="line 1"):
        bench(runner, [RANDOM], tmp_path)
