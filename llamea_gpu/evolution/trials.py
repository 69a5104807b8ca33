"""The numeric constants of a new program, tuned on a few runs before it competes.

What it does: a first heat tries the program as it was answered and with some random settings, the
same few seeds for all; a second heat lets the best setting meet the answer's on seeds that neither
has seen. It takes the answer's place only if it is better there by more than one standard error of
the paired differences: random settings are mostly worse, and the best of several was lucky.

What it does not do: change a program otherwise, or count towards its score: its seeds are others
than those of any generation.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import numpy as np

from llamea_gpu.errors import SearcherError
from llamea_gpu.evolution.runs import Runs, fault_in
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.modelled import AnyTask
from llamea_gpu.programs import Program, admit
from llamea_gpu.programs.constants import Settings, distinct_settings, tunable
from llamea_gpu.programs.defaults import with_defaults
from llamea_gpu.scoring import score_space
from llamea_gpu.tasks import Trace, run_seed

_NUMBERS = 128  # more than there are settings; and more than a heat has runs on a space


class Trials:
    """Tunes the programs of one evolution."""

    def __init__(self, tasks: Sequence[AnyTask], runs: Runs, settings: EvolutionSettings) -> None:
        self._tasks = tuple(tasks)
        self._runs = runs
        self._settings = settings
        self._first = max(1, settings.repeats // 8)
        self._second = max(2, settings.repeats // 4)

    async def tuned(self, slot: int, attempt: int, program: Program) -> Program | Trace:
        """``program``, the same with better constants as its defaults, or the run it failed in."""
        defaults = tunable(program)
        if not defaults:
            return program
        drawn = run_seed(self._settings.seed, f"constants of {slot} {attempt}", 0)
        arms = distinct_settings(defaults, 1 + (self._settings.tuned_variants or 0), drawn)

        async def heat(number: int, begin: int, end: int) -> list[list[Trace]]:
            changed = program.with_settings(**arms[number])
            return await self._heat(slot, attempt, changed, number, range(begin, end))

        # By itself first: a program that fails is not tried with other constants.
        answers = await heat(0, 0, self._first)
        if (fault := fault_in(answers)) is not None:
            return fault
        others = [heat(number, 0, self._first) for number in range(1, len(arms))]
        scores = await self._scores([answers, *await asyncio.gather(*others)])
        best = int(np.argmax([np.mean(own) for own in scores]))
        if best == 0:
            return program
        heats = (heat(number, self._first, self._first + self._second) for number in (0, best))
        before, after = await self._scores(await asyncio.gather(*heats))
        return _replaced(program, arms[best]) if _is_better(after, before) else program

    async def _heat(
        self, slot: int, attempt: int, program: Program, arm: int, places: Sequence[int]
    ) -> list[list[Trace]]:
        """Runs on each space; what was run at a place has the same seed for every arm."""
        return await asyncio.gather(
            *(
                self._runs.of(
                    slot,
                    attempt,
                    program,
                    task,
                    {
                        -(1 + arm + _NUMBERS * place): self._runs.seed(
                            task, -(1 + place + _NUMBERS * slot)
                        )
                        for place in places
                    },
                )
                for task in self._tasks
            )
        )

    async def _scores(self, arms: Sequence[Sequence[Sequence[Trace]]]) -> list[list[float]]:
        """The score of each run, by arm, in the same order of spaces and places."""
        return await asyncio.gather(
            *(self._runs.compute(_run_scores, self._tasks, runs) for runs in arms)
        )


def _run_scores(tasks: Sequence[AnyTask], runs: Sequence[Sequence[Trace]]) -> list[float]:
    """The score of every single run; of a failed one -inf. Called where runs are."""
    return [
        -math.inf if trace.is_failed else score_space(task, [trace], bootstrap=0).p
        for task, traces in zip(tasks, runs, strict=True)
        for trace in traces
    ]


def _is_better(after: Sequence[float], before: Sequence[float]) -> bool:
    """Whether the mean paired difference exceeds its standard error."""
    if not np.isfinite([*after, *before]).all():
        return all(map(math.isfinite, after))
    differences = np.subtract(after, before)
    error = float(np.std(differences, ddof=1)) / math.sqrt(len(differences))
    return float(np.mean(differences)) > error


def _replaced(program: Program, settings: Settings) -> Program:
    """``program`` with ``settings`` written into its text; itself where that cannot be done."""
    changed = {name: value for name, value in settings.items() if value != program.settings[name]}
    try:
        return admit(with_defaults(program, changed))
    except SearcherError:
        return program
