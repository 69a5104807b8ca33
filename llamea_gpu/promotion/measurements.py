"""What tuning and validation showed, as a card has it.

What it does not do: compute; standings and comparisons are a bench's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llamea_gpu.bench import BenchResults
from llamea_gpu.bench.findings import Comparison, Standing
from llamea_gpu.evolution.training_spaces import above_best_known, marks_of
from llamea_gpu.modelled import WholeTask
from llamea_gpu.models.card import card_of
from llamea_gpu.promotion.card import (
    Difference,
    Modelled,
    ModelledSpace,
    Scores,
    SpaceP,
    Training,
    Validation,
)
from llamea_gpu.promotion.tuning import TUNED, Tuning
from llamea_gpu.scoring import MODELLED
from llamea_gpu.tasks import Trace


def training_of(tuning: Tuning) -> Training:
    """The scores of the model's constants, and of the tuned ones."""
    repeats = tuning.results.plan.repeats
    spaces = [space.name for space in tuning.results.plan.spaces]
    pair = tuning.comparison
    gain = None if pair is None else _difference(pair.seen_from(TUNED), spaces)
    return Training(
        default=_scores(tuning.default, repeats),
        tuned=None if tuning.tuned is None else _scores(tuning.tuned, repeats),
        gain=gain,
        settings_tried=tuning.arms,
        runs=tuning.runs,
    )


def validation_of(
    name: str, benches: Sequence[BenchResults], look: int, level: float
) -> Validation:
    """How ``name`` did in ``benches``, the first of which has all spaces."""
    first = benches[0]
    assert first.analysis is not None
    standing = next(s for s in first.analysis.standings if s.searcher == name)
    return Validation(
        scores=_scores(standing, first.plan.repeats),
        seed=first.plan.settings.seed,
        clock=first.plan.settings.clock,
        look=look,
        level=level,
        differences=tuple(
            _difference(pair, [space.name for space in results.plan.spaces])
            for results in benches
            if results.analysis is not None
            for pair in results.analysis.comparisons_of(name)
        ),
        charge_cpu=first.plan.settings.charge_cpu,
    )


def modelled_of(
    name: str, tasks: Sequence[tuple[WholeTask, Path]], results: BenchResults
) -> Modelled:
    """What the scores of ``name`` in ``results`` are of: ``tasks``, each with its cloud's file."""
    budget_s = tasks[0][0].budget_s
    marks_s = marks_of(budget_s)
    yardstick = tasks[0][0].required_yardstick()
    return Modelled(
        score=MODELLED.name,
        scale=MODELLED.scale,
        yardstick=f"{yardstick.searcher} under {yardstick.clock}, {yardstick.runs} runs",
        budget_s=budget_s,
        marks_s=marks_s,
        spaces=tuple(
            _modelled_space(task, file, marks_s, results.traces(name, task.name))
            for task, file in tasks
        ),
    )


def _modelled_space(
    task: WholeTask, file: Path, marks_s: Sequence[float], traces: Sequence[Trace]
) -> ModelledSpace:
    card = card_of(task.cloud, file)
    return ModelledSpace(
        space=task.name,
        digest=task.model.digest,
        clock=task.clock.name,
        gate="not judged" if card is None else card.verdict,
        reasons=() if card is None else tuple(card.reasons),
        best_ms=task.optimum_ms,
        near_best=above_best_known(traces, marks_s, task.optimum_ms, task.default_ms),
    )


def _scores(standing: Standing, repeats: int) -> Scores:
    spaces = tuple(SpaceP(s.space, s.p, s.interval, s.cpu_s) for s in standing.spaces)
    return Scores(standing.p, standing.interval, repeats, spaces)


def _difference(pair: Comparison, spaces: Sequence[str]) -> Difference:
    return Difference(
        incumbent=pair.second,
        spaces=tuple(spaces),
        difference=pair.difference,
        interval=pair.interval,
        interval_spaces=pair.interval_spaces,
        p_value=pair.p_value,
    )
