"""The charts of a bench: ranking, convergence, heat map, targets reached.

Everything shown was computed by the bench (`llamea_gpu.bench.findings`); only the shares of runs
that reached a target by a time are counted here, from the traces. Names go through ``label``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from llamea_gpu.bench.findings import (
    CURVE_POINTS,
    Interval,
    Ranks,
    SpaceStanding,
    Standing,
)
from llamea_gpu.bench.plan import SpaceInfo
from llamea_gpu.bench.results import BenchResults
from llamea_gpu.bench.samples import first_hit
from llamea_gpu.report.bench_tables import spaces_table, standings_table
from llamea_gpu.report.charts import (
    LEGEND,
    Chart,
    Table,
    axis,
    colour,
    count,
    figure,
    label,
    line,
    lines,
    marks,
    number,
    share,
    short_names,
)
from llamea_gpu.scoring import Measure

SHOWN_SERIES = 8  # more curves than that start hidden, and a click in the legend shows them
_DIAMOND = {"color": "@s1", "size": 10, "symbol": "diamond"}


def ranking(standings: Sequence[Standing], spaces: Sequence[SpaceInfo], measure: Measure) -> Chart:
    """The score with its intervals, best on top."""
    order = list(reversed(standings))
    names = list(_labels([s.searcher for s in order]).values())
    bars = [
        _interval_bar(
            "other spaces like these", names, [s.interval_spaces for s in order], 3, "@edge"
        ),
        _interval_bar(
            "other runs on these spaces", names, [s.interval for s in order], 8, "@s1/45"
        ),
    ]
    points = marks(
        measure.name,
        [s.p for s in order],
        names,
        marker=_DIAMOND,
        hovertemplate=f"%{{y}}: {measure.name} %{{x:.3f}}<extra></extra>",
    )
    best = standings[0]
    return Chart(
        key="ranking",
        title="Ranking",
        summary=f"{best.searcher} has the highest {measure.name}, {number(best.p)}. Bars are 95 % "
        f"intervals: the thick one for other runs on these spaces, the thin one for other spaces "
        f"like these. {measure.scale[0].upper()}{measure.scale[1:]}.",
        figure=figure(
            [*(bar for bar in bars if bar["x"]), points],
            x=axis(measure.name, zeroline=True, zerolinecolor="@muted"),
            y=axis("", type="category", categoryarray=names, showgrid=False),
            height=130 + 32 * len(names),
            legend=LEGEND,
        ),
        table=standings_table(standings, spaces, measure),
        wide=True,
    )


def _labels(names: Sequence[str]) -> dict[str, str]:
    return {name: label(short) for name, short in short_names(names).items()}


def _interval_bar(
    name: str, labels: Sequence[str], intervals: Sequence[Interval | None], width: int, tone: str
) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[str | None] = []
    for at, interval in zip(labels, intervals, strict=True):
        if interval is not None:
            x += [interval.low, interval.high, None]
            y += [at, at, None]
    return lines(name, x, y, line={"color": tone, "width": width}, hoverinfo="skip")


def overall_convergence(standings: Sequence[Standing], measure: Measure) -> Chart:
    """The score along the budget, mean over spaces."""
    x = [round(value, 4) for value in np.linspace(0, 1, CURVE_POINTS).tolist()]
    curves = [(standing.searcher, standing) for standing in standings]
    title = f"{measure.title} along the time axis, mean over spaces"
    return convergence("convergence", title, curves, x, "share of each space's time axis", measure)


def convergence(
    key: str,
    title: str,
    curves: Sequence[tuple[str, Standing | SpaceStanding]],
    x: Sequence[float],
    x_title: str,
    measure: Measure,
) -> Chart:
    """The score along the budget with 95 % bands; ``curves`` are (searcher, its standing)."""
    traces: list[dict[str, object]] = []
    rows = []
    short = _labels([name for name, _ in curves])
    for place, (name, shown) in enumerate(curves):
        group = {"legendgroup": str(place), "visible": _visible(place)}
        low, curve, high = shown.curve_low, shown.curve, shown.curve_high
        if low is not None and high is not None:
            band = lines(
                "",
                [*x, *reversed(x)],
                _rounded([*high, *reversed(low)]),
                fill="toself",
                fillcolor=f"{colour(place)}/{18 if len(curves) < 4 else 9}",
                line={"width": 0},
                showlegend=False,
                hoverinfo="skip",
                **group,
            )
            traces.append(band)
        template = f"%{{y:.3f}}<extra>{short[name]}</extra>"
        traces.append(
            lines(
                short[name], x, _rounded(curve), line=line(place), hovertemplate=template, **group
            )
        )
        quarters = [CURVE_POINTS * part // 4 - (part == 4) for part in range(5)]
        rows.append((name, *(number(curve[at]) for at in quarters)))
    return Chart(
        key=key,
        title=title,
        summary=_convergence_sentence(rows),
        figure=figure(
            traces,
            x=axis(x_title),
            y=axis(measure.name, zeroline=True, zerolinecolor="@muted", range=_shown_range(curves)),
            height=420,
            legend=LEGEND,
            hovermode="x unified",
        ),
        table=Table(
            f"{measure.title} along the budget",
            ("searcher", "start", "a quarter", "half", "three quarters", "end"),
            tuple(rows),
        ),
        wide=True,
    )


def _visible(place: int) -> object:
    return True if place < SHOWN_SERIES else "legendonly"


def _shown_range(curves: Sequence[tuple[str, Standing | SpaceStanding]]) -> list[float]:
    """From the lowest curve (-1 at most) to 1: early bands, which rest on few points, are wide."""
    lowest = min((min(shown.curve) for _, shown in curves), default=0.0)
    return [max(lowest, -1.0) - 0.1, 1.08]


def _convergence_sentence(rows: Sequence[tuple[str, ...]]) -> str:
    def leader(column: int) -> str:
        return max(rows, key=lambda row: float(row[column].replace("−", "-")))[0]

    half, end = leader(3), leader(5)
    if half == end:
        return f"{end} is ahead at half of the budget and at its end. Bands are 95 % intervals."
    return f"{half} is ahead at half of the budget, {end} at its end. Bands are 95 % intervals."


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]


def heat_map(standings: Sequence[Standing], infos: Sequence[SpaceInfo], measure: Measure) -> Chart:
    """The score of each searcher on each space."""
    spaces = [info.name for info in infos]
    by_space = [[s.spaces[i].p for s in standings] for i in range(len(spaces))]
    names = list(_labels([s.searcher for s in standings]).values())
    wins = [int(np.argmax(row)) for row in by_space]
    top = max(range(len(standings)), key=lambda place: (wins.count(place), -place))
    return Chart(
        key="heat-map",
        title=f"{measure.title} by space and searcher",
        summary=f"{standings[top].searcher} is the best on {wins.count(top)} of "
        f"{count(len(spaces), 'space')}. Colours end at −1 and 1; the numbers do not.",
        figure=figure(
            [
                {
                    "type": "heatmap",
                    "x": names,
                    "y": [label(space) for space in reversed(spaces)],
                    "z": [_rounded(row) for row in reversed(by_space)],
                    "text": [[number(p, 2) for p in row] for row in reversed(by_space)],
                    "texttemplate": "%{text}",
                    "zmin": -1,
                    "zmax": 1,
                    "colorscale": "@diverging",
                    "colorbar": {
                        "title": {"text": measure.name},
                        "thickness": 12,
                        "outlinewidth": 0,
                    },
                    "xgap": 2,
                    "ygap": 2,
                    "hovertemplate": f"%{{y}}<br>%{{x}}: {measure.name} %{{z:.3f}}<extra></extra>",
                }
            ],
            x=axis("", type="category", showgrid=False, side="top", tickangle=-25),
            y=axis("", type="category", showgrid=False),
            height=170 + 30 * len(spaces),
        ),
        table=spaces_table(standings, infos, measure),
        wide=True,
    )


def reached_by_time(results: BenchResults, order: Sequence[str], percent: int) -> Chart:
    """Share of all runs that came within ``percent`` % of the optimum, by share of the budget."""
    target = f"within {percent} % of {results.plan.measure.best}"
    grid = np.linspace(0, 1, CURVE_POINTS)
    traces = []
    rows = []
    short = _labels(order)
    for place, name in enumerate(order):
        hits = hit_shares(results, name, percent)
        reached = np.searchsorted(np.sort(hits), grid, side="right") / max(1, len(hits))
        traces.append(
            lines(
                short[name],
                _rounded(grid.tolist()),
                _rounded(reached.tolist()),
                line={"shape": "hv", **line(place)},
                visible=_visible(place),
                hovertemplate=f"%{{y:.0%}}<extra>{short[name]}</extra>",
            )
        )
        middle, last = reached[CURVE_POINTS // 2], reached[-1]
        rows.append((name, share(float(middle)), share(float(last))))
    best = max(rows, key=lambda row: float(row[2].split()[0]))
    return Chart(
        key=f"reached-{percent}",
        title=f"Runs {target}",
        summary=f"{best[0]} reaches it in the most runs: {best[2]} by the end of the budget.",
        figure=figure(
            traces,
            x=axis("share of the budget (simulated time)", tickformat=".0%"),
            y=axis("share of runs", tickformat=".0%", range=[-0.02, 1.02]),
            legend=LEGEND,
            hovermode="x unified",
        ),
        table=Table(
            f"Share of runs {target}",
            ("searcher", "by half of the budget", "by its end"),
            tuple(rows),
        ),
    )


def hit_shares(results: BenchResults, searcher: str, percent: int) -> list[float]:
    """When each run reached the target as a share of its budget; inf if never."""
    shares = []
    for space in results.plan.spaces:
        for trace in results.traces(searcher, space.name):
            hit = first_hit(space, trace, percent)
            shares.append(np.inf if hit is None else hit.elapsed_s / space.budget_s)
    return shares


def mean_ranks(ranks: Ranks) -> Chart:
    """Mean ranks over spaces with the critical difference."""
    order = sorted(ranks.mean_ranks, key=lambda mean: mean.rank)
    best = order[0]
    limit = best.rank + ranks.critical_difference
    apart = [mean.searcher for mean in order if mean.rank > limit]
    shapes = [
        {"type": "rect", "x0": best.rank, "x1": limit, "yref": "paper", "y0": 0, "y1": 1}
        | {"fillcolor": "@s1/12", "line": {"width": 0}, "layer": "below"}
    ]
    names = list(_labels([mean.searcher for mean in reversed(order)]).values())
    ranked = marks(
        "",
        [mean.rank for mean in reversed(order)],
        names,
        marker=_DIAMOND,
        hovertemplate="%{y}: %{x:.2f}<extra></extra>",
        showlegend=False,
    )
    return Chart(
        key="ranks",
        title="Mean ranks over spaces",
        summary=f"Friedman's test over the spaces gives p = {ranks.friedman_p:.3g}. The shaded "
        f"width is Nemenyi's critical difference, {number(ranks.critical_difference, 2)}: "
        + (
            f"beyond it from the best lie {', '.join(apart)}."
            if apart
            else "nobody lies beyond it from the best."
        ),
        figure=figure(
            [ranked],
            x=axis("mean rank (1 is best)"),
            y=axis("", type="category", categoryarray=names, showgrid=False),
            height=120 + 30 * len(names),
            shapes=shapes,
        ),
    )
