"""How a run got on: best so far by candidate and by cost.

Names that models or files chose go through ``label``.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamea_gpu.report.charts import LEGEND, Chart, Table, axis, figure, label, number, score
from llamea_gpu.report.run import Run, hover
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
            "text": [hover(c, run.measure) for _, c in scored],
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
            "hovertemplate": f"best so far {run.measure.name} %{{y:.3f}}<extra></extra>",
        },
    ]
    best = run.population.seeds().best()
    if best is not None and x:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"best seed: {label(best.identifier)}",
                "x": [min(x), max(x)],
                "y": [best.p, best.p],
                "line": {"color": "@s2", "width": 1.5, "dash": "dash"},
                "hovertemplate": f"best seed {run.measure.name} %{{y:.3f}}<extra></extra>",
            }
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
