"""Who may breed, and who does: an elite by mean P, whoever leads on a space, and mates that help.

Everything here respects that scores are measured with an error. Of two candidates that the errors
cannot tell apart, the one that searches differently from those already chosen stays; a candidate
that is better on some space only within the errors is not on the front.

It does not choose operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from llamea_gpu.evolution.behaviour import distances
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings

# A lead on one space counts from so many standard errors of the difference. A wrong lead costs a
# parent's turn, a missed one a specialist; repeats have paired seeds, so that differences vary less
# than these errors say.
LEAD_ERRORS = 0.5
# How often the first parent is drawn for its lead on a space, not for its mean.
FRONT_SHARE = 0.3
# Candidates as close as this, with scores that the errors cannot tell apart, count as one: about as
# far apart as ten runs of one program are from ten others (tests/evolution/test_behaviour.py).
SAME_BEHAVIOUR = 0.03


@dataclass(frozen=True)
class Pool:
    """Candidates that may breed: the ``elite`` (best first) and the ``front`` (by slot)."""

    elite: tuple[Candidate, ...]
    front: tuple[Candidate, ...] = ()

    @cached_property
    def members(self) -> tuple[Candidate, ...]:
        """Elite and front, each candidate once."""
        return tuple({c.slot: c for c in (*self.elite, *self.front)}.values())


def breeding_pool(population: Population, settings: EvolutionSettings) -> Pool:
    """The pool that the settings ask for."""
    if settings.parent_choice == "elite":
        return Pool(tuple(population.elite(settings.parents)))
    scored = population.scored()
    return Pool(tuple(diverse_elite(scored, settings.parents)), tuple(pareto_front(scored)))


def diverse_elite(ranked: Sequence[Candidate], size: int) -> list[Candidate]:
    """``size`` of ``ranked`` (best first), best first; the best of all is always among them.

    Place after place goes to the best that is left or, of those within one standard error of it, to
    the one whose behaviour is farthest from everyone chosen before. Who is within that error of a
    chosen one and behaves the same waits until nobody else is left.
    """
    # Others cannot come into it: a bound on the pairs that are compared.
    left = list(ranked[: 8 * size])
    distance = distances([candidate.behaviour for candidate in left])
    index = {candidate.slot: i for i, candidate in enumerate(left)}
    chosen: list[Candidate] = []
    while left and len(chosen) < size:

        def apart(candidate: Candidate) -> float:
            row = distance[index[candidate.slot]]
            return min((float(row[index[c.slot]]) for c in chosen), default=1.0)

        def copies(candidate: Candidate) -> bool:
            row = distance[index[candidate.slot]]
            near = [c for c in chosen if row[index[c.slot]] < SAME_BEHAVIOUR]
            return any(abs(_p(candidate) - _p(c)) <= _error(c) for c in near)

        fresh = [c for c in left if not copies(c)] or left
        rivals = [c for c in fresh if _p(c) >= _p(fresh[0]) - _error(fresh[0])] if chosen else fresh
        member = max(rivals, key=apart) if chosen else fresh[0]
        chosen.append(member)
        left.remove(member)
    order = {candidate.slot: place for place, candidate in enumerate(ranked)}
    return sorted(chosen, key=lambda c: order[c.slot])


def pareto_front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates that nobody dominates, by slot.

    ``a`` dominates ``b`` when its mean P is higher (or equal, and it comes first) and ``b`` leads
    nowhere: on no space is ``b`` better by more than ``LEAD_ERRORS`` standard errors of the
    difference. So the best by mean is on the front, and with it those who are better than all who
    are better on average, somewhere, by more than chance.
    """
    ranked = sorted(candidates, key=lambda c: (-_p(c), c.slot))
    front = [
        candidate
        for place, candidate in enumerate(ranked)
        if all(leads(candidate, better) for better in ranked[:place])
    ]
    return sorted(front, key=lambda c: c.slot)


def leads(candidate: Candidate, other: Candidate) -> bool:
    """Whether ``candidate`` is better than ``other`` on some space by more than the errors."""
    other_results = (
        {result.space: result for result in other.feedback.spaces} if other.feedback else {}
    )
    own = candidate.feedback.spaces if candidate.feedback else ()
    return any(
        result.space not in other_results
        or result.p - other_results[result.space].p
        > LEAD_ERRORS
        * math.hypot(result.standard_error, other_results[result.space].standard_error)
        for result in own
    )


def draw_first(pool: Pool, rng: np.random.Generator) -> Candidate:
    """The first parent: from the elite by rank, or for its lead on a space drawn at random."""
    if len(pool.front) > 1 and rng.random() < FRONT_SHARE:
        spaces = list(pool.elite[0].space_p())
        space = spaces[rng.integers(len(spaces))]
        return max(pool.front, key=lambda c: (c.space_p().get(space, -math.inf), -c.slot))
    return ranked_draw(pool.elite, rng)


def draw_mate(first: Candidate, pool: Pool, rng: np.random.Generator) -> Candidate | None:
    """A mate for ``first``, drawn by how much it adds: the mean over spaces of its lead there.

    None when nobody in the pool is better than ``first`` on any space.
    """
    own = first.space_p()

    def adds(mate: Candidate) -> float:
        other = mate.space_p()
        return float(np.mean([max(other.get(space, p) - p, 0.0) for space, p in own.items()]))

    mates = [candidate for candidate in pool.members if candidate.slot != first.slot]
    gains = np.array([adds(mate) for mate in mates])
    # Being good all over is not complementary: the mate must lose somewhere too.
    gains[[not _loses(mate, first) for mate in mates]] *= 0.5
    if not gains.sum() > 0:
        return None
    return mates[rng.choice(len(mates), p=gains / gains.sum())]


def ranked_draw(elite: Sequence[Candidate], rng: np.random.Generator) -> Candidate:
    """Linear ranking: the best of n is n times as likely as the last."""
    weights = np.arange(len(elite), 0, -1, dtype=float)
    return elite[rng.choice(len(elite), p=weights / weights.sum())]


def complement(first: Candidate, elite: Sequence[Candidate]) -> Candidate:
    """The mate that adds most where ``first`` is weak: highest mean of the per-space maximum."""
    own = first.space_p()
    mates = [candidate for candidate in elite if candidate.slot != first.slot]

    def joint(mate: Candidate) -> float:
        other = mate.space_p()
        return float(np.mean([max(p, other.get(space, p)) for space, p in own.items()]))

    return max(mates, key=lambda mate: (joint(mate), -mate.slot))


def _loses(candidate: Candidate, other: Candidate) -> bool:
    other_p = other.space_p()
    return any(p < other_p.get(space, p) for space, p in candidate.space_p().items())


def _p(candidate: Candidate) -> float:
    return candidate.p or 0.0


def _error(candidate: Candidate) -> float:
    return candidate.standard_error or 0.0
