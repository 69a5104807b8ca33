"""Waiting for what another process does, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

GENEROUS_S = 300.0  # the limit is for what never happens


def wait_until(done: Callable[[], bool], limit_s: float = GENEROUS_S) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)
