"""Runs on two real Ray nodes: as on this machine, whatever becomes of a node."""

from __future__ import annotations

import operator
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.answering import Answerer
from support.command_line import llamea
from support.essence import essence
from support.programs import BROKEN, answer, climber_program, random_program
from support.recordings import small_recording
from support.waiting import GENEROUS_S, wait_until

from llamea_gpu.bench import BenchSettings, make_plan, run_bench
from llamea_gpu.cluster import open_runner
from llamea_gpu.cluster.connection import connect
from llamea_gpu.cluster.runner import ClusterRunner
from llamea_gpu.errors import ClusterError, SearcherDiedError
from llamea_gpu.programs import read_program
from llamea_gpu.runner import BaseRunner, Runner
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import ProgramSearcher, Searcher, resolve
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.tasks import Trace, build_tasks

# Ray leaves the files of its processes' output to the collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
TASKS = build_tasks([small_recording("one", seed=1), small_recording("two", seed=2)])
PROGRAM = resolve("random_search")
RAISES = ProgramSearcher("raises", read_program(BROKEN))


def library(kind: str, **settings: int | str) -> LibrarySearcher:
    return LibrarySearcher(f"test:{kind}", f"support.optimizers:{kind}", settings)


assert isinstance(PROGRAM, ProgramSearcher)
SEARCHERS: tuple[Searcher, ...] = (
    PROGRAM,
    library("Careless"),
    replace(PROGRAM, name="hybrid", first=library("Returns")),
    RAISES,
)


@pytest.fixture(scope="module")
def local() -> Iterator[Runner]:
    with Runner.open(workers=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def runner(nodes: Any) -> Iterator[BaseRunner]:
    with open_runner(nodes.address) as opened:
        yield opened


def essential(trace: Trace) -> tuple[object, ...]:
    """All of a trace but CPU seconds."""
    assert trace.batch is not None
    arrays = (trace.rows, trace.elapsed_s, trace.cost_ms, trace.batch)
    ends = (trace.outcome, trace.asks, trace.revisits, trace.seed, trace.error, trace.ended_s)
    return (*(array.tobytes() for array in arrays), *ends)


def results(runner: BaseRunner, seeds: Iterable[int]) -> list[Trace]:
    runs = [runner.submit(PROGRAM, TASKS[0], seed) for seed in seeds]
    return [run.result() for run in runs]


def test_runs_are_those_of_this_machine(runner: BaseRunner, local: Runner) -> None:
    asked = [(searcher, task, seed) for searcher in SEARCHERS for task in TASKS for seed in (1, 2)]
    there = [runner.submit(*run) for run in asked]
    here = [local.submit(*run) for run in asked]
    assert [essential(f.result()) for f in there] == [essential(f.result()) for f in here]
    assert there[-1].result().outcome == "error"
    assert (runner.level, runner.width) == (local.level, 2)


def test_a_deep_queue_goes_in_blocks(
    runner: BaseRunner, local: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    launch = ClusterRunner._launch

    def noted(self: ClusterRunner, flight: Any) -> None:
        sizes.append(len(flight.futures))
        launch(self, flight)

    monkeypatch.setattr(ClusterRunner, "_launch", noted)
    runs = {
        (searcher.name, seed): runner.submit(searcher, TASKS[0], seed)
        for seed in range(40)
        for searcher in SEARCHERS[:2]
    }
    seeds = {key: run.result().seed for key, run in runs.items()}
    assert all(seed == key[1] for key, seed in seeds.items())
    assert sum(sizes) == 80
    assert max(sizes) > 4
    assert sizes[-1] == 1  # so that no core waits for another's block at the end
    assert essential(runs["random_search", 39].result()) == essential(
        local.run(PROGRAM, TASKS[0], 39)
    )


def test_what_is_computed_is_sent_there_and_back(runner: BaseRunner, local: Runner) -> None:
    for where in (runner, local):
        (only,) = where.compute(operator.getitem, TASKS, slice(1)).result()
        assert only.name == "one"
        with pytest.raises(IndexError):
            where.compute(operator.getitem, TASKS, 5).result()


def test_what_a_candidate_does_is_data_and_never_repeated(
    runner: BaseRunner, tmp_path: Path
) -> None:
    assert runner.run(library("Spins"), TASKS[0], 1, limits=Limits(cpu_s=0.2)).outcome == "timeout"
    marks = tmp_path / "marks"
    with pytest.raises(SearcherDiedError, match=r"test:DiesMarked ended its worker process on one"):
        runner.run(library("DiesMarked", marks=str(marks)), TASKS[0], 3)
    assert marks.read_text() == "x"


def test_no_result_is_lost_when_nodes_are(nodes: Any, runner: BaseRunner, local: Runner) -> None:
    def bench(where: BaseRunner) -> dict[Any, Any]:
        plan = make_plan(SEARCHERS[:2], TASKS, 25, BenchSettings())
        results = run_bench(plan, SEARCHERS[:2], TASKS, where)
        return {key: essential(trace) for key, trace in results.runs.items()}

    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(bench, runner)
        moments = random.Random()
        for _ in range(2):
            node = nodes.add()  # in this thread alone can Ray do that
            time.sleep(moments.uniform(0.0, 3.0))  # it opens a worker or a sandbox, or is at work
            nodes.kill(node)
        assert found.result() == bench(local)


def test_evolution_ends_as_on_this_machine(nodes: Any, runner: BaseRunner, tmp_path: Path) -> None:
    for number in range(2):
        recording = small_recording(f"small{number}", seed=number)
        export_recording(recording, tmp_path / f"small{number}.parquet", "native")
    config = tmp_path / "run.toml"
    config.write_text(
        f"""
        model = "canned"
        poll_s = 0.05
        spaces = ["small0", "small1"]
        spaces_path = ["{tmp_path}"]
        candidates = 4
        offspring = 2
        parents = 2
        repeats = 3
        cascade_spaces = 1
        bootstrap = 10
        max_repairs = 1
        seed_programs = ["random_search"]
        """
    )
    answers = {
        "1-0000-0": answer(climber_program(2)),
        "1-0001-0": answer(BROKEN),
        "1-0001-1": answer(random_program(4)),
        "1-0002-0": answer(climber_program(6)),
        "1-0003-0": answer(climber_program(8)),
    }
    here, there = tmp_path / "here", tmp_path / "there"
    command = ("evolve", "--config", config, "--plain")
    with Answerer(here, answers):
        llamea(*command, "-o", here, "--route", "batch", "--workers", 1)
    recording = tmp_path / "answers.jsonl"
    llamea("runs", "record", here, "-o", recording)
    replay = ("--route", "replay", "--replay", recording)
    llamea(*command, "-o", there, *replay, "--cluster", nodes.address)
    assert essence(there) == essence(here)


def test_a_node_of_another_level_is_refused_and_one_that_joins_is_left_out(
    nodes: Any, runner: BaseRunner, tmp_path: Path
) -> None:
    if runner.level < 3:
        pytest.skip("the nodes' level cannot be made another one without bubblewrap")
    expected = [essential(trace) for trace in results(runner, range(40))]

    def run_until(told: Sized) -> None:
        while not told:  # the node takes a while to begin its first run
            assert [essential(trace) for trace in results(runner, range(40))] == expected

    path = tmp_path / "bin"
    path.mkdir()
    node = nodes.add(PATH=str(path))  # no bwrap there
    try:
        with pytest.warns(UserWarning, match=r"node .* is not used.*level 2, expected 3") as told:
            run_until(told)
        assert len(told) == 1
        with pytest.raises(ClusterError, match=r"1 of 3 do not: .*sandbox level 2, expected 3"):
            open_runner(nodes.address)
    finally:
        nodes.kill(node)


DRIVER = """
import sys
from support.recordings import small_recording
from llamea_gpu.cluster import open_runner
from llamea_gpu.cluster.connection import connect
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.tasks import build_tasks
address, pid_file = sys.argv[1:]
with open_runner(address, workers=1) as runner:
    task = build_tasks([small_recording("one", seed=1)])[0]
    print(runner.run(resolve("random_search"), task, 1).rows.tolist(), flush=True)
    spinning = LibrarySearcher("test:Spinning", "support.optimizers:Spinning",
        {"pid_file": pid_file})
    runner.run(spinning, task, 1)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_nothing_goes_on_without_its_driver(
    nodes: Any, local: Runner, tmp_path: Path, end: signal.Signals
) -> None:
    pid_file = tmp_path / "worker.pid"
    # Ray Client's, for one of the two.
    address = nodes.client_address if end == signal.SIGINT else nodes.address
    command = [sys.executable, "-c", DRIVER, address, str(pid_file)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], **pipes) as driver:
        try:
            wait_until(lambda: pid_file.exists() or driver.poll() is not None)
            assert driver.poll() is None, driver.communicate()
            worker = int(pid_file.read_text())
            driver.send_signal(end)
            output, _ = driver.communicate(timeout=GENEROUS_S)
        finally:
            driver.kill()  # or a failure would wait for it for ever
    assert str(local.run(PROGRAM, TASKS[0], 1).rows.tolist()) in output
    wait_until(lambda: not Path(f"/proc/{worker}").exists())


def test_closing_ends_what_runs_and_drops_what_waits(nodes: Any, tmp_path: Path) -> None:
    with open_runner(nodes.address, workers=1) as runner:
        pid_file = tmp_path / "worker.pid"
        running = runner.submit(library("Spinning", pid_file=str(pid_file)), TASKS[0], 1)
        waiting = runner.submit(PROGRAM, TASKS[0], 1)
        wait_until(pid_file.exists)
    with pytest.raises(ClusterError, match="closed while"):
        running.result()
    with pytest.raises(CancelledError):
        waiting.result()
    with pytest.raises(ClusterError, match="must be open"):
        runner.submit(PROGRAM, TASKS[0], 1)
    worker = int(pid_file.read_text())
    wait_until(lambda: not Path(f"/proc/{worker}").exists())


def test_a_client_server_that_crashes_as_it_starts_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [ConnectionAbortedError("Starting Ray client server failed")] * 3
    asked = []

    def init(address: str, **_: object) -> None:
        asked.append(address)
        if answers:
            raise answers.pop()

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", init)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        assert connect(f"ray://{address}")
        assert asked == [f"ray://{address}"] * 4
        answers += [ConnectionAbortedError("Starting Ray client server failed")] * 4
        with pytest.raises(ClusterError, match="Starting Ray client server failed"):
            connect(f"ray://{address}")
        assert len(asked) == 8
        answers += [ConnectionAbortedError("by the head")]
        with pytest.raises(ClusterError, match="by the head"):
            connect(address)
        assert len(asked) == 9


def test_a_missing_library_and_a_wrong_address_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    for address in ("nowhere", "127.0.0.1:1", "ray://127.0.0.1:1"):
        with pytest.raises(ClusterError, match=rf"HOST:PORT .* with '{address}': "):
            open_runner(address)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'llamea-gpu\[ray\]'"):
        open_runner("ray")
