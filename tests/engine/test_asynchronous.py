"""The pipeline as live tuning uses it: submit and wait, spares, equal code once, forked stages."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.recorder_stages import FakeStage, trail

from llamea_gpu.engine.early import inherited
from llamea_gpu.engine.limits import AdaptiveLimit, Limits
from llamea_gpu.engine.pipeline import _SPARES_AFTER, Outcome, Pipeline, Task
from llamea_gpu.engine.template import ForkedTemplate
from llamea_gpu.engine.worker import WAITING, Channel, Worker

LIMITS = Limits(compile_s=5.0, timing_s=5.0, start_s=60.0)


def pipeline(folder: Path, compilers: int = 1, seconds: float = 0.0, **options: Any) -> Pipeline:
    compiling = [FakeStage("compile", folder, seconds)] * compilers
    return Pipeline(compiling, [FakeStage("time", folder, seconds)], folder, LIMITS, **options)


def all_of(running: Pipeline) -> dict[int, Outcome]:
    found: dict[int, Outcome] = {}
    while outcomes := running.wait():
        found |= {outcome.point: outcome for outcome in outcomes}
    return found


def test_what_is_submitted_comes_as_it_is_finished(tmp_path: Path) -> None:
    with pipeline(tmp_path, compilers=2) as running:
        assert running.wait() == []
        running.submit([Task(0, {"x": 0}), Task(1, {"x": 1})])
        assert running.pending == 2
        first = running.wait()
        running.submit([Task(2, {"x": 2})])
        found = {outcome.point for outcome in first} | set(all_of(running))
        assert found == {0, 1, 2}
        assert running.pending == 0


def test_equal_code_is_timed_once(tmp_path: Path) -> None:
    with pipeline(tmp_path, compilers=2, deduplicate=True) as running:
        running.submit([Task(x, {"x": x, "code": "same"}) for x in range(4)])
        found = all_of(running)
        running.submit([Task(4, {"x": 4, "code": "same"}), Task(5, {"x": 5, "code": "other"})])
        found |= all_of(running)
    timed = [x for x in trail(tmp_path) if x["kind"] == "time" and x["event"] == "end"]
    assert len(timed) == 2
    assert sorted(found) == list(range(6))
    assert len({found[x].details["time_ms"] for x in range(5)}) == 1
    assert sum("same_as" in found[x].details for x in range(6)) == 4
    assert [found[x].compile_s for x in range(5)] == [0.5, 1.5, 2.5, 3.5, 4.5]


def test_failed_code_is_not_timed_again_for_its_equals(tmp_path: Path) -> None:
    with pipeline(tmp_path, deduplicate=True) as running:
        running.submit([Task(x, {"x": x, "code": "same", "time": "error"}) for x in range(3)])
        found = all_of(running)
    assert [found[x].status for x in range(3)] == ["incorrect"] * 3
    timed = [x for x in trail(tmp_path) if x["kind"] == "time" and x["event"] == "begin"]
    assert len(timed) == 1


@pytest.mark.parametrize("start", ["crash-later", "hang-later"])
def test_a_spare_that_does_not_open_is_done_without(tmp_path: Path, start: str) -> None:
    """There may be no memory on the device for one more copy of the arguments."""
    timing = FakeStage("time", tmp_path, 0.02, start=start)
    limits = Limits(compile_s=5.0, timing_s=5.0, start_s=3.0 if start == "hang-later" else 60.0)
    compiling = [FakeStage("compile", tmp_path)]
    with Pipeline(compiling, [timing], tmp_path, limits, spares=2) as running:
        running.submit([Task(x, {"x": x}) for x in range(_SPARES_AFTER)])
        all_of(running)
        assert len(running._timing.workers) == 3
        deadline = time.monotonic() + 60
        while len(running._timing.workers) > 1:
            assert time.monotonic() < deadline
            running._step(time.monotonic() + 0.1)
        running.submit([Task(x, {"x": x}) for x in range(_SPARES_AFTER, 2 * _SPARES_AFTER)])
        found = all_of(running)
    assert [outcome.status for outcome in found.values()] == ["ok"] * _SPARES_AFTER


def test_a_spare_goes_on_where_a_timing_process_is_lost(tmp_path: Path) -> None:
    with pipeline(tmp_path, spares=1) as running:
        running.submit([Task(x, {"x": x}) for x in range(10, 10 + _SPARES_AFTER)])
        all_of(running)
        assert len(running._timing.workers) == 2
        deadline = time.monotonic() + 30
        while not all(worker.idle for worker in running._timing.workers):
            assert time.monotonic() < deadline
            running._step(time.monotonic() + 0.1)
        running.submit([Task(0, {"x": 0, "time": "broken"}), Task(1, {"x": 1})])
        found = all_of(running)
    assert [found[x].status for x in (0, 1)] == ["runtime_error", "ok"]
    events = [(x["event"], x["pid"]) for x in trail(tmp_path) if x["kind"] == "time"]
    begun = [pid for event, pid in events if event == "begin"][_SPARES_AFTER:]
    opened = [pid for event, pid in events if event == "open"]
    assert begun[1] != begun[0]
    assert begun[1] in opened[:2]  # it stood by before the other was lost


def test_spares_are_started_at_once_where_a_device_is_lost_early(tmp_path: Path) -> None:
    """A kernel that loses one loses more; the one that takes over is not held up by them."""
    with pipeline(tmp_path, spares=2) as running:
        running.submit([Task(0, {"x": 0, "time": "broken"})])
        found = all_of(running)
        assert len(running._timing.workers) == 1
        running.submit([Task(1, {"x": 1})])
        found |= all_of(running)
        assert len(running._timing.workers) == 3
    assert [found[x].status for x in (0, 1)] == ["runtime_error", "ok"]


def test_only_so_many_processes_open_at_once(tmp_path: Path) -> None:
    both = [FakeStage("compile", tmp_path)] * 5
    with Pipeline(both, (), tmp_path, LIMITS, opening=2) as running:
        assert len(running._compiling.workers) == 2
        running.submit([Task(x, {"x": x}) for x in range(30)])
        deadline = time.monotonic() + 60
        most = 0
        while not (len(running._compiling.workers) == 5 and not most_opening(running)):
            assert time.monotonic() < deadline
            running._step(time.monotonic() + 0.1)
            most = max(most, most_opening(running))
        assert most <= 2
        assert sorted(all_of(running)) == list(range(30))
    assert len({x["pid"] for x in trail(tmp_path) if x["event"] == "open"}) == 5


def most_opening(running: Pipeline) -> int:
    return sum(worker.facts is None for worker in running._compiling.workers)


def test_timing_is_told_what_is_hopeless(tmp_path: Path) -> None:
    with pipeline(tmp_path, hopeless=3.0) as running:
        found = {}
        for x in (4, 1, 2):
            running.submit([Task(x, {"x": x})])
            found |= all_of(running)
    assert found[4].details["give_up_ms"] == float("inf")
    assert found[1].details["give_up_ms"] == 3.0 * 5.0
    assert found[2].details["give_up_ms"] == 3.0 * 2.0


def test_dropping_ends_what_is_under_way_and_the_rest_goes_on(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.submit([Task(0, {"x": 0})])
        all_of(running)
        running.submit([Task(1, {"x": 1, "compile": "hang"}), Task(2, {"x": 2})])
        assert running.wait(time.monotonic() + 0.3) == []
        assert sorted(running.drop()) == [1, 2]
        assert running.pending == 0
        running.submit([Task(3, {"x": 3})])
        assert set(all_of(running)) == {3}


@dataclass(frozen=True)
class Unpicklable:
    """A stage that only a fork can have."""

    function: Callable[[int], int]

    def run(self, channel: Channel) -> None:
        def handle(task: Mapping[str, Any]) -> Mapping[str, Any]:
            value = self.function(task["x"])
            return {"status": "ok", "time_ms": value, "pid": os.getpid()}

        channel.serve({"of": os.getppid()}, handle)


def test_forks_of_this_process_have_its_memory_and_end_with_the_pipeline(tmp_path: Path) -> None:
    memory = {"factor": 3}
    stage = Unpicklable(lambda x: memory["factor"] * x)
    with (
        inherited(stage) as stand_in,
        ForkedTemplate(tmp_path / "template.log") as template,
        Pipeline([stand_in] * 2, [], tmp_path, LIMITS, template) as running,
    ):
        running.submit([Task(x, {"x": x}) for x in range(1, 5)])
        found = all_of(running)
        pids = {outcome.details["pid"] for outcome in found.values()}
        assert running.facts()[0]["of"] == template.pid
        os.kill(next(iter(pids)), signal.SIGKILL)
        running.submit([Task(x, {"x": x}) for x in range(5, 9)])
        found |= all_of(running)
    assert {x: outcome.details["time_ms"] for x, outcome in found.items()} == {
        x: 3 * x for x in range(1, 9)
    }
    for outcome in found.values():
        with pytest.raises(ProcessLookupError):
            os.kill(outcome.details["pid"], 0)


def test_one_that_is_killed_in_a_lock_of_all_forks_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tqdm.std import TqdmDefaultWriteLock, tqdm

    lock = TqdmDefaultWriteLock()  # of all forks, as the first bar of a process makes it
    monkeypatch.setattr(lock, "locks", [multiprocessing.RLock()])
    monkeypatch.setattr(tqdm, "_lock", lock, raising=False)

    def handle(x: int) -> int:
        with tqdm.get_lock():
            if x == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        tqdm(disable=True)  # as PyTorch does when it interprets a graph
        return x

    with (
        inherited(Unpicklable(handle)) as stage,
        ForkedTemplate(tmp_path / "template.log") as template,
        Pipeline([stage], [], tmp_path, Limits(start_s=60.0, timing_s=5.0), template) as running,
    ):
        running.submit([Task(x, {"x": x}) for x in range(3)])
        found = all_of(running)
    assert [found[x].status for x in range(3)] == ["runtime_error", "ok", "ok"]


@dataclass(frozen=True)
class Phased:
    """A stage that works, waits for longer than its limit, and works again."""

    def run(self, channel: Channel) -> None:
        def handle(task: Mapping[str, Any]) -> Mapping[str, Any]:
            for phase, seconds in (("compile", 0.1), (WAITING, 1.5), ("check", task["check_s"])):
                channel.phase(phase)
                time.sleep(seconds)
            return {"status": "ok"}

        channel.serve({}, handle)


def test_waiting_for_a_device_is_outside_the_limit(tmp_path: Path) -> None:
    limits = Limits(timing_s=1.0, start_s=60.0)
    with (
        inherited(Phased()) as stage,
        ForkedTemplate(tmp_path / "template.log") as template,
        Pipeline([stage], [], tmp_path, limits, template) as running,
    ):
        running.submit([Task(0, {"check_s": 0.1}), Task(1, {"check_s": 30.0})])
        found = all_of(running)
    assert [found[x].status for x in (0, 1)] == ["ok", "timeout"]
    assert found[0].phase_s["compile"] >= 0.1
    assert found[0].phase_s["check"] >= 0.1
    assert WAITING not in found[0].phase_s
    assert found[1].details["message"] == "over 1 s"


def test_a_limit_falls_to_what_is_usual() -> None:
    limit = AdaptiveLimit(30.0, 2.0)
    for _ in range(15):
        limit.worked(0.5)
    assert limit.seconds == 30.0  # too few to say what is usual
    limit.worked(0.5)
    assert limit.seconds == 2.0
    for _ in range(30):
        limit.worked(4.0)
    assert limit.seconds == 12.0
    for _ in range(300):
        limit.worked(20.0)
    assert limit.seconds == 30.0
    fixed = AdaptiveLimit(30.0, None)
    for _ in range(20):
        fixed.worked(0.1)
    assert fixed.seconds == 30.0


def test_what_began_before_a_limit_fell_ends_by_it(tmp_path: Path) -> None:
    limits = Limits(compile_s=300.0, timing_s=300.0, least_compile_s=0.3, least_timing_s=0.3)
    compiling = [FakeStage("compile", tmp_path)] * 2
    with Pipeline(compiling, [FakeStage("time", tmp_path)], tmp_path, limits) as running:
        running.submit([Task(99, {"compile": "hang"})] + [Task(x, {}) for x in range(16)])
        running.submit([Task(98, {"time": "hang"})])
        found = all_of(running)
    # Three times what the stages say they take, .5 and .25 s.
    assert [(found[x].status, found[x].details["message"]) for x in (99, 98)] == [
        ("timeout", "over 1.5 s"),
        ("timeout", "over 0.75 s"),
    ]
    assert [found[x].status for x in range(16)] == ["ok"] * 16


def test_timing_starts_first_and_compiling_later(tmp_path: Path) -> None:
    timing = [FakeStage("time", tmp_path)]
    with (
        ForkedTemplate(tmp_path / "forked.log") as forked,
        Pipeline([], timing, tmp_path, LIMITS, spares=1) as running,
    ):
        running.submit([Task(0, {"x": 0})])
        running.facts()
        assert running.wait(time.monotonic()) == []
        assert not running.compiles
        running.start_compiling([FakeStage("compile", tmp_path)] * 2, forked)
        assert sorted(all_of(running)) == [0]
        running.end_compiling()
        assert not running.compiles
        running.start_compiling([FakeStage("compile", tmp_path)], forked)
        running.submit([Task(1, {"x": 1})])
        assert sorted(all_of(running)) == [1]


def test_a_worker_that_is_abandoned_is_killed_with_what_it_started(tmp_path: Path) -> None:
    with (
        inherited(Parent(tmp_path)) as stage,
        ForkedTemplate(tmp_path / "template.log") as template,
    ):
        worker = Worker(stage, tmp_path / "log", 60.0, template)
        pids = tmp_path / "pids"
        until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        worker.abandon()
        until(lambda: not any(map(alive, map(int, pids.read_text().split()))))
        worker.abandon()  # nothing is left of it
        again = Worker(FakeStage("compile", tmp_path), tmp_path / "again", 60.0, template)
        assert again.receive()[0] == "ready"
        zombie = Path(f"/proc/{pids.read_text().split()[0]}")
        assert not zombie.exists()
        again.stop()


@dataclass(frozen=True)
class Parent:
    """Starts a process of its own and sleeps."""

    folder: Path

    def run(self, channel: Channel) -> None:
        import subprocess

        started = subprocess.Popen(["sleep", "600"])
        draft = self.folder / "draft"
        draft.write_text(f"{os.getpid()} {started.pid}")
        draft.rename(self.folder / "pids")
        time.sleep(600)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_spare_does_not_hold_up_the_first_configurations(tmp_path: Path) -> None:
    with pipeline(tmp_path, spares=1) as running:
        running.submit([Task(x, {"x": x}) for x in range(_SPARES_AFTER - 1)])
        all_of(running)
        assert len(running._timing.workers) == 1


def test_something_alone_is_done_without_anything_else(tmp_path: Path) -> None:
    with pipeline(tmp_path, compilers=2, seconds=0.05, spares=1) as running:
        running.submit([Task(x, {"x": x}) for x in range(20)])
        running.wait()
        found = running.alone({"x": 99, "time": "ok"}, 20.0)
        assert found is not None
        assert found["time_ms"] == 100.0
        assert not running.compiles
        running._finished.clear()  # what was being timed
        assert running.pending == 0
    assert trail(tmp_path)[-1]["x"] == 99
    begun = [line["kind"] for line in trail(tmp_path) if line["event"] == "begin"]
    assert begun.count("time") < 20


@pytest.mark.parametrize("behaviour", ["hang", "crash", "broken"])
def test_what_fails_alone_is_none_and_the_engine_goes_on(tmp_path: Path, behaviour: str) -> None:
    with (
        ForkedTemplate(tmp_path / "forked.log") as forked,
        pipeline(tmp_path, spares=1) as running,
    ):
        assert running.alone({"x": 99, "time": behaviour}, 3.0) is None
        running.start_compiling([FakeStage("compile", tmp_path)], forked)
        running.submit([Task(1, {"x": 1})])
        assert [all_of(running)[1].status] == ["ok"]


def test_what_hangs_does_not_hold_up_what_is_to_be_done_alone(tmp_path: Path) -> None:
    with pipeline(tmp_path, spares=1) as running:
        running.facts()
        running.submit([Task(0, {"x": 0, "time": "hang"})])
        deadline = time.monotonic() + 30
        while not any(line["x"] == 0 and line["kind"] == "time" for line in trail(tmp_path)):
            assert time.monotonic() < deadline
            running._step(time.monotonic() + 0.1)
        assert running.alone({"x": 1, "time": "ok"}, 20.0) is not None
