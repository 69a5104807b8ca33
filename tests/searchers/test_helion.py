"""Helion's own searches, the real code, on recordings: in worker processes of the runner."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from support.handmade import line_recording
from support.recordings import small_recording

from llamea_gpu.clocks import ParallelClock
from llamea_gpu.contract import Configuration
from llamea_gpu.errors import SearcherError
from llamea_gpu.runner import Runner
from llamea_gpu.runner.local import RecordedSpace, run_optimizer
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.tasks import Task, Trace

SEARCHES = (
    "LFBOTreeSearch",
    "LFBOPatternSearch",
    "PatternSearch",
    "DifferentialEvolutionSearch",
    "DESurrogateHybrid",
    "RandomSearch",
)
# Their forests are fitted, and choose, a few times.
SHORT = "effort=quick&max_generations=2&polish_rounds=1&num_neighbors=50"
# Its forest is fitted, and chooses, within a small recording.
SURROGATE = (
    "helion:DESurrogateHybrid?effort=quick&surrogate_threshold=20&refit_frequency=1&n_estimators=10"
)


# Of a user's Helion: no run depends on them.
VARIABLES = {
    "HELION_CAP_AUTOTUNE_NUM_NEIGHBORS": "1",
    "HELION_AUTOTUNE_MAX_GENERATIONS": "1",
    "HELION_AUTOTUNE_RANDOM_SEED": "1",
}


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with pytest.MonkeyPatch.context() as patch, Runner.open(workers=1) as opened:
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        yield opened


def endless(recording: Recording) -> Task:
    """A task that only the search itself ends."""
    task = Task.build(recording, ParallelClock(16))
    return dataclasses.replace(task, budget_s=1e9)


@pytest.fixture(scope="module")
def task() -> Task:
    return endless(small_recording())


def run(runner: Runner, spec: str, task: Task, seed: int = 1) -> Trace:
    return runner.run(resolve(spec), task, seed)


def holes(recording: Recording) -> Recording:
    """Without every third row: a space that has constraints."""
    kept = np.flatnonzero(np.arange(recording.space.size) % 3 != 1)
    return Recording.from_rows(
        recording.space.names,
        recording.space.values,
        recording.space.configurations[kept],
        *(a[kept] for a in (recording.time_ms, recording.compile_s, recording.benchmark_s)),
        recording.status[kept],
        recording.info,
    )


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_runs_to_its_own_end(runner: Runner, task: Task, search: str) -> None:
    trace = run(runner, f"helion:{search}{'?' + SHORT if search.startswith('LFBO') else ''}", task)
    assert (trace.outcome, trace.error) == ("finished", None)
    assert len(set(trace.rows.tolist())) == len(trace.rows) > 20
    assert trace.best_ms <= np.quantile(task.costs_ms, 0.05)


@pytest.mark.parametrize("search", SEARCHES)
def test_the_budget_ends_every_search(runner: Runner, task: Task, search: str) -> None:
    # Within the first batch of some, later in others.
    trace = run(runner, f"helion:{search}", dataclasses.replace(task, budget_s=9.0))
    assert (trace.outcome, trace.error) == ("budget", None)
    assert 9.0 - 1.6 <= trace.elapsed_s[-1] <= 9.0 + 0.1


def test_a_run_depends_on_its_seed_alone(
    runner: Runner, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [
        f"helion:{name}?{SHORT if name.startswith('LFBO') else 'effort=quick'}" for name in SEARCHES
    ]
    specs.append(SURROGATE)
    first = {spec: run(runner, spec, task, 7) for spec in specs}
    # Its first configurations are enough to tell.
    brief = dataclasses.replace(task, budget_s=20.0)
    other = {spec: run(runner, spec, brief, 8) for spec in specs}
    # Each after another one than before, in another process, without those variables.
    for name in VARIABLES:
        monkeypatch.delenv(name)
    again = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in the runner's workers
        for spec in reversed(specs):
            found = resolve(spec)
            assert isinstance(found, LibrarySearcher)
            again[spec] = run_optimizer(found.build, task, 7, cpu_s=None)
    for spec in specs:
        assert first[spec].outcome == "finished"
        assert again[spec].rows.tolist() == first[spec].rows.tolist(), spec
        assert again[spec].elapsed_s.tolist() == first[spec].elapsed_s.tolist(), spec
        begun = len(other[spec].rows)
        assert begun > 10, spec
        assert other[spec].rows.tolist() != first[spec].rows[:begun].tolist(), spec


def test_batches_are_charged_as_helion_compiles_them(runner: Runner) -> None:
    # 40 configurations, a second each to compile on 16 workers: three rounds, then 0.25 s each.
    costs = list(np.linspace(1.0, 2.0, 40))
    task = endless(line_recording(costs, compile_s=1.0, benchmark_s=0.25, workers=16))
    spec = "helion:RandomSearch?count=2000"
    trace = run(runner, spec, task)
    assert len(trace.rows) == 40
    assert trace.elapsed_s.tolist() == pytest.approx([3.0 + 0.25 * (i + 1) for i in range(40)])


def test_differential_evolution_measures_generations_in_batches(runner: Runner, task: Task) -> None:
    def elapsed_s(query: str) -> float:
        spec = f"helion:DifferentialEvolutionSearch?effort=quick{query}"
        trace = run(runner, spec, task)
        return float(trace.elapsed_s[-1]) / len(trace.rows)

    assert elapsed_s("") < 0.7 * elapsed_s("&immediate_update=true")


def test_grid_points_that_are_not_valid_cost_nothing(runner: Runner) -> None:
    full = small_recording()
    task = endless(holes(full))
    trace = run(runner, "helion:RandomSearch?count=3000", task)
    assert trace.outcome == "finished"
    assert len(trace.rows) == task.recording.space.size
    # All in one batch: what it cost is what the valid ones cost.
    compile_s = task.recording.compile_s[trace.rows].tolist()
    benchmark_s = task.recording.benchmark_s[trace.rows]
    makespan_s = ParallelClock(16).makespan_s(compile_s)
    assert trace.elapsed_s[-1] == pytest.approx(makespan_s + benchmark_s.sum())


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_survives_constraints(runner: Runner, search: str) -> None:
    trace = run(runner, f"helion:{search}?effort=quick", endless(holes(small_recording())))
    assert trace.outcome == "finished"


def test_settings_reach_the_search(runner: Runner, task: Task) -> None:
    assert len(run(runner, "helion:RandomSearch?count=7", task).rows) <= 7
    few = run(runner, "helion:PatternSearch?initial_population=5&max_generations=1", task)
    assert 5 < len(few.rows) < len(run(runner, "helion:PatternSearch", task).rows)


def with_default(**values: object) -> Recording:
    recording = small_recording()
    info = dataclasses.replace(recording.info, default_configuration=values)  # type: ignore[arg-type]
    return dataclasses.replace(recording, info=info)


def test_a_run_can_start_from_the_default_configuration(runner: Runner) -> None:
    recording = with_default(block=256, warps=8, stages=2, mode="persistent")
    row = recording.space.row((4, 3, 1, 1))
    for search in SEARCHES:
        spec = f"helion:{search}?effort=quick&start=default"
        assert run(runner, spec, endless(recording)).rows[0] == row, search
    # Helion's quick profile, when it has no cache of results to start from.
    spec = "helion:PatternSearch?start=default&initial_population_strategy=from_best_available"
    alone = run(runner, f"{spec}&effort=quick", endless(recording))
    assert alone.rows[0] == row
    neighbors = recording.space.neighbor_rows(row).tolist()
    assert alone.rows[1] in neighbors


def test_a_search_in_which_nothing_works_ends(runner: Runner) -> None:
    recording = small_recording()
    failed = int(np.flatnonzero(~recording.ok)[0])
    values = recording.space.value_dict(recording.space.configuration(failed))
    spec = "helion:PatternSearch?start=default&initial_population=1"
    trace = run(runner, spec, endless(with_default(**values)))
    assert (trace.outcome, trace.error) == ("finished", None)
    assert trace.rows.tolist() == [failed]


def test_a_default_off_the_grid_is_the_nearest_point() -> None:
    def default_in(recording: Recording) -> Configuration | None:
        return RecordedSpace(recording, np.random.default_rng(0)).facts.default

    assert default_in(with_default(block=900, warps=5, stages=2, mode="flat")) == (4, 2, 1, 0)
    for wrong in ({"mode": "other"}, {"block": "large"}, {"block": None}):
        values = {"block": 16, "warps": 1, "stages": 1, "mode": "flat", **wrong}
        assert default_in(with_default(**values)) is None
    assert default_in(with_default(block=16)) is None
    assert default_in(small_recording()) is None


def test_a_default_must_be_there_to_start_from_it(runner: Runner, task: Task) -> None:
    trace = run(runner, "helion:RandomSearch?start=default", task)
    assert trace.outcome == "error"
    assert "use start=random" in (trace.error or "")


def test_the_space_of_a_run_holds_no_measurement() -> None:
    recording = small_recording()
    info = dataclasses.replace(recording.info, references_ms={"default": 1.0})
    space = RecordedSpace(dataclasses.replace(recording, info=info), np.random.default_rng(0))
    assert space.facts.info.references_ms == {}
    assert space.facts.info.name == recording.info.name


def test_an_unknown_search_is_refused() -> None:
    with pytest.raises(SearcherError, match="did you mean LFBOTreeSearch"):
        resolve("helion:LFBOTree")
