"""Tunes a program's numeric hyperparameters on training spaces: successive halving.

What it does: `tune` races random settings against the defaults. All begin with two runs a space;
the better half goes on with twice as many, until two are left. The winner then meets the defaults
again, on seeds that none of them has seen, and replaces them only if it is better with the 95 %
interval of the difference clear of zero. (A race's own scores favour whoever was lucky.)

What it does not do: look at any other space. A budget is a number of runs, and a result depends on
program, spaces, seed and budget alone, where own CPU seconds are not charged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from llamea_gpu.bench import BenchResults, BenchSettings, make_plan, run_bench
from llamea_gpu.bench.findings import Comparison, Standing
from llamea_gpu.modelled import AnyTask
from llamea_gpu.programs import Program
from llamea_gpu.programs.constants import Settings, distinct_settings, tunable
from llamea_gpu.runner import BaseRunner
from llamea_gpu.sandbox.jobs import Limits
from llamea_gpu.scoring import score_space
from llamea_gpu.searchers.registry import ProgramSearcher
from llamea_gpu.tasks import Trace, run_seed

FINAL_REPEATS = 10  # of winner and defaults on seeds of their own
DEFAULT, TUNED = "default", "tuned"
_MOST_ARMS = 256


@dataclass(frozen=True, slots=True)
class Tuning:
    """What tuning found.

    ``settings`` are the hyperparameters to go on with: the defaults unless ``comparison`` (winner
    and defaults, the better first) speaks for the winner. ``default`` and ``tuned`` are their
    standings on the training spaces, ``tuned`` None when the defaults won the race or there was
    none. ``arms`` raced, ``runs`` were spent on all of it. ``results`` are the final runs.
    """

    settings: Settings
    default: Standing
    tuned: Standing | None
    comparison: Comparison | None
    arms: int
    runs: int
    results: BenchResults

    @property
    def is_tuned(self) -> bool:
        """Whether the defaults were replaced."""
        return self.tuned is not None and self.name == TUNED

    @property
    def name(self) -> str:
        """Which of the final searchers goes on."""
        interval = self.comparison and self.comparison.seen_from(TUNED).interval
        return TUNED if interval and interval.low > 0 else DEFAULT

    def traces(self, space: str) -> list[Trace]:
        """The final runs of what goes on, on one space."""
        return self.results.traces(self.name, space)


def tune(
    program: Program,
    tasks: Sequence[AnyTask],
    runner: BaseRunner,
    *,
    runs: int,
    seed: int,
    cpu_limit_s: float | None = None,
    charge_cpu: bool = False,
    budget_s: float | None = None,
) -> Tuning:
    """Tune ``program`` on ``tasks`` with at most ``runs`` runs (those of the defaults come on top).

    With too few runs for a race of two, the defaults are measured and kept. ``charge_cpu``: own CPU
    seconds count as tuning time.
    """
    defaults = tunable(program)
    rules = BenchSettings(_stream(seed, "final"), "", charge_cpu, cpu_limit_s, budget_s)
    spent, arms, best = 0, 0, defaults
    if defaults:
        budget = runs - FINAL_REPEATS * len(tasks)
        size = _size(budget, len(tasks))
        raced = distinct_settings(defaults, size, _stream(seed, "arms"))
        arms = len(raced)
        if arms > 1:
            race = _Race(program, tasks, runner, _stream(seed, "race"), rules)
            best = race.winner(raced)
            spent = race.runs
    finalists = [ProgramSearcher(DEFAULT, program)]
    if best != defaults:
        finalists.append(ProgramSearcher(TUNED, program.with_settings(**best)))
    plan = make_plan(finalists, tasks, FINAL_REPEATS, rules)
    results = run_bench(plan, finalists, tasks, runner)
    assert results.analysis is not None
    standings = {standing.searcher: standing for standing in results.analysis.standings}
    outcome = Tuning(
        settings=defaults,
        default=standings[DEFAULT],
        tuned=standings.get(TUNED),
        comparison=next(iter(results.analysis.comparisons), None),
        arms=arms,
        runs=spent + plan.size,
        results=results,
    )
    return replace(outcome, settings=best) if outcome.is_tuned else outcome


class _Race:
    """Successive halving; ``runs`` were spent so far."""

    def __init__(
        self,
        program: Program,
        tasks: Sequence[AnyTask],
        runner: BaseRunner,
        seed: int,
        rules: BenchSettings,
    ) -> None:
        self._program, self._tasks, self._runner, self._seed = program, tasks, runner, seed
        self._limits = None if rules.cpu_limit_s is None else Limits(cpu_s=rules.cpu_limit_s)
        self._charge_cpu = rules.charge_cpu
        self.runs = 0

    def winner(self, arms: Sequence[Settings]) -> Settings:
        """The best of ``arms``; of equally good ones the first."""
        traces: dict[int, list[list[Trace]]] = {
            n: [[] for _ in self._tasks] for n in range(len(arms))
        }
        alive, repeats = list(range(len(arms))), 2
        while True:
            self._go_on(arms, alive, traces, repeats)
            ranked = sorted(alive, key=lambda n: (-self._p(traces[n]), n))
            if len(alive) <= 2:
                return arms[ranked[0]]
            alive, repeats = ranked[: len(alive) // 2], 2 * repeats

    def _go_on(
        self,
        arms: Sequence[Settings],
        alive: Sequence[int],
        traces: dict[int, list[list[Trace]]],
        repeats: int,
    ) -> None:
        """Bring each arm to ``repeats`` runs on each space; a repeat's seed is the same for all."""
        pending = []
        for number in alive:
            searcher = ProgramSearcher("arm", self._program.with_settings(**arms[number]))
            for place, task in enumerate(self._tasks):
                for repeat in range(len(traces[number][place]), repeats):
                    seed = run_seed(self._seed, task.name, repeat)
                    run = self._runner.submit(
                        searcher, task, seed, limits=self._limits, charge_cpu=self._charge_cpu
                    )
                    pending.append((traces[number][place], run))
        for own, run in pending:
            own.append(run.result())
        self.runs += len(pending)

    def _p(self, traces: Sequence[Sequence[Trace]]) -> float:
        """Mean P; nothing is worse than a run that failed."""
        if any(trace.is_failed for runs in traces for trace in runs):
            return -np.inf
        scores = [
            score_space(task, runs, bootstrap=0).p
            for task, runs in zip(self._tasks, traces, strict=True)
        ]
        return float(np.mean(scores))


def _size(runs: int, spaces: int) -> int:
    """The most arms, a power of two, whose race takes at most ``runs``; 1 when none does.

    n arms take 2 runs a space each, and every later round as many runs as there were arms.
    """
    size = 1
    while size < _MOST_ARMS and 2 * size * spaces * ((2 * size).bit_length()) <= runs:
        size *= 2
    return size


def _stream(seed: int, purpose: str) -> int:
    """A seed for one purpose: other runs than evolution's, the race's and validation's."""
    text = f"llamea_gpu promotion {purpose} {seed}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
