"""The population: all candidates settled so far, ranked and summed up. (mu + lambda), steady state.

It decides nothing: who breeds is `parents`' business, what a slot does `plan`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llamea_gpu.archive import Archive
from llamea_gpu.evolution.candidate import FAILED, PARTIAL, Candidate
from llamea_gpu.prompting import Tried
from llamea_gpu.tasks import Trace

PREVIOUS_IDEAS = 12  # ideas of earlier candidates that a prompt lists


@dataclass(frozen=True, slots=True)
class Population:
    """An immutable snapshot of all candidates settled so far, in the order of their slots."""

    candidates: tuple[Candidate, ...] = ()

    @classmethod
    def read(cls, archive: Archive) -> Population:
        """The candidates that ``archive`` holds, with the scores that they have by now.

        Raises:
            ArchiveError: it is damaged or foreign.
        """
        rescored = map(Candidate.from_document, archive.rescored().values())
        return cls.as_settled(archive).updated(list(rescored))

    @classmethod
    def as_settled(cls, archive: Archive) -> Population:
        """Those candidates as they were before any was scored again.

        Raises:
            ArchiveError: it is damaged or foreign.
        """
        return cls(tuple(map(Candidate.from_document, archive.candidates().values())))

    def find(self, slot: int) -> Candidate | None:
        """The candidate of that slot."""
        return next((c for c in self.candidates if c.slot == slot), None)

    def written(self) -> Population:
        """Those that a model wrote."""
        return Population(tuple(c for c in self.candidates if c.is_written))

    def answered(self) -> Population:
        """Those that a model wrote, or failed to: not those that the route lost."""
        return Population(tuple(c for c in self.candidates if c.is_written and not c.is_lost))

    def seeds(self) -> Population:
        """Seed programs and inspirations."""
        return Population(tuple(c for c in self.candidates if not c.is_written))

    def with_candidate(self, candidate: Candidate) -> Population:
        """The next snapshot."""
        return Population((*self.candidates, candidate))

    def updated(self, rescored: Sequence[Candidate]) -> Population:
        """The snapshot in which ``rescored`` stand in the places of their slots."""
        by_slot = {candidate.slot: candidate for candidate in rescored}
        return Population(tuple(by_slot.get(c.slot, c) for c in self.candidates))

    def scored(self) -> list[Candidate]:
        """Fully scored candidates, best first, by `rank`."""
        return sorted((c for c in self.candidates if c.p is not None), key=rank)

    def elite(self, size: int) -> list[Candidate]:
        """The best ``size`` of all scored candidates (plus selection: age does not matter)."""
        return self.scored()[:size]

    def best(self) -> Candidate | None:
        """The best scored candidate, seed programs included."""
        return next(iter(self.scored()), None)

    def digests(self) -> dict[str, Candidate]:
        """Programs seen so far by normalised digest; the first candidate that had it.

        Where constants were tuned, before and after.
        """
        seen: dict[str, Candidate] = {}
        for candidate in self.candidates:
            for program in (candidate.program, candidate.answered):
                if program is not None:
                    seen.setdefault(program.digest, candidate)
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
            if not candidate.is_written and not candidate.inspiration:
                for space, p in candidate.space_p().items():
                    if space not in best or p > best[space][1]:
                        best[space] = (candidate.operator, p)
        return best

    def best_beside_seeds(self) -> Candidate | None:
        """The best scored candidate but for the seed programs."""
        return next((c for c in self.scored() if c.is_written or c.inspiration), None)

    def tried(self) -> tuple[Tried, ...]:
        """Every program with what came of it: the scored by `rank`, stopped ones, failures.

        Those without a score stand latest first. Seed programs are among the scored, but by
        themselves they are no list: it is empty until there is an answer or an inspiration.
        """
        kept = [c for c in self.candidates if not c.is_lost]
        if not any(c.is_written or c.inspiration for c in kept):
            return ()
        stopped = [c for c in kept if c.p is None and c.status == PARTIAL]
        failed = [c for c in kept if c.p is None and c.status != PARTIAL]
        ordered = (*self.scored(), *reversed(stopped), *reversed(failed))
        return tuple(_tried(candidate) for candidate in ordered)

    def ideas(self) -> tuple[str, ...]:
        """Ideas of the latest written candidates with what they scored, for ``explore``."""
        written = [c for c in self.written().candidates if c.program is not None]
        return tuple(_idea_line(candidate) for candidate in written[-PREVIOUS_IDEAS:])


def settled_traces(archive: Archive, candidate: Candidate) -> dict[str, tuple[Trace, ...]]:
    """The runs behind a candidate's score, by space; none of one that failed."""
    if candidate.status == FAILED:
        return {}
    attempt = max(0, candidate.attempts - 1)
    by_space = {
        space: tuple(archive.traces(candidate.slot, attempt, space).values())
        for space in candidate.space_p()
    }
    return {space: traces for space, traces in by_space.items() if traces}


def rank(candidate: Candidate) -> tuple[float, int, int]:
    """What scored candidates are sorted by, best first.

    P counts to two decimals, well inside its standard error; of programs as good as each other the
    shorter one is better, then the earlier.
    """
    lines = len(candidate.program.source.splitlines()) if candidate.program else 0
    return (-round(candidate.p or 0.0, 2), lines, candidate.slot)


def _tried(candidate: Candidate) -> Tried:
    stopped = candidate.status == PARTIAL
    scored = candidate.p is not None
    return Tried(
        identifier=candidate.identifier,
        idea=candidate.program.idea if candidate.program else "",
        outcome="scored" if scored else "stopped" if stopped else "failed",
        kind=candidate.kind,
        p=candidate.p,
        standard_error=candidate.standard_error,
        space_p=candidate.space_p() if scored or stopped else {},
    )


def _idea_line(candidate: Candidate) -> str:
    idea = candidate.program.idea if candidate.program else ""
    score = f"P {candidate.p:.3f}" if candidate.p is not None else candidate.kind or "stopped early"
    return f"{idea} ({score})"
