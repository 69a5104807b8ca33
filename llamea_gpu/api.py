"""For notebooks and scripts: load a space, run a searcher, bench several, tune a kernel.

    import llamea_gpu.api as lg

    space = lg.load_space("matmul-2048")
    run = lg.run("growing_foresight", space, seed=1)
    run.best_ms, run.best, run.plot()

Four functions over what the command line uses, with the same names and the same results for the
same seed. `Search` and `Bench` hold the results as data, as a pandas table and as a Plotly figure;
pandas and Plotly come with the extra ``notebook`` and are imported when they are asked for.

What it does not do: evolve, promote or record; those take hours and belong to ``llamea-gpu``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.bench import BenchResults, BenchSettings, make_plan, run_bench
from llamea_gpu.bench.findings import Analysis
from llamea_gpu.bench.suites import spaces_of
from llamea_gpu.errors import LlameaGpuError
from llamea_gpu.live import TuneProgress, TuneSettings, TuningResult, tune_recording, tune_script
from llamea_gpu.live.scripts import find_kernel_script
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces import catalogue
from llamea_gpu.spaces.catalogue import search_path_from_environment
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.tasks import build_tasks

if TYPE_CHECKING:
    from pandas import DataFrame

    from llamea_gpu.report.figures import Figure

__all__ = ["Bench", "Search", "bench", "load_space", "run", "tune"]


@dataclass(frozen=True, slots=True)
class Search:
    """One search, of a recording or of a live kernel. ``result`` is all of it."""

    result: TuningResult

    @property
    def times_ms(self) -> NDArray[np.float64]:
        """(n,) the time of each configuration in the order of measuring, inf where it failed."""
        return np.array([each.time_ms for each in self.result.measured])

    @property
    def best_so_far(self) -> NDArray[np.float64]:
        """(n,) the best time in ms after each configuration, inf until one works."""
        return np.minimum.accumulate(self.times_ms)

    @property
    def best_ms(self) -> float:
        """The best time in ms; inf when nothing worked."""
        return self.result.best.time_ms if self.result.best else math.inf

    @property
    def best(self) -> Mapping[str, Any]:
        """The best configuration, parameter to value; empty when nothing worked."""
        return dict(self.result.best.configuration) if self.result.best else {}

    @property
    def code(self) -> str:
        """The best configuration to paste, in the framework's language."""
        return self.result.code

    def to_pandas(self) -> DataFrame:
        """A row for each configuration: when, how fast, the best until then, and its values.

        Raises:
            LlameaGpuError: pandas is not installed.
        """
        best = self.best_so_far
        rows = [
            {
                "evaluation": number,
                "elapsed_s": each.elapsed_s,
                "time_ms": each.time_ms,
                "best_so_far_ms": best[number - 1],
                **each.configuration,
            }
            for number, each in enumerate(self.result.measured, 1)
        ]
        return _frame(rows)

    def plot(
        self, *others: Search, by: Literal["evaluations", "seconds"] = "evaluations"
    ) -> Figure:
        """The best time so far, beside ``others``; the default's and the optimum, where known.

        Raises:
            LlameaGpuError: Plotly is not installed.
        """
        from llamea_gpu.report.charts import axis, figure, label, line, lines
        from llamea_gpu.report.figures import notebook_figure

        traces = []
        for place, search in enumerate((self, *others)):
            measured, best = search.result.measured, search.best_so_far
            works = np.isfinite(best)
            number = np.arange(1, len(best) + 1, dtype=np.float64)
            at = number if by == "evaluations" else np.array([m.elapsed_s for m in measured])
            name = label(f"{search.result.searcher} (seed {search.result.seed})")
            steps = {**line(place), "shape": "hv"}
            traces.append(lines(name, at[works].tolist(), best[works].tolist(), line=steps))
        x = axis("configurations measured" if by == "evaluations" else "seconds")
        drawn = notebook_figure(
            figure(traces, x=x, y=axis("best time so far, ms")),
            f"{self.result.kernel} on {self.result.device}",
        )
        for name, time_ms in (
            ("default", self.result.default_ms),
            ("optimum", self.result.optimum_ms),
        ):
            if time_ms is not None:
                drawn.add_hline(y=time_ms, line_dash="dot", line_width=1, annotation_text=name)
        return drawn

    def __repr__(self) -> str:
        count = len(self.result.measured)
        return f"<{self.result.searcher}: {self.best_ms:.6g} ms after {count} configurations>"


@dataclass(frozen=True, slots=True)
class Bench:
    """A finished bench. ``results`` is all of it: plan, traces, analysis."""

    results: BenchResults

    def to_pandas(self) -> DataFrame:
        """A row for each searcher on each space; ``final_ms`` is the mean time at the end.

        Raises:
            LlameaGpuError: pandas is not installed.
        """
        rows = []
        spaces = {space.name: space for space in self.results.plan.spaces}
        for standing in self._analysis.standings:
            for space_standing in standing.spaces:
                space = spaces[space_standing.space]
                final_ms = space.optimum_ms * (1 + space_standing.regret)
                near = {
                    f"evaluations_to_{r.percent}_percent": r.median_evaluations
                    for r in space_standing.reaches
                }
                default_ms = space.default_ms
                rows.append(
                    {
                        "searcher": standing.searcher,
                        "space": space_standing.space,
                        "p": space_standing.p,
                        **(asdict(space_standing.interval) if space_standing.interval else {}),
                        "final_ms": final_ms,
                        "speed_up": None if default_ms is None else default_ms / final_ms,
                        **near,
                        "own_cpu_s": space_standing.cpu_s,
                    }
                )
        return _frame(rows)

    def plot(self) -> Figure:
        """P along the tuning time, mean over spaces, with bands of 95 % from five repeats on.

        Raises:
            LlameaGpuError: Plotly is not installed.
        """
        from llamea_gpu.report.bench_charts import overall_convergence
        from llamea_gpu.report.figures import notebook_figure

        plan = self.results.plan
        chart = overall_convergence(self._analysis.standings, plan.measure)
        return notebook_figure(
            chart.figure, f"{len(plan.spaces)} spaces, {plan.repeats} repeats: {plan.measure.scale}"
        )

    @property
    def _analysis(self) -> Analysis:
        if self.results.analysis is None:
            raise LlameaGpuError("a bench must be finished: bench() returns such a one")
        return self.results.analysis

    def __repr__(self) -> str:
        return "\n".join((*self._analysis.sentences, *self._analysis.cautions))


def load_space(name: str | Path, spaces_path: Sequence[str | Path] = ()) -> Recording:
    """A recording: one that ships, a file, or a name under a folder of ``spaces_path``.

    Raises:
        SpaceError: nothing answers to the name, or the file cannot be read.
    """
    return catalogue.load_space(str(name), _path(spaces_path))


def run(
    searcher: str,
    space: Recording | str,
    *,
    seed: int = 1,
    evaluations: int | None = None,
    seconds: float | None = None,
    clock: str = "",
) -> Search:
    """One search of a recording, in simulated time: needs no GPU.

    Args:
        searcher: a spec, as on the command line: a name, ``FILE.py``, ``kernel_tuner:NAME`` ...
        space: what `load_space` gives, or a name for it.
        seed: the run depends on it alone.
        evaluations: the budget as a number of configurations; or
        seconds: as simulated seconds. Default: the recording's own budget.
        clock: ``sequential``, ``parallel(W)`` or ``pipelined(W)``; default: the recording's own.

    Raises:
        LlameaGpuError: no such searcher or space; or the searcher fails.
    """
    recording = load_space(space) if isinstance(space, str) else space
    given: dict[str, Any] = {"evaluations": evaluations, "seconds": seconds, "clock": clock}
    return Search(tune_recording(recording, searcher, TuneSettings(seed=seed, **given)))


def tune(
    kernel: str | Path,
    searcher: str,
    *,
    progress: Callable[[TuneProgress], None] = lambda _: None,
    **settings: Any,
) -> Search:
    """Tune a live kernel on this machine's GPU: a script, or one that ships (``helion/matmul``).

    ``settings`` are the fields of `llamea_gpu.live.TuneSettings`, such as ``seconds=60``,
    ``shape="2048"``, ``seed=1``. The script is executed.

    Raises:
        LlameaGpuError: no such script or searcher, no GPU, or no configuration works.
    """
    path = find_kernel_script(str(kernel))
    return Search(tune_script(path, searcher, TuneSettings(**settings), progress))


def bench(
    searchers: Sequence[str],
    spaces: Sequence[str] | str = "quick",
    *,
    repeats: int = 10,
    seed: int = 1,
    clock: str = "",
    charge_cpu: bool = False,
    folder: str | Path | None = None,
    workers: int | None = None,
    spaces_path: Sequence[str | Path] = (),
) -> Bench:
    """Searchers side by side on recordings, seeds paired.

    Args:
        searchers: their specs.
        spaces: a suite (``quick``, ``validation`` ...), or names and patterns of recordings.
        repeats: runs of each searcher on each space.
        seed: of all runs.
        clock: as for `run`.
        charge_cpu: whether a searcher's own CPU seconds count as tuning time.
        folder: keeps every run: the same call goes on there, one with more adds to it.
        workers: runs side by side; default: all cores.
        spaces_path: folders with further recordings.

    Raises:
        LlameaGpuError: no such searcher or space, or a folder of another bench.
    """
    path = _path(spaces_path)
    names = spaces_of([spaces] if isinstance(spaces, str) else spaces, path)
    tasks = build_tasks(catalogue.load_spaces(names, path), clock)
    sources = [resolve(spec) for spec in searchers]
    plan = make_plan(sources, tasks, repeats, BenchSettings(seed, clock, charge_cpu))
    with Runner.open(workers=workers) as runner:
        kept = None if folder is None else Path(folder)
        return Bench(run_bench(plan, sources, tasks, runner, folder=kept))


def _path(folders: Sequence[str | Path]) -> tuple[Path, ...]:
    return (*map(Path, folders), *search_path_from_environment())


def _frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    try:
        from pandas import DataFrame
    except ImportError:
        raise LlameaGpuError(
            "a table needs pandas, which is not installed: pip install 'llamea-gpu[notebook]'"
        ) from None
    return DataFrame(list(rows))
