"""What operators and models brought, and how slots failed.

Names that models or files chose go through ``label``.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamea_gpu.evolution.candidate import FAILED
from llamea_gpu.report.candidate_text import hover
from llamea_gpu.report.charts import (
    Chart,
    Prose,
    Table,
    axis,
    count,
    figure,
    label,
    number,
    operator_style,
    signed,
)
from llamea_gpu.report.run import Run
from llamea_gpu.report.yields import Yield, failures, gain
from llamea_gpu.scoring import Measure


def gains(run: Run, yields: Sequence[Yield]) -> Chart:
    """Gain over the best parent by operator: one point a candidate."""
    order = [item.name for item in yields if item.with_gain]
    traces = []
    for place, name in enumerate(reversed(order)):
        gained = [(c, gain(run, c)) for c in run.written if c.operator == name]
        points = [(c, value) for c, value in gained if value is not None]
        spread = _spread(len(points))
        tone, symbol = operator_style(name)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label(name),
                "x": [value for _, value in points],
                "y": [place + d for d in spread],
                "marker": {"color": tone, "symbol": symbol, "size": 9, "opacity": 0.85},
                "text": [f"{hover(c, run.measure)}<br>gain {signed(value)}" for c, value in points],
                "hovertemplate": "%{text}<extra></extra>",
                "customdata": [c.slot for c, _ in points],
                "showlegend": False,
            }
        )
    best = max(
        (item for item in yields if item.with_gain),
        key=lambda item: item.improved / item.with_gain,
        default=None,
    )
    sentence = (
        f"{best.name} improved on its best parent most often: "
        f"{best.improved} of {best.with_gain} scored candidates."
        if best
        else "No scored candidate has a scored parent yet."
    )
    return Chart(
        key="gains",
        title=f"Gain in {run.measure.name} over the best parent, by operator",
        summary=sentence + " Right of zero is better than the parent.",
        figure=figure(
            traces,
            x=axis(
                f"{run.measure.name} − best parent's",
                zeroline=True,
                zerolinecolor="@ink",
                zerolinewidth=1.5,
            ),
            y=axis(
                "",
                tickvals=list(range(len(order))),
                ticktext=[label(name) for name in reversed(order)],
                showgrid=False,
            ),
            height=110 + 52 * max(1, len(order)),
        ),
    )


def _spread(n: int) -> list[float]:
    """Offsets that keep points of one row apart, the same each time."""
    return [0.24 * (((i * 0.618034) % 1) - 0.5) * 2 if n > 1 else 0.0 for i in range(n)]


def yield_table(kind: str, yields: Sequence[Yield], measure: Measure) -> Table:
    """What each operator or model brought, by its numbers."""
    return Table(
        caption=f"Yield by {kind}",
        columns=(
            kind,
            *("slots", "scored", "stopped early", "failed", "repaired", "better than parent"),
            *("new bests", "median gain", f"best {measure.name}", "tokens", "USD"),
        ),
        rows=tuple(
            (
                item.name,
                *map(str, (item.slots, item.scored, item.partial, item.failed, item.repaired)),
                f"{item.improved} of {item.with_gain}" if item.with_gain else "–",
                str(item.new_bests),
                signed(item.median_gain),
                number(item.best_p),
                f"{item.tokens:,}",
                "–" if item.usd is None else f"{item.usd:.4f}",
            )
            for item in yields
        ),
    )


def failure_chart(run: Run) -> Chart | Prose:
    """Failed slots by kind; a sentence where there are none."""
    kinds = failures(run.written)
    failed = sum(map(len, kinds.values()))
    names = list(reversed(kinds))
    repaired = sum(c.attempts > 1 for c in run.written if c.status != FAILED)
    sentence = (
        f"{count(failed, 'slot')} of {len(run.written)} failed after all repairs"
        + (f", most often as {next(iter(kinds))}" if kinds else "")
        + f"; {repaired} more needed a repair and then ran."
    )
    if not kinds:
        return Prose("Failed slots by kind", (sentence,))
    return Chart(
        key="failures",
        title="Failed slots by kind",
        summary=sentence,
        figure=figure(
            [
                {
                    "type": "bar",
                    "orientation": "h",
                    "x": [len(kinds[name]) for name in names],
                    "y": [label(name) for name in names],
                    "text": [str(len(kinds[name])) for name in names],
                    "textposition": "auto",
                    "marker": {"color": "@s2"},
                    "hovertemplate": "%{y}: %{x}<extra></extra>",
                }
            ],
            x=axis("slots", rangemode="tozero", dtick=1 + max(map(len, kinds.values())) // 6),
            y=axis("", type="category", showgrid=False),
            height=120 + 34 * max(1, len(names)),
        ),
        table=Table(
            caption="Failed slots",
            columns=("candidate", "kind", "operator", "attempts", "what was said"),
            rows=tuple(
                (c.identifier, kind, c.operator, str(c.attempts), c.reason[:300])
                for kind, group in kinds.items()
                for c in group
            ),
            text=frozenset({0, 1, 2, 4}),
        ),
    )
