"""Where a recorder is, of whatever framework."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordProgress:
    """Counts of configurations, and seconds; ``left_s`` is None as long as nobody can tell."""

    done: int
    total: int
    failed: int
    elapsed_s: float
    left_s: float | None
