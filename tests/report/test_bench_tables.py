"""The tables of a bench, which the terminal prints as well: their numbers, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llamea_gpu.bench.results import BenchResults
from llamea_gpu.report.bench_tables import effort_table, spaces_table, standings_table


@pytest.fixture(scope="module")
def results(bench_folder: Path) -> BenchResults:
    return BenchResults.load(bench_folder)


def test_what_it_takes_to_come_near_is_counted_over_all_runs(results: BenchResults) -> None:
    assert results.analysis is not None
    table = effort_table(results.analysis.standings, results.plan.measure)
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        hits = []
        for space in results.plan.spaces:
            for trace in results.traces(cells["searcher"], space.name):
                near = np.flatnonzero(trace.cost_ms <= 1.05 * space.optimum_ms)
                hits.append(near[0] + 1 if near.size else np.inf)
        share, _, median = cells["within 5 %"].partition(": ")
        assert share == f"{np.mean(np.isfinite(hits)):.0%}"
        assert median == (f"{np.median(hits):g}" if np.isfinite(np.median(hits)) else "–")


def test_final_times_are_means_and_speed_ups_are_over_known_defaults(results: BenchResults) -> None:
    assert results.analysis is not None
    standings, measure = results.analysis.standings, results.plan.measure
    spaces = list(results.plan.spaces)
    spaces[0] = replace(spaces[0], default_ms=10 * spaces[0].optimum_ms, budget_evaluations=5.0)
    table = spaces_table(standings, spaces, measure)
    ranked = standings_table(standings, spaces, measure)
    assert table.rows[0][0] == f"{spaces[0].name}*"  # a lottery
    for place, standing in enumerate(standings):
        best = [t.best_ms for t in results.traces(standing.searcher, spaces[0].name)]
        p, final_ms = table.rows[0][2 + place].split()
        assert p.replace("−", "-") == f"{standing.spaces[0].p:.3f}"
        assert float(final_ms) == pytest.approx(np.mean(best), rel=1e-3)
        cells = dict(zip(ranked.columns, ranked.rows[place], strict=True))
        speed_up = 10 * spaces[0].optimum_ms / np.mean(best)
        assert cells["speed-up over default"] == f"{speed_up:.2f}×"
        assert cells["failed runs"] == "0 of 18"
    # Three spaces say nothing about others.
    assert "spaces like these [95 %]" not in ranked.columns
