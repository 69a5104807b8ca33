"""The population: all candidates settled so far, ranked and summed up. (mu + lambda), steady state.

It decides nothing: who breeds is `parents`' business, what a slot does `plan`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from llamea_gpu.evolution.candidate import SCORED, Candidate

PREVIOUS_IDEAS = 12  # ideas of earlier candidates that a prompt lists


@dataclass(frozen=True, slots=True)
class Population:
    """An immutable snapshot of all candidates settled so far, in the order of their slots."""

    candidates: tuple[Candidate, ...] = ()

    def with_candidate(self, candidate: Candidate) -> Population:
        """The next snapshot."""
        return Population((*self.candidates, candidate))

    def scored(self) -> list[Candidate]:
        """Fully scored candidates, best first.

        P counts to two decimals, well inside its standard error; of programs as good as each other
        the shorter one comes first, then the earlier.
        """
        full = [c for c in self.candidates if c.status == SCORED and c.p is not None]
        return sorted(full, key=lambda c: (-round(c.p or 0.0, 2), _lines(c), c.slot))

    def elite(self, size: int) -> list[Candidate]:
        """The best ``size`` of all scored candidates (plus selection: age does not matter)."""
        return self.scored()[:size]

    def best(self) -> Candidate | None:
        """The best scored candidate, seed programs included."""
        return next(iter(self.scored()), None)

    def digests(self) -> dict[str, Candidate]:
        """Programs seen so far by normalised digest; the first candidate that had it."""
        seen: dict[str, Candidate] = {}
        for candidate in self.candidates:
            if candidate.program is not None:
                seen.setdefault(candidate.program.digest, candidate)
        return seen

    def best_p_by_space(self) -> dict[str, float]:
        """The highest P any scored candidate has reached on each space."""
        best: dict[str, float] = {}
        for candidate in self.scored():
            for space, p in candidate.space_p().items():
                best[space] = max(p, best.get(space, -math.inf))
        return best

    def references(self) -> dict[str, tuple[str, float]]:
        """The best human-designed seed program on each space: (its name, its P)."""
        best: dict[str, tuple[str, float]] = {}
        for candidate in self.candidates:
            if candidate.slot < 0 and not candidate.inspiration:
                for space, p in candidate.space_p().items():
                    if space not in best or p > best[space][1]:
                        best[space] = (candidate.operator, p)
        return best

    def ideas(self) -> tuple[str, ...]:
        """Ideas of the latest written candidates with what they scored, for ``explore``."""
        written = [c for c in self.candidates if c.slot >= 0 and c.program is not None]
        return tuple(_idea_line(candidate) for candidate in written[-PREVIOUS_IDEAS:])


def _lines(candidate: Candidate) -> int:
    return len(candidate.program.source.splitlines()) if candidate.program else 0


def _idea_line(candidate: Candidate) -> str:
    idea = candidate.program.idea if candidate.program else ""
    score = f"P {candidate.p:.3f}" if candidate.p is not None else candidate.kind or "stopped early"
    return f"{idea} ({score})"
