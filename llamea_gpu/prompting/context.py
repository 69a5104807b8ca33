"""What the templates see: the task's facts, parents with their feedback, and what to repair.

Every number that depends on the host (own CPU seconds) is written into a prompt with a leading
"≈"; everything else is a function of recordings and seeds, so that a replayed run renders the
same text.

Not here: which parents or spaces are shown, and how a score, a feature or a mechanism is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from llamea_gpu.spaces.features import SpaceFeatures, WholeFeatures

Operator = Literal[
    "new", "refine", "explore", "crossover", "simplify", "diff-edit", "repair", "sequential"
]
Stage = Literal["smoke", "partial", "full"]

OPERATORS: tuple[Operator, ...] = get_args(Operator)


@dataclass(frozen=True, slots=True)
class SpaceFacts:
    """One training space as the prompt describes it; the optimum's configuration is not in it.

    Attributes:
        features: what was computed from the recording.
        clock: the task's clock, "sequential", "parallel(w)" or "pipelined(w)".
        budget_evaluations: first visits that fit into the budget, about.
        parallel: what ``evaluate.parallel`` says; 1 with the sequential clock.
        budget_s: the budget in seconds, which is told of whole spaces.
    """

    features: SpaceFeatures | WholeFeatures
    clock: str
    budget_evaluations: float
    parallel: int
    budget_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SpaceResult:
    """How a candidate did on one space, means over its runs.

    Attributes:
        space: the space's name.
        p: score, 0 = random search, 1 = the optimum at once.
        standard_error: of ``p``.
        reference: the best human-designed searcher on that space, and ``reference_p`` its score.
        evaluations: first visits a run.
        revisit_share: share of the configurations asked for that had been visited before.
        failure_share: share of the first visits that did not compile or run.
        last_improvement: when the best-so-far last changed, as a share of the budget.
        regret: final best / optimum - 1; infinite when a run found nothing valid.
        cpu_s: the candidate's own CPU seconds a run (depends on the host).
    """

    space: str
    p: float
    standard_error: float
    reference: str
    reference_p: float
    evaluations: float
    revisit_share: float
    failure_share: float
    last_improvement: float
    regret: float
    cpu_s: float

    @property
    def gap(self) -> float:
        """Score above (below, if negative) the best human-designed searcher."""
        return self.p - self.reference_p


@dataclass(frozen=True, slots=True)
class Feedback:
    """What evaluation said about a candidate.

    Attributes:
        p: mean score over ``spaces``; None when nothing could be scored.
        standard_error: of ``p``.
        stage: how far the cascade went: a smoke run, some spaces, or all of them.
        outcome: how its runs ended ("budget", "timeout", "error", ...).
        spaces: one result for each space that was run.
        error: traceback text with the candidate's line, where a run raised.
        mechanisms: sentences on what costs it score, the most costly first.
    """

    p: float | None
    standard_error: float | None
    stage: Stage
    outcome: str
    spaces: tuple[SpaceResult, ...] = ()
    error: str | None = None
    mechanisms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParentView:
    """A candidate as it is shown to the model."""

    identifier: str
    idea: str
    source: str
    feedback: Feedback


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate as one line of a list.

    Attributes:
        identifier: its name.
        idea: in one sentence; empty where no program was found in the answer.
        outcome: all spaces were run, it was stopped early, or it failed.
        kind: how it failed; empty for others.
        p: mean score over all spaces, and ``standard_error`` its error; None unless scored.
        space_p: score by space, of those it was run on.
    """

    identifier: str
    idea: str
    outcome: Literal["scored", "stopped", "failed"]
    kind: str = ""
    p: float | None = None
    standard_error: float | None = None
    space_p: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PromptContext:
    """Everything a prompt is rendered from.

    Attributes:
        spaces: facts of the training spaces, the ones to be shown in detail first.
        parents: none for "new"; what is to be changed, combined or departed from for the others.
        previous_ideas: one-line ideas of earlier candidates, to steer away from.
        tried: all candidates so far, the best first ("sequential" only).
        problem: what was wrong with ``failed_answer`` ("repair" only).
        failed_answer: the answer, or the program, that is to be repaired.
        cpu_limit_s: CPU seconds after which a run is stopped.
        guidance: what the user wants besides, in their own words.
        sibling: which of ``siblings`` programs of one generation is asked for, from 1 ("new" only).
    """

    spaces: tuple[SpaceFacts, ...] = ()
    parents: tuple[ParentView, ...] = ()
    previous_ideas: tuple[str, ...] = ()
    tried: tuple[Tried, ...] = ()
    problem: str | None = None
    failed_answer: str | None = None
    cpu_limit_s: float = 10.0
    guidance: str = ""
    sibling: int = 1
    siblings: int = 1

    @property
    def tried_spaces(self) -> tuple[str, ...]:
        """The spaces that ``tried`` has scores on."""
        return tuple(dict.fromkeys(space for tried in self.tried for space in tried.space_p))

    @property
    def budget_s(self) -> float:
        """Of the training spaces, which have one."""
        return max((space.budget_s for space in self.spaces), default=0.0)

    @property
    def whole(self) -> bool:
        """Whether training is on whole spaces: a contract and facts of their own tell of these."""
        return any(not hasattr(space.features, "size") for space in self.spaces)
