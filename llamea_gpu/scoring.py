"""Scores traces: the aggregate performance P of the published methodology, without randomness.

Of modelled whole spaces, where random search is no yardstick, the score is that of
`llamea_gpu.area`, with the same bootstrap over runs; what follows is about P.

What it does: pools the runs of a searcher on one task into a best-so-far curve, compares it with
random search and the optimum (`score_space`), averages over spaces (`aggregate`), and reads traces
that other programs wrote (`read_traces_csv`). 1 is the optimum at once, 0 is random search.

What it does not do: run anything, or judge a difference between two scores.

The method is F.-J. Willemsen et al. (2024), as autotuning_methodology 1.1.0 computes it. Theirs:
best-so-far cost to its rank among the valid costs; the points of all runs within the axis and its
margin, pooled; non-increasing isotonic regression of rank on time, interpolated linearly; rounding
to a rank and back to a cost; the curve is frozen at its first value after the first end of a run
that lies beyond the median end; P_t = (curve - baseline) / (optimum - baseline); the mean over
spaces at each t, then over t. A failed configuration after the first success is a point at the best
so far; before it, it is none.

Ours, and why:

- The regression is fitted once. The package averages fits to random subsamples, unseeded, so that
  the same traces give another score each time.
- A run that stops before the axis ends is held: it goes on at its best with an evaluation every
  median evaluation time, up to the budget's end. The package tunes again until every run is long
  enough; without either, a searcher that gives up whenever it is stuck would hide its bad runs.
  Traces read from a file are held only when they have no point in the window at all, which the
  package refuses.
- A run in which nothing worked before the window ends counts as having reached the median cost,
  about what one random draw is expected to give: the published baseline, too, starts from one
  draw. The package fails.
- Under a clock that compiles side by side P_t is at least -1. Without a bound it is -20 where
  random search is nearly at the optimum while a searcher waits for a large first batch: that wait
  alone would decide its score.
- The package's runner stores at most twice the mean number of evaluations of a run; here nothing
  is cut off.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.area import losses, scores
from llamea_gpu.curves import Pool, Run, pool_runs
from llamea_gpu.errors import TaskError
from llamea_gpu.files import read_text
from llamea_gpu.modelled import AnyTask, WholeTask
from llamea_gpu.spaces.recording import LEAST_TIME_MS, MOST_S, MOST_TIME_MS
from llamea_gpu.statistics import bootstrap_counts, bootstrap_standard_error
from llamea_gpu.tasks import Task, Trace

FloatArray = NDArray[np.float64]

# The least P_t under a clock that compiles side by side; see docs/adr/0003-batch-baseline.md.
BATCH_FLOOR = -1.0
_COLUMNS = ("run", "elapsed_s", "cost")
_MAX_CSV_BYTES = 1 << 28
_RESAMPLED_TIMES = 4_000


@dataclass(frozen=True, slots=True)
class Measure:
    """What a score is called where it is printed, so that no modelled one passes for measured.

    ``scale`` says what 0 and 1 are, ``best`` what regrets and targets are relative to, ``costs``
    what stands before a time.
    """

    name: str
    scale: str
    best: str
    costs: str = ""

    @property
    def title(self) -> str:
        """The name at the beginning of a sentence."""
        return self.name[0].upper() + self.name[1:]


MEASURED = Measure("P", "0 is random search, 1 the optimum at once", "the optimum")
MODELLED = Measure(
    "modelled score",
    "0 is Helion's LFBOTreeSearch at full effort, 1 the best known at once; modelled, not measured",
    "the best known",
    "modelled ",
)


def measure_of(modelled: bool) -> Measure:
    """What scores are called on whole spaces, whose costs are ``modelled``, and on recordings."""
    return MODELLED if modelled else MEASURED


@dataclass(frozen=True, slots=True, eq=False)
class ExternalTrace:
    """One run that another program recorded: times (n,) in s, not decreasing, and costs (n,) in ms.

    A cost of inf is a failed configuration. Costs need not be among the recording's: each counts
    as the rank it would have there.

    Raises:
        TaskError: times or costs break these rules.
    """

    run: str
    elapsed_s: FloatArray
    cost_ms: FloatArray

    def __post_init__(self) -> None:
        elapsed_s = np.array(self.elapsed_s, dtype=np.float64)
        cost_ms = np.array(self.cost_ms, dtype=np.float64)
        if elapsed_s.ndim != 1 or elapsed_s.shape != cost_ms.shape or not elapsed_s.size:
            raise TaskError(
                f"run {self.run!r}: a trace must have as many times as costs, and at least one, "
                f"but got shapes {elapsed_s.shape} and {cost_ms.shape}"
            )
        steps_s = np.diff(elapsed_s, prepend=0.0)
        if not (np.isfinite(steps_s) & (steps_s >= 0)).all() or not (cost_ms > 0).all():
            raise TaskError(
                f"run {self.run!r}: times must be finite seconds that do not decrease, and costs "
                f"positive milliseconds or inf"
            )
        object.__setattr__(self, "elapsed_s", elapsed_s)
        object.__setattr__(self, "cost_ms", cost_ms)


@dataclass(frozen=True, slots=True, eq=False)
class SpaceScore:
    """The score on one space, and means over its runs that say where it comes from.

    ``curve`` is P_t along the task's axis, (1000,), ``p`` its mean. ``standard_error`` is None for
    a single run. ``last_improvement`` is when the best was found, as a share of the budget.
    ``regret`` is best / optimum - 1 at the end, of the median cost where nothing worked.
    ``revisit_share`` and ``cpu_s`` are None when the traces do not tell.
    """

    space: str
    p: float
    standard_error: float | None
    curve: FloatArray
    runs: int
    evaluations: float
    failure_share: float
    last_improvement: float
    regret: float
    revisit_share: float | None
    cpu_s: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """The score over several spaces; ``curve`` is their mean P_t, (1000,)."""

    p: float
    standard_error: float | None
    curve: FloatArray
    spaces: tuple[SpaceScore, ...]


def score_space(
    task: AnyTask, traces: Sequence[Trace | ExternalTrace], bootstrap: int = 200
) -> SpaceScore:
    """Scores the runs of one searcher on one task: P, or on a whole space the score of `area`.

    ``bootstrap`` is the number of resamples of runs behind the standard error.

    Raises:
        TaskError: no trace, an external cost far below the optimum, or a whole space without its
            yardstick.
    """
    if not traces:
        raise TaskError(f"{task.name}: a score needs at least 1 trace, but got none")
    curves = _curves(task, traces)
    curve = curves(np.ones((1, len(traces)), dtype=np.int64))[0]
    error = None
    if len(traces) > 1 and bootstrap > 1:
        counts = bootstrap_counts(len(traces), bootstrap)
        error = bootstrap_standard_error(curves(counts).mean(axis=1))
    regrets = [regret(trace.cost_ms, task.optimum_ms, task.median_ms) for trace in traces]
    return SpaceScore(
        space=task.name,
        p=float(np.mean(curve)),
        standard_error=error,
        curve=curve,
        runs=len(traces),
        evaluations=float(np.mean([trace.cost_ms.size for trace in traces])),
        failure_share=_failure_share(traces),
        last_improvement=float(np.mean([_last_improvement(task, trace) for trace in traces])),
        regret=float(np.mean(regrets)),
        revisit_share=_revisit_share(traces),
        cpu_s=_mean_cpu_s(traces),
    )


def resampled_curves(
    task: AnyTask, traces: Sequence[Trace | ExternalTrace], counts: NDArray[np.int64]
) -> FloatArray:
    """P_t of resamples: each row of ``counts`` (n, runs) says how often every run is taken.

    (n, 1000). The regression is fitted anew each time, to at most `_RESAMPLED_TIMES` points in
    time: beyond that many, neighbouring ones are merged.
    """
    return _curves(task, traces, _RESAMPLED_TIMES)(counts)


def aggregate(scores: Sequence[SpaceScore]) -> Score:
    """The mean over spaces at each point of the axis, then over the axis.

    The standard error takes the spaces as given and their runs as independent.

    Raises:
        TaskError: no score.
    """
    if not scores:
        raise TaskError("an aggregate needs the score of at least 1 space, but got none")
    curve = np.mean([score.curve for score in scores], axis=0)
    errors = [score.standard_error for score in scores if score.standard_error is not None]
    known = len(errors) == len(scores)
    return Score(
        p=float(np.mean(curve)),
        standard_error=math.hypot(*errors) / len(scores) if known else None,
        curve=curve,
        spaces=tuple(scores),
    )


def _curves(
    task: AnyTask, traces: Sequence[Trace | ExternalTrace], times: int | None = None
) -> Callable[[NDArray[np.int64]], FloatArray]:
    """From how often every run is taken (n, runs) to scores along the axis (n, 1000)."""
    for trace in traces:
        if isinstance(trace, ExternalTrace):
            _check_costs(task, trace)
    if isinstance(task, WholeTask):
        yardstick = task.required_yardstick()
        lost = losses(traces, task.axis_s, yardstick.best_ms, yardstick.default_ms)
        return lambda counts: scores(counts @ lost / len(traces), yardstick)
    pool = _pool(task, traces)
    if times is not None:
        pool = pool.merged(times)
    recorded = task
    return lambda counts: _performance(
        recorded, np.array([pool.ranks(recorded.axis_s, count) for count in counts])
    )


def _pool(task: Task, traces: Sequence[Trace | ExternalTrace]) -> Pool:
    return pool_runs(
        task,
        [Run(t.elapsed_s, t.cost_ms, isinstance(t, ExternalTrace)) for t in traces],
    )


def _performance(task: Task, ranks: FloatArray) -> FloatArray:
    """P_t of rank curves, (..., 1000)."""
    reached_ms = task.costs_ms[np.rint(ranks).astype(np.int64)]
    performance: FloatArray = (reached_ms - task.baseline_ms) / (task.optimum_ms - task.baseline_ms)
    return performance if task.clock.serial else np.maximum(performance, BATCH_FLOOR)


def _check_costs(task: AnyTask, trace: ExternalTrace) -> None:
    best_ms = float(np.min(trace.cost_ms, initial=math.inf))
    if best_ms < 0.5 * task.optimum_ms:
        raise TaskError(
            f"run {trace.run!r}: costs must be milliseconds on {task.name}, whose optimum is "
            f"{task.optimum_ms} ms, but the best is {best_ms}: check the unit and the space"
        )


def _failure_share(traces: Sequence[Trace | ExternalTrace]) -> float:
    evaluations = sum(trace.cost_ms.size for trace in traces)
    failures = sum(int(np.count_nonzero(np.isinf(trace.cost_ms))) for trace in traces)
    return failures / evaluations if evaluations else 0.0


def _last_improvement(task: AnyTask, trace: Trace | ExternalTrace) -> float:
    if not np.isfinite(trace.cost_ms).any():
        return 0.0
    return min(1.0, float(trace.elapsed_s[np.argmin(trace.cost_ms)]) / task.budget_s)


def regret(cost_ms: FloatArray, optimum_ms: float, median_ms: float) -> float:
    """best / optimum - 1 of a run's costs (n,); of the median cost where nothing worked."""
    best_ms = float(np.min(cost_ms, initial=math.inf))
    return (best_ms if best_ms < math.inf else median_ms) / optimum_ms - 1.0


def _revisit_share(traces: Sequence[Trace | ExternalTrace]) -> float | None:
    known = [trace for trace in traces if isinstance(trace, Trace)]
    asks = sum(trace.asks for trace in known)
    return sum(trace.revisits for trace in known) / asks if asks else None


def _mean_cpu_s(traces: Sequence[Trace | ExternalTrace]) -> float | None:
    cpu_s = [t.cpu_s for t in traces if isinstance(t, Trace) and t.cpu_s is not None]
    return float(np.mean(cpu_s)) if cpu_s else None


def read_traces_csv(path: Path) -> list[ExternalTrace]:
    """Reads runs from a CSV file with the columns run, elapsed_s and cost (in ms), in any order.

    A row is one evaluation; the rows of a run are in order of time and may be mixed with those of
    other runs. An empty or ``inf`` cost is a failed configuration. Other columns are ignored.

    Raises:
        TaskError: the file cannot be read, or breaks these rules: names the line.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    try:
        file = io.StringIO(read_text(path, _MAX_CSV_BYTES))
        for line, run, elapsed_s, cost_ms in _csv_rows(path, csv.DictReader(file)):
            run_points = points.setdefault(run, [])
            if run_points and elapsed_s < run_points[-1][0]:
                raise TaskError(
                    f"{path}: line {line}: elapsed_s must not decrease within a run, but run "
                    f"{run!r} goes from {run_points[-1][0]} to {elapsed_s}"
                )
            run_points.append((elapsed_s, cost_ms))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TaskError(f"{path}: cannot be read as a UTF-8 CSV file: {error}") from error
    if not points:
        raise TaskError(f"{path}: a trace needs at least one row, but the file has none")
    return [ExternalTrace(run, *np.array(run_points).T) for run, run_points in points.items()]


def _csv_rows(path: Path, reader: csv.DictReader[str]) -> Iterator[tuple[int, str, float, float]]:
    """(line, run, elapsed_s, cost_ms) of each row, checked one by one."""
    header = reader.fieldnames or ()
    missing = [column for column in _COLUMNS if column not in header]
    if missing:
        raise TaskError(
            f"{path}: line 1: the header must name the columns {', '.join(_COLUMNS)}, but "
            f"{', '.join(missing)} is missing from {list(header)}"
        )
    for row in reader:
        line = reader.line_num
        if any(row[column] is None for column in _COLUMNS):
            raise TaskError(
                f"{path}: line {line}: a row must have {len(header)} fields, but has less"
            )
        elapsed_s = _number(path, line, "elapsed_s", row["elapsed_s"])
        cost = row["cost"].strip()
        cost_ms = _number(path, line, "cost", cost) if cost else math.inf
        if not 0 <= elapsed_s <= MOST_S:
            raise TaskError(
                f"{path}: line {line}: elapsed_s must be from 0 to {MOST_S:g}, but is {elapsed_s}"
            )
        if not (LEAST_TIME_MS <= cost_ms <= MOST_TIME_MS or cost_ms == math.inf):
            raise TaskError(
                f"{path}: line {line}: cost must be from {LEAST_TIME_MS:g} to {MOST_TIME_MS:g} "
                f"milliseconds, or empty or inf for a failed configuration, but is {cost_ms}"
            )
        yield line, row["run"], elapsed_s, cost_ms


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise TaskError(
            f"{path}: line {line}: {column} must be a number, but is {text!r}"
        ) from None
