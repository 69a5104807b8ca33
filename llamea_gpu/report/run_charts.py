"""The charts of an evolution run: progress, yields, failures, behaviour, cost.

Each function takes plain data and gives a chart with its sentence and its table. The family tree
is in ``tree_charts``. Names that models or files chose go through ``label``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llamea_gpu.evolution.candidate import FAILED, PARTIAL, Candidate
from llamea_gpu.report.behaviour import Behaviour
from llamea_gpu.report.charts import (
    DASHES,
    OPERATORS,
    Chart,
    Prose,
    Table,
    axis,
    count,
    figure,
    label,
    number,
    operator_style,
    score,
    signed,
)
from llamea_gpu.report.run import Run
from llamea_gpu.report.yields import Step, Yield, failures, gain, last_line


def progress(run: Run, steps: Sequence[Step]) -> Chart:
    """Best P so far by candidate."""
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
            y=axis("P"),
            shapes=shapes,
            legend=_LEGEND,
            hovermode="closest",
        ),
        table=_new_bests_table(run, steps),
    )


def progress_by_cost(run: Run, steps: Sequence[Step]) -> Chart:
    """Best P so far by what was paid: dollars where every call has a price, tokens elsewhere."""
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
            y=axis("P"),
            legend=_LEGEND,
            hovermode="closest",
        ),
        table=Table(
            caption=f"Best P by {unit} spent",
            columns=("candidate", unit, "P", "best so far"),
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


_LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}


def _progress_traces(
    run: Run, steps: Sequence[Step], x: Sequence[float]
) -> list[dict[str, object]]:
    scored = [(at, step.candidate) for at, step in zip(x, steps, strict=True)]
    scored = [(at, c) for at, c in scored if c.p is not None]
    traces: list[dict[str, object]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "candidates",
            "x": [at for at, _ in scored],
            "y": [c.p for _, c in scored],
            "error_y": {
                "type": "data",
                "array": [c.standard_error for _, c in scored],
                "thickness": 1,
                "width": 0,
                "color": "@muted",
            },
            "marker": {"color": "@muted", "size": 6},
            "text": [hover(c) for _, c in scored],
            "hovertemplate": "%{text}<extra></extra>",
            "customdata": [c.slot for _, c in scored],
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best so far",
            "x": list(x),
            "y": [step.best_p for step in steps],
            "line": {"shape": "hv", "color": "@s1", "width": 2.5},
            "hovertemplate": "best so far P %{y:.3f}<extra></extra>",
        },
    ]
    best = max((c for c in run.seeds if c.p is not None), key=lambda c: c.p or 0, default=None)
    if best is not None and x:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"best seed: {label(best.identifier)}",
                "x": [min(x), max(x)],
                "y": [best.p, best.p],
                "line": {"color": "@s2", "width": 1.5, "dash": "dash"},
                "hovertemplate": "best seed P %{y:.3f}<extra></extra>",
            }
        )
    return traces


def _progress_sentence(run: Run, steps: Sequence[Step]) -> str:
    last = steps[-1].best if steps else None
    seed = max((c for c in run.seeds if c.p is not None), key=lambda c: c.p or 0, default=None)
    if last is None:
        return "No candidate has been scored yet."
    text = f"The highest P so far is {score(last.p, last.standard_error)} by {last.identifier}"
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
        columns=("candidate", "operator", "parents", "P ± s.e.", "idea"),
        rows=tuple(rows),
        text=frozenset({0, 1, 2, 4}),
    )


def hover(candidate: Candidate) -> str:
    """A candidate in a few lines, for the pointer."""
    lines = [f"<b>{label(candidate.identifier)}</b> {status_text(candidate)}"]
    if candidate.slot >= 0:
        lines.append(label(candidate.operator))
    idea = candidate.program.idea if candidate.program else last_line(candidate.message)
    words: list[str] = []
    for word in idea[:160].split():
        if words and len(words[-1]) + len(word) < 48:
            words[-1] += f" {word}"
        else:
            words.append(word[:60])
    return "<br>".join([*lines, *map(label, words)])


def status_text(candidate: Candidate) -> str:
    """``P … ± …``, or how it ended."""
    if candidate.p is not None:
        return f"P {score(candidate.p, candidate.standard_error)}"
    return "stopped early" if candidate.status == PARTIAL else f"failed: {label(candidate.kind)}"


def gains(run: Run, yields: Sequence[Yield]) -> Chart:
    """Gain over the best parent by operator: one point a candidate."""
    order = [item.name for item in yields if item.with_gain]
    traces = []
    for place, name in enumerate(reversed(order)):
        found = [(c, gain(run, c)) for c in run.written if c.operator == name]
        points = [(c, value) for c, value in found if value is not None]
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
                "text": [f"{hover(c)}<br>gain {signed(value)}" for c, value in points],
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
        title="Gain in P over the best parent, by operator",
        summary=sentence + " Right of zero is better than the parent.",
        figure=figure(
            traces,
            x=axis("P − best parent's P", zeroline=True, zerolinecolor="@ink", zerolinewidth=1.5),
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


def yield_table(kind: str, yields: Sequence[Yield]) -> Table:
    """What each operator or model brought, by its numbers."""
    return Table(
        caption=f"Yield by {kind}",
        columns=(
            kind,
            *("slots", "scored", "stopped early", "failed", "repaired", "better than parent"),
            *("new bests", "median gain", "best P", "tokens", "USD"),
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
                (c.identifier, kind, c.operator, str(c.attempts), last_line(c.message)[:300])
                for kind, group in kinds.items()
                for c in group
            ),
            text=frozenset({0, 1, 2, 4}),
        ),
    )


def behaviour_map(found: Behaviour) -> Chart:
    """Candidates in the plane, near each other when they visit the same configurations."""
    traces = []
    names = ("seed", *OPERATORS)
    own = ["seed" if c.slot < 0 else c.operator for c in found.candidates]
    present = [n for n in names if n in own] + sorted(set(own) - set(names))
    for name in present:
        tone, symbol = ("@muted", "x") if name == "seed" else operator_style(name)
        here = [i for i, operator in enumerate(own) if operator == name]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label("seed program" if name == "seed" else name),
                "x": found.place[here, 0].tolist(),
                "y": found.place[here, 1].tolist(),
                "marker": {
                    "color": tone,
                    "symbol": symbol,
                    "size": [6 + 8 * max(0.0, found.candidates[i].p or 0.0) for i in here],
                    "opacity": 0.85,
                    "line": {"width": 1, "color": "@paper"},
                },
                "hovertext": [hover(found.candidates[i]) for i in here],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "customdata": [found.candidates[i].slot for i in here],
            }
        )
    return Chart(
        key="behaviour-map",
        title="Map of behaviour",
        summary=f"Candidates that visit the same configurations lie close together; larger marks "
        f"have a higher P. The two axes hold {100 * found.explained:.0f} % of the spread, so "
        f"distances are approximate.",
        figure=figure(
            traces,
            x=axis("first axis of classical scaling", showticklabels=False),
            y=axis("second axis", showticklabels=False, scaleanchor="x"),
            height=440,
            legend=_LEGEND,
            hovermode="closest",
        ),
        table=_behaviour_table(found),
    )


def novelty_chart(found: Behaviour) -> Chart:
    """Distance to the nearest earlier candidate, and spread of the elite, over the run."""
    written = [i for i, c in enumerate(found.candidates) if c.slot >= 0]
    slots = [found.candidates[i].slot for i in written]
    lines = (
        ("to the nearest earlier candidate", found.novelty, "markers", "@s1", "solid"),
        ("mean within the elite", found.elite_spread, "lines", "@s2", "solid"),
    )
    spread = [float(v) for v in found.elite_spread[written] if np.isfinite(v)]
    sentence = (
        f"The elite's members are {spread[0]:.2f} apart on average when the first candidate is "
        f"settled, and {spread[-1]:.2f} at the end"
        if spread
        else "The elite has had no two members yet"
    )
    return Chart(
        key="novelty",
        title="Diversity over the run",
        summary=sentence + " (0: the same visits; 1: none in common).",
        figure=figure(
            [
                {
                    "type": "scatter",
                    "mode": mode,
                    "name": name,
                    "x": slots,
                    "y": [float(v) for v in values[written]],
                    "line": {"color": tone, "dash": dash, "width": 2, "shape": "hv"},
                    "marker": {"color": tone, "size": 7},
                    "customdata": slots,
                    "hovertemplate": "#%{x}: %{y:.3f}<extra></extra>",
                }
                for name, values, mode, tone, dash in lines
            ],
            x=axis("candidate"),
            y=axis("Hellinger distance of visits", rangemode="tozero"),
            legend=_LEGEND,
        ),
    )


def _behaviour_table(found: Behaviour) -> Table:
    rows = []
    for i, candidate in enumerate(found.candidates):
        earlier = found.distance[i, :i]
        nearest = found.candidates[int(np.argmin(earlier))].identifier if i else "–"
        novelty = float(found.novelty[i])
        rows.append((candidate.identifier, nearest, number(novelty), number(candidate.p)))
    return Table(
        caption="Behaviour of the candidates that were run",
        columns=("candidate", "nearest earlier", "distance to it", "P"),
        rows=tuple(rows),
        text=frozenset({0, 1}),
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
        traces.append(
            {
                "type": "bar",
                "name": label(name),
                "x": [i + 1 for i in here],
                "y": [cost[i] for i in here],
                "width": 0.85,
                "marker": {"color": operator_style(name)[0]},
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
            legend=_LEGEND,
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
