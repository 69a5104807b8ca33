"""Sandboxes that the runners of one process share.

To open one, with its self-attacks, takes a third of a second of CPU, and most commands do so.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from llamea_gpu.runner import pool
from llamea_gpu.sandbox.jobs import Job
from llamea_gpu.sandbox.pool import Sandbox
from llamea_gpu.tasks import Trace


class Lent(Sandbox):
    """Has the zygotes of one that stays open, and closes them only to end runs under way."""

    _under_way = 0

    def _run(self, job: Job) -> Trace:
        with self._lock:
            self._under_way += 1
        try:
            return super()._run(job)
        finally:
            with self._lock:
                self._under_way -= 1

    def close(self) -> None:
        if self._under_way:
            super().close()
        self._closed = True
        self._executor.shutdown(cancel_futures=True)


class Kept:
    """Stands in for the class `Sandbox` where runners open theirs."""

    def __init__(self) -> None:
        self._opened: dict[tuple[Any, ...], Sandbox] = {}

    def open(self, workers: int | None = None, min_level: int = 1, unsafe: bool = False) -> Sandbox:
        key = min_level, unsafe, os.environ.get("PATH")
        if key not in self._opened:
            self._opened[key] = Sandbox.open(1, min_level, unsafe)
        first = self._opened[key]
        workers = workers or len(os.sched_getaffinity(0))
        lent = Lent(first._ingredients, first._level, first.report, workers)
        lent._zygotes = first._zygotes
        return lent

    def close(self) -> None:
        for sandbox in self._opened.values():
            sandbox.close()


@contextlib.contextmanager
def kept_sandboxes() -> Iterator[None]:
    with contextlib.closing(Kept()) as kept, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "Sandbox", kept)
        yield
