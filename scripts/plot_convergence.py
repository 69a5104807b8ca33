"""The README's plot: how far from the optimum searchers are, by configurations measured.

    llamea-gpu bench growing_foresight iterated_local_search random_search helion:LFBOTreeSearch \\
        --spaces matmul_gelu-2048x8192 --spaces rms_norm-16384x4096 \\
        --spaces cross_entropy-4096x32000 --spaces rope-4x32x4096x128 --repeats 10 -o FOLDER
    python scripts/plot_convergence.py FOLDER -o docs/images/convergence.svg

For each number of configurations: the best time so far over the optimum, geometric mean over all
runs of a searcher on all spaces of the bench. A run that has ended keeps its best; until something
works, a run counts with the median of its space.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from llamea_gpu.bench import BenchResults

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 210, 22, 46
MOST = 200  # configurations
TICKS_X = (1, 2, 5, 10, 20, 50, 100, 200)
TICKS_Y = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)  # % above the optimum
OURS = ("growing_foresight", "conditioned_local_search", "main_effect_posterior")
COLORS = ("#d1495b", "#00798c", "#8a6d3b", "#7a7f87", "#5b3a8c", "#2e7d32")


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


def x_of(configurations: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(configurations) / math.log(MOST)


def y_of(percent: float) -> float:
    low, high = math.log(TICKS_Y[0]), math.log(TICKS_Y[-1])
    at = (min(max(math.log(max(percent, 1e-9)), low), high) - low) / (high - low)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * at


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'


def svg(results: BenchResults) -> str:
    curves = {s.name: excess_percent(results, s.name) for s in results.plan.searchers}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for tick in TICKS_X:
        x = x_of(tick)
        parts.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>')
        parts.append(text(x, HEIGHT - BOTTOM + 16, str(tick), 'text-anchor="middle"'))
    for percent in TICKS_Y:
        y = y_of(percent)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#eee"/>')
        parts.append(text(LEFT - 6, y + 4, f"{percent:g} %", 'text-anchor="end"'))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(text(middle, HEIGHT - 10, "configurations measured", 'text-anchor="middle"'))
    parts.append(text(LEFT - 50, TOP - 8, "kernel time above the optimum"))
    ends: list[float] = []
    colors = dict(zip(sorted(curves, key=lambda name: name not in OURS), COLORS, strict=False))
    for name, curve in sorted(curves.items(), key=lambda item: item[1][-1]):
        color = colors[name]
        points = [f"{x_of(n + 1):.1f} {y_of(value):.1f}" for n, value in enumerate(curve)]
        bold = 3 if name in OURS else 1.6
        parts.append(
            f'<path d="M{"L".join(points)}" fill="none" stroke="{color}" stroke-width="{bold}"/>'
        )
        y = y_of(curve[-1]) + 4  # labels stand below one another, the best lowest
        y = min([y, *(end - 15 for end in ends)])
        ends.append(y)
        weight = 'font-weight="bold"' if bold > 2 else ""
        parts.append(text(WIDTH - RIGHT + 8, y, name, f'fill="{color}" {weight}'))
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    results = BenchResults.load(given.folder)
    given.output.write_text(svg(results), encoding="utf-8")
    for searcher in results.plan.searchers:
        curve = excess_percent(results, searcher.name)
        told = ", ".join(f"{n}: {curve[n - 1]:.2f} %" for n in (10, 30, 50, 100, 200))
        print(f"{searcher.name}: {told}")


if __name__ == "__main__":
    main()
