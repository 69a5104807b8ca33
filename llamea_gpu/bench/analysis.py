"""What a bench shows: `analyse` turns runs into standings, comparisons, ranks and sentences.

What it does not do: run or keep a bench.

The rules, in one place:

- P of a searcher on a space pools its repeats (`llamea_gpu.scoring`); P over spaces is their mean.
- Intervals are 95 % and say what other runs on the same spaces would give: the estimate, plus and
  minus Student's t times its bootstrap standard error (runs resampled within each space, the
  regression fitted anew, repeats paired between searchers), with Satterthwaite's degrees of
  freedom. Percentiles of the bootstrap are not used: P is a convex function of a mean rank, so that
  replicates lie below the estimate, and percentile intervals covered P in 82 to 86 % of
  simulations where these did in 96 to 99 % (``scripts/bench_error_rates.py``).
- From six spaces on there is a second interval, for other spaces like these: Student's over the
  spaces' P. That is the bootstrap that resamples spaces with all their runs, in closed form; one
  that resampled runs as well would count their spread twice (Davison and Hinkley 1997, 3.8).
- A beats B when the difference of P has a p below .05 after Holm's correction for all pairs. A
  searcher's places are those that the verdicts leave open. Pairs of which both were known before (a
  baseline's) are corrected among themselves: they are no question of this bench.
- Fewer than five repeats give no interval, no test, no verdict. Wilcoxon's test is left out where
  no outcome could be below .05 after correction (under six spaces, more with many pairs);
  Friedman's takes three searchers and three spaces.
- A space whose budget holds fewer than ten evaluations is a lottery: it is named, and P is given
  without it too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.bench.findings import (
    Analysis,
    Comparison,
    Interval,
    MeanRank,
    Ranks,
    Reach,
    SpaceStanding,
    Standing,
)
from llamea_gpu.bench.plan import Plan, RunKey, SpaceInfo
from llamea_gpu.bench.samples import (
    MIN_REPEATS,
    RESAMPLES,
    TARGETS_PERCENT,
    Cell,
    Samples,
    first_hit,
)
from llamea_gpu.bench.sentences import cautions, comparison_sentence, summary, troubles
from llamea_gpu.modelled import AnyTask
from llamea_gpu.statistics import (
    friedman_p_value,
    holm,
    mean_of_independent,
    mean_ranks,
    nemenyi_critical_difference,
    smallest_wilcoxon_p,
    student_half_width,
    student_p_value,
    vargha_delaney,
    wilcoxon_p_value,
)
from llamea_gpu.tasks import Trace

FloatArray = NDArray[np.float64]

SIGNIFICANT = 0.05
MIN_SPACES = 6  # to speak of other spaces
_MAX_REPEATS_NEEDED = 10_000


def analyse(
    plan: Plan,
    tasks: Mapping[str, AnyTask],
    runs: Mapping[RunKey, Trace],
    resamples: int = RESAMPLES,
    known: Collection[str] = (),
) -> Analysis:
    """The findings of a finished bench. ``tasks`` are those of the plan's spaces, by name.

    ``resamples`` of the runs on each space are behind the intervals; ``known`` are the searchers
    whose results come from a baseline.
    """
    samples = Samples.of(plan, tasks, runs, resamples)
    names = sorted(samples.cells, key=lambda name: -samples.p(name).mean())
    comparisons = _comparisons(samples, names, known)
    standings = tuple(_standing(samples, name, comparisons) for name in names)
    ranks = _ranks(samples, names)
    traces = {name: [t for cell in samples.cells[name] for t in cell.traces] for name in names}
    return Analysis(
        standings=standings,
        comparisons=comparisons,
        ranks=ranks,
        cautions=(*cautions(plan, standings, comparisons), *troubles(traces)),
        sentences=summary(plan, standings, comparisons, known),
    )


def _standing(samples: Samples, name: str, comparisons: Sequence[Comparison]) -> Standing:
    cells, spaces = samples.cells[name], samples.plan.spaces
    p = samples.p(name)
    own = tuple(
        _space_standing(space, cell, samples.degrees)
        for space, cell in zip(spaces, cells, strict=True)
    )
    fair = [float(value) for value, space in zip(p, spaces, strict=True) if not space.is_lottery]
    traces = [trace for cell in cells for trace in cell.traces]
    failed = [trace for trace in traces if trace.is_failed]
    above = sum(c.decided and c.second == name for c in comparisons)
    below = sum(c.decided and c.first == name for c in comparisons)
    replicates = samples.replicates(name)
    curve = np.mean([cell.curve for cell in cells], axis=0)
    low, high = _band(curve, [cell.curve_variance for cell in cells], samples.degrees)
    return Standing(
        searcher=name,
        p=float(p.mean()),
        interval=_interval_over_runs(p, replicates, samples.degrees),
        interval_spaces=_interval_over_spaces(p),
        p_without_lotteries=float(np.mean(fair)) if 0 < len(fair) < len(p) else None,
        place_best=1 + above,
        place_worst=len(samples.cells) - below,
        curve=_shown(curve),
        curve_low=low,
        curve_high=high,
        reaches=_reaches([(s, c.traces) for s, c in zip(spaces, cells, strict=True)]),
        spaces=own,
        runs=len(traces),
        failed_runs=len(failed),
        first_error=next((trace.error for trace in failed if trace.error), None),
    )


def _space_standing(space: SpaceInfo, cell: Cell, degrees: int) -> SpaceStanding:
    score = cell.score
    replicates = None if cell.replicates is None else cell.replicates[None, :]
    low, high = _band(cell.curve, [cell.curve_variance], degrees)
    return SpaceStanding(
        space=space.name,
        p=score.p,
        interval=_interval_over_runs(np.array([score.p]), replicates, degrees),
        curve=_shown(cell.curve),
        curve_low=low,
        curve_high=high,
        reaches=_reaches([(space, cell.traces)]),
        regret=score.regret,
        evaluations=score.evaluations,
        revisit_share=score.revisit_share,
        failure_share=score.failure_share,
        cpu_s=score.cpu_s,
        runs=score.runs,
        failed_runs=sum(trace.is_failed for trace in cell.traces),
    )


def _interval(center: float, half_width: float) -> Interval:
    return Interval(center - half_width, center + half_width)


def _interval_over_runs(
    p: FloatArray, replicates: FloatArray | None, degrees: int
) -> Interval | None:
    """Of the mean of ``p`` (spaces,), whose ``replicates`` are (spaces, resamples)."""
    if replicates is None:
        return None
    error, effective = mean_of_independent(replicates.var(axis=1, ddof=1), degrees)
    return _interval(float(p.mean()), float(student_half_width(error, effective)))


def _interval_over_spaces(p: FloatArray) -> Interval | None:
    if p.size < MIN_SPACES:
        return None
    error = p.std(ddof=1) / math.sqrt(p.size)
    return _interval(float(p.mean()), float(student_half_width(error, p.size - 1)))


def _band(
    curve: FloatArray, variances: Sequence[FloatArray | None], degrees: int
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    known = [variance for variance in variances if variance is not None]
    if len(known) < len(variances):
        return None, None
    half_width = student_half_width(*mean_of_independent(known, degrees))
    return _shown(curve - half_width), _shown(curve + half_width)


def _shown(curve: FloatArray) -> tuple[float, ...]:
    return tuple(np.round(curve, 5).tolist())


def _reaches(groups: Sequence[tuple[SpaceInfo, Sequence[Trace]]]) -> tuple[Reach, ...]:
    return tuple(_reach(groups, percent) for percent in TARGETS_PERCENT)


def _reach(groups: Sequence[tuple[SpaceInfo, Sequence[Trace]]], percent: int) -> Reach:
    hits = [first_hit(space, trace, percent) for space, traces in groups for trace in traces]
    evaluations = [hit.evaluations if hit else math.inf for hit in hits]
    median = float(np.median(evaluations))
    reached = float(np.mean(np.isfinite(evaluations)))
    return Reach(percent, reached, median if math.isfinite(median) else None)


def _comparisons(
    samples: Samples, names: Sequence[str], known: Collection[str]
) -> tuple[Comparison, ...]:
    """Every pair, the better first. Corrections are over all pairs of a family."""
    pairs = list(combinations(names, 2))
    old = [pair for pair in pairs if set(pair) <= set(known)]
    new = [pair for pair in pairs if pair not in old]
    by_pair = {(c.first, c.second): c for family in (new, old) for c in _family(samples, family)}
    return tuple(by_pair[pair] for pair in pairs)


def _family(samples: Samples, pairs: Sequence[tuple[str, str]]) -> Iterator[Comparison]:
    compared = [_compared(samples, first, second, len(pairs)) for first, second in pairs]
    p_holm = _corrected([pair.p_value for pair in compared])
    wilcoxon_holm = _corrected([pair.wilcoxon_p for pair in compared])
    for pair, p, wilcoxon in zip(compared, p_holm, wilcoxon_holm, strict=True):
        judged = replace(pair, p_holm=p, wilcoxon_holm=wilcoxon)
        if p is not None and p < SIGNIFICANT:
            judged = replace(judged, decided=True, repeats_needed=None)
        sentence = comparison_sentence(judged, len(pairs), samples.plan.measure)
        yield replace(judged, sentence=sentence)


def _corrected(p_values: Sequence[float | None]) -> Sequence[float | None]:
    known = [p for p in p_values if p is not None]
    return holm(known) if len(known) == len(p_values) else p_values


def _compared(samples: Samples, first: str, second: str, pairs: int) -> Comparison:
    """What two searchers' samples say about the difference of their P, before any correction."""
    by_space = samples.p(first) - samples.p(second)
    difference = float(by_space.mean())
    interval, p_value, needed = None, None, None
    first_replicates, second_replicates = samples.replicates(first), samples.replicates(second)
    if first_replicates is not None and second_replicates is not None:
        variances = (first_replicates - second_replicates).var(axis=1, ddof=1)
        error, degrees = map(float, mean_of_independent(variances, samples.degrees))
        interval = _interval(difference, float(student_half_width(error, degrees)))
        p_value = student_p_value(difference, error, degrees)
        half_width = float(student_half_width(error, degrees, 1 - SIGNIFICANT / pairs))
        needed = _repeats_needed(samples.plan.repeats, difference, half_width)
    enough = samples.plan.repeats >= MIN_REPEATS
    possible = enough and smallest_wilcoxon_p(len(samples.tasks)) * pairs < SIGNIFICANT
    cells = zip(samples.cells[first], samples.cells[second], strict=True)
    return Comparison(
        first=first,
        second=second,
        difference=difference,
        interval=interval,
        interval_spaces=_interval_over_spaces(by_space),
        wins=int(np.sum(by_space > 0)),
        losses=int(np.sum(by_space < 0)),
        ties=int(np.sum(by_space == 0)),
        p_value=p_value,
        p_holm=None,
        wilcoxon_p=wilcoxon_p_value(by_space) if possible else None,
        wilcoxon_holm=None,
        effect=float(np.mean([vargha_delaney(a.run_p, b.run_p) for a, b in cells])),
        decided=False,
        repeats_needed=needed,
        sentence="",
    )


def _repeats_needed(repeats: int, difference: float, half_width: float) -> int | None:
    """Repeats with which ``difference`` would be clear of 0; ``half_width`` is that of now."""
    if difference == 0:
        return None
    needed = math.ceil(repeats * (half_width / difference) ** 2)
    return needed if repeats < needed <= _MAX_REPEATS_NEEDED else None


def _ranks(samples: Samples, names: Sequence[str]) -> Ranks | None:
    blocks = len(samples.tasks)
    if len(names) < 3 or blocks < 3 or samples.plan.repeats < MIN_REPEATS:
        return None
    scores = np.array([samples.p(name) for name in names]).T
    return Ranks(
        mean_ranks=tuple(
            MeanRank(name, float(rank))
            for name, rank in zip(names, mean_ranks(scores), strict=True)
        ),
        friedman_p=friedman_p_value(scores),
        critical_difference=nemenyi_critical_difference(len(names), blocks),
    )
