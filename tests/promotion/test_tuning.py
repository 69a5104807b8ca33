"""The race: it finds constants that matter, keeps those that do not, and repeats itself."""

from __future__ import annotations

import pytest
from support.programs import CLIMBER

from llamea_gpu.programs import read_program
from llamea_gpu.promotion.tuning import DEFAULT, TUNED, _size, tune
from llamea_gpu.runner import Runner
from llamea_gpu.tasks import Task

SWITCHED = (
    CLIMBER.format(start=6)
    .replace(
        "def __init__(self, start=6):\n",
        "def __init__(self, climb=False, start=6):\n        self.climb = climb\n",
    )
    .replace(
        "        configs = space.sample(self.start)\n",
        "        while not self.climb:\n"
        "            evaluate(space.sample(1))\n"
        "        configs = space.sample(self.start)\n",
        1,
    )
)
IDLE = """\
class Idle:
    def __init__(self, unused=7):
        pass

    def __call__(self, evaluate, space, rng):
        while True:
            evaluate(space.sample(1))
"""
FRAGILE = """\
class Fragile:
    def __init__(self, size=3, careful=True):
        self.size = size
        self.careful = careful

    def __call__(self, evaluate, space, rng):
        if not self.careful:
            best = min(space.sample(100), key=lambda c: abs(c[0] - 2) + abs(c[1] - 1))
            evaluate([best])
            raise RuntimeError("careless")
        while True:
            evaluate(space.sample(self.size))
"""


def test_a_constant_that_matters_is_tuned(tasks: tuple[Task, ...], runner: Runner) -> None:
    program = read_program(SWITCHED)
    found = tune(program, tasks, runner, runs=60, seed=1)
    assert found.is_tuned
    assert found.settings["climb"] is True
    assert found.tuned is not None
    assert found.tuned.p > found.default.p + 0.1
    assert found.comparison is not None
    assert found.comparison.first == TUNED
    assert found.comparison.interval is not None
    assert found.comparison.interval.low > 0
    assert found.runs <= 60 + 10 * len(tasks)
    again = tune(program, tasks, runner, runs=60, seed=1)
    assert again.settings == found.settings
    assert again.comparison == found.comparison


@pytest.mark.parametrize("seed", [1, 2])
def test_constants_that_do_not_matter_are_kept(
    seed: int, tasks: tuple[Task, ...], runner: Runner
) -> None:
    found = tune(read_program(IDLE), tasks, runner, runs=40, seed=seed)
    assert not found.is_tuned
    assert found.settings == {"unused": 7}
    assert found.name == DEFAULT
    assert found.arms > 1


def test_settings_that_fail_lose(tasks: tuple[Task, ...], runner: Runner) -> None:
    found = tune(read_program(FRAGILE), tasks, runner, runs=60, seed=3)
    assert found.settings["careful"] is True
    assert found.default.failed_runs == 0


def test_without_a_budget_the_defaults_are_measured_and_kept(
    tasks: tuple[Task, ...], runner: Runner
) -> None:
    found = tune(read_program(IDLE), tasks, runner, runs=0, seed=1)
    assert (found.arms, found.tuned, found.runs) == (1, None, 10 * len(tasks))
    assert found.default.interval is not None


def test_a_race_fits_its_budget() -> None:
    for spaces in (1, 4, 9):
        for runs in range(0, 3000, 37):
            size = _size(runs, spaces)
            spent, alive, repeats, before = 0, size, 2, 0
            while size > 1:
                spent += alive * spaces * (repeats - before)
                if alive <= 2:
                    break
                alive, before, repeats = alive // 2, repeats, 2 * repeats
            assert spent <= runs
            assert size == 1 or size & (size - 1) == 0
    assert _size(320, 4) == 16
