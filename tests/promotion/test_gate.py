"""Every rule, seen passing and failing on real runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.programs import CLIMBER, random_program
from support.recordings import small_recording

from llamea_gpu.bench import BenchSettings, make_plan, run_bench
from llamea_gpu.programs import read_program
from llamea_gpu.promotion import gate
from llamea_gpu.runner import Runner
from llamea_gpu.scoring import MEASURED
from llamea_gpu.searchers.registry import ProgramSearcher, resolve
from llamea_gpu.tasks import Task

CLIMBING = CLIMBER.format(start=6)
# The address of an object is the one thing that a seed does not decide.
BY_ADDRESS = '''\
class Addressed:
    """Looks where its memory happens to be."""

    def __call__(self, evaluate, space, rng):
        for step in range(60):
            evaluate([tuple(space.pool(200)[hash((id(self), step)) % 100])])
'''
FAULTY = (
    random_program(3)
    .replace("while True:", "while evaluate.spent < 0.5:")
    .replace(
        "            evaluate(space.sample(self.batch))\n",
        "            evaluate(space.sample(self.batch))\n        raise ValueError('halfway')\n",
    )
)


def searcher(source: str, name: str = "mine") -> ProgramSearcher:
    return ProgramSearcher(name, read_program(source))


def test_the_contract_is_admission_and_being_found_without_a_name() -> None:
    assert gate.contract(CLIMBING, "Climber").passed
    forbidden = gate.contract(f"import os\n{CLIMBING}", "Climber")
    assert not forbidden.passed
    assert "'os'" in forbidden.sentence
    helper = f"{CLIMBING}\n\nclass Helper:\n    def __call__(self):\n        return 1\n"
    assert gate.contract(helper, "Climber").passed
    other = helper.replace("__call__(self)", "__call__(self, evaluate, space, rng)")
    ambiguous = gate.contract(other, "Climber")
    assert not ambiguous.passed
    assert "Climber, Helper" in ambiguous.sentence


@pytest.mark.parametrize("taken", ["KernelTunerSpace", "HelionSpace"])
def test_a_name_that_an_exported_file_needs_is_refused(taken: str) -> None:
    assert gate.exportable(searcher(CLIMBING)).passed
    refused = gate.exportable(searcher(f"{taken} = 1\n{CLIMBING}"))
    assert not refused.passed
    assert taken in refused.sentence


def test_a_name_is_free_and_can_be_imported(tmp_path: Path) -> None:
    assert gate.free_name("climber", tmp_path).passed
    assert not gate.free_name("climber", tmp_path / "nowhere").passed
    (tmp_path / "climber.json").touch()
    for name in ("climber", "random_search", "2nd", "größe", "lambda", "../climber"):
        assert not gate.free_name(name, tmp_path).passed


def test_a_run_that_fails_is_seen(tasks: tuple[Task, ...], runner: Runner) -> None:
    good = runner.run(searcher(CLIMBING), tasks[0], 1)
    bad = runner.run(searcher(FAULTY), tasks[0], 1)
    assert gate.clean_runs([good, good]).passed
    found = gate.clean_runs([good, bad])
    assert not found.passed
    assert found.measured == "1 of 2 runs failed"
    assert "error: ValueError: halfway" in found.sentence
    assert not gate.clean_runs([]).passed


def test_own_computing_counts_on_the_worst_space(tasks: tuple[Task, ...], runner: Runner) -> None:
    # A kernel that compiles in a ten-thousandth of a second leaves an optimizer no time to think.
    recording = small_recording("quick")
    quick = replace(
        recording, compile_s=recording.compile_s / 1e4, benchmark_s=recording.benchmark_s / 1e4
    )
    both = (tasks[0], Task.build(quick))
    traces = {task.name: [runner.run(searcher(CLIMBING), task, 1)] for task in both}
    assert gate.own_cpu(both[:1], traces).passed
    found = gate.own_cpu(both, traces)
    assert not found.passed
    assert "on quick, the worst" in found.sentence


@pytest.mark.usefixtures("own_sandboxes")
def test_determinism_is_over_fresh_processes(tasks: tuple[Task, ...]) -> None:
    assert gate.determinism(searcher(CLIMBING), tasks, unsafe=False).passed
    found = gate.determinism(searcher(BY_ADDRESS), tasks[:1], unsafe=False)
    assert not found.passed
    assert found.measured == "1 of 1 spaces differ"


def test_an_incumbent_is_beaten_only_clear_of_chance(
    tasks: tuple[Task, ...], runner: Runner
) -> None:
    mine, other = searcher(CLIMBING), searcher(random_program(5), "other")
    plan = make_plan([mine, other], tasks, 8, BenchSettings())
    results = run_bench(plan, [mine, other], tasks, runner)
    assert results.analysis is not None
    (pair,) = results.analysis.comparisons
    assert pair.first == "mine"
    found = gate.beats(pair, 0.025, MEASURED)
    assert found.passed
    assert "p < 0.025" in found.threshold
    # The same comparison, seen by the loser, at a stricter level, and with too few repeats.
    assert not gate.beats(pair.seen_from("other"), 0.025, MEASURED).passed
    assert pair.p_value is not None
    assert not gate.beats(pair, pair.p_value, MEASURED).passed
    short = replace(pair, interval=None, p_value=None)
    unknown = gate.beats(short, 0.025, MEASURED)
    assert not unknown.passed
    assert "too few repeats" in unknown.measured


def test_all_looks_together_have_one_level() -> None:
    levels = [gate.level_of(look) for look in range(1, 5000)]
    assert levels[0] == pytest.approx(0.025)
    assert all(a > b for a, b in pairwise(levels))
    assert sum(levels) < gate.LEVEL
    assert np.isclose(sum(levels), gate.LEVEL, atol=1e-4)


def test_random_search_does_not_beat_random_search(tasks: tuple[Task, ...], runner: Runner) -> None:
    mine, other = searcher(random_program(1)), resolve("random_search")
    plan = make_plan([mine, other], tasks, 8, BenchSettings())
    results = run_bench(plan, [mine, other], tasks, runner)
    assert results.analysis is not None
    assert not gate.beats(results.analysis.comparisons[0].seen_from("mine"), 0.025, MEASURED).passed
