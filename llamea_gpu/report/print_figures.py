"""Figures as files, for papers: PNG and SVG by Matplotlib, one column wide, the same every time.

The palette is Okabe and Ito's, and series differ in dash and mark as well. Text in SVG stays text.
These are the charts of a page that are worth printing; its own are in the modules ``*_charts``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from llamea_gpu.bench.findings import CURVE_POINTS, Standing
from llamea_gpu.bench.measures import TARGETS_PERCENT
from llamea_gpu.bench.results import BenchResults
from llamea_gpu.errors import LlameaGpuError
from llamea_gpu.report.behaviour import behaviour
from llamea_gpu.report.bench_charts import hit_shares
from llamea_gpu.report.charts import short_names
from llamea_gpu.report.run import Run
from llamea_gpu.report.yields import gain, operator_yields, steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN_INCHES = 3.4
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
_LINES = ("-", "--", ":", "-.")
_MARKS = ("o", "s", "D", "^", "P", "X", "v")
_STYLE: Any = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.color": "#DDDDDD",
    "lines.linewidth": 1.2,
    "savefig.dpi": 300,
    "svg.fonttype": "none",
    # Names come from files and models: a dollar sign in them begins no formula.
    "text.parse_math": False,
    # Ids in the file follow from its content, so that the same figure is the same file.
    "svg.hashsalt": "llamea-gpu",
}

Draw = Callable[[Any], None]


def require_matplotlib() -> None:
    """Check that figures can be written.

    Raises:
        LlameaGpuError: Matplotlib is not installed.
    """
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise LlameaGpuError(
            "figures need Matplotlib, which is not installed: pip install 'llamea-gpu[report]'"
        )


def write_run_figures(run: Run, folder: Path) -> list[Path]:
    """Progress, gain by operator and map of behaviour, as far as the run has them."""
    figures: dict[str, tuple[float, Draw]] = {"progress": (2.1, lambda axes: _progress(axes, run))}
    rows = [item.name for item in operator_yields(run) if item.with_gain]
    if rows:
        figures["gain-by-operator"] = (0.6 + 0.28 * len(rows), lambda ax: _gains(ax, run, rows))
    if sum(bool(traces) for traces in run.traces.values()) >= 3:
        figures["behaviour"] = (2.6, lambda axes: _behaviour(axes, run))
    return _write(figures, folder)


def write_bench_figures(results: BenchResults, folder: Path) -> list[Path]:
    """Ranking, convergence, heat map and the shares of runs that reached each target."""
    if results.analysis is None:
        raise LlameaGpuError("figures need a finished bench: give its command again to finish it")
    standings = results.analysis.standings
    n = len(standings)
    figures: dict[str, tuple[float, Draw]] = {
        "ranking": (0.6 + 0.22 * n, lambda axes: _ranking(axes, standings)),
        "convergence": (2.3 + 0.1 * n, lambda axes: _convergence(axes, standings)),
        "heat-map": (
            0.9 + 0.22 * len(standings[0].spaces),
            lambda axes: _heat_map(axes, standings),
        ),
    }
    for percent in TARGETS_PERCENT:
        draw = partial(_reached, results=results, standings=standings, percent=percent)
        figures[f"reached-{percent}-percent"] = (2.1 + 0.1 * n, draw)
    return _write(figures, folder)


def _write(figures: Mapping[str, tuple[float, Draw]], folder: Path) -> list[Path]:
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(_STYLE):
        for name, (height, draw) in figures.items():
            figure = Figure(figsize=(COLUMN_INCHES, height), layout="constrained")
            draw(figure.add_subplot())
            written += _save(figure, folder / name)
    return written


def _save(figure: Figure, stem: Path) -> list[Path]:
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    figure.savefig(svg, metadata={"Date": None, "Creator": None})
    figure.savefig(png, metadata={"Software": None})
    return [svg, png]


def _progress(axes: Any, run: Run) -> None:
    found = steps(run)
    slots = [step.candidate.slot for step in found]
    best = [np.nan if step.best_p is None else step.best_p for step in found]
    scored = [step.candidate for step in found if step.candidate.p is not None]
    axes.errorbar(
        [c.slot for c in scored],
        [c.p for c in scored],
        yerr=[c.standard_error for c in scored],
        fmt="o",
        markersize=2.5,
        color=_PALETTE[7],
        elinewidth=0.6,
        label="candidates ± s.e.",
    )
    axes.step(slots, best, where="post", color=_PALETTE[0], label="best so far")
    seed = run.highest_seed
    if seed is not None:
        axes.axhline(seed.p, color=_PALETTE[1], linestyle="--", label="best seed program")
    axes.set(xlabel="candidate", ylabel="P")
    axes.legend()


def _gains(axes: Any, run: Run, rows: Sequence[str]) -> None:
    for place, name in enumerate(reversed(rows)):
        values = [gain(run, c) for c in run.written if c.operator == name]
        points = sorted(value for value in values if value is not None)
        at = len(rows) - 1 - place
        mark = _MARKS[at % len(_MARKS)]
        axes.plot(points, [place] * len(points), mark, color=_PALETTE[at % 8], ms=4, alpha=0.8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), list(reversed(rows)))
    axes.set(xlabel="P − best parent's P")


def _behaviour(axes: Any, run: Run) -> None:
    found = behaviour(run)
    if found is None:
        return
    own = ["seed program" if c.slot < 0 else c.operator for c in found.candidates]
    for at, name in enumerate(dict.fromkeys(own)):
        here = [i for i, operator in enumerate(own) if operator == name]
        x, y = found.place[here].T
        axes.plot(x, y, _MARKS[at % 7], color=_PALETTE[at % 8], ms=4, alpha=0.8, label=name)
    axes.set(xlabel=f"axis 1 (both: {found.explained:.0%} of the spread)", ylabel="axis 2")
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend()


def _ranking(axes: Any, standings: Sequence[Standing]) -> None:
    order = list(reversed(standings))
    short = short_names([s.searcher for s in order])
    for place, standing in enumerate(order):
        spaces, runs = standing.interval_spaces, standing.interval
        if spaces is not None:
            axes.plot([spaces.low, spaces.high], [place] * 2, color=_PALETTE[7], linewidth=0.8)
        if runs is not None:
            axes.plot([runs.low, runs.high], [place] * 2, color=_PALETTE[0], linewidth=3, alpha=0.5)
        axes.plot(standing.p, place, "D", color=_PALETTE[0], ms=3.5)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_yticks(range(len(order)), list(short.values()))
    axes.set(xlabel="P")


def _convergence(axes: Any, standings: Sequence[Standing]) -> None:
    x = np.linspace(0, 1, CURVE_POINTS)
    short = short_names([s.searcher for s in standings])
    for at, standing in enumerate(standings):
        tone = _PALETTE[at % len(_PALETTE)]
        if standing.curve_low is not None and standing.curve_high is not None:
            low, high = standing.curve_low, standing.curve_high
            axes.fill_between(x, low, high, color=tone, alpha=0.12, linewidth=0)
        axes.plot(
            x,
            standing.curve,
            _LINES[at % len(_LINES)],
            color=tone,
            label=short[standing.searcher],
        )
    lowest = min(min(standing.curve) for standing in standings)
    axes.set(xlabel="share of the time axis", ylabel="P", ylim=(max(lowest, -1.0) - 0.1, 1.05))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)


def _heat_map(axes: Any, standings: Sequence[Standing]) -> None:
    spaces = [s.space for s in standings[0].spaces]
    p = np.array([[s.spaces[i].p for s in standings] for i in range(len(spaces))])
    axes.imshow(np.clip(p, -1, 1), cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
    for row, column in np.ndindex(p.shape):
        tone = "white" if abs(p[row, column]) > 0.65 else "black"
        text = f"{p[row, column]:.2f}".replace("-", "−")
        axes.text(column, row, text, ha="center", va="center", fontsize=6, color=tone)
    short = short_names([s.searcher for s in standings])
    axes.set_xticks(range(len(standings)), list(short.values()), rotation=35, ha="right")
    axes.set_yticks(range(len(spaces)), spaces)
    axes.grid(visible=False)


def _reached(axes: Any, results: BenchResults, standings: Sequence[Standing], percent: int) -> None:
    grid = np.linspace(0, 1, CURVE_POINTS)
    short = short_names([s.searcher for s in standings])
    for at, standing in enumerate(standings):
        hits = np.sort(hit_shares(results, standing.searcher, percent))
        reached = np.searchsorted(hits, grid, side="right") / max(1, hits.size)
        axes.step(
            grid,
            reached,
            _LINES[at % len(_LINES)],
            where="post",
            color=_PALETTE[at % len(_PALETTE)],
            label=short[standing.searcher],
        )
    axes.set(
        xlabel="share of the budget", ylabel=f"runs within {percent} %", xlim=(0, 1), ylim=(0, 1.02)
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)
