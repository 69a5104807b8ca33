"""The page of several runs by strategy: best so far by answers, differences, costs."""

from __future__ import annotations

from collections.abc import Sequence

from llamea_gpu.bench.findings import Interval
from llamea_gpu.bench.rescoring import Rescored
from llamea_gpu.bench.strategies import REFERENCE, Cost, Scores, StrategyScore
from llamea_gpu.report.charts import (
    LEGEND,
    SYMBOLS,
    Box,
    Chart,
    Page,
    Section,
    Table,
    axis,
    figure,
    label,
    line,
    lines,
    number,
    score,
    share,
    signed,
)

TRAINING = "By the runs' own scores"
_OFFSET = 0.04  # of a mark's place: error bars side by side can be told apart


def comparison_page(
    training: Scores, rescored: Rescored | None, costs: Sequence[Cost], title: str
) -> Page:
    """The report of runs that were compared; ``rescored``: their best, measured side by side."""
    scored = [("training", TRAINING, training)]
    if rescored is not None:
        scored.insert(0, ("again", measured_again(rescored), rescored.scores))
    main = scored[0][2]
    sections = [
        Section(key, name, (_best_so_far(key, s), scores_table(s, name), runs_table(s, name)))
        for key, name, s in scored
    ]
    if rescored is not None and rescored.near_best:
        sections.append(Section("near-best", "Near the best known", (near_best_table(rescored),)))
    return Page(
        title=title,
        kind="Comparison of strategies",
        sentences=_sentences(main, rescored),
        boxes=tuple(
            Box(cost.strategy, f"{cost.answers:,} answers", f"in {cost.runs} runs")
            for cost in costs
            if cost.run is None
        ),
        sections=(*sections, Section("costs", "Costs", (costs_table(costs),))),
        scale=f"{main.measure.title}: {main.measure.scale}",
    )


def _sentences(main: Scores, rescored: Rescored | None) -> tuple[str, ...]:
    last = max((row.answers for row in main.strategies), default=0)
    rows = [row for row in main.strategies if row.answers == last]
    sentences = [
        f"{row.strategy}: {main.measure.name} {_estimate(row.score, row.interval)} after {last} "
        f"answers" + (f", {_step(row)} against {REFERENCE}." if row.difference is not None else ".")
        for row in rows
    ]
    if rescored is None:
        sentences.append(
            "These are the scores that the runs chose their best by, which are too high: the best "
            "of many is chosen for its luck too."
        )
    return tuple(sentences)


def _best_so_far(key: str, scores: Scores) -> Chart:
    strategies = list(dict.fromkeys(row.strategy for row in scores.strategies))
    name = scores.measure.name
    traces = []
    for place, strategy in enumerate(strategies):
        rows = [row for row in scores.strategies if row.strategy == strategy]
        aside = 1 + _OFFSET * (place - (len(strategies) - 1) / 2)
        halves = [row.interval.high - row.score if row.interval else 0.0 for row in rows]
        traces.append(
            lines(
                label(strategy),
                [row.answers * aside for row in rows],
                [row.score for row in rows],
                mode="lines+markers",
                error_y={"type": "data", "array": halves, "thickness": 1.5, "width": 4},
                line=line(place),
                marker={"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 8},
                text=[_hover(row, name) for row in rows],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    marks = list(dict.fromkeys(row.answers for row in scores.strategies))
    x = axis("answers", type="log", tickvals=marks, ticktext=[str(mark) for mark in marks])
    return Chart(
        key=f"{key}-best",
        title="Best so far by answers",
        summary=f"Mean over runs of the best {name} after so many answers, on "
        f"{len(scores.spaces)} spaces; bars are 95 % intervals for other runs.",
        figure=figure(traces, x=x, y=axis(name), legend=LEGEND, hovermode="closest"),
        wide=True,
    )


def _hover(row: StrategyScore, name: str) -> str:
    text = f"{label(row.strategy)}, {row.answers} answers, {row.runs} runs"
    return f"{text}<br>{name} {_estimate(row.score, row.interval)}"


def measured_again(rescored: Rescored) -> str:
    """What its scores are."""
    return f"Measured again, {rescored.repeats} runs each"


def scores_table(scores: Scores, title: str) -> Table:
    """Each strategy's best so far, and by how much it is better than the reference."""
    return Table(
        caption=f"{title}: best so far, mean over runs, {scores.measure.name} on "
        f"{', '.join(scores.spaces)}",
        columns=("strategy", "answers", "runs", "mean [95 %]", f"minus {REFERENCE} [95 %]"),
        rows=tuple(
            (
                row.strategy,
                str(row.answers),
                str(row.runs),
                _estimate(row.score, row.interval),
                "–" if row.difference is None else _step(row),
            )
            for row in scores.strategies
        ),
    )


def runs_table(scores: Scores, title: str) -> Table:
    """The candidates that the runs had chosen by then."""
    return Table(
        caption=f"{title}: the best of each run after so many answers",
        columns=("run", "strategy", "answers", "candidate", f"{scores.measure.name} ± s.e."),
        rows=tuple(
            (
                row.run,
                row.strategy,
                str(row.answers),
                f"#{row.slot}",
                score(row.score, row.standard_error),
            )
            for row in scores.runs
        ),
        text=frozenset({0, 1}),
    )


def near_best_table(rescored: Rescored) -> Table:
    """How near the best known the strategies' last candidates come."""
    return Table(
        caption="Modelled time of the runs' last best relative to the best known, geometric mean "
        "over runs and spaces",
        columns=("strategy", "simulated s", "mean", "worst space"),
        rows=tuple(
            (row.strategy, f"{row.seconds:g}", number(row.mean), number(row.worst))
            for row in rescored.near_best
        ),
    )


def costs_table(costs: Sequence[Cost]) -> Table:
    """Answers, tokens and CPU time of each strategy, then of each run."""
    return Table(
        caption="What it cost",
        columns=(
            *("strategy", "run", "runs", "answers", "failed answers", "tokens"),
            "candidates' CPU s",
        ),
        rows=tuple(
            (
                *(cost.strategy, cost.run or "all", str(cost.runs), f"{cost.answers:,}"),
                f"{cost.failed_answers} ({share(cost.failed_share)})",
                f"{cost.tokens:,}",
                f"{cost.cpu_s:.1f}",
            )
            for cost in costs
        ),
        text=frozenset({0, 1}),
    )


def _estimate(value: float, interval: Interval | None) -> str:
    bounds = "" if interval is None else f" [{number(interval.low)}, {number(interval.high)}]"
    return number(value) + bounds


def _step(row: StrategyScore) -> str:
    interval = row.difference_interval
    bounds = "" if interval is None else f" [{signed(interval.low)}, {signed(interval.high)}]"
    return signed(row.difference) + bounds
