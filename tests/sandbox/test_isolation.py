"""Between runs, and between host and candidate, nothing stays, leaks, or can be timed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from sandbox.attacks import SECRET_VARIABLE
from sandbox.candidates import candidate, honest_job, same

from llamea_gpu.programs import Program
from llamea_gpu.sandbox.jobs import Job, Limits
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.tasks import Task, Trace

Run = Callable[..., Trace]

# What a candidate might do to the libraries, the runtime and the protocol of the one after it.
_VANDALISM = {
    "numpy": "np.sum = np.argsort = np.random.default_rng = None\nnp.random.seed = print",
    "random": "random.random = lambda: 0.5\nrandom.seed = lambda *a: None",
    "space": "space._space.configurations.setflags(write=True)\nspace._space.configurations[:] = 0",
    "tuples": "space._space.tuples.reverse()\nspace._space._lookup.clear()",
    "neighbours": "space._space._tables.clear()\ntype(space).neighbors = lambda *a: []",
    "sample": "type(space).sample = lambda self, n: []",
    "evaluate": "type(evaluate).__call__ = lambda self, configs: [0.0] * len(configs)",
    "protocol": "sys.modules['llamea_gpu.sandbox.protocol'].ASK = 99",
    "runtime": "m = sys.modules['llamea_gpu.sandbox.child']\nm.run = m.request = None",
    "hardening": "m = sys.modules['llamea_gpu.sandbox.hardening']\nm.enter_seccomp = print",
    "zygote": "import gc\nm = sys.modules['llamea_gpu.sandbox.zygote']\nm.Zygote._harden = print",
    "builtins": "import builtins\nbuiltins.len = builtins.exec = builtins.min = None",
    "modules": "sys.modules.clear()\nsys.meta_path.clear()",
    "errors": "sys.modules['llamea_gpu.errors'].BudgetExhausted = ValueError",
    "descriptors": "for fd in range(3):\n    os.close(fd)",
    "environment": "os.environ['PYTHONHASHSEED'] = '1'\nos.environ.clear()",
    "exit": "import atexit\natexit.register(lambda: os.write(3, b'junk'))",
    "collector": "import gc\ngc.disable()\ngc.unfreeze()",
    "trace": "sys.settrace(lambda *a: 1 / 0)\nsys.setswitchinterval(1e-6)",
}


@pytest.fixture(scope="module")
def single(sandbox_of: Callable[[int], Sandbox]) -> Iterator[Sandbox]:
    """One worker: the next run is the next fork."""
    with Sandbox.open(1, level=2) as sandbox:
        yield sandbox


@pytest.mark.parametrize("what", _VANDALISM)
def test_what_a_candidate_alters_is_whole_for_the_next(
    single: Sandbox, task: Task, what: str
) -> None:
    before = single.run(honest_job(task, seed=1))
    single.run(candidate(_VANDALISM[what], task))
    assert same(single.run(honest_job(task, seed=1)), before)


def test_scikit_learn_is_whole_for_the_next(single: Sandbox, task: Task) -> None:
    fit = """
from sklearn.linear_model import Ridge
X = space.encode(space.pool(100))
y = Ridge().fit(X, X.sum(axis=1)).predict(X)
evaluate([space.sample(9)[int(1e6 * abs(y[3])) % 9]])
"""
    before = single.run(candidate(fit, task))
    assert before.error is None
    vandal = "import sklearn.linear_model as m\nm.Ridge.fit = m.Ridge = None"
    assert single.run(candidate(vandal, task)).outcome == "finished"
    assert same(single.run(candidate(fit, task)), before)


def test_a_candidate_leaves_no_message_for_the_next(single: Sandbox, task: Task) -> None:
    leave = "import builtins, gc\nbuiltins.note = np.note = sys.note = 'was here'"
    single.run(candidate(leave, task))
    look = "import builtins\nassert not [o for o in (builtins, np, sys) if hasattr(o, 'note')]"
    assert single.run(candidate(look, task)).error is None


def test_a_candidate_leaves_no_file(best: Sandbox, task: Task) -> None:
    places = [Path("/tmp"), Path("/dev/shm"), Path.cwd()]
    before = {place: set(os.listdir(place)) for place in places if place.is_dir()}
    for place in before:
        body = f"for n in range(9): open('{place}/llamea-gpu-left-%d' % n, 'w')"
        assert best.run(candidate(body, task)).outcome == "error"
    for place in before:
        assert not [n for n in os.listdir(place) if "llamea-gpu-left" in n]


def test_a_fork_is_as_random_as_its_seed_and_not_as_its_sibling(run: Run) -> None:
    body = "import random\nraise ValueError(f'{random.random()} {np.random.random()}')"
    first, again, other = (run(body, seed=seed).error for seed in (1, 1, 2))
    assert first == again != other


# -- secrets and the table --------------------------------------------------------------------


def _read_only_as_root(path: str) -> bytes:
    if os.getuid() != 0:
        pytest.skip("only root may look into a process that is not dumpable")
    return Path(path).read_bytes()


def test_no_secret_reaches_the_zygote(best: Sandbox, run: Run) -> None:
    run("pass")
    (zygote,) = [z for name, z in best._zygotes.items() if name == "numpy"]
    environment = _read_only_as_root(f"/proc/{zygote.pid}/environ").decode()
    assert "PYTHONHASHSEED=0" in environment
    assert os.environ[SECRET_VARIABLE] not in environment
    assert not re.search(r"^(HOME|PATH|USER|[A-Z_]*KEY)=", environment.replace("\0", "\n"), re.M)


def _memory(pid: int | str) -> Iterator[bytes]:
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            bounds, mode, _, _, inode = line.split()[:5]
            if mode.startswith("rw") and inode == "0":
                start, end = (int(bound, 16) for bound in bounds.split("-"))
                memory.seek(start)
                try:
                    yield memory.read(end - start)
                except OSError:  # [vvar] and the like
                    continue


def test_the_costs_are_not_in_the_zygotes_memory(best: Sandbox, task: Task, run: Run) -> None:
    run("evaluate(space.pool(100)[:5])")
    pattern = task.recording.time_ms.tobytes()[:64]
    assert any(pattern in block for block in _memory("self"))  # the search finds what is there
    rows = task.recording.space.configurations.tobytes()
    (zygote,) = [z for name, z in best._zygotes.items() if name == "numpy"]
    if os.getuid() != 0:
        pytest.skip("only root may look into a process that is not dumpable")
    blocks = list(_memory(zygote.pid))
    assert any(rows in block for block in blocks)
    assert not any(pattern in block for block in blocks)


def test_the_time_of_an_answer_says_nothing_of_the_cost(best: Sandbox) -> None:
    task = _random_task(2500)
    trace = best.run(
        candidate(
            """
configs = [tuple(c) for c in space.pool(10**6)]
rng.shuffle(configs)
took, costs = [], []
for config in configs:
    start = time.perf_counter_ns()
    (cost,) = evaluate([config])
    took.append(time.perf_counter_ns() - start)
    costs.append(cost)
rank = lambda x: np.argsort(np.argsort(x))
raise ValueError('correlation %.6f' % np.corrcoef(rank(took), rank(costs))[0, 1])
""",
            task,
        )
    )
    correlation = float((trace.error or "").split()[-1])
    # Chance alone gives 0.02 (one standard deviation).
    assert abs(correlation) < 0.12


def test_no_cost_is_learned_without_a_visit(best: Sandbox) -> None:
    task = _random_task(2500)
    trace = best.run(
        candidate(
            """
import gc
seen = [x for c in space.pool(10**6)[:100] for x in evaluate([tuple(c)])]
floats = {o for a in gc.get_objects() for o in gc.get_referents(a) if type(o) is float}
arrays = [o for a in gc.get_objects() for o in gc.get_referents(a) if isinstance(o, np.ndarray)]
floats |= {x for a in arrays if a.dtype == float and a.size < 10**6 for x in a.ravel().tolist()}
raise ValueError('known ' + ' '.join(x.hex() for x in floats if 1 < x < 2))
""",
            task,
        )
    )
    known = {float.fromhex(text) for text in re.findall(r"0x1\.[0-9a-f]+p\+0", trace.error or "")}
    table = set(task.recording.time_ms.tolist())
    assert known & table <= set(trace.cost_ms.tolist())


def _random_task(size: int) -> Task:
    from dataclasses import replace

    from llamea_gpu.sandbox.selftest import self_test_task
    from llamea_gpu.spaces.recording import Recording, RecordingInfo

    rng = np.random.default_rng(11)
    recording = Recording.from_rows(
        names=("x", "y"),
        values=(range(50), range(size // 50)),
        configurations=np.indices((50, size // 50)).reshape(2, -1).T,
        time_ms=rng.uniform(1, 2, size),
        compile_s=np.full(size, 0.5),
        benchmark_s=np.full(size, 0.5),
        status=np.zeros(size, dtype=np.uint8),
        info=RecordingInfo("random", "none", "none", "none"),
    )
    return replace(self_test_task(), recording=recording, budget_s=1e9)


# -- what concerns the host -------------------------------------------------------------------


def test_runs_leave_no_descriptor_open(best: Sandbox, task: Task, run: Run) -> None:
    run("pass")
    before = len(os.listdir("/proc/self/fd"))
    for body in ("pass", "os._exit(1)", "os.close(3)", "1 / 0", "os.write(3, b'x')") * 4:
        run(body)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_large_source_arrives_whole(best: Sandbox, task: Task) -> None:
    filler = "".join(f"# {n:0100d}\n" for n in range(5000))
    source = "class C:\n    def __call__(self, evaluate, space, rng): evaluate(space.sample(7))\n"
    trace = best.run(Job(Program.unread(filler + source, "C"), task, seed=0))
    assert (trace.outcome, len(trace.rows)) == ("finished", 7)


@pytest.mark.parametrize(
    "source",
    ["\0", "\ud800", "(" * 100_000, "x = " + "-" * 100_000 + "1", "a" * 10**6, "class C:\n" * 99],
    ids=["null", "surrogate", "parentheses", "minuses", "name", "indent"],
)
def test_hostile_source_costs_one_run(best: Sandbox, task: Task, source: str) -> None:
    trace = best.run(Job(Program.unread(source, "C"), task, seed=0, limits=Limits(cpu_s=5)))
    assert trace.outcome in ("error", "crashed", "memory")
    assert best.run(honest_job(task)).outcome == "budget"
