"""The pool: parallel, tough, and gone without a trace when it is closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from sandbox.candidates import candidate, honest_job, same

from llamea_gpu.errors import SandboxError
from llamea_gpu.sandbox import process
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.sandbox.selftest import self_test_task
from llamea_gpu.tasks import Task, Trace

# Visits five configurations, then waits for an answer that never comes.
_WAITING = "evaluate(space.sample(5))\nos.read(3, 1)"


@pytest.fixture
def pool() -> Iterator[Sandbox]:
    with Sandbox.open(3, level=2) as sandbox:
        yield sandbox


def _eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.01)


def _zygote_pid(sandbox: Sandbox) -> int:
    return sandbox._zygotes["numpy"].pid


def _children(pid: int) -> list[int]:
    try:
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _start_waiting(sandbox: Sandbox, task: Task, count: int) -> list[Future[Trace]]:
    job = candidate(_WAITING, task, limits=Limits(cpu_s=20))
    futures = [sandbox.submit(job) for _ in range(count)]
    _eventually(lambda: len(_children(_zygote_pid(sandbox))) == count)
    return futures


def test_all_workers_run_at_the_same_time(pool: Sandbox, task: Task) -> None:
    futures = _start_waiting(pool, task, 3)
    assert not any(future.done() for future in futures)
    pool.close()
    assert all(isinstance(future.exception(), SandboxError) for future in futures)


def test_the_default_is_a_worker_for_each_core(task: Task) -> None:
    with Sandbox.open(level=2) as sandbox:
        cores = len(os.sched_getaffinity(0))
        futures = _start_waiting(sandbox, task, cores)
    assert len(futures) == cores


def test_many_runs_from_many_threads_are_each_right(pool: Sandbox, task: Task) -> None:
    expected = {seed: pool.run(honest_job(task, seed)) for seed in range(5)}
    wrong: list[int] = []

    def work() -> None:
        for seed in range(5):
            for future in [pool.submit(honest_job(task, seed)) for _ in range(4)]:
                if not same(future.result(), expected[seed]):
                    wrong.append(seed)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_stuck_child_holds_nobody_up(pool: Sandbox, task: Task) -> None:
    (stuck,) = _start_waiting(pool, task, 1)
    assert all(pool.run(honest_job(task)).outcome == "budget" for _ in range(10))
    assert not stuck.done()


def test_a_killed_child_costs_one_run(pool: Sandbox, task: Task) -> None:
    futures = _start_waiting(pool, task, 2)
    time.sleep(0.5)  # both past their hardening: a child killed before it is the zygote's fault
    victim, survivor = _children(_zygote_pid(pool))
    os.kill(victim, signal.SIGKILL)
    _eventually(lambda: any(future.done() for future in futures))
    (done,) = [future for future in futures if future.done()]
    assert done.result().outcome == "memory"  # who else would kill it
    assert len(done.result().rows) in (0, 5)  # killed before or after its one request
    assert survivor in _children(_zygote_pid(pool))
    assert pool.run(honest_job(task)).outcome == "budget"


def test_a_stopped_child_runs_into_the_wall_limit(pool: Sandbox, task: Task) -> None:
    limits = Limits(cpu_s=10, wall_factor=0.05, wall_floor_s=0.5)
    future = pool.submit(candidate(_WAITING, task, limits=limits))
    _eventually(lambda: _children(_zygote_pid(pool)))
    for pid in _children(_zygote_pid(pool)):
        os.kill(pid, signal.SIGSTOP)
    assert future.result().outcome == "timeout"


def test_runs_that_a_dead_zygote_took_down_are_repeated(pool: Sandbox, task: Task) -> None:
    expected = pool.run(candidate("evaluate(space.sample(5))", task))
    once = "evaluate(space.sample(5))\nend = time.perf_counter() + 1\n"
    once += "while time.perf_counter() < end: pass"
    futures = [pool.submit(candidate(once, task)) for _ in range(3)]
    dead = _zygote_pid(pool)
    _eventually(lambda: len(_children(dead)) == 3)
    os.kill(dead, signal.SIGKILL)
    assert all(same(future.result(), expected) for future in futures)
    assert _zygote_pid(pool) != dead


def test_a_child_that_its_zygote_left_behind_says_nothing() -> None:
    # What it said would be taken for a machine that cannot harden, and end all runs.
    program = """
import os, socket
from llamea_gpu.sandbox import hardening, zygote

host, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if os.fork():
    channel.close()
    assert host.recv(100) == b"", "a packet"
    os._exit(0)

class Orphan(zygote.Zygote):
    def __init__(self):
        self._pid = -1  # not the parent

    def _harden(self, *_):
        hardening.die_with_parent(self._pid)

host.close()
os.dup2(channel.fileno(), hardening.CHANNEL_FD)
Orphan()._be_child(channel.fileno(), 1.0, 1 << 30)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_children_die_with_their_zygote(pool: Sandbox, task: Task) -> None:
    _start_waiting(pool, task, 2)
    pid = _zygote_pid(pool)
    children = _children(pid)
    os.kill(pid, signal.SIGKILL)
    _eventually(lambda: not any(os.path.exists(f"/proc/{child}") for child in children))


def test_a_zygote_that_dies_each_time_is_the_sandboxs_fault(
    pool: Sandbox, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise process.ZygoteDied("again")

    monkeypatch.setattr("llamea_gpu.sandbox.pool.run_job", die)
    with pytest.raises(SandboxError, match="3 attempts"):
        pool.run(honest_job(task))


def test_a_closed_sandbox_says_so(pool: Sandbox, task: Task) -> None:
    pool.close()
    with pytest.raises(SandboxError, match="closed"):
        pool.run(honest_job(task))


@pytest.mark.parametrize("level", [3, 2])
def test_closing_ends_every_process(
    level: int, task: Task, sandbox_of: Callable[[int], Sandbox]
) -> None:
    sandbox_of(level)  # or skip
    before = _descendants(os.getpid())
    with Sandbox.open(2, level=level) as sandbox:
        future = sandbox.submit(candidate(_WAITING, task))
        _eventually(lambda: len(_descendants(os.getpid()) - before) >= 2)
        ours = _descendants(os.getpid()) - before
    assert isinstance(future.exception(), SandboxError)
    _eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in ours))


def _descendants(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task")
    try:
        lists = [(tasks / t / "children").read_text().split() for t in os.listdir(tasks)]
    except FileNotFoundError:
        return set()
    children = {int(c) for row in lists for c in row}
    return children.union(*(_descendants(child) for child in children))


_HOST = """
import sys, threading, time
from sandbox.candidates import candidate
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.sandbox.selftest import self_test_task
sandbox = Sandbox.open(2, level=int(sys.argv[1]))
for _ in range(2):
    sandbox.submit(candidate("evaluate(space.sample(5))\\nos.read(3, 1)", self_test_task()))
print("open", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("level", [3, 2])
def test_a_killed_host_leaves_no_process(level: int, sandbox_of: Callable[[int], Sandbox]) -> None:
    sandbox_of(level)  # or skip
    path = os.pathsep.join(p for p in sys.path if p)
    host = subprocess.Popen(
        [sys.executable, "-c", _HOST, str(level)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert host.stdout is not None
    with host.stdout:
        assert host.stdout.readline() == b"open\n"
    _eventually(lambda: len(_descendants(host.pid)) >= 3)
    left = _descendants(host.pid)
    host.kill()
    host.wait()
    _eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in left))


def test_the_sandbox_may_be_opened_by_a_thread_that_ends(task: Task) -> None:
    opened: list[Sandbox] = []
    thread = threading.Thread(target=lambda: opened.append(Sandbox.open(1, level=2)))
    thread.start()
    thread.join()
    with opened[0] as sandbox:
        pid = _zygote_pid(sandbox)
        assert sandbox.run(honest_job(task)).outcome == "budget"
        assert _zygote_pid(sandbox) == pid


def test_old_spaces_make_room_and_come_back(pool: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_MAX_ROWS", 15)
    tasks = [_task_of(size) for size in (6, 7, 8)]
    for _ in range(2):
        for task in tasks:
            trace = pool.run(candidate("assert space.size == len(space.pool(10**6))", task))
            assert trace.error is None
    assert list(pool._zygotes["numpy"]._spaces.values()) == [7, 8]


def _task_of(size: int) -> Task:
    from dataclasses import replace

    import numpy as np

    from llamea_gpu.spaces.recording import Recording, RecordingInfo

    recording = Recording.from_rows(
        names=("x",),
        values=(range(size),),
        configurations=np.arange(size)[:, None],
        time_ms=np.arange(1.0, size + 1),
        compile_s=np.ones(size),
        benchmark_s=np.ones(size),
        status=np.zeros(size, dtype=np.uint8),
        info=RecordingInfo("line", "none", "none", "none"),
    )
    return replace(self_test_task(), recording=recording)
