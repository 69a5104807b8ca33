from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from sandbox.attacks import SECRET_VARIABLE

from llamea_gpu.errors import SandboxUnavailableError
from llamea_gpu.sandbox import Job, Limits, Sandbox
from llamea_gpu.sandbox.selftest import self_test_task
from llamea_gpu.tasks import Task, Trace

HONEST = """
class Honest:
    def __call__(self, evaluate, space, rng):
        best, cost = None, float("inf")
        while True:
            for config in space.sample(3) + (space.neighbors(best) if best else []):
                value = evaluate([config])[0]
                if value < cost:
                    best, cost = config, value
"""


@pytest.fixture(scope="session")
def task() -> Task:
    return self_test_task()


@pytest.fixture(scope="session")
def sandbox_of(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Sandbox]]:
    """Sandboxes by level, two workers each, open until the end of the session."""
    opened: dict[int, Sandbox] = {}
    os.environ[SECRET_VARIABLE] = secrets.token_hex(8)

    def get(level: int) -> Sandbox:
        if level not in opened:
            try:
                opened[level] = Sandbox.open(2, level=level or None, unsafe=level == 0)
            except SandboxUnavailableError as error:
                if os.environ.get("LLAMEA_GPU_REQUIRE_ALL"):
                    raise
                pytest.skip(f"no sandbox of level {level} here: {error}")
        return opened[level]

    yield get
    del os.environ[SECRET_VARIABLE]
    for sandbox in opened.values():
        sandbox.close()


@pytest.fixture
def best(sandbox_of: Callable[[int], Sandbox]) -> Sandbox:
    """The level that most users get, for tests of what does not depend on it."""
    return sandbox_of(2)


@pytest.fixture
def run(best: Sandbox, task: Task) -> Callable[..., Trace]:
    """Runs the inside of a candidate's ``__call__``."""

    def run_body(body: str, task: Task = task, seed: int = 0, **limits: float) -> Trace:
        return best.run(candidate(body, task, seed, Limits(**limits)))  # type: ignore[arg-type]

    return run_body


def candidate(body: str, task: Task, seed: int = 0, limits: Limits | None = None) -> Job:
    indented = "\n".join(" " * 8 + line for line in body.strip("\n").splitlines())
    source = (
        "import math, os, random, sys, time\nimport numpy as np\n\nclass C:\n"
        f"    def __call__(self, evaluate, space, rng):\n{indented}\n"
    )
    return Job(source, "C", {}, task, seed, limits or Limits())


def honest_job(task: Task, seed: int = 0) -> Job:
    return Job(HONEST, "Honest", {}, task, seed)


def same(a: Trace, b: Trace) -> bool:
    """Equal in all but CPU time."""
    return (
        np.array_equal(a.rows, b.rows)
        and np.array_equal(a.elapsed_s, b.elapsed_s)
        and np.array_equal(a.cost_ms, b.cost_ms)
        and (a.outcome, a.asks, a.revisits, a.error) == (b.outcome, b.asks, b.revisits, b.error)
    )
