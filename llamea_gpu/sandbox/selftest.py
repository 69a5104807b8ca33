"""Self-attacks: hostile candidates run through the real path, and a control that must succeed.

A level counts only when every attack was held off *and* the control's trace is exactly right;
without the control, a sandbox that never started would look perfectly tight. Attacks that hold on
every level are here once; which layer holds what is for `diagnosis` to find out.
"""

from __future__ import annotations

import os
import platform
import secrets
import tempfile
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from llamea_gpu.clocks import SequentialClock
from llamea_gpu.programs import Hyperparameter, Program
from llamea_gpu.sandbox.jobs import Job, Limits
from llamea_gpu.sandbox.process import ZygoteProcess
from llamea_gpu.sandbox.report import AttackVerdict
from llamea_gpu.sandbox.serving import run_job
from llamea_gpu.spaces.recording import Recording, RecordingInfo
from llamea_gpu.tasks import Task, Trace

CONTROL = "control"
_HELD, _LEAKED = "HELD", "LEAKED"
_BUDGET_EVALUATIONS = 20
_LIMITS = Limits(memory_bytes=1 << 30)
_SHORT_LIMITS = Limits(cpu_s=0.1, wall_factor=200.0)  # where running out of time is the point

# What an attack is wrapped in. ``secret`` is a file of the host that anyone may read.
_TEMPLATE = """
import ctypes, os, signal, socket, sys, threading, time
import numpy as np

class Attack:
    def __init__(self, secret, host):
        self.secret, self.host = secret, host

    def attempt(self, evaluate, space):
        secret, host = self.secret, self.host
        libc = ctypes.CDLL(None, use_errno=True)
        def refused(result):
            if result < 0:
                raise OSError(ctypes.get_errno(), "refused")
            return result
{body}

    def __call__(self, evaluate, space, rng):
        os.close(0)  # so that it is not for want of a descriptor that
        os.close(1)  # an attack fails
        try:
            gain = self.attempt(evaluate, space)
        except (OSError, RuntimeError, ValueError, ImportError) as error:
            raise RuntimeError(f"{held} {{error!r}}") from None
        raise RuntimeError(f"{leaked} {{gain!r}}")
"""


@dataclass(frozen=True, slots=True)
class SelfAttack:
    """One hostile candidate. ``outcome`` is how its run must end; ``error`` also needs its HELD.

    ``children`` is how many of it run side by side, where they are to conspire.
    """

    name: str
    body: str
    outcome: str = "error"
    children: int = 1

    @property
    def source(self) -> str:
        """The candidate."""
        body = textwrap.indent(textwrap.dedent(self.body).strip(), " " * 8)
        return _TEMPLATE.format(body=body, held=_HELD, leaked=_LEAKED)

    def job(self, task: Task, secret: str) -> Job:
        """The run of it, with what an attacker could know: a file's name, the host's pid."""
        hyperparameters: dict[str, Hyperparameter] = {"secret": secret, "host": os.getpid()}
        limits = _SHORT_LIMITS if self.outcome == "timeout" else _LIMITS
        program = Program.unread(self.source, "Attack", **hyperparameters)
        return Job(program, task, seed=0, limits=limits)


FILE_ATTACK = SelfAttack("read a file of the host", "return open(secret).read()")
PROCESS_ATTACK = SelfAttack("signal the host", "return os.kill(host, 0)")
CALL_ATTACK = SelfAttack("start a process", "pid = os.fork()\nif pid == 0: os._exit(0)\nreturn pid")
FUTEX = 202 if platform.machine() == "x86_64" else 98
# Both children have the C library's code from the zygote: the same page of the same file.
TALK_ATTACK = SelfAttack(
    "talk to another run",
    f"""
    shared = ctypes.cast(libc.getpid, ctypes.c_void_p).value & ~3
    word = ctypes.c_uint32.from_address(shared).value
    within = (ctypes.c_long * 2)(0, 5_000_000)
    address = ctypes.c_void_p(shared)
    for _ in range(400):
        if refused(libc.syscall({FUTEX}, address, 1, 1)): return "it was waiting"
        if libc.syscall({FUTEX}, address, 0, word, within) == 0: return "it woke this one"
    return "nobody came, but nothing was refused"
    """,
    children=2,
)
# The callback's memory becomes a copy of a function of the C library, which is then called.
CODE_ATTACK = SelfAttack(
    "write code and run it",
    """
    try:
        callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: -1)
    except MemoryError:
        ctypes.string_at(0)  # no memory at all for it: end as running it would
    ctypes.memmove(ctypes.cast(callback, ctypes.c_void_p), libc.getpid, 32)
    return callback()
    """,
    "crashed",
)

ATTACKS = (
    FILE_ATTACK,
    PROCESS_ATTACK,
    CALL_ATTACK,
    TALK_ATTACK,
    CODE_ATTACK,
    SelfAttack("write a file of the host", "return open(secret, 'a').write('x')"),
    SelfAttack("list the host's folders", "return os.listdir(os.path.dirname(secret))"),
    SelfAttack("read the host's memory", "return open(f'/proc/{host}/mem', 'rb')"),
    SelfAttack("open a socket", "return socket.socket()"),
    SelfAttack("start a thread", "return threading.Thread(target=print).start()"),
    SelfAttack("run a program", "return os.execv('/bin/true', ['true'])"),
    SelfAttack("become root", "os.setresuid(0, 0, 0)\nos.setgroups([0])\nreturn os.getuid()"),
    SelfAttack("make a memory file", "return os.memfd_create('x')"),
    SelfAttack("make a user namespace", "return refused(libc.unshare(0x10000000))"),
    SelfAttack("trace another process", "return refused(libc.ptrace(16, host, 0, 0))"),
    SelfAttack(
        "make memory executable",
        """
        page = (np.ones(4096).ctypes.data + 4095) & ~4095
        return refused(libc.mprotect(ctypes.c_void_p(page), 4096, 5))
        """,
    ),
    SelfAttack("use too much memory", "return np.ones(1 << 28)", "memory"),
    SelfAttack("use too much CPU", "while True: pass", "timeout"),
    SelfAttack("forge a request", "os.write(3, b'0' * 999)\nos.read(3, 1)", "protocol"),
    SelfAttack(
        "ask for a row outside",
        "os.write(3, b'\\3\\0\\0\\0\\377\\377\\377\\177')\nos.read(3, 99)",
        "protocol",
    ),
    SelfAttack(
        "go on past the budget",
        """
        while True:
            for row in range(space.size):
                try: evaluate(space.sample(1))
                except BaseException: pass
        """,
        "budget",
    ),
)

_CONTROL_SOURCE = """
class Control:
    def __call__(self, evaluate, space, rng):
        first = space.sample(5)
        costs = evaluate(first)
        best = first[costs.index(min(costs))]
        evaluate([best])
        while True:
            evaluate(space.sample(1))
"""


def run_self_test(
    zygote: ZygoteProcess, attacks: tuple[SelfAttack, ...] = ATTACKS
) -> tuple[AttackVerdict, ...]:
    """Run the control and ``attacks`` on ``zygote``, one after another.

    Raises:
        ZygoteDied: an attack, or anything else, ended the zygote.
        SandboxError: a child could not harden itself.
    """
    task = self_test_task()
    verdicts = [_control(zygote, task)]
    with host_secret() as (path, token):
        for attack in attacks:
            job = attack.job(task, path)
            with ThreadPoolExecutor(attack.children) as threads:
                runs = [threads.submit(run_job, zygote, job) for _ in range(attack.children)]
            child_verdicts = [judge(attack, run.result(), token) for run in runs]
            verdicts.append(min(child_verdicts, key=lambda verdict: verdict.held))
    return tuple(verdicts)


def _control(zygote: ZygoteProcess, task: Task) -> AttackVerdict:
    """An honest candidate: its trace must be what the recording says, to the end of the budget."""
    trace = run_job(zygote, Job(Program.unread(_CONTROL_SOURCE, "Control"), task, 0))
    matches = (
        trace.outcome == "budget"
        and len(trace.rows) == _BUDGET_EVALUATIONS
        and trace.revisits >= 1
        and np.array_equal(trace.cost_ms, task.recording.time_ms[trace.rows])
    )
    detail = f"{trace.outcome}, {len(trace.rows)} evaluations"
    return AttackVerdict(CONTROL, matches, detail if matches else f"{detail}: {trace.error}")


def judge(attack: SelfAttack, trace: Trace, token: str) -> AttackVerdict:
    """Held: the run ended as it must, by being refused, and ``token`` did not come out."""
    error = trace.error or ""
    last = error.rstrip().rpartition("\n")[2]
    held = trace.outcome == attack.outcome and token not in error
    if attack.outcome == "error":
        held = held and last.startswith(f"RuntimeError: {_HELD}")
    return AttackVerdict(attack.name, held, last or trace.outcome)


@contextmanager
def host_secret() -> Iterator[tuple[str, str]]:
    """A file that every user of the host may read and write, and what it says."""
    token = secrets.token_hex(16)
    with tempfile.NamedTemporaryFile("w", prefix="llamea-gpu-selftest-") as file:
        file.write(token)
        file.flush()
        os.chmod(file.name, 0o666)  # noqa: S103 - so that only the sandbox can be what refuses
        yield file.name, token


def self_test_task() -> Task:
    """A grid of 6 x 6 with a budget of 20 evaluations of one second."""
    grid = np.indices((6, 6)).reshape(2, -1).T
    count = len(grid)
    times_ms = 1.0 + np.arange(count)[::-1]
    recording = Recording.from_rows(
        names=("x", "y"),
        values=(range(6), range(6)),
        configurations=grid,
        time_ms=times_ms,
        compile_s=np.full(count, 0.75),
        benchmark_s=np.full(count, 0.25),
        status=np.zeros(count, dtype=np.uint8),
        info=RecordingInfo("self-test", "none", "none", "none"),
    )
    # Not Task.build: no score is made of these runs, and that would load scipy.
    return Task(
        recording=recording,
        clock=SequentialClock(),
        costs_ms=np.sort(times_ms),
        optimum_ms=float(times_ms.min()),
        median_ms=float(np.median(times_ms)),
        evaluation_s=1.0,
        budget_s=float(_BUDGET_EVALUATIONS),
        budget_evaluations=float(_BUDGET_EVALUATIONS),
        axis_s=np.linspace(0.0, _BUDGET_EVALUATIONS, 2, dtype=np.float64),
        baseline_ms=np.full(2, float(np.median(times_ms))),
    )
