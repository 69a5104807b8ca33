"""Who a candidate has to beat, and the benches in which it tries.

What it does: chooses the incumbents, takes from a baseline the runs that are exactly those wanted
(same searcher, measurements, clock and settings), and runs the rest beside the candidate.

What it does not do: judge (`llamea_gpu.promotion.gate` does).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llamea_gpu.bench import BenchResults, BenchSettings, make_plan, run_bench
from llamea_gpu.bench.plan import Plan, RunKey
from llamea_gpu.bench.results import load_baseline, shipped_baseline
from llamea_gpu.errors import SearcherError
from llamea_gpu.modelled import AnyTask
from llamea_gpu.programs.shipped import shipped
from llamea_gpu.promotion.card import Check
from llamea_gpu.runner import BaseRunner
from llamea_gpu.searchers.registry import ProgramSearcher, Searcher, resolve
from llamea_gpu.tasks import Task, Trace

# Kernel Tuner's and Helion's best on the recordings that ship, and quick enough to run.
KERNEL_TUNER = ("kernel_tuner:adaptive_tabu_greywolf", "kernel_tuner:genetic_algorithm")
HELION = ("helion:LFBOTreeSearch",)
# On whole spaces, which Kernel Tuner's strategies cannot search.
WHOLE_SPACES = ("helion:LFBOTreeSearch", "helion:PatternSearch")


def for_whole_spaces() -> tuple[str, ...]:
    """Whom a candidate has to beat on modelled whole spaces, by spec."""
    return (*shipped(), *WHOLE_SPACES)


def reusable_runs(folder: Path | None) -> BenchResults | None:
    """The bench in ``folder``, or the repository's, None in a wheel; what it lacks is run.

    Raises:
        BenchError: it is missing or malformed.
    """
    if folder is not None:
        return BenchResults.load_unfinished(folder)
    return load_baseline() if shipped_baseline().is_dir() else None


class Incumbents:
    """The incumbents by spec; all that ship, Kernel Tuner's and Helion's when none are named.

    Helion's own searchers are for its own recordings unless they are named. On modelled whole
    spaces they must be named: `for_whole_spaces`.
    """

    def __init__(
        self,
        specs: Sequence[str],
        settings: BenchSettings,
        repeats: int,
        baseline: BenchResults | None = None,
    ) -> None:
        self._settings = settings
        self._repeats = repeats
        self._baseline = baseline
        self._runs: dict[RunKey, Trace] = {}
        self.problems: list[Check] = []  # failed, for each incumbent that cannot be run here
        self._everywhere = self._resolved(specs or (*shipped(), *KERNEL_TUNER))
        self._for_helion = [] if specs else self._resolved(HELION)

    def names(self, tasks: Sequence[AnyTask]) -> list[str]:
        """Whom a candidate meets on ``tasks``."""
        return [searcher.name for group, _ in self._groups(tasks) for searcher in group]

    def bench(
        self, candidate: ProgramSearcher, tasks: Sequence[AnyTask], runner: BaseRunner, folder: Path
    ) -> list[BenchResults]:
        """``candidate`` and its incumbents on all ``tasks``, then, if need be, on Helion's alone.

        Kept in ``folder`` and beside it.
        """
        benches: list[BenchResults] = []
        for number, (group, chosen) in enumerate(self._groups(tasks)):
            bench_folder = folder.with_name(f"{folder.name}{'-helion' if number else ''}")
            searchers = [candidate, *group]
            plan = make_plan(searchers, chosen, self._repeats, self._settings)
            known = self._known(plan)
            if benches:  # its runs on some of these spaces
                before = benches[0].runs
                known |= {key: before[key] for key in plan.runs() if key in before}
            if known:
                BenchResults(plan, known).save(bench_folder)
            benches.append(run_bench(plan, searchers, chosen, runner, folder=bench_folder))
        self._keep(benches)
        return benches

    def _groups(self, tasks: Sequence[AnyTask]) -> list[tuple[list[Searcher], list[AnyTask]]]:
        """Incumbents, and the tasks on which they are met; the first group has all tasks."""
        recorded = [task for task in tasks if isinstance(task, Task)]
        helion: list[AnyTask] = [
            t for t in recorded if t.recording.info.framework.lower().startswith("helion")
        ]
        everywhere = list(self._everywhere)
        if not helion or not self._for_helion:
            return [(everywhere, list(tasks))]
        if len(helion) == len(tasks):
            return [([*everywhere, *self._for_helion], list(tasks))]
        return [(everywhere, list(tasks)), (list(self._for_helion), helion)]

    def _known(self, plan: Plan) -> dict[RunKey, Trace]:
        """Runs of ``plan`` that need not be run."""
        own = {key: self._runs[key] for key in plan.runs() if key in self._runs}
        return own | (_same_runs(plan, self._baseline) if self._baseline else {})

    def _keep(self, benches: Sequence[BenchResults]) -> None:
        """Incumbents meet the next candidate with the same runs."""
        ours = {searcher.name for searcher in (*self._everywhere, *self._for_helion)}
        for results in benches:
            self._runs |= {key: run for key, run in results.runs.items() if key.searcher in ours}

    def _resolved(self, specs: Sequence[str]) -> list[Searcher]:
        searchers = []
        for spec in specs:
            try:
                searchers.append(resolve(spec))
            except SearcherError as error:
                name = f"incumbent {spec}"
                self.problems.append(Check(name, "missing", "installed", False, str(error)))
        return searchers


def _same_runs(plan: Plan, baseline: BenchResults) -> dict[RunKey, Trace]:
    """Runs of the baseline that are exactly those of ``plan``."""
    if baseline.plan.settings != plan.settings:
        return {}
    digests = {
        searcher.name: (searcher.kind, searcher.digest) for searcher in baseline.plan.searchers
    }
    spaces = {space.name: (space.fingerprint, space.clock) for space in baseline.plan.spaces}
    same = {s.name for s in plan.searchers if digests.get(s.name) == (s.kind, s.digest)}
    same_spaces = {s.name for s in plan.spaces if spaces.get(s.name) == (s.fingerprint, s.clock)}
    return {
        key: baseline.runs[key]
        for key in plan.runs()
        if key.searcher in same and key.space in same_spaces and key in baseline.runs
    }
