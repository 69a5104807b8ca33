"""The virtual clocks, on schedules made by hand, and beside a slow simulation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from support.handmade import line_recording

from llamea_gpu.clocks import (
    Clock,
    Measurement,
    ParallelClock,
    PipelinedClock,
    SequentialClock,
    Timeline,
    default_clock,
    make_clock,
)
from llamea_gpu.errors import TaskError


def started(clock: Clock, *durations: tuple[float, float], at_s: float = 0.0) -> Timeline:
    """Items 0, 1, ... on their way; a benchmark of -1 s stands for a failed compilation."""
    timeline = clock.timeline()
    timeline.advance(at_s)
    timeline.submit(
        (item, compile_s, max(benchmark_s, 0.0), benchmark_s >= 0)
        for item, (compile_s, benchmark_s) in enumerate(durations)
    )
    return timeline


def test_sequential_items_follow_each_other() -> None:
    timeline = started(SequentialClock(), (1.0, 0.5), (2.0, 0.25), at_s=10.0)
    assert timeline.wait() == [(0, 10.0, 11.5)]
    assert timeline.wait() == [(1, 11.5, 13.75)]
    assert timeline.wait() == []
    assert timeline.now_s == 13.75


def test_parallel_benchmarks_wait_for_the_last_compilation() -> None:
    timeline = started(ParallelClock(4), (1.0, 0.5), (3.0, 0.25), (2.0, 0.125), at_s=10.0)
    assert timeline.wait() == [(0, 13.0, 13.5), (1, 13.5, 13.75), (2, 13.75, 13.875)]
    assert timeline.wait() == []


@pytest.mark.parametrize("clock", [SequentialClock(), ParallelClock(2)])
def test_nothing_is_under_way_between_waits(clock: Clock) -> None:
    timeline = started(clock, (1.0, 0.5))
    assert timeline.advance(100.0) == []
    assert timeline.wait()[0][2] == 101.5


@pytest.mark.parametrize(
    ("compile_s", "makespan_s"),
    [
        ([3.0, 1.0, 1.0, 1.0], 3.0),  # the long one first: the rest fits beside it
        ([1.0, 1.0, 1.0, 3.0], 4.0),  # in the order given, not the best one: 1+1 | 1+3
        ([2.0, 2.0], 2.0),
        ([5.0], 5.0),
        ([], 0.0),
    ],
)
def test_parallel_compilations_are_list_scheduled_in_order(
    compile_s: list[float], makespan_s: float
) -> None:
    assert ParallelClock(2).makespan_s(compile_s) == makespan_s


def test_one_worker_compiles_one_after_another() -> None:
    assert ParallelClock(1).makespan_s([1.0, 2.0, 4.0]) == 7.0


def test_a_pipeline_times_what_is_compiled_first() -> None:
    # Compiled at 4, 1, 1 + 1 and 2 + 1 s: the timer has them in the order 1, 2, 3, 0.
    timeline = started(PipelinedClock(2), (4.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0))
    done = [timeline.wait() for _ in range(4)]
    assert done == [[(1, 2.0, 2.0)], [(2, 3.0, 3.0)], [(3, 4.0, 4.0)], [(0, 5.0, 5.0)]]


def test_in_a_pipeline_a_failed_compilation_never_reaches_the_timer() -> None:
    timeline = started(PipelinedClock(3), (1.0, 9.0), (2.0, -1.0), (3.0, 1.0))
    assert timeline.wait() == [(1, 2.0, 2.0)]
    assert timeline.wait(least=2) == [(0, 10.0, 10.0), (2, 11.0, 11.0)]


def test_a_pipeline_goes_on_while_nobody_waits() -> None:
    timeline = started(PipelinedClock(1), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0))
    assert timeline.advance(3.5) == [(0, 2.0, 2.0), (1, 3.0, 3.0)]
    timeline.submit([(3, 0.5, 1.0, True)])
    assert timeline.now_s == 3.5
    assert timeline.wait() == [(2, 4.0, 4.0)]
    assert timeline.wait() == [(3, 5.0, 5.0)]


def test_ties_go_by_submission() -> None:
    timeline = started(PipelinedClock(3), (1.0, 2.0), (1.0, 2.0), (3.0, -1.0))
    assert timeline.wait() == [(0, 3.0, 3.0), (2, 3.0, 3.0)]


def test_one_at_a_time_a_pipeline_of_one_is_sequential() -> None:
    pipelined, sequential = PipelinedClock(1).timeline(), SequentialClock().timeline()
    for item, (compile_s, benchmark_s) in enumerate([(1.0, 0.5), (0.25, 4.0), (2.0, 0.0)]):
        done_s = set()
        for timeline in (pipelined, sequential):
            timeline.submit([(item, compile_s, benchmark_s, True)])
            done_s |= {visit[2] for visit in timeline.wait()}
        assert len(done_s) == 1
    together = started(PipelinedClock(1), (1.0, 1.0), (1.0, 1.0))
    assert together.wait(least=2)[-1][2] == 3.0  # not 4.0


@dataclass
class TickByTick:
    """The pipeline again, by looking at every whole second: what happens then, until nothing does.

    Written after the rule, not after the clock: compilers, then the timer, each with what it holds.
    """

    workers: int
    now: int = 0
    queue: list[tuple[int, Measurement]] = field(default_factory=list)
    compilers: list[tuple[int, int, Measurement]] = field(default_factory=list)  # until, order
    compiled: list[tuple[int, int, Measurement]] = field(default_factory=list)  # since, order
    timer: tuple[int, int, Measurement] | None = None
    done: list[tuple[int, int, int]] = field(default_factory=list)  # at, order, item
    submitted: int = 0

    def submit(self, measurements: Sequence[Measurement]) -> None:
        for measurement in measurements:
            self.queue.append((self.submitted, measurement))
            self.submitted += 1

    def wait(self) -> list[tuple[int, int]]:
        self.settle()
        while not self.done and (self.queue or self.compilers or self.compiled or self.timer):
            self.tick()
        return self.delivered()

    def advance(self, moment: int) -> list[tuple[int, int]]:
        self.settle()
        while self.now < moment:
            self.tick()
        return self.delivered()

    def delivered(self) -> list[tuple[int, int]]:
        done, self.done = sorted(self.done), []
        return [(item, at) for at, _, item in done]

    def tick(self) -> None:
        self.now += 1
        self.settle()

    def settle(self) -> None:
        while self.compile_a_little() or self.time_a_little():
            pass

    def compile_a_little(self) -> bool:
        for held in sorted(self.compilers, key=lambda held: held[1]):
            until, order, measurement = held
            if until == self.now:
                self.compilers.remove(held)
                if measurement[3]:
                    self.compiled.append((self.now, order, measurement))
                else:
                    self.done.append((self.now, order, measurement[0]))
                return True
        if self.queue and len(self.compilers) < self.workers:
            order, measurement = self.queue.pop(0)
            self.compilers.append((self.now + int(measurement[1]), order, measurement))
            return True
        return False

    def time_a_little(self) -> bool:
        if self.timer is not None:
            until, order, measurement = self.timer
            if until > self.now:
                return False
            self.done.append((self.now, order, measurement[0]))
            self.timer = None
            return True
        if not self.compiled:
            return False
        first = min(self.compiled, key=lambda held: held[:2])
        self.compiled.remove(first)
        self.timer = (self.now + int(first[2][2]), first[1], first[2])
        return True


@pytest.mark.parametrize("seed", range(150))
def test_the_pipeline_is_what_a_slow_simulation_says(seed: int) -> None:
    chance = random.Random(seed)
    workers = chance.randint(1, 4)
    longest = chance.choice([2, 4, 9])
    timeline, slow = PipelinedClock(workers).timeline(), TickByTick(workers)
    items = 0
    for _ in range(40):
        action = chance.random()
        if action < 0.5:
            batch = [
                (
                    items + i,
                    chance.randint(0, longest),
                    chance.randint(0, longest),
                    chance.random() < 0.8,
                )
                for i in range(chance.randint(1, 5))
            ]
            items += len(batch)
            timeline.submit(batch)
            slow.submit(batch)
            continue
        if action < 0.9:
            visits, expected = timeline.wait(), slow.wait()
        else:
            moment = slow.now + chance.randint(0, longest)
            visits, expected = timeline.advance(moment), slow.advance(moment)
        assert [(item, done_s) for item, _, done_s in visits] == expected
        assert timeline.now_s == slow.now
    while expected := slow.wait():
        assert [(item, done_s) for item, _, done_s in timeline.wait()] == expected
    assert timeline.wait() == []


@pytest.mark.parametrize("spec", ["sequential", "parallel(1)", "parallel(16)", "pipelined(16)"])
def test_a_clock_is_made_from_its_name(spec: str) -> None:
    assert make_clock(spec).name == spec


@pytest.mark.parametrize(
    "spec",
    [
        *("", "Sequential", "parallel", "parallel()", "parallel(0)", "parallel(-1)", "parallel(x)"),
        *("pipelined", "pipelined(0)", "parallel(2)pipelined(2)"),
    ],
)
def test_other_specs_are_refused(spec: str) -> None:
    with pytest.raises(TaskError, match="clock must"):
        make_clock(spec)


def test_a_recording_names_its_clock() -> None:
    costs = [1.0, 2.0, 3.0]
    assert default_clock(line_recording(costs)) == SequentialClock()
    assert default_clock(line_recording(costs, workers=16)) == ParallelClock(16)
