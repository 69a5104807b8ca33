"""The README's plots: how far from the best searchers are, by configurations or by seconds.

    llamea-gpu bench growing_foresight iterated_local_search random_search helion:LFBOTreeSearch \\
        --spaces matmul_gelu-2048x8192 --spaces rms_norm-16384x4096 \\
        --spaces cross_entropy-4096x32000 --spaces rope-4x32x4096x128 --repeats 10 -o FOLDER
    python scripts/plot_convergence.py FOLDER -o docs/images/convergence.svg
    python scripts/plot_convergence.py --live RUNS.jsonl[.gz] ... -o docs/images/live.svg

Of a bench, for each number of configurations: the best time so far over the optimum, geometric mean
over all runs of a searcher on all spaces. A run that has ended keeps its best; until something
works, a run counts with the median of its space.

Of live runs (runs.jsonl of ``bench_live.py``; each file is a session), for each second: the best
reading so far over the best of its session on that kernel, geometric mean over all runs of an arm
on the engine; until there is a reading, the default's. Arms in several files are drawn from the
first.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llamea_gpu.bench import BenchResults

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 235, 22, 46
MOST = 200  # configurations
OURS = (
    "growing_foresight",
    "conditioned_local_search",
    "main_effect_posterior",
    "improvement_by_instalments",
)
COLORS = ("#d1495b", "#00798c", "#8a6d3b", "#7a7f87", "#5b3a8c", "#2e7d32")

Curves = Mapping[str, np.ndarray]  # by searcher, (N,) percent above the best


@dataclass(frozen=True)
class Axes:
    """Where the N values of a curve are, and both axes, which are logarithmic."""

    at: np.ndarray
    label: str
    ticks: Sequence[float]
    above: str
    percents: Sequence[float]

    def x(self, value: float) -> float:
        low, high = math.log(self.ticks[0]), math.log(self.ticks[-1])
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log(value) - low) / (high - low)

    def y(self, percent: float) -> float:
        low, high = math.log(self.percents[0]), math.log(self.percents[-1])
        at = (min(max(math.log(max(percent, 1e-9)), low), high) - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * at


BENCH = Axes(
    at=np.arange(1, MOST + 1),
    label="configurations measured",
    ticks=(1, 2, 5, 10, 20, 50, 100, 200),
    above="kernel time above the optimum",
    percents=(0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50),
)
LIVE = Axes(
    at=np.arange(8, 181) / 4,
    label="seconds of tuning",
    ticks=(2, 3, 5, 10, 15, 20, 30, 45),
    above="kernel time above the best",
    percents=(1, 2, 5, 10, 20, 50, 100),
)


def of_bench(folder: Path) -> Curves:
    """After 1, 2, ... configurations."""
    results = BenchResults.load(folder)
    return {s.name: excess_percent(results, s.name) for s in results.plan.searchers}


def excess_percent(results: BenchResults, searcher: str) -> np.ndarray:
    """(MOST,) % above the optimum after 1, 2, ... configurations."""
    logs = []
    for space in results.plan.spaces:
        for trace in results.traces(searcher, space.name):
            best = np.minimum.accumulate(np.minimum(trace.cost_ms, space.median_ms))
            padded = np.full(MOST, best[-1] if best.size else space.median_ms)
            padded[: best.size] = best[:MOST]
            logs.append(np.log(padded / space.optimum_ms))
    return 100 * (np.exp(np.mean(logs, axis=0)) - 1)


def of_live(files: Sequence[Path]) -> Curves:
    """At each of LIVE's seconds."""
    curves: dict[str, np.ndarray] = {}
    for file in files:
        data = file.read_bytes()
        lines = (gzip.decompress(data) if file.suffix == ".gz" else data).splitlines()
        runs = [json.loads(line) for line in lines]
        best: dict[str, float] = defaultdict(lambda: math.inf)
        for run in runs:
            times = [time_ms for _, time_ms in run["measured"] if time_ms]
            best[run["kernel"]] = min([best[run["kernel"]], *times])
        arms: dict[str, list[np.ndarray]] = defaultdict(list)
        for run in runs:
            engine, _, name = run["arm"].partition("=")
            if engine == "pipelined" and run["default_ms"]:
                so_far = np.full(len(LIVE.at), run["default_ms"])
                for second, time_ms in run["measured"]:
                    if time_ms:
                        so_far[LIVE.at >= second] = np.minimum(so_far[LIVE.at >= second], time_ms)
                arms[name.removesuffix(".py")].append(np.log(so_far / best[run["kernel"]]))
        most = max(map(len, arms.values()))
        for name, logs in arms.items():
            if len(logs) == most:  # an arm of some kernels would be another mean
                curves.setdefault(name, 100 * (np.exp(np.mean(logs, axis=0)) - 1))
    return curves


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'


def svg(curves: Curves, axes: Axes) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for tick in axes.ticks:
        x = axes.x(tick)
        parts.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>')
        parts.append(text(x, HEIGHT - BOTTOM + 16, f"{tick:g}", 'text-anchor="middle"'))
    for percent in axes.percents:
        y = axes.y(percent)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#eee"/>')
        parts.append(text(LEFT - 6, y + 4, f"{percent:g} %", 'text-anchor="end"'))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(text(middle, HEIGHT - 10, axes.label, 'text-anchor="middle"'))
    parts.append(text(LEFT - 50, TOP - 8, axes.above))
    ends: list[float] = []
    colors = dict(zip(sorted(curves, key=lambda name: name not in OURS), COLORS, strict=False))
    for name, curve in sorted(curves.items(), key=lambda item: item[1][-1]):
        color = colors[name]
        points = [
            f"{axes.x(at):.1f} {axes.y(value):.1f}"
            for at, value in zip(axes.at, curve, strict=True)
        ]
        bold = 3 if name in OURS else 1.6
        parts.append(
            f'<path d="M{"L".join(points)}" fill="none" stroke="{color}" stroke-width="{bold}"/>'
        )
        y = axes.y(curve[-1]) + 4  # labels stand below one another, the best lowest
        y = min([y, *(end - 15 for end in ends)])
        ends.append(y)
        weight = 'font-weight="bold"' if bold > 2 else ""
        parts.append(text(WIDTH - RIGHT + 8, y, name, f'fill="{color}" {weight}'))
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, nargs="+", help="a bench's folder, or files of runs")
    parser.add_argument("--live", action="store_true", help="files of bench_live.py's runs")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    axes = LIVE if given.live else BENCH
    curves = of_live(given.source) if given.live else of_bench(given.source[0])
    given.output.write_text(svg(curves, axes), encoding="utf-8")
    for name, curve in curves.items():
        at = [int(np.argmin(np.abs(axes.at - tick))) for tick in axes.ticks[3:]]
        print(f"{name}: " + ", ".join(f"{axes.at[i]:g}: {curve[i]:.2f} %" for i in at))


if __name__ == "__main__":
    main()
