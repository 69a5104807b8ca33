"""The tables of a bench: standings, pairs, one space."""

from __future__ import annotations

from collections.abc import Sequence

from llamea_gpu.bench.findings import Comparison, Interval, Reach, Standing
from llamea_gpu.bench.plan import SpaceInfo
from llamea_gpu.bench.samples import TARGETS_PERCENT
from llamea_gpu.report.charts import Table, number, share, signed
from llamea_gpu.scoring import Measure


def standings_table(standings: Sequence[Standing], measure: Measure) -> Table:
    """Everything about each searcher over all spaces."""
    lotteries = any(s.p_without_lotteries is not None for s in standings)
    columns = ["searcher", "places", measure.name, "95 %, these spaces", "95 %, spaces like these"]
    columns += [f"{measure.name} without lotteries"] if lotteries else []
    columns += [f"within {percent} %" for percent in TARGETS_PERCENT]
    columns += ["runs", "failed runs"]
    rows = []
    for s in standings:
        places = f"{s.place_best}" + (f"–{s.place_worst}" if s.place_worst > s.place_best else "")
        row = [s.searcher, places, number(s.p), between(s.interval), between(s.interval_spaces)]
        row += [number(s.p_without_lotteries)] if lotteries else []
        row += [_reached(s.reaches, percent) for percent in TARGETS_PERCENT]
        rows.append((*row, str(s.runs), str(s.failed_runs)))
    return Table("Standings", tuple(columns), tuple(rows))


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
        final_ms, default_ms = space.optimum_ms * (1 + s.regret), space.default_ms
        reach = {r.percent: r for r in s.reaches}
        medians = [reach[p].median_evaluations if p in reach else None for p in TARGETS_PERCENT]
        rows.append(
            (
                standing.searcher,
                number(s.p),
                between(s.interval),
                *(_reached(s.reaches, percent) for percent in TARGETS_PERCENT),
                *(number(value, 1) for value in medians),
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
            *(f"evaluations to {percent} %" for percent in TARGETS_PERCENT),
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


def _reached(reaches: Sequence[Reach], percent: int) -> str:
    return next((share(reach.share) for reach in reaches if reach.percent == percent), "–")


def _verdict(comparison: Comparison) -> str:
    if comparison.decided:
        return "decided"
    if comparison.repeats_needed is None:
        return "open"
    return f"open; about {comparison.repeats_needed} repeats would decide"
