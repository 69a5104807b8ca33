"""The cascade: smoke run, a few spaces, all training spaces, stopping as soon as the rest is waste.

Runs go through the runner and are committed to the archive one by one; scores are computed here,
in the host, from the committed traces. It does not select, and knows nothing of models.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llamea_gpu.archive import Archive
from llamea_gpu.evolution.behaviour import Behaviour, describe
from llamea_gpu.evolution.candidate import FAILED, PARTIAL, SCORED
from llamea_gpu.evolution.mechanisms import mechanisms
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.modelled import AnyTask
from llamea_gpu.programs import Program
from llamea_gpu.prompting import Feedback, SpaceResult, Stage
from llamea_gpu.runner import BaseRunner
from llamea_gpu.sandbox import Limits
from llamea_gpu.scoring import SpaceScore, aggregate, score_space
from llamea_gpu.searchers.registry import ProgramSearcher
from llamea_gpu.tasks import Trace, run_seed

_FAULTS = {
    "crashed": "the process died (a segmentation fault, or a forbidden operation)",
    "protocol": "the program interfered with the channel to the host",
    "memory": "the program ran out of its memory limit",
    "timeout": "the program passed its limit of CPU time: it must do less work per evaluation",
}


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the cascade says: a status, the kind of failure (or empty), feedback, behaviour."""

    status: str
    kind: str
    message: str
    feedback: Feedback
    behaviour: tuple[Behaviour, ...] = ()


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
        self._runner = runner
        self._archive = archive
        self._settings = settings
        self._limits = Limits(cpu_s=settings.cpu_limit_s, memory_bytes=settings.memory_mb << 20)

    async def assess(
        self, slot: int, attempt: int, program: Program, population: Population
    ) -> Assessment:
        """Run ``program`` through the stages; ``population`` is what it has to keep up with.

        Seed programs (negative slots) are always taken through every stage: they are the
        references that feedback compares with.
        """
        middle = min(self._settings.cascade_spaces, len(self._tasks))
        stages: tuple[tuple[Stage, tuple[AnyTask, ...]], ...] = (
            ("smoke", self._tasks[:1]),
            ("partial", self._tasks[:middle]),
            ("full", self._tasks),
        )
        scores: dict[str, SpaceScore] = {}
        behaviours: dict[str, Behaviour | None] = {}
        for stage, tasks in stages:
            runs = await asyncio.gather(
                *(
                    self._run(slot, attempt, program, task, 1 if stage == "smoke" else None)
                    for task in tasks
                )
            )
            fault = next((t for traces in runs for t in traces if t.is_faulty), None)
            if fault is not None:
                return _failed(stage, fault)
            if stage == "smoke":
                continue
            fresh = [pair for pair in zip(tasks, runs, strict=True) if pair[0].name not in scores]
            compute, bootstrap = self._runner.compute, self._settings.bootstrap
            assessed = [compute(_assess, [task], traces, bootstrap) for task, traces in fresh]
            losing = compute(_losses, tasks, runs)
            found = await asyncio.gather(*map(asyncio.wrap_future, assessed))
            for (task, _), (score, behaviour) in zip(fresh, found, strict=True):
                scores[task.name], behaviours[task.name] = score, behaviour
            losses = await asyncio.wrap_future(losing)
            feedback = replace(self._feedback(stage, scores, population), mechanisms=losses)
            if stage == "partial" and slot >= 0:
                reason = self._out_of_reach(scores, population)
                if reason:
                    return Assessment(PARTIAL, "", reason, feedback, _known(behaviours))
        return Assessment(SCORED, "", "", feedback, _known(behaviours))

    async def _run(
        self, slot: int, attempt: int, program: Program, task: AnyTask, count: int | None
    ) -> list[Trace]:
        """Repeats 0..count-1 on one task: from the archive where it has them, else measured.

        None: as many as the settings say.
        """
        name = task.name
        if count is None:
            count = self._settings.repeats_by_space.get(name, self._settings.repeats)
        known = self._archive.traces(slot, attempt, name)

        async def one(repeat: int) -> Trace:
            if repeat in known and known[repeat].batch is not None:  # older runs lack batches
                return known[repeat]
            run = self._runner.submit(
                ProgramSearcher(program.class_name, program),
                task,
                run_seed(self._settings.seed, name, repeat),
                limits=self._limits,
                charge_cpu=self._settings.charge_cpu,
            )
            trace: Trace = await asyncio.wrap_future(run)
            self._archive.record_trace(slot, attempt, name, repeat, trace)
            return trace

        return list(await asyncio.gather(*(one(repeat) for repeat in range(count))))

    def _feedback(
        self, stage: Stage, scores: dict[str, SpaceScore], population: Population
    ) -> Feedback:
        total = aggregate(tuple(scores.values()))
        references = population.references()
        results = tuple(
            _space_result(score, *references.get(score.space, ("random_search", 0.0)))
            for score in scores.values()
        )
        return Feedback(
            p=total.p,
            standard_error=total.standard_error,
            stage=stage,
            outcome="ok",
            spaces=results,
            error=None,
        )

    def _out_of_reach(self, scores: dict[str, SpaceScore], population: Population) -> str:
        """Why this candidate cannot reach the elite, or an empty string.

        Its bound: two standard errors above its scores so far, and on every remaining space the
        best that any candidate has reached. Where a lead on one space suffices to breed, it must
        also have shown none: by that bound it is behind the best known on every space so far.
        """
        elite = population.elite(self._settings.parents)
        if len(elite) < self._settings.parents or len(scores) == len(self._tasks):
            return ""
        threshold = elite[-1].p or 0.0
        best = population.best_p_by_space()
        names = [task.name for task in self._tasks]
        reached = {name: s.p + 2 * (s.standard_error or 0.0) for name, s in scores.items()}
        bound = sum(reached.get(name, best[name]) for name in names) / len(names)
        if round(bound, 2) >= round(threshold, 2):  # as the elite is ranked
            return ""
        if self._settings.parent_choice == "front" and any(
            p >= best[name] for name, p in reached.items()
        ):
            return ""
        return (
            f"stopped after {len(scores)} of {len(self._tasks)} spaces: even the best known result "
            f"on the others would give P {bound:.3f}, and the elite starts at {threshold:.3f}"
        )


def _known(behaviours: dict[str, Behaviour | None]) -> tuple[Behaviour, ...]:
    return tuple(behaviour for behaviour in behaviours.values() if behaviour is not None)


def _assess(
    tasks: Sequence[AnyTask], traces: Sequence[Trace], bootstrap: int
) -> tuple[SpaceScore, Behaviour | None]:
    """Score and behaviour on one task; called where runs are."""
    (task,) = tasks
    return score_space(task, traces, bootstrap), describe(task, traces)


def _losses(tasks: Sequence[AnyTask], runs: Sequence[Sequence[Trace]]) -> tuple[str, ...]:
    return mechanisms(dict(zip(tasks, runs, strict=True)))


def _failed(stage: Stage, trace: Trace) -> Assessment:
    message = trace.error or _FAULTS.get(trace.outcome, trace.outcome)
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
