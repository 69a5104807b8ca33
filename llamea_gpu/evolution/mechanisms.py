"""What a searcher does that costs it score, read off its traces: "the first batch takes 40 %", ...

What it does: looks for ten patterns in the traces of one searcher on each task, and estimates what
each is worth; the most costly first. A sentence is said only where what it states is so: counts,
shares and distances come from the traces and the recording, by the thresholds below.

What it does not do: say why the program does so, or promise the estimate. It is the part of 1 - P
that falls into the time in question, or that a plain change would have spared with all else equal;
patterns overlap, so estimates do not add up. Own CPU seconds depend on the host and do not enter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.clocks import ParallelClock
from llamea_gpu.evolution.behaviour import batch_numbers
from llamea_gpu.modelled import AnyTask
from llamea_gpu.prompting.feedback import names
from llamea_gpu.prompting.filters import count, one_line, percent
from llamea_gpu.scoring import BATCH_FLOOR, score_space
from llamea_gpu.tasks import Task, Trace

FloatArray = NDArray[np.float64]

_LONG_FIRST_BATCH = 0.2  # of the budget
_LATE_IMPROVEMENT = 0.4  # of the budget
_HELD_UP = 0.25  # of the time
_FAILING = 0.1  # of the evaluations after the first quarter
_COMMON_VALUE = 0.5  # of the failures
_MOSTLY_FAILS = 0.8  # of what was visited with a value
_FAR = 3  # changed parameters
_EXPLORING = 0.5  # of the evaluations in the second half
_IDLE = 0.1  # of the budget without progress
_STUCK_RUNS = 0.3
_WORST_SHARE = 0.2
_BAD_REGRET = 0.05
_GIVES_UP = 0.8  # of the budget
_SMALL_BATCH = 1 / 3  # of the workers
_START_SHARE = 0.5  # of what is lost, in the first quarter of the time
_NEAR, _RARE = 1.05, 0.01
_GAP = 0.1
_WORTH_SAYING = 0.01  # of the mean P
_PATTERNS = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """A pattern on one space: ``text`` says what was seen, ``loss`` what it is worth in P there."""

    pattern: str
    space: str
    loss: float
    text: str


def mechanisms(runs: Mapping[AnyTask, Sequence[Trace]]) -> tuple[str, ...]:
    """Sentences about one searcher's ``runs`` on its tasks, the most costly first.

    None about whole spaces: what would have been better is not known there.
    """
    observed = [
        _Observed(task, tuple(traces))
        for task, traces in runs.items()
        if traces and isinstance(task, Task)
    ]
    if not observed:
        return ()
    all_findings = [finding for here in observed for look in _LOOKS if (finding := look(here))]
    by_pattern: dict[str, list[Finding]] = {}
    for finding in all_findings:
        by_pattern.setdefault(finding.pattern, []).append(finding)
    sentences = [_sentence(findings, len(observed)) for findings in by_pattern.values()]
    ranked = sorted(sentences, key=lambda item: -round(item[0], 3))
    costly = [text for loss, text in ranked if loss >= _WORTH_SAYING]
    # Last: what tells the spaces apart need not be what costs the score.
    return (*costly[:_PATTERNS], *_rare_optima(observed))


def _sentence(findings: list[Finding], spaces: int) -> tuple[float, str]:
    """The worst case in words, the names of the others, and what all are worth in mean P."""
    findings = sorted(findings, key=lambda finding: -round(finding.loss, 3))
    loss = sum(finding.loss for finding in findings) / spaces
    others = [finding.space for finding in findings[1:]]
    also = f"; so on {names(others)}" if others else ""
    return loss, f"{findings[0].text}{also} (about {loss:.2f} of P)."


@dataclass(frozen=True)
class _Batch:
    """Configurations that were asked for together: positions in the trace, and when in s."""

    first: int
    last: int  # exclusive
    asked_s: float
    compiled_s: float


@dataclass(frozen=True)
class _Observed:
    """The traces of one searcher on one task, and what several patterns need of them."""

    task: Task
    traces: tuple[Trace, ...]

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def waits_for_batches(self) -> bool:
        """Whether the clock measures a batch as a whole, so that its size and slowest matter."""
        clock = self.task.clock
        return isinstance(clock, ParallelClock) and clock.workers > 1

    @cached_property
    def loss(self) -> FloatArray:
        """1 - P at each point of the axis."""
        return np.maximum(0.0, 1.0 - score_space(self.task, self.traces, bootstrap=0).curve)

    @cached_property
    def batches(self) -> tuple[tuple[_Batch, ...], ...]:
        return tuple(_batches(self.task, trace) for trace in self.traces)

    def loss_between(self, start_s: float, end_s: float) -> float:
        """The part of 1 - P that falls between two times."""
        inside = (self.task.axis_s >= start_s) & (self.task.axis_s < end_s)
        return float(np.sum(self.loss[inside]) / self.loss.size)

    def loss_if_faster(self, spared: float) -> float:
        """What 1 - P would shrink by if everything came ``spared`` (a share) of its time sooner."""
        task = self.task
        reached_ms = task.optimum_ms + self.loss * (task.baseline_ms - task.optimum_ms)
        sooner_ms = np.interp(task.axis_s / max(1.0 - spared, 1e-9), task.axis_s, reached_ms)
        return float(np.mean(np.maximum(0.0, self.loss - self.loss_at(sooner_ms))))

    def loss_at(self, best_ms: float | FloatArray) -> FloatArray:
        """1 - P at each point of the axis, for the best cost there."""
        task = self.task
        most = math.inf if task.clock.serial else 1.0 - BATCH_FLOOR
        return np.minimum(most, (best_ms - task.optimum_ms) / (task.baseline_ms - task.optimum_ms))


def _batches(task: Task, trace: Trace) -> tuple[_Batch, ...]:
    firsts = np.flatnonzero(np.diff(batch_numbers(task, trace), prepend=-1))
    lasts = np.append(firsts, trace.rows.size)[1:]
    begun_s = trace.elapsed_s - task.recording.benchmark_s[trace.rows]
    free_s = np.concatenate(([0.0], trace.elapsed_s[:-1]))
    return tuple(
        _Batch(int(first), int(last), float(free_s[first]), float(begun_s[first]))
        for first, last in zip(firsts, lasts, strict=True)
    )


# --- patterns, each on one space ------------------------------------------------------------------


def _first_batch(here: _Observed) -> Finding | None:
    budget_s = here.task.budget_s
    ends_s, sizes = [], []
    for trace, batches in zip(here.traces, here.batches, strict=True):
        ends_s.append(trace.elapsed_s[batches[0].last - 1] if batches else budget_s)
        sizes.append(batches[0].last if batches else 0)
    end_s = float(np.median(ends_s))
    if end_s / budget_s <= _LONG_FIRST_BATCH or not here.waits_for_batches:
        return None
    nothing = sum(not batches for batches in here.batches)
    text = (
        f"Its first batch ({count(float(np.median(sizes)))} configurations) takes "
        f"{percent(min(1.0, end_s / budget_s))} of the budget on {here.name}"
    )
    if nothing:
        text += f", and {nothing} of {len(here.traces)} runs measure nothing at all"
    return Finding("first batch", here.name, here.loss_between(0.0, end_s), text)


def _late_improvement(here: _Observed) -> Finding | None:
    task = here.task
    ends_s, betters_s = [], []
    for trace, batches in zip(here.traces, here.batches, strict=True):
        if not batches:
            continue
        last = batches[0].last
        best_ms = float(np.min(trace.cost_ms[:last]))
        if best_ms == task.optimum_ms:
            continue
        better = np.flatnonzero(trace.cost_ms[last:] < best_ms)
        ends_s.append(float(trace.elapsed_s[last - 1]))
        betters_s.append(float(trace.elapsed_s[last + better[0]]) if better.size else task.budget_s)
    if not here.waits_for_batches or 2 * len(betters_s) < len(here.traces):
        return None
    end_s, better_s = float(np.median(ends_s)), float(np.median(betters_s))
    if better_s / task.budget_s <= _LATE_IMPROVEMENT:
        return None
    share = percent(min(1.0, better_s / task.budget_s))
    text = f"Nothing beats its first batch before {share} of the budget on {here.name}"
    return Finding("late", here.name, here.loss_between(end_s, better_s), text)


def _slow_start(here: _Observed) -> Finding | None:
    axis_s = here.task.axis_s
    quarter_s = float(axis_s[0] + (axis_s[-1] - axis_s[0]) / 4)
    early = here.loss_between(0.0, quarter_s)
    total = float(np.mean(here.loss))
    if early <= _START_SHARE * total or _first_batch(here) is not None:
        return None
    text = (
        f"Loses {early:.2f} of P in the first quarter of the time on {here.name}, "
        f"{max(0.0, total - early):.2f} in the rest"
    )
    return Finding("start", here.name, early, text)


def _held_up(here: _Observed) -> Finding | None:
    """The slowest compilation of a batch, beside what the others would have taken without it."""
    clock, compile_s = here.task.clock, here.task.recording.compile_s
    if not (here.waits_for_batches and isinstance(clock, ParallelClock)):
        return None
    spared_s = total_s = 0.0
    for trace, batches in zip(here.traces, here.batches, strict=True):
        for batch in batches[:-1]:  # the last one may lack members that came after the budget
            times_s = np.sort(compile_s[trace.rows[batch.first : batch.last]]).tolist()
            total_s += float(trace.elapsed_s[batch.last - 1]) - batch.asked_s
            if len(times_s) > 1:
                others = times_s[:-1]
                without_s = clock.makespan_s(others)
                spared_s += max(0.0, batch.compiled_s - batch.asked_s - without_s)
    if not total_s or spared_s / total_s <= _HELD_UP:
        return None
    share = spared_s / total_s
    text = (
        f"{percent(share)} of its time on {here.name} is spent waiting for the one slowest "
        f"compilation of each batch"
    )
    return Finding("held up", here.name, here.loss_if_faster(share), text)


def _failures(here: _Observed) -> Finding | None:
    later = [trace.rows.size // 4 for trace in here.traces]
    rows = np.concatenate([t.rows[n:] for t, n in zip(here.traces, later, strict=True)])
    if not rows.size:
        return None
    failed = ~np.isfinite(here.task.recording.time_ms[rows])
    share = float(np.mean(failed))
    if share <= _FAILING:
        return None
    text = (
        f"{percent(share)} of its evaluations fail on {here.name} after the first quarter of them"
    )
    text += _common_value(here.task, rows, failed)
    return Finding("failures", here.name, here.loss_if_faster(share), text)


def _common_value(task: Task, rows: NDArray[np.int32], failed: NDArray[np.bool_]) -> str:
    """The value that most failures share, where nearly all that was visited with it failed."""
    space = task.recording.space
    visited = space.configurations[rows]
    best: tuple[float, int, int] | None = None
    for parameter, cardinality in enumerate(space.cardinalities):
        for value in range(cardinality if cardinality > 1 else 0):
            with_value = visited[:, parameter] == value
            share = float(np.mean(with_value[failed]))
            if share < _COMMON_VALUE or np.mean(failed[with_value]) < _MOSTLY_FAILS:
                continue
            if best is None or share > best[0]:
                best = (share, parameter, value)
    if best is None:
        return ""
    share, parameter, value = best
    fails = percent(float(np.mean(failed[visited[:, parameter] == value])))
    assignment = f"{one_line(space.names[parameter], 60)} = {space.values[parameter][value]!r:.60}"
    return f", {percent(share)} of them with {assignment}, which fails in {fails} of the cases"


def _exploring(here: _Observed) -> Finding | None:
    configurations = here.task.recording.space.configurations
    half_s = here.task.budget_s / 2
    far = total = 0
    for trace, batches in zip(here.traces, here.batches, strict=True):
        for batch in batches:
            before = trace.cost_ms[: batch.first]
            known = bool(np.isfinite(before).any())
            if batch.asked_s < half_s or not known or before.min() == here.task.optimum_ms:
                continue
            best = configurations[trace.rows[int(np.argmin(before))]]
            batch_configurations = configurations[trace.rows[batch.first : batch.last]]
            far += int(np.count_nonzero((batch_configurations != best).sum(axis=1) > _FAR))
            total += len(batch_configurations)
    if not total or far / total <= _EXPLORING:
        return None
    share = far / total
    text = (
        f"{percent(share)} of its evaluations in the second half of the budget are more than "
        f"{_FAR} changed parameters away from its best on {here.name}: it still explores"
    )
    return Finding("exploring", here.name, share * here.loss_between(half_s, math.inf), text)


def _better_neighbour(here: _Observed) -> Finding | None:
    """Runs that stop progressing beside something better that differs in one parameter."""
    task = here.task
    gains, idle, optima = [], [], 0
    for trace in here.traces:
        if not np.isfinite(trace.cost_ms).any():
            continue
        last = int(np.argmin(trace.cost_ms))
        neighbours = task.recording.space.neighbor_rows(int(trace.rows[last]))
        around_ms = task.recording.time_ms[neighbours]
        best_ms, found_s = float(trace.cost_ms[last]), float(trace.elapsed_s[last])
        better_ms = float(np.min(around_ms, initial=math.inf))
        if better_ms >= best_ms or found_s > (1 - _IDLE) * task.budget_s:
            continue
        after = task.axis_s > found_s
        spared = here.loss_at(best_ms) - here.loss_at(better_ms)
        gains.append(float(np.sum(spared[after]) / after.size))
        idle.append(1 - found_s / task.budget_s)
        optima += better_ms == task.optimum_ms
    if len(gains) < _STUCK_RUNS * len(here.traces):
        return None
    is_optimum = f" (in {optima} of them it is the optimum)" if optima else ""
    text = (
        f"{len(gains)} of {len(here.traces)} runs on {here.name} make no progress for their last "
        f"{percent(float(np.median(idle)))} of the budget and never try a better configuration "
        f"one changed parameter away from their best{is_optimum}"
    )
    return Finding("neighbour", here.name, sum(gains) / len(here.traces), text)


def _unsteady(here: _Observed) -> Finding | None:
    runs = len(here.traces)
    worst = int(_WORST_SHARE * runs)
    if not worst:
        return None
    optimum_ms, median_ms = here.task.optimum_ms, here.task.median_ms
    regrets = np.array([min(t.best_ms, median_ms) / optimum_ms - 1 for t in here.traces])
    order = np.argsort(regrets, kind="stable")
    bad, good = float(regrets[order[-worst:]].mean()), float(regrets[order[:-worst]].mean())
    if bad <= max(_BAD_REGRET, 3 * good):
        return None
    rest = replace(here, traces=tuple(here.traces[i] for i in order[:-worst]))
    loss = float(np.mean(here.loss) - np.mean(rest.loss))
    text = (
        f"The worst {worst} of {runs} runs on {here.name} end {percent(bad)} above the optimum, "
        f"the others {percent(good)}"
    )
    return Finding("unsteady", here.name, loss, text)


def _gives_up(here: _Observed) -> Finding | None:
    ends_s = [
        float(trace.elapsed_s[-1]) if trace.rows.size else 0.0
        for trace in here.traces
        if trace.outcome in ("finished", "stalled") and trace.best_ms > here.task.optimum_ms
    ]
    if 2 * len(ends_s) <= len(here.traces):
        return None
    share = float(np.median(ends_s)) / here.task.budget_s
    if share >= _GIVES_UP:
        return None
    text = (
        f"{len(ends_s)} of {len(here.traces)} runs on {here.name} end without the optimum, at "
        f"{percent(share)} of the budget"
    )
    loss = here.loss_between(share * here.task.budget_s, math.inf)
    return Finding("gives up", here.name, loss, text)


def _small_batches(here: _Observed) -> Finding | None:
    workers = here.task.clock.workers
    sizes = [b.last - b.first for batches in here.batches for b in batches[:-1]]
    visits = float(np.mean([trace.rows.size for trace in here.traces]))
    usual = here.task.budget_evaluations
    small = here.waits_for_batches and sizes and float(np.mean(sizes)) < _SMALL_BATCH * workers
    if not small or visits >= usual / 2:
        return None
    text = (
        f"It asks for {count(float(np.mean(sizes)))} configurations at a time where {workers} "
        f"compile side by side: {count(visits)} evaluations on {here.name}, random search in full "
        f"batches has {count(usual)}"
    )
    return Finding("small batches", here.name, here.loss_if_faster(1 - visits / usual), text)


_LOOKS: tuple[Callable[[_Observed], Finding | None], ...] = (
    _first_batch,
    _late_improvement,
    _slow_start,
    _held_up,
    _failures,
    _exploring,
    _better_neighbour,
    _unsteady,
    _gives_up,
    _small_batches,
)


# --- a pattern across spaces ----------------------------------------------------------------------


def _rare_optima(observed: Sequence[_Observed]) -> Iterator[str]:
    rare = [here for here in observed if _near_share(here.task) < _RARE]
    other = [here for here in observed if _near_share(here.task) >= _RARE]
    if not rare or not other:
        return
    low, high = (
        float(np.mean([1 - here.loss.mean() for here in group])) for group in (rare, other)
    )
    if high - low < _GAP:
        return
    yield (
        f"P is {low:.2f} on {names([here.name for here in rare])}, where under {percent(_RARE)} of "
        f"the configurations lie within 5 % of the optimum, and {high:.2f} elsewhere."
    )


def _near_share(task: Task) -> float:
    return (
        float(np.count_nonzero(task.costs_ms <= _NEAR * task.optimum_ms))
        / task.recording.space.size
    )
