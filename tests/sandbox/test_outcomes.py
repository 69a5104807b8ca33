"""What a candidate may see and do, and how each way of ending becomes data."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from sandbox.candidates import candidate, honest_job, same

from llamea_gpu.clocks import ParallelClock
from llamea_gpu.errors import SandboxError
from llamea_gpu.programs import Program
from llamea_gpu.sandbox.jobs import Job, Limits
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.spaces.recording import Recording, RecordingInfo
from llamea_gpu.tasks import Evaluator, Task, Trace

Run = Callable[..., Trace]


@pytest.fixture(scope="module")
def large() -> Task:
    """16,000 configurations, one in ten failed, compiled 8 at a time, and a budget for all."""
    rng = np.random.default_rng(7)
    grid = np.indices((20, 20, 40)).reshape(3, -1).T
    failed = rng.random(len(grid)) < 0.1
    recording = Recording.from_rows(
        names=("x", "y", "z"),
        values=(range(20), range(20), range(40)),
        configurations=grid,
        time_ms=np.where(failed, np.inf, rng.uniform(1, 2, len(grid))),
        compile_s=rng.uniform(0.5, 1.5, len(grid)),
        benchmark_s=np.full(len(grid), 0.25),
        status=failed.astype(np.uint8),
        info=RecordingInfo("large", "none", "none", "none", parallel_workers=8),
    )
    budget_s = 1e6
    return Task(
        recording=recording,
        clock=ParallelClock(8),
        costs_ms=np.sort(recording.time_ms[~failed]),
        optimum_ms=1.0,
        median_ms=1.5,
        evaluation_s=0.375,
        budget_s=budget_s,
        budget_evaluations=budget_s / 0.375,
        axis_s=np.linspace(0, budget_s, 2),
        baseline_ms=np.full(2, 1.5),
    )


# -- outcomes ---------------------------------------------------------------------------------


def test_a_candidate_that_returns_is_finished(run: Run) -> None:
    trace = run("evaluate(space.sample(3))")
    assert (trace.outcome, len(trace.rows), trace.error) == ("finished", 3, None)


def test_the_end_of_the_budget_ends_the_run_at_once(run: Run) -> None:
    trace = run("while True: evaluate(space.sample(1))")
    assert trace.outcome == "budget"
    assert len(trace.rows) == 20


def test_a_candidate_that_only_revisits_is_stalled(best: Sandbox, task: Task) -> None:
    program = candidate("c = space.sample(1)\nwhile True: evaluate(c)", task).program
    trace = best.run(Job(program, task, seed=0, max_idle_asks=50))
    assert trace.outcome == "stalled"
    assert (len(trace.rows), trace.revisits) == (1, 50)


def test_a_candidate_that_asks_for_nothing_is_stalled(run: Run) -> None:
    trace = run("evaluate(space.sample(1))\nwhile True: evaluate([])")
    assert trace.outcome == "stalled"
    assert "10000 times in a row with nothing" in (trace.error or "")
    assert len(trace.rows) == 1


def test_waiting_for_nothing_stalls_on_the_hosts_side_too(run: Run) -> None:
    trace = run("while True: os.write(3, b'\\10\\0\\0\\0'); os.read(3, 64)")
    assert (trace.outcome, trace.asks) == ("stalled", 0)


def test_many_answers_of_one_wait_are_the_right_ones(run: Run, large: Task) -> None:
    trace = run(
        """
configs = space.sample(9000)
evaluate.submit(configs)
evaluate.submit(configs[::-1])
done = evaluate.wait()
assert evaluate.pending == 0
assert [config for config, _ in done] == [c for c in configs for _ in range(2)]
assert [cost for _, cost in done[::2]] == evaluate(configs)
""",
        task=large,
    )
    assert (trace.outcome, trace.error, trace.rows.size) == ("finished", None, 9000)


def test_empty_calls_between_others_are_harmless(run: Run) -> None:
    body = (
        "for i in range(25_000):\n    evaluate([])\n    if i % 5000 == 0: evaluate(space.sample(1))"
    )
    assert run(body).outcome == "finished"


def test_cpu_time_runs_out(run: Run) -> None:
    trace = run("evaluate(space.sample(2))\nwhile True: pass", cpu_s=0.1)
    assert trace.outcome == "timeout"
    assert "0.1 CPU seconds" in (trace.error or "")
    assert len(trace.rows) == 2
    assert trace.cpu_s is not None
    assert trace.cpu_s >= 0.1


@pytest.mark.parametrize(
    "wait",
    ["os.read(3, 1)", "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()"],
    ids=["reading", "deadlock"],
)
def test_waiting_runs_into_the_wall_limit(run: Run, wait: str) -> None:
    trace = run(wait, cpu_s=10.0, wall_factor=0.01, wall_floor_s=0.1)
    assert trace.outcome == "timeout"
    assert "of real time" in (trace.error or "")


def test_sleeping_is_refused(run: Run) -> None:
    trace = run("time.sleep(1000)")
    assert trace.outcome == "error"
    assert "PermissionError" in (trace.error or "")


def test_memory_runs_out(run: Run) -> None:
    trace = run("evaluate(space.sample(2))\nnp.ones(1 << 29)")
    assert (trace.outcome, len(trace.rows)) == ("memory", 2)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("os._exit(3)", "exit status 3"),
        ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
        ("os.write(3, b'')", "closed, or an empty request"),
    ],
)
def test_a_process_that_ends_without_a_word(run: Run, body: str, says: str) -> None:
    trace = run(body + "\nwhile True: pass")
    assert trace.outcome in ("crashed", "protocol")
    assert says in (trace.error or "")


def test_an_endless_recursion_costs_one_run(run: Run) -> None:
    body = "sys.setrecursionlimit(10**9)\na = []\nfor _ in range(10**6): a = [a]\nrepr(a)"
    assert run(body).outcome in ("crashed", "error", "memory")


@pytest.mark.parametrize(
    "body",
    ["sys.exit(0)", "raise KeyboardInterrupt", "raise GeneratorExit", "1 / 0", "evaluate()"],
)
def test_whatever_is_raised_is_an_error(run: Run, body: str) -> None:
    assert run(body).outcome == "error"


@pytest.mark.parametrize(
    "source",
    ["class C(", "raise OSError", "class D: pass", "class C:\n    def __init__(self, x): pass"],
    ids=["syntax", "import", "name", "arguments"],
)
def test_a_source_that_does_not_load_is_an_error(best: Sandbox, task: Task, source: str) -> None:
    trace = best.run(Job(Program.unread(source, "C"), task, seed=0))
    assert trace.outcome == "error"
    assert len(trace.rows) == 0


def test_hyperparameters_reach_the_class(best: Sandbox, task: Task) -> None:
    source = (
        "class C:\n"
        "    def __init__(self, count=1, name='', flag=False, share=0.5):\n"
        "        self.count = count if (name, flag, share) == ('a', True, 0.25) else 0\n"
        "    def __call__(self, evaluate, space, rng): evaluate(space.sample(self.count))\n"
    )
    given = {"count": 4, "name": "a", "flag": True, "share": 0.25}
    assert len(best.run(Job(Program.unread(source, "C", **given), task, seed=0)).rows) == 4


def test_a_hyperparameter_that_is_not_plain_is_the_callers_fault(best: Sandbox, task: Task) -> None:
    with pytest.raises(SandboxError, match="plain numbers"):
        best.run(Job(Program.unread("", "C", x=object()), task, seed=0))


def test_a_hyperparameter_with_too_many_digits_is_named(best: Sandbox, task: Task) -> None:
    with pytest.raises(SandboxError, match="mask: int"):
        best.run(Job(Program.unread("", "C", mask=10**5000), task, seed=0))


@pytest.mark.parametrize("limits", [{"cpu_s": 0}, {"cpu_s": np.nan}, {"memory_bytes": 1 << 20}])
def test_limits_that_no_run_could_keep_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(SandboxError, match="must be"):
        Limits(**limits)  # type: ignore[arg-type]


# -- error texts ------------------------------------------------------------------------------


def test_a_traceback_names_the_candidates_lines(run: Run) -> None:
    trace = run("x = 1\nreturn np.linalg.inv(np.zeros((2, 2)))")
    error = trace.error or ""
    assert "line 7, in __call__\n    return np.linalg.inv(np.zeros((2, 2)))" in error
    assert "LinAlgError: Singular matrix" in error
    assert "site-packages" not in error


def test_an_error_text_is_the_same_each_time_and_holds_no_address(
    best: Sandbox, task: Task
) -> None:
    job = candidate("raise ValueError(f'{object()} {evaluate!r} {hex(id(space))}')", task)
    first, second = best.run(job).error or "", best.run(job).error or ""
    assert first == second
    assert "object at 0x…" in first
    assert not re.search(r"0x[0-9a-f]", first)


def test_an_import_error_holds_no_path_of_this_machine(run: Run) -> None:
    error = run("from scipy.stats import nothing").error or ""
    assert error.endswith("from 'scipy.stats' (scipy/stats/__init__.py)")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("see /home/x/.venv/lib/python3.11/site-packages/a/b.py", "see a/b.py"),
        ("('/usr/lib/python3/dist-packages/a.py')", "('a.py')"),
        ("(/usr/lib/python3.11/json/decoder.py)", "(json/decoder.py)"),
        ("1/2 of x/y", "1/2 of x/y"),
    ],
)
def test_a_librarys_path_is_cut_to_its_name(run: Run, said: str, shown: str) -> None:
    error = run(f"raise ValueError({said!r})").error or ""
    assert error.splitlines()[-1] == f"ValueError: {shown}"


def test_a_huge_error_text_is_cut_in_the_middle(run: Run) -> None:
    error = run("raise ValueError('x' * 10**7 + 'the end')").error or ""
    assert len(error) < 7000
    assert error.startswith("Traceback")
    assert error.endswith("the end")


@pytest.mark.parametrize(
    "body",
    [
        r"raise ValueError('\x1b[2J\x00\r\u202e\ud800')",
        r"os.write(3, b'\5\0\0\0\0\0\0\0' + bytes(range(256)) * 8)" + "\nwhile True: pass",
        "E = type('E\\x1b\\n', (Exception,), {})\nraise E('x')",
        "class E(Exception):\n    def __str__(self): raise E\nraise E",
        "class E(Exception):\n    def __str__(self): return 7\nraise E",
    ],
    ids=["control", "not-utf-8", "class-name", "raising-str", "wrong-str"],
)
def test_an_error_text_is_printable(run: Run, body: str) -> None:
    trace = run(body)
    assert trace.outcome == "error"
    assert all(c == "\n" or c.isprintable() for c in trace.error or "")
    (trace.error or "").encode("utf-8")


# -- the contract -----------------------------------------------------------------------------


def test_costs_come_in_the_order_asked_for_and_duplicates_count_once(run: Run) -> None:
    trace = run(
        """
a, b = space.sample(2)
one, two, again = evaluate([a, b, a])
assert one == again != two
assert evaluate([b]) == [two]
assert type(one) is float
"""
    )
    assert (trace.outcome, len(trace.rows), trace.revisits) == ("finished", 2, 2)


def test_tuples_lists_and_arrays_are_configurations(run: Run) -> None:
    trace = run(
        """
configs = space.sample(4)
costs = evaluate(configs)
assert evaluate([list(c) for c in configs]) == costs
assert evaluate(np.array(configs)) == costs
assert evaluate(c for c in configs) == costs
assert evaluate([np.array(c) for c in configs]) == costs
assert evaluate([]) == [] and evaluate(np.empty((0, 2), int)) == []
"""
    )
    assert (trace.outcome, trace.error) == ("finished", None)


@pytest.mark.parametrize(
    ("configurations", "says"),
    [
        ("[(0, 0), (0, 99)]", "(0, 99) (number 1 of 2)"),
        ("[(-1, 0)]", "(-1, 0)"),
        ("[(0, 0, 0)]", "2 value indices"),
        ("(0, 1)", "a list of configurations"),
        ("[None]", "a tuple of value indices"),
        ("[('a', 'b')]", "('a', 'b')"),
        ("np.array([[0, 99]])", "(0, 99)"),
        ("np.array([[0.5, 0.5]])", "(0.5, 0.5)"),
        ("[(0, 0)] * 70000", "at most 65536"),
    ],
)
def test_an_invalid_configuration_is_named_and_charges_nothing(
    run: Run, configurations: str, says: str
) -> None:
    trace = run(f"evaluate({configurations})")
    assert trace.outcome == "error"
    assert "ValueError" in (trace.error or "")
    assert says in (trace.error or "")
    assert trace.asks == 0


def test_spent_and_parallel_are_told(run: Run, large: Task) -> None:
    body = """
assert evaluate.spent == 0.0
evaluate(space.sample(5))
assert evaluate.spent == 0.25 and evaluate.parallel == 1
"""
    assert run(body).error is None
    assert run("assert evaluate.parallel == 8", task=large).error is None


def test_a_batch_of_many_packets_is_one_batch_for_the_clock(run: Run, large: Task) -> None:
    trace = run("costs = evaluate(space.pool(10**6))\nassert len(costs) == 16000", task=large)
    evaluator = Evaluator(large)
    evaluator.ask(np.arange(16000, dtype=np.int32))
    expected = evaluator.trace(outcome="finished", seed=0)
    assert (trace.outcome, trace.error) == ("finished", None)
    assert same(trace, expected)


def test_every_cost_of_a_large_batch_is_the_right_one(run: Run, large: Task) -> None:
    trace = run(
        """
pool = space.pool(10**6)
order = rng.permutation(len(pool))
costs = np.array(evaluate(pool[order]))
again = np.array([evaluate([tuple(pool[i])])[0] for i in order[::97]])
assert np.array_equal(costs[::97], again), (costs[::97], again)
assert np.isinf(costs).any() and np.isfinite(costs).any()
""",
        task=large,
    )
    assert trace.error is None


def test_the_trace_is_what_the_recording_says(run: Run, large: Task) -> None:
    trace = run("evaluate(space.sample(500))", task=large)
    assert np.array_equal(trace.cost_ms, large.recording.time_ms[trace.rows])
    assert np.isinf(trace.cost_ms).any()


# -- determinism ------------------------------------------------------------------------------

_RANDOM = """
import random
strings = {"block", "warps", "stages", "mode", "unroll", "vector"}
order = sum(7**i * len(s) + ord(s[1]) for i, s in enumerate(strings))
seeds = [random.random(), np.random.random(), rng.random(), order]
evaluate([space.sample(9)[int(1e6 * s) % 9] for s in seeds])
"""


def test_a_run_depends_on_its_seed_alone(best: Sandbox, task: Task) -> None:
    first = best.run(candidate(_RANDOM, task, seed=5))
    assert first.error is None
    with Sandbox.open(1, level=best.level) as other:
        assert same(first, other.run(candidate(_RANDOM, task, seed=5)))


_UNSEEDED = """
from scipy.stats import qmc
makers = (np.random.default_rng, np.random.RandomState, np.random.default_rng)
draws = [make().uniform() for make in makers]
draws += [engine(2).random(1)[0, 0] for engine in (qmc.Sobol, qmc.Halton, qmc.LatinHypercube)]
raise ValueError(str([float(draw) for draw in draws]))
"""


def test_generators_without_a_seed_depend_on_the_runs(best: Sandbox, task: Task) -> None:
    errors = [best.run(candidate(_UNSEEDED, task, seed=seed)).error for seed in (5, 5, 6)]
    assert errors[0] == errors[1]
    draws = [(error or "").rpartition("[")[2].rstrip("]").split(", ") for error in errors[1:]]
    assert len({*draws[0], *draws[1]}) == 12


def test_another_seed_is_another_run(best: Sandbox, task: Task) -> None:
    runs = [best.run(candidate(_RANDOM, task, seed=seed)) for seed in range(4)]
    assert len({run.rows.tobytes() for run in runs}) == 4


def test_the_levels_give_the_same_run(sandbox_of: Callable[[int], Sandbox], task: Task) -> None:
    runs = [sandbox_of(level).run(honest_job(task, seed=3)) for level in (3, 2, 1, 0)]
    assert all(same(runs[0], run) for run in runs)


# -- CPU time ---------------------------------------------------------------------------------

_BURN = "end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"


def test_the_candidates_cpu_seconds_are_measured(run: Run) -> None:
    idle, busy = run("pass").cpu_s, run(_BURN).cpu_s
    assert idle is not None
    assert busy is not None
    assert idle < 0.1 < 0.2 <= busy


def test_cpu_seconds_are_charged_to_the_clock_when_asked_for(best: Sandbox, task: Task) -> None:
    program = candidate(_BURN + "evaluate(space.sample(1))", task).program
    free = best.run(Job(program, task, seed=0))
    charged = best.run(Job(program, task, seed=0, charge_cpu=True))
    assert free.elapsed_s.tolist() == [1.0]
    assert charged.elapsed_s[0] >= 1.2
