"""What a run got for its calls: best so far, what operators and models brought, how slots failed.

Gain is a candidate's P minus the best P among its parents; a candidate without parents, or that was
not scored on every space, has none. It knows no prices. Names that models or files chose go
through ``label`` into its charts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from llamea_gpu.evolution.candidate import FAILED, PARTIAL, SCORED, Candidate
from llamea_gpu.evolution.population import Population, rank
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
from llamea_gpu.report.run import Run, candidate_marks
from llamea_gpu.scoring import Measure


@dataclass(frozen=True, slots=True)
class Step:
    """One settled slot on the way: the best so far, its P, and what was spent up to this slot.

    ``usd`` is None where a call so far has no price, ``best_p`` while nothing is scored.
    """

    candidate: Candidate
    best_p: float | None
    best: Candidate | None
    is_new_best: bool
    tokens: int
    usd: float | None


def steps(run: Run) -> tuple[Step, ...]:
    """The run slot by slot. Calls of a slot count when it is settled, also its repairs."""
    best = run.population.seeds().best()
    path = []
    for candidate in run.written:
        before = best
        if candidate.p is not None and (best is None or rank(candidate) < rank(best)):
            best = candidate
        spent = [item for item in run.spending if item.slot <= candidate.slot]
        path.append(
            Step(
                candidate=candidate,
                best_p=best.p if best else None,
                best=best,
                is_new_best=best is not before,
                tokens=sum(item.tokens for item in spent),
                usd=sum(item.usd or 0.0 for item in spent) if run.priced else None,
            )
        )
    return tuple(path)


def gain(run: Run, candidate: Candidate) -> float | None:
    """P above the best parent's."""
    known = [parent.p for parent in run.parents(candidate) if parent.p is not None]
    return candidate.p - max(known) if candidate.p is not None and known else None


@dataclass(frozen=True, slots=True)
class Yield:
    """What the slots of one operator (or model) brought.

    ``improved`` counts gains above 0, ``with_gain`` the slots that have a gain at all,
    ``new_bests`` those above everything before them; ``repaired`` took more than one attempt and
    were not failures in the end. ``usd`` is None where a call has no price.
    """

    name: str
    slots: int
    scored: int
    partial: int
    failed: int
    repaired: int
    with_gain: int
    improved: int
    new_bests: int
    median_gain: float | None
    best_p: float | None
    tokens: int
    usd: float | None


def operator_yields(run: Run) -> tuple[Yield, ...]:
    """By the slot's operator; repairs count to the slot they mend."""
    return _yields(run, lambda candidate: candidate.operator)


def model_yields(run: Run) -> tuple[Yield, ...]:
    """By the model that wrote the last answer of the slot."""
    return _yields(run, lambda candidate: candidate.model or "no answer")


def _yields(run: Run, key: Callable[[Candidate], str]) -> tuple[Yield, ...]:
    new_bests = {step.candidate.slot for step in steps(run) if step.is_new_best}
    names = dict.fromkeys(key(candidate) for candidate in run.written)
    yields = []
    for name in names:
        group = [c for c in run.written if key(c) == name]
        slots = {c.slot for c in group}
        gains = [g for g in (gain(run, c) for c in group) if g is not None]
        calls = [item for item in run.spending if item.slot in slots]
        usd = [item.usd for item in calls if item.usd is not None]
        statuses = Counter(c.status for c in group)
        best = Population(tuple(group)).best()
        yields.append(
            Yield(
                name=name,
                slots=len(group),
                scored=statuses[SCORED],
                partial=statuses[PARTIAL],
                failed=statuses[FAILED],
                repaired=sum(c.attempts > 1 and c.status != FAILED for c in group),
                with_gain=len(gains),
                improved=sum(g > 0 for g in gains),
                new_bests=len(new_bests & slots),
                median_gain=float(np.median(gains)) if gains else None,
                best_p=best.p if best else None,
                tokens=sum(item.tokens for item in calls),
                usd=sum(usd) if len(usd) == len(calls) else None,
            )
        )
    return tuple(sorted(yields, key=lambda item: (-item.slots, item.name)))


def failures(candidates: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    """Failed candidates by kind, the most frequent first."""
    by_kind: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.status == FAILED:
            by_kind.setdefault(candidate.kind or "unknown", []).append(candidate)
    return dict(sorted(by_kind.items(), key=lambda item: (-len(item[1]), item[0])))


def gains(run: Run, yields: Sequence[Yield]) -> Chart:
    """Gain over the best parent by operator: one point a candidate."""
    order = [item.name for item in yields if item.with_gain]
    traces = []
    for place, name in enumerate(reversed(order)):
        gained = [(c, gain(run, c)) for c in run.written if c.operator == name]
        points = [(c, value) for c, value in gained if value is not None]
        tone, symbol, _ = operator_style(name)
        trace = candidate_marks(
            name,
            [c for c, _ in points],
            run.measure,
            [value for _, value in points],
            [place + aside for aside in _spread(len(points))],
            marker={"color": tone, "symbol": symbol, "size": 9, "opacity": 0.85},
            showlegend=False,
        )
        trace["hovertemplate"] = "%{hovertext}<br>gain %{x:+.3f}<extra></extra>"
        traces.append(trace)
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
