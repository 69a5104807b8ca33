"""The gate: who passes, who does not, and what is held out from whom."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.modelled import formula_cloud

from llamea_gpu.models import gate
from llamea_gpu.models.gate import Agreement, Part, ceiling, examine, spearman

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def figures(few_trees):
    return examine(formula_cloud(500))


def test_a_formula_passes(figures) -> None:
    assert figures.faults() == []
    assert set(figures.left_out) == {"near", "cross"}  # random points are no optimizer's
    cloud = formula_cloud(500)
    assert figures.folds.points == len(set(cloud.source[cloud.ok]))  # fewer than work
    assert figures.folds.curve is None
    assert all(0.95 < each.curve < 1.1 for each in figures.left_out.values())
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


def taken(cloud, rows: np.ndarray):
    """The cloud of these rows."""
    columns = (
        *("configurations", "statuses", "times_ms", "low_ms", "high_ms", "compile_s"),
        *("benchmark_s", "control_ms", "source", "how", "run", "at_s"),
    )
    return replace(cloud, **{column: getattr(cloud, column)[rows] for column in columns})


def test_a_code_counts_once_however_often_it_was_asked_for(figures) -> None:
    cloud = formula_cloud(500)
    best = int(np.nanargmin(cloud.times_ms))
    found = examine(taken(cloud, np.concatenate([np.arange(500), np.full(300, best)]))).folds
    assert (found.points, found.near.points) == (figures.folds.points, figures.folds.near.points)
    assert found.spearman == pytest.approx(figures.folds.spearman, abs=0.03)


def test_an_optimizers_points_are_left_out_where_half_of_the_codes_remain() -> None:
    cloud = formula_cloud(400)
    first = np.arange(400) < 60  # some 30 codes and more
    assert "few" in examine(replace(cloud, how=np.where(first, "few", cloud.how))).left_out
    most = replace(cloud, how=np.where(np.arange(400) < 350, "most", cloud.how))
    assert "most" not in examine(most).left_out
    fewer = replace(cloud, how=np.where(np.arange(400) < 20, "fewer", cloud.how))
    assert "fewer" not in examine(fewer).left_out


def test_neither_runs_nor_a_models_own_predictions_are_optimizers() -> None:
    cloud = formula_cloud(400, runs=2)
    how = np.where(cloud.how == "random", np.where(cloud.run, "proposed", "control"), cloud.how)
    assert set(examine(replace(cloud, how=how)).left_out) == {"near", "cross"}


def test_an_optimizer_that_went_where_the_model_expects_nothing_good_rejects_it() -> None:
    """Its order is right, and so it would be for a model that breeds against what is known."""
    cloud = formula_cloud(700)
    # What one value of a parameter brings is known of this optimizer's points alone.
    one = cloud.configurations[:, 4] == 1
    cloud = taken(cloud, np.flatnonzero(~one | (np.arange(700) % 2 == 0)))
    apart = cloud.configurations[:, 4] == 1
    how = np.where(apart, "explorer", cloud.how)
    times = np.where(apart, cloud.times_ms / 2, cloud.times_ms)
    found = examine(replace(cloud, how=how, times_ms=times, low_ms=times, high_ms=times))
    explorer = found.left_out["explorer"]
    assert explorer.spearman > 0.9 * explorer.ceiling
    assert explorer.curve is not None
    assert explorer.curve > 1.5
    assert any("runs of explorer" in fault for fault in found.faults())


def test_ranks_of_optimizers_are_judged_in_the_mean(figures) -> None:
    def agreement(points: int, overall: float, near: float) -> Agreement:
        part = Part(0.1, points // 10, 1.01, near, 1.0)
        return Agreement(points, overall, 1.0, part, part, 1.0)

    def faults(*each: Agreement) -> list[str]:
        return replace(figures, left_out={str(i): one for i, one in enumerate(each)}).faults()

    assert faults() == []
    assert faults(agreement(300, 0.95, 0.7), agreement(100, 0.86, 0.4)) == []
    (near,) = faults(agreement(100, 0.95, 0.7), agreement(300, 0.95, 0.4))
    assert "0.475 near the best" in near
    (overall,) = faults(agreement(100, 0.95, 0.7), agreement(300, 0.88, 0.7))
    assert "0.897 of what is possible overall" in overall
    # A ceiling below 1 is what is asked of: .82 of .9.
    assert faults(replace(agreement(100, 0.82, 0.7), ceiling=0.9)) == []


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
