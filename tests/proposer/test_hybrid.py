"""One searcher goes on where another ended: in one process, in the sandbox, and to good purpose."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_openai import FakeOpenAI, Reply, completion
from support.recordings import small_recording

from llamea_gpu.bench.plan import describe_searcher
from llamea_gpu.clocks import PipelinedClock, SequentialClock
from llamea_gpu.errors import BudgetExhausted, SearcherError, Stalled, TaskError
from llamea_gpu.programs import Program
from llamea_gpu.runner import Runner
from llamea_gpu.runner.local import LocalEvaluate, run_optimizer
from llamea_gpu.sandbox.jobs import Job
from llamea_gpu.searchers.hybrid import Hybrid
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import ProgramSearcher, resolve
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.seeded import SeededSpace
from llamea_gpu.spaces.space import SpaceView
from llamea_gpu.tasks import Evaluator, Task, Trace

LLM = "llm:m?rounds=1&initial=4&batch=12"
UNTRUSTED = '''
class FromTheBest:
    """Measures its first sample, then random configurations."""

    def __call__(self, evaluate, space, rng):
        evaluate(space.sample(6))
        while True:
            evaluate(space.sample(4))
'''


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.build(small_recording(workers=4))


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner.open(workers=1) as opened:
        yield opened


class Oracle:
    """Answers with good configurations, none of them among the best 8 %."""

    def __init__(self, recording: Any) -> None:
        order = np.argsort(recording.time_ms)
        rows = order[len(order) // 12 :: max(len(order) // 200, 1)][:12].tolist()
        space = recording.space
        self.rows = rows
        self._text = json.dumps(
            {"configs": [space.value_dict(space.configuration(row)) for row in rows]}
        )

    def __call__(self, body: dict[str, Any]) -> Reply:
        return completion(self._text)


@pytest.fixture(scope="module")
def environment() -> Iterator[pytest.MonkeyPatch]:
    """Workers keep the environment in which they started, so one serves the whole module."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def server(environment: pytest.MonkeyPatch) -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as opened:
        environment.setenv("LLAMEA_GPU_LLM_BASE_URL", opened.base_url)
        environment.setenv("LLAMEA_GPU_LLM_RETRIES", "0")
        yield opened


# --- going on from a trace -----------------------------------------------------------------------


def first_part(task: Task, rows: Sequence[int]) -> Trace:
    evaluator = Evaluator(task)
    evaluator.ask(np.array(rows))
    evaluator.ask(np.array(rows[:1]))
    return evaluator.trace(outcome="finished", seed=5)


def test_an_evaluator_goes_on_where_a_trace_ended(task: Task) -> None:
    rows = [3, 50, 7, 90]
    start = first_part(task, rows)
    evaluator = Evaluator(task, start=start)
    assert evaluator.now_s == start.elapsed_s[-1]
    evaluator.ask(np.array([50, 7]))
    assert evaluator.now_s == start.elapsed_s[-1]
    evaluator.ask(np.array([8]))
    both = evaluator.trace(outcome="finished", seed=5)
    at_once = Evaluator(task)
    at_once.ask(np.array(rows))
    at_once.ask(np.array([8]))
    whole = at_once.trace(outcome="finished", seed=5)
    assert both.rows.tolist() == whole.rows.tolist()
    assert both.elapsed_s.tolist() == whole.elapsed_s.tolist()
    assert (both.revisits, both.asks) == (3, 8)


def test_time_after_the_last_visit_is_charged(task: Task) -> None:
    """A model's latency, say, when its answer brought nothing to measure."""
    evaluator = Evaluator(task)
    evaluator.ask(np.array([3]))
    evaluator.wait_until(evaluator.now_s + 5.0)
    start = evaluator.trace(outcome="finished", seed=5)
    assert Evaluator(task, start=start).now_s == evaluator.now_s == start.elapsed_s[-1] + 5.0
    stored = replace(start, ended_s=0.0)
    assert Evaluator(task, start=stored).now_s == start.elapsed_s[-1]


def test_a_trace_of_another_task_is_refused(task: Task) -> None:
    start = first_part(task, [3, 50])
    for wrong in (
        replace(start, rows=start.rows + 1),
        replace(start, rows=start.rows + 10**6),
        replace(start, rows=start.rows - 10),
        replace(start, cost_ms=start.cost_ms * 2),
    ):
        with pytest.raises(TaskError, match="of its own task"):
            Evaluator(task, start=wrong)


def test_a_sandboxed_candidate_begins_with_what_was_measured(runner: Runner, task: Task) -> None:
    start = first_part(task, [3, 50, 7, 90])
    job = Job(Program.unread(UNTRUSTED, "FromTheBest"), task, seed=1, start=start)
    trace = runner.sandbox.run(job)
    assert trace.rows.tolist()[:4] == [3, 50, 7, 90]
    assert trace.elapsed_s.tolist()[:4] == start.elapsed_s.tolist()
    assert trace.outcome == "budget"
    plain = runner.sandbox.run(Job(Program.unread(UNTRUSTED, "FromTheBest"), task, seed=1))
    # Its first sample: four revisits, and two of the configurations that it would have begun with.
    assert trace.rows.tolist()[4:6] == plain.rows.tolist()[:2]


def test_the_child_is_told_an_order_and_no_cost(task: Task) -> None:
    start = first_part(task, [3, 50, 7, 90])
    job = Job(Program.unread(UNTRUSTED, "FromTheBest"), task, seed=1, start=start)
    told = json.loads(job.to_bytes(1, 0.0))
    costs = task.recording.time_ms
    assert told["measured"] == sorted([3, 50, 7, 90], key=lambda row: costs[row])
    assert [name for name, value in told.items() if isinstance(value, float)] == ["spent"]


def test_samples_begin_with_what_was_measured_each_once(task: Task) -> None:
    space = task.recording.space
    view = SpaceView(space, np.random.default_rng(0))
    measured = view.sample(10)
    seeded = SeededSpace(view, measured)
    assert seeded.sample(3) == measured[:3]
    assert seeded.sample(0) == []
    longer = seeded.sample(9)
    assert longer[:7] == measured[3:]
    assert len(set(longer)) == 9
    assert len(set(seeded.sample(50))) == 50
    everything = SeededSpace(view, measured).sample(10_000)
    assert everything[:10] == measured
    assert sorted(everything) == sorted(space.tuples)
    assert (seeded.names, seeded.size) == (space.names, space.size)
    assert seeded.neighbors(measured[0]) == view.neighbors(measured[0])
    with pytest.raises(AttributeError):
        _ = seeded.nothing


# --- the contract --------------------------------------------------------------------------------


class Takes:
    """Measures one random configuration after another; notes what it was given."""

    def __init__(self) -> None:
        self.first: list[tuple[int, ...]] = []
        self.spent: list[float] = []

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        self.first = space.sample(3)
        evaluate(self.first)
        for config in space.sample(500):
            evaluate([config])
            self.spent.append(evaluate.spent)


def in_process(optimizer: Any, task: Task) -> tuple[Evaluator, bool]:
    evaluator = Evaluator(task)
    evaluate = LocalEvaluate(task.recording.space, evaluator)
    rng = np.random.default_rng(2)
    try:
        optimizer(evaluate, SpaceView(task.recording.space, rng), rng)
    except BudgetExhausted:
        return evaluator, True
    return evaluator, False


def test_the_first_one_gets_its_share_and_the_second_one_the_rest(task: Task) -> None:
    first, second = Takes(), Takes()
    _, ended = in_process(Hybrid(first, second, 0.25), task)
    assert ended
    assert len(first.spent) >= 1
    assert first.spent[-1] <= 1.0
    assert second.spent[0] < 0.6
    costs = task.recording.time_ms
    space = task.recording.space
    given = [costs[space.row(config)] for config in second.first]
    assert given == sorted(given)


class KeepsFour:
    """Always four on their way, until a share of the budget or all of it ends that."""

    def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
        configs = iter(space.sample(500))
        while True:
            evaluate.submit(list(islice(configs, 4 - evaluate.pending)))
            evaluate.wait()


def test_what_a_first_one_left_on_its_way_is_measured_and_not_handed_to_the_next(
    task: Task,
) -> None:
    class Looks(Takes):
        def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
            self.waited = evaluate.wait()
            super().__call__(evaluate, space, rng)

    second = Looks()
    side_by_side = Task.build(task.recording, PipelinedClock(4))
    evaluator, ended = in_process(Hybrid(KeepsFour(), second, 0.25), side_by_side)
    assert ended
    assert second.waited == []
    assert second.spent[0] < 0.6  # the first one stopped at its share
    space, costs = task.recording.space, task.recording.time_ms
    given = [space.row(config) for config in second.first]
    assert [costs[row] for row in given] == sorted(costs[row] for row in given)
    first_visits = evaluator.trace(outcome="budget", seed=0).rows.tolist()
    assert max(map(first_visits.index, given)) < len(first_visits) / 2


def test_a_first_one_that_ends_by_itself_needs_no_share(task: Task) -> None:
    class Once:
        trouble = "the model was rude"

        def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
            self.costs = evaluate(space.sample(5))

    once, takes = Once(), Takes()
    hybrid = Hybrid(once, takes)
    in_process(hybrid, task)
    space = task.recording.space
    best = task.recording.time_ms[space.row(takes.first[0])]
    assert best == min(once.costs)
    assert hybrid.trouble == "the model was rude"


def test_a_budget_that_ends_during_the_first_one_ends_both(task: Task) -> None:
    second = Takes()
    _, ended = in_process(Hybrid(Takes(), second), task)
    assert ended
    assert second.first == []


def test_a_first_one_that_stalls_has_ended(task: Task) -> None:
    class Stuck:
        def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
            known = space.sample(3)
            while True:
                evaluate(known)

    second = Takes()
    _, ended = in_process(Hybrid(Stuck(), second), task)
    assert ended
    assert len(second.spent) > 10
    with pytest.raises(Stalled):
        in_process(Hybrid(Stuck(), None), task)


def test_a_fault_of_the_first_one_is_not_passed_over(task: Task) -> None:
    class Broken:
        def __call__(self, evaluate: Any, space: Any, rng: Any) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_process(Hybrid(Broken(), Takes()), task)


# --- specs ---------------------------------------------------------------------------------------


def test_a_next_one_of_source_text_is_for_the_sandbox_and_any_other_one_is_not(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(UNTRUSTED)
    for named in ("iterated_local_search?kick_size=3", str(file)):
        found = resolve(f"hybrid:{LLM}+{named}")
        assert isinstance(found, ProgramSearcher)
        assert isinstance(found.first, LibrarySearcher)
    found = resolve(f"hybrid:{LLM}+scipy:dual_annealing")
    assert isinstance(found, LibrarySearcher)
    assert found.name == f"hybrid:{LLM}+scipy:dual_annealing"
    assert "scipy" in found.versions


def test_two_hybrids_of_one_searcher_are_not_the_same_to_a_bench() -> None:
    digests = {
        describe_searcher(resolve(spec)).digest
        for spec in (
            "iterated_local_search",
            "hybrid:llm:a+iterated_local_search",
            "hybrid:llm:b+iterated_local_search",
        )
    }
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("hybrid:llm:m", "must be hybrid:FIRST+NEXT"),
        ("hybrid:+random_search", "must be hybrid:FIRST+NEXT"),
        ("hybrid:llm:m+", "must be hybrid:FIRST+NEXT"),
        ("hybrid:llm:m+hybrid:llm:m+random_search", "that are none themselves"),
        ("hybrid:random_search?share=0+random_search", "share must be above 0"),
        ("hybrid:random_search?share=x+random_search", "share must be above 0"),
        ("hybrid:nobody+random_search", "must be a known name"),
        ("hybrid:llm:m+nobody", "must be a known name"),
        ("hybrid:llm:m?rounds=0+random_search", "rounds from 1"),
    ],
)
def test_a_wrong_hybrid_is_refused_in_words(spec: str, said: str) -> None:
    with pytest.raises(SearcherError) as caught:
        resolve(spec)
    assert said in str(caught.value)


def test_an_untrusted_first_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(UNTRUSTED)
    with pytest.raises(SearcherError, match="outside the sandbox"):
        resolve(f"hybrid:{file}?share=0.2+random_search")


# --- runs ----------------------------------------------------------------------------------------


def test_a_run_of_both_is_one_trace_that_depends_on_its_seed(
    runner: Runner, server: FakeOpenAI, task: Task
) -> None:
    server.default = Oracle(task.recording)
    searcher = resolve(f"hybrid:{LLM}+iterated_local_search")
    first, again = runner.run(searcher, task, 3), runner.run(searcher, task, 3)
    other = runner.run(searcher, task, 4)
    assert first.rows.tolist() == again.rows.tolist() != other.rows.tolist()
    assert (first.outcome, first.error, first.seed) == ("budget", None, 3)
    assert len(set(first.rows.tolist())) == len(first.rows)
    assert (np.diff(first.elapsed_s) >= 0).all()
    assert set(Oracle(task.recording).rows) <= set(first.rows.tolist()[:16])


def test_hybrids_of_one_model_keep_a_conversation_each(
    server: FakeOpenAI, task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They ask alike with the same seed, and a model answers differently every time."""
    monkeypatch.setenv("LLAMEA_GPU_LLM_RECORD", str(tmp_path))
    space, turn = task.recording.space, iter(range(40))

    def answer(body: dict[str, Any]) -> Reply:
        config = space.value_dict(space.configuration(next(turn)))
        return completion(json.dumps({"configs": [config]}))

    def run_of(following: str, route: str = "") -> Trace:
        spec = f"hybrid:llm:m?rounds=1&initial=0{route}+{following}"
        return run_optimizer(resolve(spec).build, task, 1, cpu_s=None)  # type: ignore[union-attr]

    server.default = answer
    named = ("scipy:dual_annealing", "scipy:differential_evolution")
    live = [run_of(following) for following in named]
    assert live[0].rows[0] != live[1].rows[0]
    monkeypatch.setenv("LLAMEA_GPU_LLM_RECORDING", str(tmp_path))
    monkeypatch.delenv("LLAMEA_GPU_LLM_RECORD")
    for following, trace in zip(named, live, strict=True):
        again = run_of(following, "&route=replay")
        assert again.error is None
        assert again.rows.tolist() == trace.rows.tolist()


def test_a_model_that_is_gone_leaves_all_to_the_next_one_and_says_so(
    runner: Runner, server: FakeOpenAI, task: Task
) -> None:
    server.default = lambda body: Reply(status=500)
    for named in ("iterated_local_search", "scipy:dual_annealing"):
        trace = runner.run(resolve(f"hybrid:{LLM}+{named}"), task, 1)
        assert trace.outcome in ("budget", "finished")
        assert "could not be reached" in (trace.error or "")
        assert len(trace.rows) > 5
        assert trace.elapsed_s[-1] > 0.8 * task.budget_s


def test_a_model_can_go_on_where_another_searcher_ended(server: FakeOpenAI, matmul: Task) -> None:
    server.received.clear()
    server.default = Oracle(matmul.recording)
    searcher = resolve("hybrid:iterated_local_search?share=0.2+llm:m?rounds=1&initial=9")
    assert isinstance(searcher, LibrarySearcher)
    trace = run_optimizer(searcher.build, matmul, 1, cpu_s=None)
    (received,) = server.received
    prompt = received.body["messages"][1]["content"]
    first = int(prompt.partition(" configurations measured")[0].rpartition("\n")[2])
    assert first == 16  # its first batch is more than its share
    assert len(trace.rows) <= first + 12
    assert f"Best: {trace.cost_ms[:first].min():.4g} ms" in prompt


def run_once(runner: Runner, spec: str, task: Task, seed: int) -> Trace:
    """Libraries in this process, which has imported them for other tests."""
    searcher = resolve(spec)
    if isinstance(searcher, LibrarySearcher):
        return run_optimizer(searcher.build, task, seed, cpu_s=None)
    return runner.run(searcher, task, seed)


SEEDS = range(8)
SEEDED = 1 + 4 + 12  # measured before NEXT begins
OWN = 30
NEXT = (
    "random_search",
    "iterated_local_search",
    "genetic_algorithm",
    "simulated_annealing",
    "differential_evolution",
    "scipy:differential_evolution",
    "optuna:TPESampler",
    "kernel_tuner:genetic_algorithm",
    "kernel_tuner:simulated_annealing",
    "kernel_tuner:greedy_ils",
    "helion:PatternSearch",
    "helion:DifferentialEvolutionSearch",
)
_PACKAGES = {"kernel_tuner": "kernel_tuner", "helion": "helion", "optuna": "optuna"}


@pytest.fixture(scope="module")
def matmul() -> Task:
    """A real recording, with a budget of evaluations: as many as are looked at."""
    recording = load_space("matmul-2048")
    count = recording.space.size
    even = replace(recording, compile_s=np.ones(count), benchmark_s=np.zeros(count))
    built = Task.build(recording, SequentialClock())
    return replace(built, recording=even, budget_s=float(SEEDED + OWN))


@pytest.mark.parametrize("following", NEXT)
def test_every_next_one_searches_where_the_proposals_were_good(
    runner: Runner, server: FakeOpenAI, matmul: Task, following: str
) -> None:
    """NEXT's own visits, those after the model's, against as many of a run that starts cold.

    The seeds themselves do not count: a NEXT that ignored them would do as it does cold, as the
    control does, random search.
    """
    package = _PACKAGES.get(following.partition(":")[0])
    if package:
        pytest.importorskip(package)
    server.default = Oracle(matmul.recording)
    seeds = SEEDS[:4] if following.startswith("optuna:") else SEEDS  # slow, and gains every time
    gains = []
    for seed in seeds:
        warm = run_once(runner, f"hybrid:{LLM}+{following}", matmul, seed).cost_ms[SEEDED:]
        cold = run_once(runner, following, matmul, seed).cost_ms
        gains.append(median_log(cold[:OWN]) - median_log(warm[:OWN]))
    if following == "random_search":
        assert abs(np.mean(gains)) < 0.15
        return
    assert np.mean(gains) > 0.08, gains
    assert sum(gain > 0 for gain in gains) >= min(6, len(seeds)), gains


def median_log(costs_ms: np.ndarray) -> float:
    """The median of log(ms), failures at 1 ms, ten times the slowest that anybody would take."""
    return float(np.median(np.log(np.minimum(costs_ms, 1.0))))
