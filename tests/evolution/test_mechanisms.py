"""Each mechanism is told where the traces show it, and not where they do not."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from llamea_gpu.errors import BudgetExhausted
from llamea_gpu.evolution.mechanisms import mechanisms
from llamea_gpu.spaces.recording import Recording, RecordingInfo
from llamea_gpu.tasks import Evaluator, Task, Trace

WORKERS = 8
OPTIMUM = (0, 0, 0, 0, 0, 0)
GRID = np.array(list(itertools.product(range(4), repeat=6)))
DISTANCE = (GRID != 0).sum(axis=1)  # changed parameters from the optimum
Config = tuple[int, ...]


def make_task(
    name: str = "toy",
    *,
    failing: np.ndarray | None = None,
    slow: np.ndarray | None = None,
    near_share: float = 0.02,
    workers: int = WORKERS,
    budget_s: float | None = None,
) -> Task:
    """1 ms at the optimum and more with every changed parameter; a second a compilation."""
    step = np.random.default_rng(0).random(len(GRID)) / 100
    time_ms = 1.0 + 0.5 * DISTANCE + step
    time_ms[np.argsort(time_ms)[: int(near_share * len(GRID))]] = 1.01 + step[:1]
    time_ms[0] = 1.0
    failed = np.zeros(len(GRID), bool) if failing is None else failing & (DISTANCE > 0)
    time_ms[failed] = np.inf
    compile_s = np.ones(len(GRID))
    compile_s[np.zeros(len(GRID), bool) if slow is None else slow] = 9.0
    recording = Recording.from_rows(
        names=tuple(f"p{i}" for i in range(6)),
        values=((1, 2, 4, 8),) * 6,
        configurations=GRID,
        time_ms=time_ms,
        compile_s=compile_s,
        benchmark_s=np.full(len(GRID), 0.125),
        status=np.where(failed, 1, 0).astype(np.uint8),
        info=RecordingInfo(
            name=name,
            kernel="toy",
            device="none",
            framework="none",
            parallel_workers=workers,
            exhaustive=True,
        ),
    )
    task = Task.build(recording)
    if budget_s is None:
        return task
    axis_s = np.linspace(0.01 * budget_s, budget_s / 1.1, task.axis_s.size)
    return replace(task, budget_s=budget_s, axis_s=axis_s)


def run(task: Task, batches: Iterable[Sequence[Config]], *, cpu_s: float = 0.0) -> Trace:
    """What is recorded of a program that asks for ``batches``."""
    evaluator, outcome = Evaluator(task), "finished"
    try:
        for batch in batches:
            evaluator.ask(np.array([task.recording.space.row(c) for c in batch]))
    except BudgetExhausted:
        outcome = "budget"
    return evaluator.trace(outcome=outcome, seed=0, cpu_s=cpu_s)


def far(count: int, seed: int = 1, least: int = 4) -> list[Config]:
    """Distinct configurations at least that many changes from the optimum, in random order."""
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(least <= DISTANCE))[:count]
    return [tuple(row) for row in GRID[rows].tolist()]


def in_batches(configs: list[Config], size: int = WORKERS) -> list[list[Config]]:
    return [configs[i : i + size] for i in range(0, len(configs), size)]


def told(task: Task, *traces: Trace) -> str:
    return "\n".join(mechanisms({task: traces}))


@functools.cache
def usual() -> Task:
    """A batch of 8 takes 2 s: 20 batches."""
    return make_task(budget_s=40.0)


AT_ONCE = [[OPTIMUM, *far(7)], *in_batches(far(400, 2))]


def test_who_has_the_optimum_in_the_first_batch_is_told_nothing() -> None:
    assert told(usual(), run(usual(), AT_ONCE)) == ""


def test_no_traces_no_words() -> None:
    assert mechanisms({usual(): []}) == ()
    assert mechanisms({}) == ()


def test_a_first_batch_that_takes_much_of_the_budget() -> None:
    # 96 configurations: 12 s of compiling, 12 s of benchmarks.
    text = told(usual(), run(usual(), [far(96), *in_batches(far(400, 2))]))
    assert "Its first batch (96 configurations) takes 60 % of the budget on toy (about 1." in text


def test_a_first_batch_that_never_ends() -> None:
    text = told(usual(), run(usual(), [far(400)]), run(usual(), [far(400)]), run(usual(), [far(8)]))
    assert "takes 100 % of the budget on toy, and 2 of 3 runs measure nothing at all" in text


def test_a_usual_first_batch_is_no_mechanism() -> None:
    assert "Its first batch" not in told(usual(), run(usual(), in_batches(far(400))))


def test_a_late_first_improvement() -> None:
    near = (1, 1, 1, 0, 0, 0)
    worse = [config for config in far(800) if config != near]
    batches = [[near, *worse[:7]], *in_batches(worse[7 : 7 + 13 * 8]), [OPTIMUM]]
    text = told(usual(), run(usual(), [*batches, *in_batches(worse[200:])]))
    # 14 batches of 2 s, then one configuration: 1.125 s.
    assert "Nothing beats its first batch before 73 % of the budget on toy" in text
    assert "first batch" not in told(usual(), run(usual(), [worse[:8], [OPTIMUM], *AT_ONCE]))


def test_a_slow_start_is_told_when_most_is_lost_there() -> None:
    late = run(usual(), [*in_batches(far(40)), *AT_ONCE])
    assert re.search(
        r"Loses 0\.\d\d of P in the first quarter of the time on toy, 0\.", told(usual(), late)
    )
    assert "first quarter of the time" not in told(usual(), run(usual(), in_batches(far(400))))


def test_waiting_for_the_slowest_of_a_batch() -> None:
    task = make_task(slow=GRID[:, 5] == 3, budget_s=200.0)
    fast = [config for config in far(2000) if config[5] != 3]
    slow = [config for config in far(2000) if config[5] == 3]
    mixed = [[slow[i], *fast[7 * i : 7 * i + 7]] for i in range(60)]
    # Of 10 s that a batch takes, 8 would be spared without its slowest.
    assert "80 % of its time on toy is spent waiting for the one slowest" in told(
        task, run(task, mixed)
    )
    alike = [
        batch for pair in zip(in_batches(fast), in_batches(slow), strict=False) for batch in pair
    ]
    assert "slowest" not in told(task, run(task, alike))


def test_failures_and_the_value_that_they_share() -> None:
    task = make_task(failing=GRID[:, 2] == 3, budget_s=40.0)
    configs = far(400)
    text = told(task, run(task, in_batches(configs)))
    assert re.search(r"2\d % of its evaluations fail on toy after the first quarter", text)
    assert "100 % of them with p2 = 8, which fails in 100 % of the cases" in text


def test_failures_without_a_common_value_are_only_counted() -> None:
    task = make_task(failing=np.random.default_rng(3).random(len(GRID)) < 0.4, budget_s=40.0)
    text = told(task, run(task, in_batches(far(400))))
    assert "of its evaluations fail on toy" in text
    assert "of them with" not in text


def test_early_failures_alone_are_not_held_against_it() -> None:
    task = make_task(failing=GRID[:, 2] == 3, budget_s=40.0)
    configs = [config for config in far(800) if config[2] != 3]
    failing = [config for config in far(800) if config[2] == 3]
    assert "fail on toy" not in told(task, run(task, in_batches(failing[:24] + configs)))


def test_still_exploring_in_the_second_half() -> None:
    start = [[(1, 1, 0, 0, 0, 0), *far(7)]]
    text = told(usual(), run(usual(), start + in_batches(far(400, 5, least=6))))
    assert "are more than 3 changed parameters away from its best on toy: it still explores" in text
    close = [tuple(row) for row in GRID[(DISTANCE == 3) & (GRID[:, 0] == 1)].tolist()]
    assert "explores" not in told(usual(), run(usual(), start + in_batches(close + far(8, 6)[:0])))


def test_a_better_neighbour_that_is_never_tried() -> None:
    stuck = run(usual(), [[(1, 0, 0, 0, 0, 0), *far(7)], *in_batches(far(400, 5))])
    text = told(usual(), stuck, stuck, run(usual(), AT_ONCE))
    assert "2 of 3 runs on toy make no progress for their last 9" in text
    assert "one changed parameter away from their best (in 2 of them it is the optimum)" in text


def test_a_local_optimum_is_no_missed_neighbour() -> None:
    # All around it is measured but for what is worse.
    around = [(0, 1, 0, 0, 0, 0), (0, 2, 0, 0, 0, 0), (0, 3, 0, 0, 0, 0)]
    trace = run(usual(), [[OPTIMUM, *around, *far(4)], *in_batches(far(400, 5))])
    assert "never try" not in told(usual(), trace)


def test_runs_that_end_far_worse_than_the_others() -> None:
    good = [run(usual(), [*in_batches(far(16, seed)), [OPTIMUM], *AT_ONCE]) for seed in range(8)]
    bad = [run(usual(), in_batches(far(400, seed, least=5))) for seed in range(2)]
    text = told(usual(), *good, *bad)
    assert re.search(
        r"The worst 2 of 10 runs on toy end \d+ % above the optimum, the others 0 %", text
    )
    assert "The worst" not in told(usual(), *good)


def test_runs_that_return_early() -> None:
    early = run(usual(), in_batches(far(40)))
    assert "1 of 1 runs on toy end without the optimum, at 25 % of the budget" in told(
        usual(), early
    )
    assert "end without" not in told(usual(), run(usual(), [[OPTIMUM, *far(7)]]))


def test_small_batches() -> None:
    task = make_task()
    text = told(task, run(task, in_batches(far(400), 2)))
    assert "asks for 2 configurations at a time where 8 compile side by side" in text
    assert "compile side by side" not in told(task, run(task, in_batches(far(400))))


def test_a_sequential_clock_has_no_batches_to_speak_of() -> None:
    task = make_task(workers=1)
    text = told(task, run(task, [[config] for config in far(900)]))
    assert "batch" not in text
    assert "side by side" not in text


def test_losing_where_little_is_good() -> None:
    rare = make_task("rare", near_share=0.001, budget_s=40.0)
    runs = {usual(): [run(usual(), AT_ONCE)], rare: [run(rare, in_batches(far(400)))]}
    last = mechanisms(runs)[-1]
    assert re.match(r"P is -?\d\.\d\d on rare, where under 1(\.0)? % of the configurations", last)
    runs = {usual(): [run(usual(), AT_ONCE)], rare: [run(rare, AT_ONCE)]}
    assert mechanisms(runs) == ()


def test_the_most_costly_comes_first_and_spaces_share_a_sentence() -> None:
    other = make_task("other", budget_s=60.0)
    batches = [far(96), *in_batches(far(400, 2))]
    found = mechanisms({task: [run(task, batches)] for task in (usual(), other)})
    costs = [float(text.rpartition("about ")[2].split()[0]) for text in found]
    assert costs == sorted(costs, reverse=True)
    assert any("takes 60 % of the budget on toy; so on other (about" in text for text in found)
    assert len(found) <= 6


def test_own_cpu_seconds_change_nothing() -> None:
    batches = in_batches(far(400))
    assert told(usual(), run(usual(), batches)) == told(usual(), run(usual(), batches, cpu_s=9.0))


@pytest.mark.parametrize("outcome", ["stalled", "timeout"])
def test_a_run_without_a_visit(outcome: str) -> None:
    nothing = replace(run(usual(), []), outcome=outcome)
    assert isinstance(mechanisms({usual(): [nothing, nothing]}), tuple)
