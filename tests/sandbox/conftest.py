from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator

import pytest
from sandbox.attacks import SECRET_VARIABLE
from sandbox.candidates import candidate

from llamea_gpu.errors import SandboxUnavailableError
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.sandbox.process import ZygoteProcess
from llamea_gpu.sandbox.selftest import self_test_task
from llamea_gpu.tasks import Task, Trace


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


@pytest.fixture(scope="session")
def zygote_of(
    sandbox_of: Callable[[int], Sandbox],
) -> Callable[[int, str], ZygoteProcess]:
    """Their zygotes, by level and set of libraries: to load scikit-learn takes seconds."""
    return lambda level, library: sandbox_of(level)._zygote(library)


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
