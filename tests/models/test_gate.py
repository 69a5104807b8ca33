"""The gate: who passes, who does not, and what is held out from whom."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.modelled import formula_cloud

from llamea_gpu.models import gate
from llamea_gpu.models.gate import ceiling, examine, spearman

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def figures(few_trees):
    return examine(formula_cloud(500))


def test_a_formula_passes(figures) -> None:
    assert figures.faults() == []
    assert set(figures.left_out) == {"near", "cross"}  # random points are no optimizer's
    assert figures.folds.points == formula_cloud(500).ok.sum()
    assert figures.folds.spearman > 0.95
    assert figures.status.auc is not None
    assert figures.status.auc > 0.95
    assert figures.status.failing == pytest.approx(1 - formula_cloud(500).ok.mean())
    assert figures.seconds.compile_error < 0.1
    assert figures.seconds.compile_total == pytest.approx(1, abs=0.1)


def test_times_without_a_cause_do_not_pass() -> None:
    cloud = formula_cloud(500)
    rng = np.random.default_rng(0)
    times = cloud.times_ms.copy()
    works = np.flatnonzero(cloud.ok)
    times[works] = times[rng.permutation(works)]
    codes = np.array([f"{i}" for i in range(len(cloud))])  # no repeats: noise is not known
    shuffled = replace(
        cloud, times_ms=times, low_ms=times, high_ms=times, source=codes, configurations=cells(500)
    )
    faults = examine(shuffled).faults()
    assert any("held-out points" in fault and "overall" in fault for fault in faults)
    assert any("fitted without them" in fault for fault in faults)


def cells(rows: int) -> np.ndarray:
    """Distinct configurations."""
    numbers = np.random.default_rng(1).permutation(5 * 5 * 5 * 4 * 2 * 2)[:rows]
    return np.stack(np.unravel_index(numbers, (5, 5, 5, 4, 2, 2)), axis=1)


def test_no_fit_has_seen_code_that_it_is_asked_for(monkeypatch) -> None:
    cloud = formula_cloud(300)
    seen = []

    def spied(name):
        real = getattr(gate, name)

        def fit(features, readings, rows, *asked):
            seen.append((readings.group, rows.copy()))
            return real(features, readings, rows, *asked)

        monkeypatch.setattr(gate, name, fit)

    spied("grow")
    spied("times")
    examine(cloud)
    assert len(seen) == gate.FOLDS + 2
    for group, rows in seen:
        fitted = set(cloud.source[rows & cloud.ok])
        held_out = set(cloud.source[~rows & cloud.ok])
        assert fitted
        assert held_out
        assert not fitted & held_out
        assert not set(group[rows]) & set(group[~rows])
    for how, (_, rows) in zip(("cross", "near"), seen[gate.FOLDS :], strict=True):
        assert not (cloud.how[rows] == how).any()


def test_a_run_is_left_out_where_half_of_what_works_remains() -> None:
    cloud = formula_cloud(400, runs=3)
    assert {"all in run 0", "all in run 1", "all in run 2"} <= set(examine(cloud).left_out)
    mostly = replace(cloud, run=np.where(np.arange(400) < 350, 0, cloud.run))
    assert "all in run 0" not in examine(mostly).left_out


def test_a_run_of_one_optimizer_alone_is_left_out_once() -> None:
    cloud = formula_cloud(400, runs=2)
    how = np.where((cloud.run == 1) & (cloud.how != "random"), "searcher", cloud.how)
    found = set(examine(replace(cloud, how=how)).left_out)
    assert found == {"near", "cross", "searcher", "all in run 0"}


def test_the_part_near_the_best_is_as_wide_as_the_readings_can_order() -> None:
    quiet = examine(formula_cloud(500)).folds
    assert quiet.near.share == 0.1
    assert quiet.near == quiet.tenth
    noisy = examine(formula_cloud(500, noise=0.1)).folds
    assert noisy.tenth.ceiling < gate.CEILING <= noisy.near.ceiling
    assert noisy.near.share > 0.1
    assert noisy.near.points > noisy.tenth.points


def test_the_ceiling_is_what_the_truth_reaches() -> None:
    rng = np.random.default_rng(3)
    for noise in (0.2, 0.5, 0.8):
        truth = rng.standard_normal(4_000)
        read = truth + noise * rng.standard_normal(4_000)
        assert ceiling(read, noise) == pytest.approx(spearman(truth, read), abs=0.03)
    assert ceiling(rng.standard_normal(500), 3.0) == 0.0  # readings are noise alone
    assert ceiling(rng.standard_normal(5), math.nan) == 1.0


def test_rank_correlation() -> None:
    assert spearman(np.array([1.0, 2, 3]), np.array([2.0, 4, 9])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2, 3]), np.array([9.0, 4, 2])) == pytest.approx(-1)
    assert spearman(np.array([1.0, 2, 3]), np.array([1.0, 1, 1])) == 0.0
