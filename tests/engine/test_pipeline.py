"""The pipeline under what happens on real machines, with real processes and no GPU."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.recorder_stages import FakeStage, trail

from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.engine.template import Template
from llamea_gpu.engine.worker import WAITING
from llamea_gpu.errors import RecordingError

LIMITS = Limits(compile_s=2.0, timing_s=2.0, start_s=60.0)


def tasks(*behaviours: dict[str, Any]) -> list[Task]:
    return [Task(x, {"x": x, **behaviour}) for x, behaviour in enumerate(behaviours)]


def run(folder: Path, work: Sequence[Task], **options: Any) -> dict[int, Outcome]:
    compilers = options.pop("compilers", 2)
    seconds = options.pop("seconds", 0.0)
    compiling = [FakeStage("compile", folder, seconds)] * compilers
    timing = [FakeStage("time", folder, seconds)] * options.pop("gpus", 1)
    with Pipeline(compiling, timing, folder, options.pop("limits", LIMITS)) as pipeline:
        outcomes = list(pipeline.run(work, **options))
    assert len({outcome.point for outcome in outcomes}) == len(outcomes)
    return {outcome.point: outcome for outcome in outcomes}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail(f"never: {what}")


def test_every_task_has_one_outcome_with_both_times(tmp_path: Path) -> None:
    found = run(tmp_path, tasks(*[{}] * 30), gpus=2)
    assert sorted(found) == list(range(30))
    assert {o.status for o in found.values()} == {"ok"}
    assert found[7].compile_s == 7.5
    assert found[7].benchmark_s == 0.25
    assert found[7].details["time_ms"] == 8.0


def test_both_stages_are_busy_at_once(tmp_path: Path) -> None:
    run(tmp_path, tasks(*[{}] * 12), seconds=0.05)
    spans: dict[str, list[tuple[float, float]]] = {"compile": [], "time": []}
    for line in trail(tmp_path):
        if line["event"] == "end":
            spans[line["kind"]].append((line["began"], line["at"]))
    overlapping = [
        timed
        for timed in spans["time"]
        if any(timed[0] < end and start < timed[1] for start, end in spans["compile"])
    ]
    assert overlapping


def test_failures_keep_their_kind_and_the_rest_goes_on(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        tasks(
            {},
            {"compile": "error"},
            {"compile": "hang"},
            {"compile": "crash"},
            {"compile": "crash-once"},
            {"time": "error"},
            {"time": "hang"},
            {"time": "crash"},
            {"time": "crash-once"},
            {"time": "broken"},
            {"compile": "raise"},
            {},
        ),
    )
    statuses = [found[x].status for x in range(12)]
    assert statuses == [
        "ok",
        "compile_error",
        "timeout",
        "compile_error",
        "ok",
        "incorrect",
        "timeout",
        "runtime_error",
        "ok",
        "runtime_error",
        "compile_error",
        "ok",
    ]
    assert found[2].compile_s == LIMITS.compile_s
    assert found[2].benchmark_s == 0.0
    assert found[6].compile_s == 6.5
    assert found[6].benchmark_s == LIMITS.timing_s
    assert "signal 11" in found[3].details["message"]
    assert "last words of a compiler" in found[3].details["message"]
    assert "ValueError: a bug" in found[10].details["message"]
    # A crash is tried twice, an illegal access that was reported once.
    begun = [(line["kind"], line["x"]) for line in trail(tmp_path) if line["event"] == "begin"]
    assert begun.count(("compile", 3)) == 2
    assert begun.count(("time", 7)) == 2
    assert begun.count(("time", 9)) == 1


@pytest.mark.parametrize("kind", ["compile", "time"])
def test_a_worker_killed_from_outside_is_replaced(tmp_path: Path, kind: str) -> None:
    def kill_one() -> None:
        wait_until(
            lambda: sum(x["kind"] == kind and x["event"] == "begin" for x in trail(tmp_path)) >= 3,
            "three tasks begun",
        )
        victim = [x["pid"] for x in trail(tmp_path) if x["kind"] == kind][-1]
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    found = run(tmp_path, tasks(*[{}] * 20), seconds=0.05)
    killer.join()
    assert [found[x].status for x in range(20)] == ["ok"] * 20
    opened = [x for x in trail(tmp_path) if x["event"] == "open" and x["kind"] == kind]
    assert len(opened) == {"compile": 3, "time": 2}[kind]


def test_what_is_slow_to_import_is_imported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports = tmp_path / "imports"
    (tmp_path / "slow_to_import.py").write_text(f"open({str(imports)!r}, 'a').write('once ')")
    monkeypatch.syspath_prepend(tmp_path)
    stages = [FakeStage("compile", tmp_path, imports="slow_to_import")] * 3
    timing = [FakeStage("time", tmp_path, imports="slow_to_import")]
    modules = ("slow_to_import", "no_such_module")
    with (
        Template(modules, tmp_path / "template.log") as template,
        Pipeline(stages, timing, tmp_path, LIMITS, template) as pipeline,
    ):
        assert len(list(pipeline.run(tasks(*[{}] * 9)))) == 9
    assert imports.read_text() == "once "


def test_a_template_killed_from_outside_is_replaced(tmp_path: Path) -> None:
    stages = [FakeStage("compile", tmp_path, 0.05)] * 2
    with (
        Template((), tmp_path / "template.log") as template,
        Pipeline(stages, [FakeStage("time", tmp_path)], tmp_path, LIMITS, template) as pipeline,
    ):
        outcomes = pipeline.run(tasks(*[{}] * 12))
        found = [next(outcomes)]
        first = template.pid
        os.kill(first, signal.SIGKILL)
        found += outcomes
        assert template.pid != first
    assert sorted(outcome.point for outcome in found) == list(range(12))
    assert {outcome.status for outcome in found} == {"ok"}


def test_nothing_survives_the_pipeline(tmp_path: Path) -> None:
    compiling = [FakeStage("compile", tmp_path)] * 2
    with Pipeline(compiling, [FakeStage("time", tmp_path)], tmp_path, LIMITS) as pipeline:
        stream = pipeline.run(tasks({}, {"compile": "hang"}, {"time": "hang"}))
        assert next(stream).point == 0
        # The first task may be done before the second compiler has started.
        wait_until(lambda: len({line["pid"] for line in trail(tmp_path)}) == 3, "three at work")
    pids = {line["pid"] for line in trail(tmp_path)}
    assert not any(alive(pid) for pid in pids)


def test_the_deadline_ends_it_with_what_is_finished(tmp_path: Path) -> None:
    work = tasks(*[{}] * 5, *[{"time": "hang"}] * 50)
    limits = Limits(compile_s=100, timing_s=100, start_s=60)
    found: list[Outcome] = []
    with Pipeline(
        [FakeStage("compile", tmp_path)], [FakeStage("time", tmp_path)], tmp_path, limits
    ) as pipeline:
        pipeline.facts()
        found += pipeline.run(work, deadline=time.monotonic() + 1.5)
    assert {outcome.point for outcome in found} <= set(range(5))


def test_a_stage_that_refuses_ends_it_with_its_words(tmp_path: Path) -> None:
    refusing = FakeStage("time", tmp_path, refuses="the default configuration is wrong")
    with (
        Pipeline([FakeStage("compile", tmp_path)], [refusing], tmp_path, LIMITS) as pipeline,
        pytest.raises(RecordingError, match="the default configuration is wrong"),
    ):
        pipeline.facts()


def test_a_stage_that_never_starts_ends_it(tmp_path: Path) -> None:
    broken = FakeStage("compile", tmp_path, start="crash")
    with (
        Pipeline([broken], [FakeStage("time", tmp_path)], tmp_path, LIMITS) as pipeline,
        pytest.raises(RecordingError, match=r"measuring must start.*no such library"),
    ):
        list(pipeline.run(tasks({})))


def test_a_kernel_that_always_crashes_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamea_gpu.engine.pipeline._MAX_CRASHES", 4)
    work = tasks(*[{"time": "broken"}] * 40)
    with pytest.raises(RecordingError, match="the last 4 crashed: illegal access"):
        run(tmp_path, work)


def test_a_gpu_that_is_gone_is_no_fault_of_a_configuration(tmp_path: Path) -> None:
    gone = FakeStage("time", tmp_path, start="crash-later")
    found: list[Outcome] = []
    with (
        Pipeline([FakeStage("compile", tmp_path)], [gone], tmp_path, LIMITS) as pipeline,
        pytest.raises(RecordingError, match=r"measuring must start.*no such library"),
    ):
        found.extend(pipeline.run(tasks({}, {"time": "broken"}, {})))
    assert [outcome.status for outcome in found] == ["ok"]


def alone(folder: Path, *behaviours: str, **options: Any) -> list[tuple[int, str]]:
    """Point and status in the order of their outcomes, up to an error, of one stage for all."""
    limits = Limits(timing_s=options.pop("timing_s", 60.0), start_s=60.0)
    work = tasks(*({"time": behaviour} for behaviour in behaviours))
    found: list[tuple[int, str]] = []
    with Pipeline([FakeStage("time", folder)], (), folder, limits) as pipeline:
        pipeline.facts()
        try:
            for outcome in pipeline.run(work, **options):
                found.append((outcome.point, outcome.status))
        except RecordingError as error:
            found.append((-1, str(error)))
    return found


def test_a_crash_is_believed_once_something_has_run(tmp_path: Path) -> None:
    found = alone(tmp_path, "broken", "refused", "broken", "ok", "crash")
    assert [point for point, _ in found] == [1, 0, 2, 3, 4]


def test_crashes_in_a_row_are_none_of_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamea_gpu.engine.pipeline._MAX_CRASHES", 4)
    found = alone(tmp_path, "ok", *["broken", "refused"] * 4, "ok")
    assert [status for _, status in found[:-1]] == ["ok", *["compile_error"] * 3]
    assert "the last 4 crashed: illegal access" in found[-1][1]


def test_crashes_among_what_runs_do_not_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamea_gpu.engine.pipeline._MAX_CRASHES", 4)
    assert len(alone(tmp_path, *[*["broken"] * 3, "ok"] * 2)) == 8


def test_a_crash_that_is_tried_again_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamea_gpu.engine.pipeline._MAX_CRASHES", 3)
    assert len(alone(tmp_path, "crash", "crash", "ok")) == 3


def test_what_hangs_is_believed_at_once(tmp_path: Path) -> None:
    found = alone(tmp_path, "hang", "hang", timing_s=0.3)
    assert found == [(0, "timeout"), (1, "timeout")]


def test_crashes_at_the_deadline_are_left_to_the_next_call(tmp_path: Path) -> None:
    assert alone(tmp_path, "ok", deadline=0.0) == []
    assert alone(tmp_path, "broken", "hang", deadline=time.monotonic() + 3) == []


def test_waiting_for_the_device_is_outside_the_limit(tmp_path: Path) -> None:
    phases = [("compile", 0.2), (WAITING, 2.0), ("check", 0.2)]
    limits = Limits(timing_s=1.5, start_s=60.0)
    with Pipeline([FakeStage("time", tmp_path)], (), tmp_path, limits) as pipeline:
        (ok,) = pipeline.run(tasks({"phases": phases}))
        (late,) = pipeline.run(tasks({"phases": phases, "time": "hang"}))
    assert (ok.status, late.status) == ("ok", "timeout")
    for outcome in (ok, late):
        assert 0.2 <= outcome.phase_s["compile"] < 1.5
        assert outcome.phase_s["check"] >= 0.2
        assert WAITING not in outcome.phase_s


def test_an_owner_that_was_away_counts_the_seconds_of_the_process(tmp_path: Path) -> None:
    phases = [("compile", 0.1), (WAITING, 0.1), ("check", 0.1)]
    limits = Limits(timing_s=2.0, start_s=60.0)
    with Pipeline([FakeStage("time", tmp_path)] * 2, (), tmp_path, limits) as pipeline:
        pipeline.facts()
        pipeline.submit(tasks({}, {"phases": phases}))
        found = pipeline.wait()
        time.sleep(3.0)
        found += pipeline.run(())
    assert [outcome.status for outcome in found] == ["ok", "ok"]
    assert all(seconds < 2.0 for seconds in found[1].phase_s.values())
