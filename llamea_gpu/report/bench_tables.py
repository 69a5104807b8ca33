"""The tables of a bench: standings, pairs, one space."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, geometric_mean

from llamea_gpu.bench.findings import Comparison, Interval, Reach, SpaceStanding, Standing
from llamea_gpu.bench.plan import SpaceInfo
from llamea_gpu.bench.samples import TARGETS_PERCENT
from llamea_gpu.report.charts import Table, count, number, share, signed
from llamea_gpu.scoring import Measure


def standings_table(
    standings: Sequence[Standing], spaces: Sequence[SpaceInfo], measure: Measure
) -> Table:
    """The score of each searcher, and what it means for the kernel: its time and the default's."""
    lotteries = any(s.p_without_lotteries is not None for s in standings)
    others = any(s.interval_spaces is not None for s in standings)
    return Table(
        f"Standings on {count(len(spaces), 'space')}",
        (
            *("place", "searcher", f"{measure.name} [95 %]"),
            *(("spaces like these [95 %]",) if others else ()),
            *((f"{measure.name} without lotteries",) if lotteries else ()),
            *(f"{measure.costs}speed-up over default", "failed runs"),
        ),
        tuple(
            (
                f"{s.place_best}" + (f"–{s.place_worst}" if s.place_worst > s.place_best else ""),
                s.searcher,
                f"{number(s.p)} {between(s.interval)}",
                *((between(s.interval_spaces),) if others else ()),
                *((number(s.p_without_lotteries),) if lotteries else ()),
                _speed_up(s, spaces),
                f"{s.failed_runs} of {s.runs}",
            )
            for s in standings
        ),
        text=frozenset({0, 1}),
    )


def _speed_up(standing: Standing, spaces: Sequence[SpaceInfo]) -> str:
    """Over the configurations that kernels ship with, geometric mean of those that are known."""
    pairs = zip(standing.spaces, spaces, strict=True)
    ratios = [
        s.default_ms / _final_ms(space_standing, s) for space_standing, s in pairs if s.default_ms
    ]
    return f"{geometric_mean(ratios):.2f}×" if ratios else "–"


def _final_ms(standing: SpaceStanding, space: SpaceInfo) -> float:
    """The kernel's time after a run, mean over runs."""
    return space.optimum_ms * (1 + standing.regret)


def effort_table(standings: Sequence[Standing], measure: Measure) -> Table:
    """What it takes to come near the optimum, or the best known."""
    rows = []
    for standing in standings:
        spaces = standing.spaces
        cpu = [s.cpu_s for s in spaces if s.cpu_s is not None]
        rows.append(
            (
                standing.searcher,
                *map(_reached, standing.reaches),
                f"{fmean(s.regret for s in spaces):.2%}",
                f"{fmean(s.evaluations for s in spaces):.0f}",
                f"{fmean(s.revisit_share or 0.0 for s in spaces):.0%}",
                f"{fmean(s.failure_share for s in spaces):.0%}",
                number(fmean(cpu), 2) if cpu else "–",
            )
        )
    return Table(
        f"Share of runs that came near {measure.best}: median evaluations until then",
        (
            *("searcher", *(f"within {percent} %" for percent in TARGETS_PERCENT)),
            *("final regret", "evaluations", "revisits", "failing", "own CPU s"),
        ),
        tuple(rows),
    )


def spaces_table(
    standings: Sequence[Standing], spaces: Sequence[SpaceInfo], measure: Measure
) -> Table:
    """Each searcher's score on each space, and the time that it ends with."""
    lottery = any(space.is_lottery for space in spaces)
    return Table(
        f"On each space: {measure.name}, and the kernel's {measure.costs}time at the end (ms, mean "
        f"over runs){'; *: the budget is below ten evaluations' if lottery else ''}",
        ("space", "best / default ms", *(standing.searcher for standing in standings)),
        tuple(
            (
                space.name + ("*" if space.is_lottery else ""),
                f"{space.optimum_ms:.4g} / "
                + (f"{space.default_ms:.4g}" if space.default_ms else "–"),
                *(
                    f"{number(own.p)}  {_final_ms(own, space):.4g}"
                    for own in (standing.spaces[place] for standing in standings)
                ),
            )
            for place, space in enumerate(spaces)
        ),
    )


def comparisons_table(comparisons: Sequence[Comparison], measure: Measure) -> Table:
    """Every pair."""
    return Table(
        caption="Every pair; a verdict is only given where the interval allows one",
        columns=(
            *("better", "worse", f"difference of {measure.name}", "95 %, these spaces"),
            *("95 %, spaces like these", "spaces won–lost–tied"),
            *("p (Holm)", "Wilcoxon p (Holm)", "A", "verdict"),
        ),
        rows=tuple(
            (
                c.first,
                c.second,
                signed(c.difference),
                between(c.interval),
                between(c.interval_spaces),
                f"{c.wins}–{c.losses}–{c.ties}",
                "–" if c.p_holm is None else f"{c.p_holm:.3g}",
                "–" if c.wilcoxon_holm is None else f"{c.wilcoxon_holm:.3g}",
                number(c.effect, 2),
                _verdict(c),
            )
            for c in comparisons
        ),
        text=frozenset({0, 1, 9}),
    )


def space_table(standings: Sequence[Standing], space: SpaceInfo) -> Table:
    """All searchers on one space."""
    rows = []
    for standing in standings:
        s = next(own for own in standing.spaces if own.space == space.name)
        final_ms, default_ms = _final_ms(s, space), space.default_ms
        rows.append(
            (
                standing.searcher,
                number(s.p),
                between(s.interval),
                *map(_reached, s.reaches),
                share(s.regret),
                f"{final_ms:.4g}",
                "–" if default_ms is None else f"{default_ms / final_ms:.2f}×",
                number(s.evaluations, 1),
                share(s.failure_share),
                share(s.revisit_share),
                number(s.cpu_s, 2),
            )
        )
    return Table(
        f"Searchers on {space.name}",
        (
            *("searcher", space.measure.name, "95 %"),
            *(f"within {percent} %" for percent in TARGETS_PERCENT),
            *(
                "final regret",
                f"{space.measure.costs}final ms",
                "over default",
                "evaluations",
                "failures",
                "revisits",
                "own CPU s",
            ),
        ),
        tuple(rows),
    )


def between(interval: Interval | None) -> str:
    """``[low, high]``, or a dash."""
    return "–" if interval is None else f"[{number(interval.low)}, {number(interval.high)}]"


def _reached(reach: Reach) -> str:
    """The share of runs, and the evaluations that the median run took."""
    median = reach.median_evaluations
    return f"{reach.share:.0%}: {'–' if median is None else f'{median:g}'}"


def _verdict(comparison: Comparison) -> str:
    if comparison.decided:
        return "decided"
    if comparison.repeats_needed is None:
        return "open"
    return f"open; about {comparison.repeats_needed} repeats would decide"
