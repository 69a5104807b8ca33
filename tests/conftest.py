"""Fixtures shared by every test: third-party recordings, yardsticks, shorter bootstraps."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# As in the workers that searchers run in. With more, threads of the tests' processes spin in wait
# for each other: some tests take five times the CPU. Read when numpy and torch are imported.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
# Ray's handler of deadly signals would stay in this process, and in what is forked from it.
os.environ["RAY_DISABLE_FAILURE_SIGNAL_HANDLER"] = "1"
# Servers of tests speak HTTP. A model's client would read the certificates of the world: 20 ms.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)
# To look for garbage among all that is being imported takes a sixth of the collection.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest-xdist's workers begin with what they would each import."""
    workers = getattr(config.option, "tx", None) or []
    if set(workers) == {"popen"} and not (
        hasattr(config, "workerinput") or config.option.collectonly
    ):
        from support.forked_workers import stand_in

        stack = contextlib.ExitStack()
        config.add_cleanup(stack.close)
        python = stack.enter_context(stand_in())
        config.option.tx = [f"popen//python={python}"] * len(workers)


def pytest_collection_finish() -> None:
    """To look for garbage among all that was imported takes a sixth of the CPU."""
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def yardsticks() -> Iterator[None]:
    """Tasks with equal measurements share the yardstick: it is the dearest part of a task."""
    import numpy as np

    from llamea_gpu import tasks
    from llamea_gpu.baseline import Yardstick
    from llamea_gpu.clocks import Clock
    from llamea_gpu.spaces.recording import Recording

    known: dict[tuple[str, Clock], Yardstick] = {}
    real = tasks.simulated_yardstick

    def remembered(recording: Recording, clock: Clock) -> Yardstick:
        times = (recording.time_ms, recording.compile_s, recording.benchmark_s, recording.status)
        key = hashlib.sha256(np.stack(times).tobytes()).hexdigest(), clock
        if key not in known:
            known[key] = real(recording, clock)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "simulated_yardstick", remembered)
        yield


@pytest.fixture(scope="session", autouse=True)
def shorter_bootstraps() -> Iterator[None]:
    """A bench's intervals from 100 resamples, not 1,000: what tests ask of them is coarse."""
    from llamea_gpu.bench import execution

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "analyse", functools.partial(execution.analyse, resamples=100))
        yield


@pytest.fixture(scope="session", autouse=True)
def sandboxes() -> Iterator[None]:
    """Runners of this process share what they open; `Sandbox.open` itself is as it is."""
    from support.kept_sandboxes import kept_sandboxes

    with kept_sandboxes():
        yield


@pytest.fixture
def own_sandboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each runner has a sandbox of its own again, where fresh processes are the point."""
    from llamea_gpu.runner import pool
    from llamea_gpu.sandbox.pool import Sandbox

    monkeypatch.setattr(pool, "Sandbox", Sandbox)


def skip_or_fail(reason: str) -> None:
    """Skip; fail where LLAMEA_GPU_REQUIRE_ALL says that everything must be here."""
    if os.environ.get("LLAMEA_GPU_REQUIRE_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_spaces() -> Path:
    """Third-party recordings that are not committed: helion_h200, kernel_tuner, broken."""
    default = Path(__file__).resolve().parents[2] / "shared" / "spaces"
    folder = Path(os.environ.get("LLAMEA_GPU_SHARED_SPACES", default))
    if not (folder / "kernel_tuner").is_dir():
        skip_or_fail(f"no third-party recordings at {folder}: set LLAMEA_GPU_SHARED_SPACES")
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium: the system's, or the one that playwright installed.

    Of one module: while playwright's synchronous API is open, its event loop is the thread's.
    """
    import shutil

    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        system = shutil.which("chromium") or shutil.which("chromium-browser")
        try:
            browser = playwright.chromium.launch(
                executable_path=system,
                # Two pages in each window, for the address bar, would take half a second of CPU.
                args=[
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,OptimizationHints",
                ],
            )
        except Error as error:
            skip_or_fail(f"no Chromium can be started: install it ({error})")
        yield browser
        browser.close()
