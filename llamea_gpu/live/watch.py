"""Follows a live run: what has been measured when."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import monotonic

from llamea_gpu.live.result import TuneProgress


class Watch:
    """A live run's clock and progress; ``progress`` is told after each batch.

    ``before_s`` are seconds of earlier parts of the run, which count.
    """

    def __init__(self, progress: Callable[[TuneProgress], None]) -> None:
        self._progress = progress
        self.before_s = 0.0
        self._start = monotonic()
        self.before_s = 0.0
        self._marks: list[tuple[int, float]] = []  # so many were known at that second

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self.before_s + monotonic() - self._start

    def note(self, times_ms: Sequence[float]) -> None:
        """Take in all times so far, in the order of first visits; inf is a failure."""
        if self._marks and len(times_ms) == self._marks[-1][0]:  # it asked for what is known
            return
        elapsed_s = self.elapsed_s
        self._marks.append((len(times_ms), elapsed_s))
        self._progress(
            TuneProgress(
                measured=len(times_ms),
                failed=sum(map(math.isinf, times_ms)),
                best_ms=min(times_ms, default=math.inf),
                elapsed_s=elapsed_s,
            )
        )

    def known_at(self, place: int) -> float:
        """When the configuration at that place of the order was known, in seconds."""
        return next((s for count, s in self._marks if count > place), self.elapsed_s)
