"""Finds the recorded text nearest to a given one, and shows how they differ.

Texts are compared as sequences of words, and only as far as ``_MAX_CHARS``: prompts of one run
share most of their text, and a thousand of them must be searched in seconds.

Not here: meaning.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

_MAX_CHARS = 20_000
_MAX_EXACT = 5
_MAX_DIFF_LINES = 24
_MAX_LINE_CHARS = 160


@dataclass(frozen=True, slots=True)
class Difference:
    """``similarity`` from 0 to 1, and a short unified diff."""

    similarity: float
    diff: str


def nearest(text: str, candidates: Sequence[str], preferred: int) -> int:
    """Index of the candidate most like ``text``; among equals ``preferred``, then the first.

    An upper bound of the similarity ranks all candidates; only the best few are compared exactly.
    """
    matcher = _matcher(text)
    bounds = []
    for candidate in candidates:
        matcher.set_seq1(candidate[:_MAX_CHARS].split())
        bounds.append(matcher.quick_ratio())
    order = sorted(range(len(bounds)), key=lambda i: (-bounds[i], i != preferred, i))
    shortlist = dict.fromkeys([preferred, *order[:_MAX_EXACT]])  # max() takes the first of equals
    return max(shortlist, key=lambda i: _similarity(matcher, candidates[i]))


def difference(recorded: str, asked: str) -> Difference:
    """How ``asked`` differs from ``recorded``."""
    lines = difflib.unified_diff(
        recorded[:_MAX_CHARS].splitlines(), asked[:_MAX_CHARS].splitlines(), lineterm="", n=1
    )
    shown = [line[:_MAX_LINE_CHARS] for line in list(lines)[2 : 3 + _MAX_DIFF_LINES]]
    if len(shown) > _MAX_DIFF_LINES:
        shown[-1] = "…"
    if not shown:
        shown = [f"(they differ after the first {_MAX_CHARS} characters, or in line breaks only)"]
    return Difference(_similarity(_matcher(asked), recorded), "\n".join(shown))


def _matcher(text: str) -> difflib.SequenceMatcher[str]:
    # The matcher caches its second sequence: that is the text compared with many.
    return difflib.SequenceMatcher(None, "", text[:_MAX_CHARS].split(), autojunk=False)


def _similarity(matcher: difflib.SequenceMatcher[str], candidate: str) -> float:
    matcher.set_seq1(candidate[:_MAX_CHARS].split())
    return matcher.ratio()
