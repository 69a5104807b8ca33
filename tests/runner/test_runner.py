"""The runner: library searchers in worker processes, source text in the sandbox."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.recordings import small_recording
from support.waiting import wait_until

from llamea_gpu.errors import SearcherError
from llamea_gpu.runner import Runner
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.searchers.library import LibrarySearcher, parse_settings, require
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.tasks import Task, build_tasks


@pytest.fixture(scope="module")
def task() -> Task:
    return build_tasks([small_recording()])[0]


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner.open(workers=2) as opened:
        yield opened


def library(kind: str, **settings: int | str) -> LibrarySearcher:
    return LibrarySearcher(f"test:{kind}", f"support.optimizers:{kind}", settings)


def test_a_run_depends_on_its_seed_alone_even_with_global_and_unseeded_generators(
    runner: Runner, task: Task
) -> None:
    first, again, other = (runner.run(library("Careless"), task, seed) for seed in (1, 1, 2))
    assert first.outcome == "budget"
    assert first.rows.tolist() == again.rows.tolist()
    assert first.rows.tolist() != other.rows.tolist()


def test_a_library_sees_what_a_sandboxed_candidate_sees(runner: Runner, task: Task) -> None:
    sandboxed = runner.run(resolve("random_search"), task, 5)
    local = runner.run(library("RandomSearch"), task, 5)
    assert local.rows.tolist() == sandboxed.rows.tolist()
    assert local.elapsed_s.tolist() == sandboxed.elapsed_s.tolist()
    assert (local.asks, local.revisits) == (sandboxed.asks, sandboxed.revisits)


@pytest.mark.parametrize(
    ("kind", "outcome", "said"),
    [
        ("Returns", "finished", None),
        ("Raises", "error", "ZeroDivisionError"),
        ("AsksForNonsense", "error", "configurations must be valid in this space"),
        ("Revisits", "stalled", None),
        ("Spins", "timeout", "0.2 CPU seconds"),
    ],
)
def test_how_a_run_ends_is_in_its_trace(
    runner: Runner, task: Task, kind: str, outcome: str, said: str | None
) -> None:
    trace = runner.run(library(kind), task, 1, limits=Limits(cpu_s=0.2))
    assert trace.outcome == outcome
    assert said is None or said in (trace.error or "")


def test_a_searcher_that_kills_its_process_costs_its_own_run(runner: Runner, task: Task) -> None:
    with pytest.raises(SearcherError, match=r"test:Dies ended its worker process on .* \(seed 3\)"):
        runner.run(library("Dies"), task, 3)
    assert runner.run(library("RandomSearch"), task, 5).outcome == "budget"


def test_a_pool_that_another_run_broke_is_replaced(task: Task) -> None:
    with Runner.open(workers=1) as runner:
        runner.run(library("RandomSearch"), task, 5)
        processes = runner._processes
        with pytest.raises(SearcherError):
            runner.run(library("Dies"), task, 3)
        runner._processes = processes  # the other run has not yet noticed
        assert runner.run(library("RandomSearch"), task, 5).outcome == "budget"


def test_own_cpu_time_is_charged_when_asked(runner: Runner, task: Task) -> None:
    free = runner.run(library("Thinks"), task, 1)
    charged = runner.run(library("Thinks"), task, 1, charge_cpu=True)
    assert free.cpu_s is not None
    assert free.cpu_s > 0
    assert charged.elapsed_s[-1] > free.elapsed_s[len(charged.elapsed_s) - 1]


def test_costs_come_from_the_recording(runner: Runner, task: Task) -> None:
    trace = runner.run(library("RandomSearch"), task, 1)
    assert np.array_equal(trace.cost_ms, task.recording.time_ms[trace.rows], equal_nan=False)
    assert math.isclose(trace.best_ms, task.recording.time_ms[trace.rows].min())


def test_settings_take_the_type_of_their_default() -> None:
    defaults = {"n": 4, "rate": 0.5, "greedy": False, "method": "uniform"}
    found = parse_settings("x:y", "n=7&rate=1&greedy=true&method=two_point", defaults)
    assert found == {"n": 7, "rate": 1.0, "greedy": True, "method": "two_point"}
    for query, said in (
        ("m=1", "no setting 'm': there are n, rate, greedy, method"),
        ("n=1.5", "n must be of type int like its default 4, but got '1.5'"),
        ("greedy=2", "greedy must be of type bool"),
    ):
        with pytest.raises(SearcherError) as error:
            parse_settings("x:y", query, defaults)
        assert said in str(error.value)


def test_a_missing_library_is_named_with_its_extra() -> None:
    assert require("numpy", "x", "this")
    with pytest.raises(SearcherError, match=r"pip install 'llamea-gpu\[some\]'"):
        require("no_such_package", "some", "x:y")


def test_workers_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "worker.pid"
    script = (
        "from support.recordings import small_recording\n"
        "from llamea_gpu.runner import Runner\n"
        "from llamea_gpu.searchers.library import LibrarySearcher\n"
        "from llamea_gpu.tasks import build_tasks\n"
        "with Runner.open(workers=1) as runner:\n"
        "    spinning = LibrarySearcher('test:Spinning', 'support.optimizers:Spinning',\n"
        f"        {{'pid_file': {str(pid_file)!r}}})\n"
        "    runner.run(spinning, build_tasks([small_recording()])[0], 1)\n"
    )
    tests = Path(__file__).parents[1]
    with subprocess.Popen([sys.executable, "-c", script], cwd=tests) as owner:
        wait_until(pid_file.exists)
        worker = int(pid_file.read_text())
        owner.kill()
    wait_until(lambda: not Path(f"/proc/{worker}").exists())
