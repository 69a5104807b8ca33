"""What a bench found, as data: standings, comparisons, ranks, sentences.

What it does not do: compute them (`llamea_gpu.bench.analysis` does, and says how).

Curves have `CURVE_POINTS` values, evenly spaced along each task's time axis, whose ends are
``axis_start_s`` and ``axis_end_s`` of its `SpaceInfo`. Intervals are 95 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from llamea_gpu.bench.plan import Count, Finite

CURVE_POINTS = 101

Share = Annotated[float, Field(ge=0, le=1)]
Curve = Annotated[tuple[Finite, ...], Field(min_length=CURVE_POINTS, max_length=CURVE_POINTS)]


@dataclass(frozen=True, slots=True)
class Interval:
    """``low`` to ``high``, 95 %."""

    low: Finite
    high: Finite

    def mirrored(self) -> Interval:
        """That of the negative value."""
        return Interval(-self.high, -self.low)


@dataclass(frozen=True, slots=True)
class Reach:
    """How the runs fared against one target: a cost at most ``percent`` % above the optimum.

    ``share`` of the runs reached it, half of all runs after ``median_evaluations`` (None when at
    least half never did).
    """

    percent: int
    share: Share
    median_evaluations: Finite | None


@dataclass(frozen=True, slots=True)
class SpaceStanding:
    """One searcher on one space. ``regret``, ``evaluations`` and ``cpu_s`` are means over runs.

    ``interval`` and the band ``curve_low`` to ``curve_high`` come from resampled runs, and are None
    with too few of them. ``regret`` is best / optimum - 1 at the end. ``cpu_s`` is None when it was
    not measured.
    """

    space: str
    p: Finite
    interval: Interval | None
    curve: Curve
    curve_low: Curve | None
    curve_high: Curve | None
    reaches: tuple[Reach, ...]
    regret: Finite
    evaluations: Finite
    revisit_share: Share | None
    failure_share: Share
    cpu_s: Finite | None
    runs: Count
    failed_runs: Count


@dataclass(frozen=True, slots=True)
class Standing:
    """One searcher over all spaces.

    ``interval`` (and the band of the curve) says what other runs on these spaces would give,
    ``interval_spaces`` what other spaces like these would: None with fewer than six of them.
    ``place_best`` to ``place_worst`` are the places that the comparisons leave open, from 1.
    ``p_without_lotteries`` leaves out spaces whose budget is below ten evaluations, and is None
    when none or all are. ``first_error`` is what the first failed run said.
    """

    searcher: str
    p: Finite
    interval: Interval | None
    interval_spaces: Interval | None
    p_without_lotteries: Finite | None
    place_best: Count
    place_worst: Count
    curve: Curve
    curve_low: Curve | None
    curve_high: Curve | None
    reaches: tuple[Reach, ...]
    spaces: tuple[SpaceStanding, ...]
    runs: Count
    failed_runs: Count
    first_error: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """``first`` against ``second``, which has no higher P in what an analysis holds.

    ``difference`` is of their P; ``wins``, ``losses`` and ``ties`` count spaces. ``interval`` is
    about other runs on these spaces, ``interval_spaces`` about other spaces like these (None with
    fewer than six). ``p_value`` belongs to ``interval``, ``p_holm`` is corrected for the number of
    pairs; ``wilcoxon_p`` and ``wilcoxon_holm`` are those of the signed-rank test over spaces, None
    where these are too few for it ever to come below .05. ``effect`` is Vargha and Delaney's A: how
    often a run of ``first`` has a higher P than a run of ``second`` on the same space, .5 being no
    difference. ``decided`` is the verdict; where it is open, ``repeats_needed`` is about how many
    repeats would decide it.
    """

    first: str
    second: str
    difference: Finite
    interval: Interval | None
    interval_spaces: Interval | None
    wins: Count
    losses: Count
    ties: Count
    p_value: Share | None
    p_holm: Share | None
    wilcoxon_p: Share | None
    wilcoxon_holm: Share | None
    effect: Share
    decided: bool
    repeats_needed: Count | None
    sentence: str

    def seen_from(self, searcher: str) -> Comparison:
        """The same with ``searcher`` (one of the two) as ``first``."""
        if searcher == self.first:
            return self
        return replace(
            self,
            first=self.second,
            second=self.first,
            difference=-self.difference,
            interval=self.interval and self.interval.mirrored(),
            interval_spaces=self.interval_spaces and self.interval_spaces.mirrored(),
            wins=self.losses,
            losses=self.wins,
            effect=1 - self.effect,
        )


@dataclass(frozen=True, slots=True)
class MeanRank:
    """Mean rank of a searcher over the spaces, 1 being the best."""

    searcher: str
    rank: Finite


@dataclass(frozen=True, slots=True)
class Ranks:
    """Friedman's test over spaces, and Nemenyi's critical difference of mean ranks at .05."""

    mean_ranks: tuple[MeanRank, ...]
    friedman_p: Share
    critical_difference: Finite


@dataclass(frozen=True, slots=True)
class Analysis:
    """All of it. ``standings`` are best first; ``comparisons`` hold every pair.

    ``ranks`` is None with fewer than three searchers or spaces, or too few repeats. ``cautions``
    say what these numbers cannot show; ``sentences`` are the result in words, the most important
    first.
    """

    standings: tuple[Standing, ...]
    comparisons: tuple[Comparison, ...]
    ranks: Ranks | None
    cautions: tuple[str, ...]
    sentences: tuple[str, ...]

    def comparisons_of(self, searcher: str) -> list[Comparison]:
        """Every pair that ``searcher`` is one of, seen from it."""
        pairs = (pair for pair in self.comparisons if searcher in (pair.first, pair.second))
        return [pair.seen_from(searcher) for pair in pairs]
