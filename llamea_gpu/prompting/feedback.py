"""Sentences that say where a candidate loses, from the numbers of its feedback.

Each rests on simulated time and seeds alone; own CPU seconds, which depend on the host, only ever
stand in the table. Not here: computing the numbers (``scoring``), laying them out (``prompts``).
"""

from __future__ import annotations

from collections.abc import Iterator

from llamea_gpu.prompting.context import Feedback, SpaceResult

_SMALL_REGRET = 0.01
_LEFT_REGRET = 0.02
_EARLY = 0.5
_SLOW_P = 0.8
_MANY_REVISITS = 0.5
_MANY_FAILURES = 0.25
_NAMED_SPACES = 3


def weak_points(feedback: Feedback) -> tuple[str, ...]:
    """At most six sentences, none when nothing was scored."""
    return tuple(_sentences(sorted(feedback.spaces, key=lambda result: result.p)))


def _sentences(results: list[SpaceResult]) -> Iterator[str]:
    """``results`` in order of P, the lowest first: that is where most is to be gained."""
    if not results:
        return
    yield f"Most is to be gained on {results[0].space}: P {results[0].p:.3f}."
    behind = [r for r in results if r.gap < 0]
    if behind:
        yield f"Loses to the best human-designed searcher on {_names(behind)}."
    stuck = [r for r in results if r.regret > _LEFT_REGRET and r.last_improvement < _EARLY]
    if stuck:
        yield f"Gets stuck on {_names(stuck)}: it stops improving early, with a regret left."
    slow = [r for r in results if r.regret <= _SMALL_REGRET and r.p < _SLOW_P]
    if slow:
        yield f"Starts slowly on {_names(slow)}: it ends near the optimum, but late."
    repeats = [r for r in results if r.revisit_share > _MANY_REVISITS]
    if repeats:
        yield f"Asks mostly for what it has visited on {_names(repeats)}."
    failures = [r for r in results if r.failure_share > _MANY_FAILURES]
    if failures:
        yield f"Spends much of the budget on failing configurations on {_names(failures)}."


def _names(results: list[SpaceResult]) -> str:
    names = [result.space for result in results[:_NAMED_SPACES]]
    more = len(results) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
