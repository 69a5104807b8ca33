"""A candidate of an evolution run: its program, where it came from, how it did.

Plain data with a JSON form for the archive. It does not evaluate or select.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from llamea_gpu.errors import ArchiveError
from llamea_gpu.evolution.behaviour import Behaviour
from llamea_gpu.programs import Program
from llamea_gpu.prompting import Feedback

SCORED = "scored"  # all training spaces and repeats
PARTIAL = "partial"  # stopped early: it could not reach the elite any more
FAILED = "failed"

LOST = "transport"  # the kind of a candidate whose request brought no answer


@dataclass(frozen=True, slots=True)
class Candidate:
    """One settled slot.

    ``slot`` counts from 0; seed programs have negative ones. ``kind`` says how a failed candidate
    failed (an admission kind, a run's outcome, ``duplicate``, ``refusal``, ``transport``); it is
    empty for others. ``attempts`` is the number of model calls the slot took, ``tokens`` and
    ``usd`` what all of them cost (None without a price). ``model`` is who answered, by its own
    account, ``asked_model`` who was asked. ``inspiration`` marks a first parent that was brought
    along: it is not among the human-designed searchers that feedback compares with.
    ``behaviour`` is how it searched, a descriptor a space. ``rescored`` are the generations on
    whose seeds it was scored again. ``answered`` is the program as its answer had it, where
    constants were tuned before it competed; ``program`` is what competes and breeds.
    """

    slot: int
    generation: int
    operator: str
    parents: tuple[int, ...]
    status: str
    kind: str
    message: str
    attempts: int
    model: str
    program: Program | None
    feedback: Feedback | None
    asked_model: str = ""
    tokens: int = 0
    usd: float | None = None
    inspiration: bool = False
    behaviour: tuple[Behaviour, ...] = ()
    rescored: tuple[int, ...] = ()
    answered: Program | None = None

    @property
    def p(self) -> float | None:
        """Mean P over all training spaces; None unless fully scored."""
        return self.feedback.p if self.status == SCORED and self.feedback else None

    @property
    def standard_error(self) -> float | None:
        """Bootstrap standard error of ``p``."""
        return self.feedback.standard_error if self.status == SCORED and self.feedback else None

    @property
    def is_written(self) -> bool:
        """Whether a model wrote it; seed programs and inspirations were brought along."""
        return self.slot >= 0

    @property
    def is_lost(self) -> bool:
        """Whether the route lost it: nobody's merit, nobody's fault."""
        return self.kind == LOST

    @property
    def origin(self) -> str:
        """The operator that a model was asked for, ``seed program`` or ``inspiration``."""
        if self.is_written:
            return self.operator
        return "inspiration" if self.inspiration else "seed program"

    @property
    def identifier(self) -> str:
        """How prompts, tables and files name it: a seed's spec, or #slot."""
        return f"#{self.slot}" if self.is_written else self.operator

    @property
    def reason(self) -> str:
        """The line of ``message`` (a sentence, or a traceback) that says what happened."""
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def space_p(self) -> dict[str, float]:
        """P by space, of the spaces it was scored on."""
        return {result.space: result.p for result in self.feedback.spaces} if self.feedback else {}

    def to_document(self) -> dict[str, object]:
        """JSON-ready form; ``from_document`` is its inverse."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Candidate:
        """Rebuild from the archive.

        Raises:
            ArchiveError: the document is not a candidate's.
        """
        try:
            candidate = _ADAPTER.validate_python(document)
        except ValidationError as error:
            complaint = error.errors(include_url=False)[0]
            location = ".".join(str(part) for part in complaint["loc"])
            raise ArchiveError(
                f"a candidate in the archive must have this version's fields, but {location}: "
                f"{complaint['msg']}: the archive is damaged or foreign"
            ) from None

        feedback = candidate.feedback
        if candidate.status == SCORED and (
            candidate.program is None
            or feedback is None
            or feedback.p is None
            or feedback.standard_error is None
            or not math.isfinite(feedback.p)
        ):
            raise ArchiveError(
                f"a scored candidate must have a program and a finite score, but slot "
                f"{candidate.slot} has not: the archive is damaged or foreign"
            )
        return candidate


_ADAPTER = TypeAdapter(Candidate)
