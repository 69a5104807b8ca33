"""Every attack must be refused, and the run after it must be exactly right."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator

import pytest
from sandbox.attacks import ALL, FIRST, MEETING, SECRET_VARIABLE
from sandbox.candidates import honest_job, same

from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.sandbox.selftest import SelfAttack, host_secret, judge, self_test_task
from llamea_gpu.tasks import Task, Trace

# At level 1 a subset: seccomp is the same filter there.
CASES = [
    pytest.param(level, attack, id=f"level{level}-{attack.name.replace(' ', '-')}")
    for level, attacks in ((3, ALL), (2, ALL), (1, FIRST))
    for attack in attacks
    if not ("architecture" in attack.name and platform.machine() != "x86_64")
]


@pytest.fixture(scope="module")
def secret() -> Iterator[tuple[str, str]]:
    with host_secret() as secret:
        yield secret


@pytest.fixture(scope="module")
def expected(sandbox_of: Callable[[int], Sandbox]) -> Trace:
    """The honest run, before anybody attacked anything."""
    trace = sandbox_of(2).run(honest_job(self_test_task()))
    assert trace.outcome == "budget"
    return trace


@pytest.mark.parametrize(
    "name",
    [
        "meet at a page by futex operation 0",
        "meet at a page by futex operation 1",
        "throw a page out by advice 20",
        "throw a page out by advice 21",
        "read the host's clock",
        "find a process by its clock",
    ],
)
def test_without_seccomp_processes_meet(
    name: str, sandbox_of: Callable[[int], Sandbox], secret: tuple[str, str], task: Task
) -> None:
    """The control of what seccomp alone forbids: the same attacks, let through."""
    (attack,) = [attack for attack in MEETING if attack.name == name]
    trace = sandbox_of(0).run(attack.job(task, secret[0]))
    assert "LEAKED" in (trace.error or ""), trace.error


@pytest.mark.parametrize(("level", "attack"), CASES)
def test_an_attack_is_held_off_and_the_next_run_is_right(
    level: int,
    attack: SelfAttack,
    sandbox_of: Callable[[int], Sandbox],
    secret: tuple[str, str],
    expected: Trace,
    task: Task,
) -> None:
    path, token = secret
    sandbox = sandbox_of(level)
    trace = sandbox.run(attack.job(task, path))
    verdict = judge(attack, trace, token)
    assert verdict.held, f"{trace.outcome}: {trace.error}"
    assert os.environ[SECRET_VARIABLE] not in (trace.error or "")
    assert same(sandbox.run(honest_job(task)), expected)
