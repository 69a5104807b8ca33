"""What a run's scores are of, as its archive keeps it: readable without the recordings or clouds.

What it does not do: say what scores rest on to the last bit (`session.Problem.fingerprint` does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from llamea_gpu.area import losses
from llamea_gpu.errors import ArchiveError
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.modelled import AnyTask, WholeTask
from llamea_gpu.scoring import Measure, measure_of
from llamea_gpu.tasks import Trace

FACT = "training_spaces"  # its key among an archive's facts
MARKS_S = (15.0, 30.0, 45.0)  # moments of a tuning that somebody waits for

Positive = Annotated[float, Field(allow_inf_nan=False, gt=0)]


@dataclass(frozen=True, slots=True)
class TrainingSpace:
    """A space that candidates were scored on.

    ``best_ms`` is the best time known, ``default_ms`` that of the configuration that the kernel
    ships with, None where it is not known. Of a ``modelled`` one both are what its model says.
    """

    name: str
    modelled: bool
    clock: str
    budget_s: Positive
    best_ms: Positive
    default_ms: Positive | None


_SPACES = TypeAdapter(tuple[TrainingSpace, ...])


def fact_of(tasks: Sequence[AnyTask]) -> str:
    """The fact's value: JSON."""
    return _SPACES.dump_json(tuple(map(_described, tasks))).decode()


def training_spaces(facts: Mapping[str, str]) -> tuple[TrainingSpace, ...]:
    """The training spaces of the run with these facts; none of an older run, on recordings.

    Raises:
        ArchiveError: the fact is damaged or foreign.
    """
    text = facts.get(FACT)
    if text is None:
        return ()
    try:
        return _SPACES.validate_json(text)
    except ValidationError as error:
        complaint = error.errors(include_url=False)[0]["msg"]
        raise ArchiveError(
            f"a run's {FACT} must be those of this version, but: {complaint}: the archive is "
            f"damaged or foreign"
        ) from None


def run_measure(facts: Mapping[str, str]) -> Measure:
    """What the scores of the run with these facts are called."""
    return measure_of(any(space.modelled for space in training_spaces(facts)))


def marks_of(budget_s: float) -> tuple[float, ...]:
    """Those of `MARKS_S` within a budget, else its end."""
    return tuple(mark for mark in MARKS_S if mark <= budget_s) or (budget_s,)


def above_best_known(
    traces: Sequence[Trace], marks_s: Sequence[float], best_ms: float, default_ms: float
) -> tuple[float, ...]:
    """Best time so far / best known at each of ``marks_s``, geometric mean over runs."""
    lost = losses(traces, np.asarray(marks_s, dtype=np.float64), best_ms, default_ms)
    return tuple(np.exp(lost.mean(axis=0)).tolist())


def times_above_best_known(
    spaces: Sequence[TrainingSpace],
    candidates: Sequence[tuple[Candidate, Mapping[str, Sequence[Trace]]]],
    marks_s: Sequence[float],
) -> Iterator[tuple[Candidate, TrainingSpace, tuple[float, ...]]]:
    """`above_best_known` of each candidate, given with its runs by space, on each modelled space.

    Spaces that a candidate was not run on are left out.
    """
    for candidate, traces in candidates:
        for space in spaces:
            if space.modelled and space.default_ms is not None and space.name in traces:
                yield (
                    candidate,
                    space,
                    above_best_known(traces[space.name], marks_s, space.best_ms, space.default_ms),
                )


def _described(task: AnyTask) -> TrainingSpace:
    return TrainingSpace(
        name=task.name,
        modelled=isinstance(task, WholeTask),
        clock=task.clock.name,
        budget_s=task.budget_s,
        best_ms=task.optimum_ms,
        default_ms=task.default_ms if isinstance(task, WholeTask) else task.recording.default_ms,
    )
