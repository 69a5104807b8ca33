"""Who is to be beaten, on which spaces, and which of their runs are known already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.programs import climber_program
from support.recordings import small_recording

from llamea_gpu.bench import BenchResults, BenchSettings, make_plan, run_bench
from llamea_gpu.bench.plan import RunKey
from llamea_gpu.bench.results import load_baseline
from llamea_gpu.programs import read_program
from llamea_gpu.programs.shipped import shipped
from llamea_gpu.promotion.incumbents import KERNEL_TUNER, Incumbents, reusable_runs
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import ProgramSearcher, resolve
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.tasks import Task, build_tasks

MINE = ProgramSearcher("mine", read_program(climber_program(5)))
SETTINGS = BenchSettings()
SPECS = ("random_search", "iterated_local_search")
REPEATS = 5


class Counting:
    """A runner that notes what is run."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.width = runner.width
        self.ran: list[tuple[str, str]] = []

    def submit(self, searcher: Any, task: Task, seed: int, **options: Any) -> Any:
        self.ran.append((searcher.name, task.name))
        return self._runner.submit(searcher, task, seed, **options)

    def of(self, name: str) -> int:
        return sum(searcher == name for searcher, _ in self.ran)


@pytest.fixture
def counting(runner: Runner) -> Counting:
    return Counting(runner)


@pytest.fixture(scope="session")
def baseline(tasks: tuple[Task, ...], runner: Runner) -> BenchResults:
    """Both incumbents on small0 alone, more repeats than are asked for."""
    searchers = [resolve(spec) for spec in SPECS]
    plan = make_plan(searchers, tasks[:1], REPEATS + 1, SETTINGS)
    return run_bench(plan, searchers, tasks[:1], runner)


def bench(
    incumbents: Incumbents, tasks: tuple[Task, ...], runner: Any, folder: Path
) -> list[BenchResults]:
    return incumbents.bench(MINE, tasks, runner, folder / "look")


def test_shipped_runs_are_not_run_again(
    tasks: tuple[Task, ...], baseline: BenchResults, counting: Counting, tmp_path: Path
) -> None:
    incumbents = Incumbents(SPECS, SETTINGS, REPEATS, baseline)
    (found,) = bench(incumbents, tasks, counting, tmp_path)
    assert counting.of("mine") == 2 * REPEATS
    assert {key for key in counting.ran if key[0] != "mine"} == {(s, "small1") for s in SPECS}
    key = RunKey("random_search", "small0", 3)
    assert found.runs[key].rows.tolist() == baseline.runs[key].rows.tolist()
    assert len(found.runs) == 3 * 2 * REPEATS
    counting.ran.clear()
    bench(incumbents, tasks, counting, tmp_path / "second")
    assert {name for name, _ in counting.ran} == {"mine"}  # the incumbents' runs are kept


def test_of_an_unfinished_bench_what_there_is_is_taken(
    tasks: tuple[Task, ...], baseline: BenchResults, counting: Counting, tmp_path: Path
) -> None:
    there = {k: run for k, run in baseline.runs.items() if k.searcher == "random_search"}
    BenchResults(baseline.plan, there).save(tmp_path / "unfinished")
    incumbents = Incumbents(SPECS, SETTINGS, REPEATS, reusable_runs(tmp_path / "unfinished"))
    (found,) = bench(incumbents, tasks[:1], counting, tmp_path)
    assert counting.of("random_search") == 0
    assert counting.of("iterated_local_search") == REPEATS
    assert len(found.runs) == 3 * REPEATS


@pytest.mark.parametrize("other", ["seed", "searcher", "space"])
def test_runs_of_anything_else_are_not_taken(
    other: str,
    tasks: tuple[Task, ...],
    baseline: BenchResults,
    counting: Counting,
    tmp_path: Path,
) -> None:
    plan = baseline.plan
    if other == "seed":
        plan = replace(plan, settings=BenchSettings(seed=2))
    elif other == "searcher":
        plan = replace(plan, searchers=tuple(replace(s, digest="0" * 64) for s in plan.searchers))
    else:
        plan = replace(plan, spaces=tuple(replace(s, fingerprint="0") for s in plan.spaces))
    changed = replace(baseline, plan=plan)
    bench(Incumbents(SPECS, SETTINGS, REPEATS, changed), tasks[:1], counting, tmp_path)
    assert counting.of("random_search") == counting.of("iterated_local_search") == REPEATS


def test_helions_searchers_are_met_on_helions_recordings_alone(
    tasks: tuple[Task, ...], baseline: BenchResults
) -> None:
    recording = small_recording("small2")
    helion = build_tasks(
        [replace(recording, info=replace(recording.info, framework="helion 1.5.0"))]
    )
    incumbents = Incumbents((), SETTINGS, REPEATS, baseline)
    everywhere = [*shipped(), *KERNEL_TUNER]
    assert incumbents.names(tasks) == everywhere
    assert incumbents.names(helion) == [*everywhere, "helion:LFBOTreeSearch"]
    groups = incumbents._groups([*tasks, *helion])
    assert [[task.name for task in chosen] for _, chosen in groups] == [
        ["small0", "small1", "small2"],
        ["small2"],
    ]
    assert [searcher.name for searcher in groups[1][0]] == ["helion:LFBOTreeSearch"]
    assert Incumbents(SPECS, SETTINGS, REPEATS, baseline).names(helion) == [*SPECS]


def test_a_mixed_validation_is_two_benches_with_one_set_of_runs(
    tasks: tuple[Task, ...],
    baseline: BenchResults,
    counting: Counting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recording = small_recording("small2")
    info = replace(recording.info, framework="helion 1.5.0")
    mixed = (tasks[0], *build_tasks([replace(recording, info=info)]))
    monkeypatch.setattr("llamea_gpu.promotion.incumbents.shipped", lambda: SPECS[:1])
    monkeypatch.setattr("llamea_gpu.promotion.incumbents.KERNEL_TUNER", ())
    monkeypatch.setattr("llamea_gpu.promotion.incumbents.HELION", SPECS[1:])
    first, second = bench(Incumbents((), SETTINGS, REPEATS, baseline), mixed, counting, tmp_path)
    assert counting.of("mine") == 2 * REPEATS
    assert counting.of("iterated_local_search") == REPEATS
    assert [space.name for space in second.plan.spaces] == ["small2"]
    assert second.analysis is not None
    assert first.analysis is not None
    for repeat in range(REPEATS):
        key = RunKey("mine", "small2", repeat)
        assert first.runs[key].rows.tolist() == second.runs[key].rows.tolist()


def test_the_shipped_results_serve_as_baseline() -> None:
    """Of what the package itself runs, nothing decides but its own text: the digests match."""
    shipped = load_baseline()
    incumbents = Incumbents(("random_search", "genetic_algorithm"), SETTINGS, 25, shipped)
    spaces = [s for s in shipped.plan.spaces if s.name == "rms_norm-16384x4096"]
    (task,) = build_tasks([load_space(spaces[0].name)])
    plan = make_plan([resolve("random_search"), resolve("genetic_algorithm")], [task], 25, SETTINGS)
    assert len(incumbents._known(plan)) == 50
