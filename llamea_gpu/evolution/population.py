"""The population: who breeds, and what the next slot does. (mu + lambda), steady state.

Every choice is a function of the run's seed, the slot and the candidates settled before it, so
that a continued run decides as an uninterrupted one. It does not talk to a model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from llamea_gpu.evolution.candidate import SCORED, Candidate
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.prompting import OPERATORS, Operator

PREVIOUS_IDEAS = 12  # ideas of earlier candidates that a prompt lists


@dataclass(frozen=True, slots=True)
class Plan:
    """What a slot does: which operator, on which parents."""

    slot: int
    generation: int
    operator: Operator
    parents: tuple[Candidate, ...]


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
                best[space] = max(p, best.get(space, -np.inf))
        return best

    def references(self) -> dict[str, tuple[str, float]]:
        """The best seed program on each space: (its name, its P)."""
        best: dict[str, tuple[str, float]] = {}
        for candidate in self.candidates:
            if candidate.slot < 0:
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


def plan_slot(slot: int, population: Population, settings: EvolutionSettings) -> Plan:
    """Choose operator and parents of ``slot`` from what was settled before it."""
    generation = slot // settings.offspring
    elite = population.elite(settings.parents)
    if settings.control == "best-of-n" or generation == 0 or not elite:
        return Plan(slot, generation, "new", ())
    rng = np.random.default_rng([settings.seed, slot])
    names = [name for name in OPERATORS if name in settings.operators]
    weights = np.array([settings.operators[name] for name in names])
    operator = names[rng.choice(len(names), p=weights / weights.sum())]
    if operator == "new":
        return Plan(slot, generation, operator, ())
    first = _ranked_draw(elite, rng)
    if operator != "crossover":
        return Plan(slot, generation, operator, (first,))
    if len(elite) < 2:  # nobody to cross with
        return Plan(slot, generation, "refine", (first,))
    return Plan(slot, generation, operator, (first, _complement(first, elite)))


def _ranked_draw(elite: list[Candidate], rng: np.random.Generator) -> Candidate:
    """Linear ranking: the best of n is n times as likely as the last."""
    weights = np.arange(len(elite), 0, -1, dtype=float)
    return elite[rng.choice(len(elite), p=weights / weights.sum())]


def _complement(first: Candidate, elite: Iterable[Candidate]) -> Candidate:
    """The mate that adds most where ``first`` is weak: highest mean of the per-space maximum."""
    own = first.space_p()
    mates = [candidate for candidate in elite if candidate.slot != first.slot]

    def joint(mate: Candidate) -> float:
        other = mate.space_p()
        return float(np.mean([max(p, other.get(space, p)) for space, p in own.items()]))

    return max(mates, key=lambda mate: (joint(mate), -mate.slot))
