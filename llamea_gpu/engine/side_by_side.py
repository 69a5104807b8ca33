"""Which of a few things is fastest, when they differ by less than what disturbs their readings.

A processor that has just begun to work is faster or slower than one that is warm, and short
readings at different moments rank near equals by chance. So: a heat-up, then rounds of long windows
in which each contender has its turn, in alternating order; what is slower in every round leaves,
and the others share its time. Contenders are compared within rounds, so that a drift is
everybody's. Pure arithmetic over a function that reads.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

HEAT_UP_SHARE = 0.15  # of the time
STAGES = 3
ROUNDS = 2  # of a stage, one in each order
CLEARLY = 1.002  # times the fastest, in every round: has lost

Reader = Callable[[int, float], float]


@dataclass(frozen=True, slots=True)
class Standing:
    """How one contender stands at the end.

    Attributes:
        time_ms: comparable with the others'; inf where a reading failed.
        low_ms, high_ms: the fastest and the slowest of its windows.
        windows: how many it had.
    """

    time_ms: float
    low_ms: float
    high_ms: float
    windows: int


def side_by_side(
    read: Reader, count: int, seconds: float, clock: Callable[[], float] = monotonic
) -> list[Standing]:
    """Read contenders 0 to ``count`` - 1 in interleaved windows.

    Args:
        read: reads one contender in a window of about so many seconds: its milliseconds, inf or
            nan where it fails.
        count: how many there are; the first is used to heat up.
        seconds: for all of it.
        clock: seconds that pass.
    """
    until = clock() + seconds
    if count:
        read(0, HEAT_UP_SHARE * seconds)
    rounds: list[dict[int, float]] = []
    alive = list(range(count))
    for stage in range(STAGES):
        left_s = until - clock()
        if not alive or (rounds and (left_s <= 0 or len(alive) == 1)):
            break
        window_s = max(left_s, 0.0) / (STAGES - stage) / (ROUNDS * len(alive))
        for number in range(ROUNDS):
            order = alive if number % 2 == 0 else alive[::-1]
            rounds.append({i: read(i, window_s) for i in order})
        alive = _still_in_it(rounds, alive)
    return _standings(rounds, alive, count)


def _still_in_it(rounds: Sequence[dict[int, float]], alive: Sequence[int]) -> list[int]:
    """Those that work and are not clearly slower than the fastest."""
    works = [i for i in alive if all(_works(r[i]) for r in rounds)]
    if not works:
        return []
    fastest = min(works, key=lambda i: statistics.median(r[i] for r in rounds))
    return [
        i for i in works if i == fastest or not all(r[i] > CLEARLY * r[fastest] for r in rounds)
    ]


def _standings(
    rounds: Sequence[dict[int, float]], alive: Sequence[int], count: int
) -> list[Standing]:
    """Times relative to those who were in every round, in the unit of a usual round."""
    levels = [statistics.geometric_mean(r[i] for i in alive) for r in rounds if alive]
    usual_ms = statistics.median(levels) if levels else math.inf
    standings = []
    for i in range(count):
        readings_ms = [r[i] for r in rounds if i in r]
        if not (levels and readings_ms and all(map(_works, readings_ms))):
            standings.append(Standing(math.inf, math.inf, math.inf, len(readings_ms)))
            continue
        shares = [r[i] / level for r, level in zip(rounds, levels, strict=True) if i in r]
        time_ms = usual_ms * statistics.median(shares)
        standings.append(Standing(time_ms, min(readings_ms), max(readings_ms), len(readings_ms)))
    return standings


def _works(reading_ms: float) -> bool:
    return math.isfinite(reading_ms) and reading_ms > 0
