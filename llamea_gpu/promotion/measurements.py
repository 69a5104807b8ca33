"""What tuning and validation showed, as a card has it.

What it does not do: compute; standings and comparisons are a bench's.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamea_gpu.bench import BenchResults
from llamea_gpu.bench.findings import Comparison, Standing
from llamea_gpu.promotion.card import Difference, Scores, SpaceP, Training, Validation
from llamea_gpu.promotion.tuning import TUNED, Tuning


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
