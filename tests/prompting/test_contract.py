"""What the contract tells the model is what the sandbox does."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from support.recordings import small_recording

from llamea_gpu.clocks import ParallelClock
from llamea_gpu.errors import AnswerError
from llamea_gpu.programs import Program, admit
from llamea_gpu.prompting import PromptContext, render
from llamea_gpu.sandbox.jobs import Job, Limits
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.tasks import Task, Trace

Run = Callable[..., Trace]
TEXT = render("new", PromptContext())[0]


@pytest.fixture(scope="module")
def recording() -> Recording:
    return small_recording(workers=16)


@pytest.fixture(scope="module")
def run(recording: Recording) -> Iterator[Run]:
    """Runs the inside of ``__call__`` in the sandbox, on 16 workers unless a task is given."""
    task = replace(Task.build(recording), budget_s=20.0)
    with Sandbox.open(workers=1) as sandbox:

        def run_body(body: str, task: Task = task) -> Trace:
            head = "class Probe:\n    def __call__(self, evaluate, space, rng):\n"
            source = head + textwrap.indent(textwrap.dedent(body).strip(), " " * 8) + "\n"
            admit(source)
            return sandbox.run(Job(Program.unread(source, "Probe"), task, 0, Limits(cpu_s=20.0)))

        yield run_body


def told(trace: Trace) -> str:
    assert trace.error is not None, trace.outcome
    return trace.error.split("\n")[-1]


def test_n_jobs_is_ignored(run: Run) -> None:
    assert "`n_jobs` is ignored" in TEXT
    found = run(
        """
        from sklearn.ensemble import RandomForestRegressor
        forest = RandomForestRegressor(n_estimators=4, n_jobs=4, random_state=0)
        found = forest.fit([[0.0], [1.0]], [0.0, 1.0]).predict([[1.0]]).shape
        raise ValueError(f"found: {found}")
        """
    )
    assert told(found) == "ValueError: found: (1,)"


def test_workers_raise_and_are_not_admitted(run: Run) -> None:
    assert "Threads and processes raise, scipy's `workers` above 1 too" in TEXT
    search = """
        from scipy.spatial import cKDTree
        many = 2
        cKDTree(rng.random((99, 3))).query(rng.random((9, 3)), workers={})
        """
    assert "can't start new thread" in told(run(search.format("many")))
    with pytest.raises(AnswerError, match="workers"):
        run(search.format("2"))


def test_a_call_takes_65536_configurations(run: Run) -> None:
    assert "n at most 65,536" in TEXT
    assert run("evaluate(space.sample(1) * 65_536)").outcome == "finished"
    assert "at most 65536 configurations" in told(run("evaluate(space.sample(1) * 65_537)"))


def test_of_a_call_with_an_invalid_configuration_nothing_is_charged(run: Run) -> None:
    assert "An invalid configuration raises ValueError, and nothing of the call is charged" in TEXT
    trace = run(
        """
        try:
            evaluate([*space.sample(3), (99,) * len(space.names)])
        except ValueError:
            found = evaluate.spent
            raise RuntimeError(f"found: {found}")
        """
    )
    assert told(trace) == "RuntimeError: found: 0.0"
    assert trace.rows.size == 0


def test_revisits_are_free_also_within_a_call(run: Run) -> None:
    assert "Revisits, also within a call, are free" in TEXT
    trace = run(
        """
        one = space.sample(1)
        costs, before = evaluate(one + one), evaluate.spent
        found = costs[0] == costs[1], evaluate(one) == costs[:1], evaluate.spent == before
        raise ValueError(f"found: {found}")
        """
    )
    assert told(trace) == "ValueError: found: (True, True, True)"
    assert trace.rows.size == 1


def test_samples_hold_visited_ones_and_all_of_a_small_space(run: Run) -> None:
    trace = run(
        """
        evaluate(space.sample(1))
        found = len(set(space.sample(10**6))) == space.size, space.pool(10**6).shape[0]
        raise ValueError(f"found: {found}")
        """
    )
    assert told(trace) == "ValueError: found: (True, 120)"


def test_endless_revisits_and_empty_calls_end_the_run(run: Run) -> None:
    revisits = run("one = space.sample(1)\nwhile True:\n    evaluate(one)")
    assert (revisits.outcome, revisits.rows.size) == ("stalled", 1)
    assert run("while True:\n    evaluate([])").outcome == "stalled"


def test_a_call_takes_as_long_as_its_slowest_compilation(run: Run, recording: Recording) -> None:
    trace = run("evaluate(space.sample(16))")
    rows = trace.rows
    compiled_s = recording.compile_s[rows].max()
    assert trace.elapsed_s[0] == pytest.approx(compiled_s + recording.benchmark_s[rows[0]])
    spent_s = compiled_s + recording.benchmark_s[rows].sum()
    assert trace.elapsed_s[-1] == pytest.approx(spent_s)


def test_the_growth_of_spent_tells_how_long_a_call_took(run: Run) -> None:
    trace = run("evaluate(space.sample(16))\nraise ValueError(evaluate.spent)")
    assert float(told(trace).split()[-1]) == pytest.approx(trace.elapsed_s[-1] / 20.0)


def test_more_than_w_go_to_whoever_is_free_first_in_their_order(
    run: Run, recording: Recording
) -> None:
    task = replace(Task.build(recording, ParallelClock(2)), budget_s=100.0)
    trace = run("evaluate(space.sample(3))", task)
    first, second, third = recording.compile_s[trace.rows]
    compiled_s = max(first, second, min(first, second) + third)
    begun_s = trace.elapsed_s[0] - recording.benchmark_s[trace.rows[0]]
    assert begun_s == pytest.approx(compiled_s)


def test_a_call_that_compiles_beyond_the_end_measures_nothing(
    run: Run, recording: Recording
) -> None:
    assert "where the compilations alone last beyond the end, nothing of it is measured" in TEXT
    task = replace(Task.build(recording), budget_s=0.4)  # all compilations take longer
    trace = run("evaluate(space.sample(16))", task)
    assert (trace.outcome, trace.rows.size) == ("budget", 0)


def test_benchmarks_that_begin_in_time_count(run: Run, recording: Recording) -> None:
    whole = run("evaluate(space.sample(16))")
    task = replace(Task.build(recording), budget_s=float(whole.elapsed_s[7]) + 0.01)
    cut = run("evaluate(space.sample(16))", task)
    assert cut.rows.tolist() == whole.rows[: cut.rows.size].tolist()
    assert 8 < cut.rows.size < 16
    assert cut.outcome == "budget"


def test_the_end_of_the_budget_passes_by_except_exception(run: Run) -> None:
    trace = run(
        """
        while True:
            try:
                evaluate(space.sample(16))
            except Exception:
                continue
        """
    )
    assert trace.outcome in ("budget", "stalled")  # stalled once all 120 are visited
    assert trace.error is None or "no new visit" in trace.error
