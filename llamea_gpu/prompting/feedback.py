"""What a prompt says of a candidate beside its table: where it loses, and by which mechanism.

Not here: computing the numbers (`llamea_gpu.scoring`, `llamea_gpu.evolution.mechanisms`), laying
them out (``prompts``).
"""

from __future__ import annotations

from collections.abc import Iterator

from llamea_gpu.prompting.context import Feedback

_SENTENCES = 7
_MANY_REVISITS = 0.5


def weak_points(feedback: Feedback) -> tuple[str, ...]:
    """At most seven sentences, the most useful first; none when nothing was scored."""
    return tuple(_sentences(feedback))[:_SENTENCES]


def _sentences(feedback: Feedback) -> Iterator[str]:
    behind = sorted((r for r in feedback.spaces if r.gap < 0), key=lambda result: result.gap)
    if behind:
        yield f"Loses to the best human-designed searcher on {names([r.space for r in behind])}."
    yield from feedback.mechanisms
    repeats = [r.space for r in feedback.spaces if r.revisit_share > _MANY_REVISITS]
    if repeats:
        yield f"Asks mostly for what it has visited on {names(repeats)}, which tells it nothing."


def names(spaces: list[str], shown: int = 3) -> str:
    """The first ones, and how many there are beside them."""
    more = len(spaces) - shown
    return ", ".join(spaces[:shown]) + (f" and {more} more" if more > 0 else "")
