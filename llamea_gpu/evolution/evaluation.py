"""The cascade: smoke run, a part of the runs, all of them, stopping as soon as the rest is waste.

The part is some spaces with all their runs, or, in a race, some runs on every space, then twice as
many. What competes has had its constants tuned before, where that is asked for. Runs are committed
to the archive one by one; scores are computed from the committed traces. It does not select, and
knows nothing of models.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from llamea_gpu.archive import Archive
from llamea_gpu.evolution.behaviour import Behaviour, describe
from llamea_gpu.evolution.candidate import FAILED, PARTIAL, SCORED, Candidate
from llamea_gpu.evolution.mechanisms import mechanisms
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.runs import Runs, fault_in
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.evolution.trials import Trials
from llamea_gpu.modelled import AnyTask
from llamea_gpu.programs import Program
from llamea_gpu.prompting import Feedback, SpaceResult, Stage
from llamea_gpu.runner import BaseRunner
from llamea_gpu.scoring import SpaceScore, aggregate, score_space
from llamea_gpu.tasks import Trace

_FAULTS = {
    "crashed": "the process died (a segmentation fault, or a forbidden operation)",
    "protocol": "the program interfered with the channel to the host",
    "memory": "the program ran out of its memory limit",
    "timeout": "the program passed its limit of CPU time: it must do less work per evaluation",
}


_BySpace = dict[str, tuple[SpaceScore, "Behaviour | None"]]  # by space


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the cascade says: a status, the kind of failure (or empty), feedback, behaviour.

    ``tuned`` is the program that was assessed, where its constants are not the answer's.
    """

    status: str
    kind: str
    message: str
    feedback: Feedback
    behaviour: tuple[Behaviour, ...] = ()
    tuned: Program | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """A part of a candidate's runs: on these tasks, at most so many (None: all) on each."""

    stage: Stage
    tasks: tuple[AnyTask, ...]
    runs: int | None = None


class Cascade:
    """Evaluates programs on the training tasks of one run."""

    def __init__(
        self,
        tasks: Sequence[AnyTask],
        runner: BaseRunner,
        archive: Archive,
        settings: EvolutionSettings,
    ) -> None:
        self._tasks = tuple(tasks)
        self._runs = Runs(runner, archive, settings)
        self._trials = Trials(tasks, self._runs, settings)
        self._settings = settings

    async def assess(
        self, slot: int, attempt: int, program: Program, population: Population
    ) -> Assessment:
        """Run ``program`` through the stages; ``population`` is what it has to keep up with.

        First parents (negative slots) are always taken through every stage, as they were brought:
        seed programs are the references that feedback compares with.
        """
        if slot < 0 or not self._settings.tuned_variants:
            return await self._compete(slot, attempt, program, population)
        tried = await self._trials.tuned(slot, attempt, program)
        if isinstance(tried, Trace):
            return _failed("smoke", tried)
        assessment = await self._compete(slot, attempt, tried, population)
        return assessment if tried == program else replace(assessment, tuned=tried)

    async def rescore(
        self, candidate: Candidate, generation: int, population: Population
    ) -> Candidate:
        """``candidate`` after half as many runs again, on the seeds of ``generation``.

        Its score is then that of all its runs. A fault in one of them makes it a failure.
        """
        program = candidate.program
        assert program is not None  # of a scored candidate
        rescored = (*candidate.rescored, generation)
        attempt = max(candidate.attempts - 1, 0)
        runs = await self._run(candidate.slot, attempt, program, self._tasks, None, rescored)
        if (fault := fault_in(runs)) is not None:
            return replace(
                candidate,
                status=FAILED,
                kind=fault.outcome,
                message=_complaint(fault),
                rescored=rescored,
            )
        by_space: _BySpace = {}
        feedback = await self._scored(self._tasks, runs, by_space, population, "full")
        return replace(candidate, feedback=feedback, behaviour=_known(by_space), rescored=rescored)

    async def _compete(
        self, slot: int, attempt: int, program: Program, population: Population
    ) -> Assessment:
        by_space: _BySpace = {}
        feedback = None
        for step in self._steps():
            runs = await self._run(slot, attempt, program, step.tasks, step.runs)
            if (fault := fault_in(runs)) is not None:
                return _failed(step.stage, fault)
            if step.stage == "smoke":
                continue
            feedback = await self._scored(step.tasks, runs, by_space, population, step.stage)
            if step.stage == "partial" and slot >= 0:
                reason = self._out_of_reach(_scores(by_space), population)
                if reason:
                    return Assessment(PARTIAL, "", reason, feedback, _known(by_space))
        assert feedback is not None  # the last step is no smoke run
        return Assessment(SCORED, "", "", feedback, _known(by_space))

    async def _run(
        self,
        slot: int,
        attempt: int,
        program: Program,
        tasks: Sequence[AnyTask],
        most: int | None,
        rescored: Sequence[int] = (),
    ) -> list[list[Trace]]:
        """The candidate's runs on each of ``tasks``, at most so many (None: all) on each."""

        def seeds(task: AnyTask) -> dict[int, int]:
            numbers = self._numbers(slot, task, rescored)[:most]
            return {number: self._runs.seed(task, number) for number in numbers}

        runs = (self._runs.of(slot, attempt, program, task, seeds(task)) for task in tasks)
        return await asyncio.gather(*runs)

    def _steps(self) -> Iterator[_Step]:
        yield _Step("smoke", self._tasks[:1], 1)
        heat = self._settings.race_repeats or 0
        if heat:
            while heat < max(map(self._runs.repeats, self._tasks)):
                yield _Step("partial", self._tasks, heat)
                heat *= 2
        else:
            yield _Step("partial", self._tasks[: self._settings.cascade_spaces])
        yield _Step("full", self._tasks)

    def _numbers(self, slot: int, task: AnyTask, rescored: Sequence[int]) -> list[int]:
        """The numbers of a candidate's runs on ``task``: those of its generation first.

        Where generations have seeds of their own, each has a block of numbers, and the first
        parents have that of the first generation. Who is scored again gets half a block.
        """
        repeats = self._runs.repeats(task)
        fresh = self._settings.fresh_seeds and slot >= 0
        begin = slot // self._settings.offspring * repeats if fresh else 0
        numbers = list(range(begin, begin + repeats))
        for generation in rescored:
            begin = generation * repeats
            numbers += range(begin, begin + math.ceil(repeats / 2))
        return numbers

    async def _scored(
        self,
        tasks: Sequence[AnyTask],
        runs: Sequence[Sequence[Trace]],
        by_space: _BySpace,
        population: Population,
        stage: Stage,
    ) -> Feedback:
        """Bring ``by_space`` up to ``runs``, and say how it did."""
        fresh = [
            (task, traces)
            for task, traces in zip(tasks, runs, strict=True)
            if task.name not in by_space or by_space[task.name][0].runs < len(traces)
        ]
        bootstrap = self._settings.bootstrap
        assessed = [
            self._runs.compute(_assess, [task], traces, bootstrap) for task, traces in fresh
        ]
        losing = asyncio.ensure_future(self._runs.compute(_losses, tasks, runs))
        for (task, _), both in zip(fresh, await asyncio.gather(*assessed), strict=True):
            by_space[task.name] = both
        scores = tuple(_scores(by_space).values())
        total = aggregate(scores)
        references = population.references()
        return Feedback(
            p=total.p,
            standard_error=total.standard_error,
            stage=stage,
            outcome="ok",
            spaces=tuple(
                _space_result(score, *references.get(score.space, ("random_search", 0.0)))
                for score in scores
            ),
            error=None,
            mechanisms=await losing,
        )

    def _out_of_reach(self, scores: dict[str, SpaceScore], population: Population) -> str:
        """Why this candidate cannot reach the elite, or an empty string.

        Its bound: two standard errors above its scores so far, and on every remaining space the
        best that any candidate has reached. Where a lead on one space suffices to breed, it must
        also have shown none: by that bound it is behind the best known on every space so far.
        """
        racing = bool(self._settings.race_repeats)
        elite = population.elite(self._settings.parents)
        if len(elite) < self._settings.parents or (len(scores) == len(self._tasks) and not racing):
            return ""
        threshold = elite[-1].p or 0.0
        best = population.best_p_by_space()
        names = [task.name for task in self._tasks]
        errors = self._floored(scores, elite[-1]) if racing else _errors(scores)
        reached = {name: score.p + 2 * errors[name] for name, score in scores.items()}
        bound = sum(reached.get(name, best[name]) for name in names) / len(names)
        if round(bound, 2) >= round(threshold, 2):  # as the elite is ranked
            return ""
        if self._settings.parent_choice == "front" and any(
            p >= best[name] for name, p in reached.items()
        ):
            return ""
        if racing:
            runs = min(score.runs for score in scores.values())
            return (
                f"stopped after {runs} runs on each space: two standard errors above its scores "
                f"so far would give P {bound:.3f}, and the elite starts at {threshold:.3f}"
            )
        return (
            f"stopped after {len(scores)} of {len(self._tasks)} spaces: even the best known result "
            f"on the others would give P {bound:.3f}, and the elite starts at {threshold:.3f}"
        )

    def _floored(self, scores: dict[str, SpaceScore], last: Candidate) -> dict[str, float]:
        """Standard errors of a few runs, which may agree by chance.

        They are at least what those of the ``last`` of the elite would be with as few.
        """
        last_errors = (
            {r.space: r.standard_error for r in last.feedback.spaces} if last.feedback else {}
        )
        fully = {task.name: self._runs.repeats(task) for task in self._tasks}
        return {
            name: max(
                error, last_errors.get(name, 0.0) * math.sqrt(fully[name] / scores[name].runs)
            )
            for name, error in _errors(scores).items()
        }


def _errors(scores: dict[str, SpaceScore]) -> dict[str, float]:
    return {name: score.standard_error or 0.0 for name, score in scores.items()}


def _scores(by_space: _BySpace) -> dict[str, SpaceScore]:
    return {name: score for name, (score, _) in by_space.items()}


def _known(by_space: _BySpace) -> tuple[Behaviour, ...]:
    return tuple(behaviour for _, behaviour in by_space.values() if behaviour is not None)


def _assess(
    tasks: Sequence[AnyTask], traces: Sequence[Trace], bootstrap: int
) -> tuple[SpaceScore, Behaviour | None]:
    """Score and behaviour on one task; called where runs are."""
    (task,) = tasks
    return score_space(task, traces, bootstrap), describe(task, traces)


def _losses(tasks: Sequence[AnyTask], runs: Sequence[Sequence[Trace]]) -> tuple[str, ...]:
    return mechanisms(dict(zip(tasks, runs, strict=True)))


def _complaint(trace: Trace) -> str:
    return trace.error or _FAULTS.get(trace.outcome, trace.outcome)


def _failed(stage: Stage, trace: Trace) -> Assessment:
    message = _complaint(trace)
    feedback = Feedback(
        p=None, standard_error=None, stage=stage, outcome=trace.outcome, spaces=(), error=message
    )
    return Assessment(FAILED, trace.outcome, message, feedback)


# A score lacks some measures for a single run or foreign traces; sandboxed repeats have them all.
def _space_result(score: SpaceScore, reference: str, reference_p: float) -> SpaceResult:
    return SpaceResult(
        space=score.space,
        p=score.p,
        standard_error=score.standard_error or 0.0,
        reference=reference,
        reference_p=reference_p,
        evaluations=score.evaluations,
        revisit_share=score.revisit_share or 0.0,
        failure_share=score.failure_share,
        last_improvement=score.last_improvement,
        regret=score.regret,
        cpu_s=score.cpu_s or 0.0,
    )
