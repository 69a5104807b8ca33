"""How a run got on, and what its calls cost: best so far by candidate and by cost, cost by call.

Names that models or files chose go through ``label``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llamea_gpu.report.charts import (
    LEGEND,
    Chart,
    Table,
    axis,
    count,
    figure,
    label,
    lines,
    number,
    operator_style,
    score,
)
from llamea_gpu.report.run import Run, candidate_marks
from llamea_gpu.report.yields import Step


def progress(run: Run, steps: Sequence[Step]) -> Chart:
    """Best score so far by candidate."""
    slots = [step.candidate.slot for step in steps]
    traces = _progress_traces(run, steps, [float(slot) for slot in slots])
    width = run.settings.offspring
    shapes = [
        {"type": "line", "x0": s - 0.5, "x1": s - 0.5, "yref": "paper", "y0": 0, "y1": 1}
        | {"line": {"color": "@grid", "width": 1}, "layer": "below"}
        for s in range(width, len(slots), width)
    ]
    return Chart(
        key="progress",
        title="Best so far by candidate",
        summary=_progress_sentence(run, steps)
        + f" Vertical lines part generations of {width}; bars are one standard error.",
        figure=figure(
            traces,
            x=axis("candidate"),
            y=axis(run.measure.name),
            shapes=shapes,
            legend=LEGEND,
            hovermode="closest",
        ),
        table=_new_bests_table(run, steps),
    )


def progress_by_cost(run: Run, steps: Sequence[Step]) -> Chart:
    """Best score so far by what was paid: dollars where every call has a price, else tokens."""
    priced = run.priced
    paid = [(step.usd or 0.0) if priced else float(step.tokens) for step in steps]
    unit = "USD" if priced else "tokens"
    total = f"{paid[-1]:.2f} USD" if paid and priced else f"{int(paid[-1] if paid else 0):,} tokens"
    why = "" if priced else " No price is known for every call, so tokens stand for money."
    return Chart(
        key="progress-cost",
        title=f"Best so far by {'money' if priced else 'tokens'}",
        summary=f"The settled candidates cost {total} together, repairs and lost attempts "
        f"included.{why}",
        figure=figure(
            _progress_traces(run, steps, paid),
            x=axis(f"{unit} spent on candidates up to here", rangemode="tozero"),
            y=axis(run.measure.name),
            legend=LEGEND,
            hovermode="closest",
        ),
        table=Table(
            caption=f"Best {run.measure.name} by {unit} spent",
            columns=("candidate", unit, run.measure.name, "best so far"),
            rows=tuple(
                (
                    step.candidate.identifier,
                    f"{x:.4f}" if priced else f"{int(x):,}",
                    number(step.candidate.p),
                    number(step.best_p),
                )
                for step, x in zip(steps, paid, strict=True)
            ),
        ),
    )


def _progress_traces(
    run: Run, steps: Sequence[Step], x: Sequence[float]
) -> list[dict[str, object]]:
    scored = [(at, step.candidate) for at, step in zip(x, steps, strict=True)]
    scored = [(at, c) for at, c in scored if c.p is not None]
    errors = [c.standard_error for _, c in scored]
    traces: list[dict[str, object]] = [
        candidate_marks(
            "candidates",
            [c for _, c in scored],
            run.measure,
            [at for at, _ in scored],
            [c.p or 0.0 for _, c in scored],
            error_y={"type": "data", "array": errors, "thickness": 1, "width": 0},
            marker={"color": "@muted", "size": 6},
        ),
        lines(
            "best so far",
            x,
            [step.best_p for step in steps],
            line={"shape": "hv", "color": "@s1", "width": 2.5},
            hovertemplate=f"best so far {run.measure.name} %{{y:.3f}}<extra></extra>",
        ),
    ]
    best = run.population.seeds().best()
    if best is not None and x:
        traces.append(
            lines(
                f"best seed: {label(best.identifier)}",
                [min(x), max(x)],
                [best.p, best.p],
                line={"color": "@s2", "width": 1.5, "dash": "dash"},
                hovertemplate=f"best seed {run.measure.name} %{{y:.3f}}<extra></extra>",
            )
        )
    return traces


def _progress_sentence(run: Run, steps: Sequence[Step]) -> str:
    last = steps[-1].best if steps else None
    seed = run.population.seeds().best()
    if last is None:
        return "No candidate has been scored yet."
    best = f"{run.measure.name} {score(last.p, last.standard_error)}"
    text = f"The best so far is {last.identifier}, {best}"
    if seed is not None and last.slot != seed.slot:
        text += f"; the best seed program is at {score(seed.p, seed.standard_error)}"
    return text + "."


def _new_bests_table(run: Run, steps: Sequence[Step]) -> Table:
    rows = []
    for step in steps:
        if step.is_new_best:
            candidate = step.candidate
            rows.append(
                (
                    candidate.identifier,
                    candidate.operator,
                    ", ".join(p.identifier for p in run.parents(candidate)) or "–",
                    score(candidate.p, candidate.standard_error),
                    candidate.program.idea if candidate.program else "",
                )
            )
    return Table(
        caption="Candidates that were the best when they were settled",
        columns=("candidate", "operator", "parents", f"{run.measure.name} ± s.e.", "idea"),
        rows=tuple(rows),
        text=frozenset({0, 1, 2, 4}),
    )


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
        tone, _, shape = operator_style(name)
        pattern = {"shape": shape, "solidity": 0.3, "fgcolor": "@paper", "fillmode": "overlay"}
        traces.append(
            {
                "type": "bar",
                "name": label(name),
                "x": [i + 1 for i in here],
                "y": [cost[i] for i in here],
                "width": 0.85,
                "marker": {"color": tone, "pattern": pattern},
                "text": [names[i] for i in here],
                "textposition": "none",
                "hovertemplate": f"%{{text}}: %{{y:,.4~g}} {unit}<extra>{label(name)}</extra>",
            }
        )
    traces.append(
        lines(
            "sum (right axis)",
            range(1, len(cost) + 1),
            np.cumsum(cost).tolist(),
            yaxis="y2",
            line={"color": "@ink", "width": 2, "dash": "dot", "shape": "hv"},
            hovertemplate=f"sum %{{y:,.4~g}} {unit}<extra></extra>",
        )
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
