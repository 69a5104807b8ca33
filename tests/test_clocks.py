"""The virtual clocks, on batches small enough to schedule by hand."""

from __future__ import annotations

import pytest
from support.handmade import line_recording

from llamea_gpu.clocks import ParallelClock, SequentialClock, default_clock, make_clock
from llamea_gpu.errors import TaskError


def test_sequential_items_follow_each_other() -> None:
    times = SequentialClock().schedule(10.0, [1.0, 2.0], [0.5, 0.25])
    assert times == [(10.0, 11.5), (11.5, 13.75)]


def test_parallel_benchmarks_wait_for_the_last_compilation() -> None:
    times = ParallelClock(4).schedule(10.0, [1.0, 3.0, 2.0], [0.5, 0.25, 0.125])
    assert times == [(13.0, 13.5), (13.5, 13.75), (13.75, 13.875)]


@pytest.mark.parametrize(
    ("compile_s", "makespan_s"),
    [
        ([3.0, 1.0, 1.0, 1.0], 3.0),  # the long one first: the rest fits beside it
        ([1.0, 1.0, 1.0, 3.0], 4.0),  # in the order given, not the best one: 1+1 | 1+3
        ([2.0, 2.0], 2.0),
        ([5.0], 5.0),
    ],
)
def test_parallel_compilations_are_list_scheduled_in_order(
    compile_s: list[float], makespan_s: float
) -> None:
    begin_s, _ = ParallelClock(2).schedule(0.0, compile_s, [0.0] * len(compile_s))[0]
    assert begin_s == makespan_s


def test_one_worker_compiles_one_after_another() -> None:
    begin_s, _ = ParallelClock(1).schedule(0.0, [1.0, 2.0, 4.0], [0.0] * 3)[0]
    assert begin_s == 7.0


@pytest.mark.parametrize("spec", ["sequential", "parallel(1)", "parallel(16)"])
def test_a_clock_is_made_from_its_name(spec: str) -> None:
    assert make_clock(spec).name == spec


@pytest.mark.parametrize(
    "spec",
    ["", "Sequential", "parallel", "parallel()", "parallel(0)", "parallel(-1)", "parallel(x)"],
)
def test_other_specs_are_refused(spec: str) -> None:
    with pytest.raises(TaskError, match="clock must"):
        make_clock(spec)


def test_a_recording_names_its_clock() -> None:
    costs = [1.0, 2.0, 3.0]
    assert default_clock(line_recording(costs)) == SequentialClock()
    assert default_clock(line_recording(costs, workers=16)) == ParallelClock(16)
