"""Candidates made up for tests of selection: their programs are never run."""

from __future__ import annotations

import dataclasses

from llamea_gpu.evolution.candidate import FAILED, SCORED, Candidate
from llamea_gpu.programs import Program
from llamea_gpu.prompting import Feedback, SpaceResult


def candidate(
    slot: int,
    *ps: float,
    status: str = SCORED,
    operator: str = "new",
    error: float = 0.01,
    **fields: object,
) -> Candidate:
    """A candidate with P ``ps`` on spaces s0, s1, ...; ``error`` is every standard error."""
    spaces = tuple(
        SpaceResult(
            space=f"s{i}",
            p=p,
            standard_error=error,
            reference="random_search",
            reference_p=0.0,
            evaluations=10.0,
            revisit_share=0.0,
            failure_share=0.0,
            last_improvement=0.5,
            regret=0.1,
            cpu_s=0.01,
        )
        for i, p in enumerate(ps)
    )
    found = Candidate(
        slot=slot,
        generation=slot // 4,
        operator=operator,
        parents=(),
        status=status,
        kind="error" if status == FAILED else "",
        message="",
        attempts=1,
        model="m",
        program=Program(f"class C{slot}: ...", f"C{slot}", (), f"idea {slot}", f"digest{slot}"),
        feedback=Feedback(
            p=sum(ps) / len(ps) if ps else None,
            standard_error=error,
            stage="full",
            outcome="ok",
            spaces=spaces,
            error=None,
        ),
    )
    return dataclasses.replace(found, **fields)  # type: ignore[arg-type]
