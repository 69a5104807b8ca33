"""What a run's calls cost, one by one and together."""

from __future__ import annotations

import numpy as np

from llamea_gpu.report.charts import (
    DASHES,
    LEGEND,
    Chart,
    Table,
    axis,
    count,
    figure,
    label,
    operator_bar,
)
from llamea_gpu.report.run import Run


def cost_chart(run: Run) -> Chart:
    """What each call cost, one after the other, and the sum."""
    usd = run.priced
    cost = [(item.usd or 0.0) if usd else float(item.tokens) for item in run.spending]
    names = [f"#{item.slot} attempt {item.attempt + 1}" for item in run.spending]
    operators = list(dict.fromkeys(item.operator for item in run.spending))
    unit = "USD" if usd else "tokens"
    traces: list[dict[str, object]] = []
    for name in operators:
        here = [i for i, item in enumerate(run.spending) if item.operator == name]
        traces.append(
            {
                "type": "bar",
                "name": label(name),
                "x": [i + 1 for i in here],
                "y": [cost[i] for i in here],
                "width": 0.85,
                "marker": operator_bar(name),
                "text": [names[i] for i in here],
                "textposition": "none",
                "hovertemplate": f"%{{text}}: %{{y:,.4~g}} {unit}<extra>{label(name)}</extra>",
            }
        )
    traces.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "sum (right axis)",
            "x": list(range(1, len(cost) + 1)),
            "y": np.cumsum(cost).tolist(),
            "yaxis": "y2",
            "line": {"color": "@ink", "width": 2, "dash": DASHES[2], "shape": "hv"},
            "hovertemplate": f"sum %{{y:,.4~g}} {unit}<extra></extra>",
        }
    )
    return Chart(
        key="cost",
        title=f"Cost by call, in {unit}",
        summary=cost_sentence(run),
        figure=figure(
            traces,
            x=axis("call"),
            y=axis(unit, rangemode="tozero"),
            yaxis2=axis("sum", overlaying="y", side="right", rangemode="tozero", showgrid=False),
            legend=LEGEND,
            barmode="overlay",
        ),
        wide=True,
    )


def cost_sentence(run: Run) -> str:
    """Calls, answers, tokens and dollars of the whole run in one sentence."""
    spending = run.spending
    tokens = sum(item.tokens for item in spending)
    lost = sum(item.lost for item in spending)
    text = (
        f"{count(len(spending), 'call')}, {count(sum(i.answered for i in spending), 'answer')}, "
        f"{tokens:,} tokens"
    )
    known = [item.usd for item in spending if item.usd is not None]
    if run.priced:
        text += f", {sum(known):.2f} USD"
    elif known:
        text += f", at least {sum(known):.2f} USD (a model has no known price)"
    if lost:
        text += f"; {count(lost, 'attempt')} broke off and may have been billed"
    return text + "."


def cost_table(run: Run) -> Table:
    """Calls, tokens and dollars by what was asked for."""
    operators = dict.fromkeys(item.operator for item in run.spending)
    groups = [(name, [i for i in run.spending if i.operator == name]) for name in operators]
    groups.append(("all", list(run.spending)))
    rows = []
    for name, group in groups:
        usd = [item.usd for item in group if item.usd is not None]
        rows.append(
            (
                name,
                f"{len(group):,}",
                f"{sum(item.prompt_tokens for item in group):,}",
                f"{sum(item.completion_tokens for item in group):,}",
                f"{sum(usd):.4f}" if group and len(usd) == len(group) else "–",
            )
        )
    return Table(
        caption="Cost by what was asked for",
        columns=("prompt of", "calls", "prompt tokens", "completion tokens", "USD"),
        rows=tuple(rows),
    )
