"""A bench's findings in words.

What it does not do: decide anything; `llamea_gpu.bench.analysis` states the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from llamea_gpu.bench.findings import Comparison, Interval, Standing
from llamea_gpu.bench.plan import LOTTERY_EVALUATIONS, Plan
from llamea_gpu.bench.samples import MIN_REPEATS
from llamea_gpu.scoring import MEASURED, Measure
from llamea_gpu.tasks import Trace

FINE = 0.05  # a difference of P that a bench ought to be able to see


def comparison_sentence(pair: Comparison, pairs: int, measure: Measure = MEASURED) -> str:
    """One of ``pairs`` comparisons of a bench's ``measure``, in a sentence."""
    spaces = pair.wins + pair.losses + pair.ties
    count = f"{pair.wins} of {spaces} space{'s' if spaces > 1 else ''}"
    difference = f"{measure.name} {pair.difference:+.2f}{_bracketed(pair.interval)}"
    if pair.decided:
        text = f"{pair.first} beats {pair.second} on {count}, {difference}"
        if pair.interval_spaces is not None:
            holds = pair.interval_spaces.low > 0
            text += f"; {'so' if holds else 'not shown'} for other spaces like these"
            text += _bracketed(pair.interval_spaces)
        return f"{text}."
    if pair.interval is None:
        return (
            f"{pair.first} and {pair.second}: too few repeats to tell them apart ({difference}, "
            f"{pair.first} ahead on {count})."
        )
    if pair.interval.low > 0:
        text = (
            f"{pair.first} may be ahead of {pair.second}, but one of {pairs} comparisons looks "
            f"like this by chance too often: {difference}, on {count}"
        )
    else:
        text = f"{pair.first} and {pair.second} cannot be told apart: {difference}, on {count}"
    if pair.repeats_needed is not None:
        text += f"; about {pair.repeats_needed:,} repeats would tell"
    return f"{text}."


def summary(
    plan: Plan,
    standings: Sequence[Standing],
    comparisons: Sequence[Comparison],
    known: Collection[str] = (),
) -> tuple[str, ...]:
    """The result: who leads, then every comparison with the leader.

    With a baseline, whose searchers are ``known``: every comparison that is new.
    """
    best = standings[0]
    space_count = f"{len(plan.spaces)} space{'s' if len(plan.spaces) > 1 else ''}"
    first = (
        f"{best.searcher} has the highest {plan.measure.name}, "
        f"{best.p:.2f}{_bracketed(best.interval)}, of {len(standings)} "
        f"searcher{'s' if len(standings) > 1 else ''} on {space_count} with {plan.repeats} repeats."
    )
    pairs = [
        pair.sentence
        for pair in comparisons
        if (not {pair.first, pair.second} <= set(known) if known else pair.first == best.searcher)
    ]
    return (first, *pairs)


def cautions(
    plan: Plan, standings: Sequence[Standing], comparisons: Sequence[Comparison]
) -> tuple[str, ...]:
    """What these numbers cannot show."""
    sentences = []
    if plan.repeats < MIN_REPEATS:
        sentences.append(
            f"Fewer than {MIN_REPEATS} repeats: nothing is said about differences. Ask for more "
            f"with --repeats."
        )
    widths = [(c.interval.high - c.interval.low) / 2 for c in comparisons if c.interval]
    if widths and np.median(widths) > FINE:
        sentences.append(
            f"With {plan.repeats} repeats on {len(plan.spaces)} spaces, differences of "
            f"{plan.measure.name} below about {np.median(widths):.2f} drown in noise."
        )
    lotteries = [space.name for space in plan.spaces if space.is_lottery]
    if lotteries:
        without = ", ".join(
            f"{s.searcher} {s.p_without_lotteries:.2f}"
            for s in standings
            if s.p_without_lotteries is not None
        )
        sentences.append(
            f"Fewer than {LOTTERY_EVALUATIONS} evaluations fit the budget of "
            f"{', '.join(lotteries)}: a score there is mostly luck."
            + (f" {plan.measure.title} without: {without}." if without else "")
        )
    failing = [s for s in standings if s.failed_runs]
    if failing:
        counts = ", ".join(f"{s.searcher} {s.failed_runs} of {s.runs}" for s in failing)
        sentences.append(
            f"Runs that failed or measured nothing in time count with what they had found: "
            f"{counts}."
        )
    return tuple(sentences)


def troubles(traces: Mapping[str, Sequence[Trace]]) -> tuple[str, ...]:
    """What searchers went on in spite of, such as a model that could not be reached."""
    sentences = []
    for name, all_runs in traces.items():
        errors = [trace.error for trace in all_runs if trace.error and not trace.is_failed]
        if errors:
            sentences.append(
                f"{len(errors)} of {len(all_runs)} runs of {name} were in trouble, went on without "
                f"its help, and count all the same: {errors[0]}"
            )
    return tuple(sentences)


def _bracketed(interval: Interval | None) -> str:
    return "" if interval is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
