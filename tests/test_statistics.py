"""Resampling is deterministic and fair; tests agree with hand and textbook."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from llamea_gpu.statistics import (
    bootstrap_counts,
    bootstrap_standard_error,
    friedman_p_value,
    holm,
    mean_of_independent,
    mean_ranks,
    nemenyi_critical_difference,
    smallest_wilcoxon_p,
    student_half_width,
    student_p_value,
    vargha_delaney,
    wilcoxon_p_value,
)


def test_a_resample_draws_as_many_items_as_there_are() -> None:
    counts = bootstrap_counts(7, 50)
    assert counts.shape == (50, 7)
    assert (counts.sum(axis=1) == 7).all()


def test_resamples_are_pinned() -> None:
    assert bootstrap_counts(4, 3).tolist() == [[0, 1, 1, 2], [2, 1, 0, 1], [1, 0, 1, 2]]


def test_every_item_is_drawn_equally_often() -> None:
    # 20,000 draws of each item: the standard deviation is below 141.
    counts = bootstrap_counts(10, 20_000).sum(axis=0)
    assert np.abs(counts - 20_000).max() < 6 * 141


def test_standard_error_of_a_mean() -> None:
    # The bootstrap error of a mean is the standard deviation (n) over the root of n.
    data = np.random.default_rng(1).normal(size=40)
    means = bootstrap_counts(40, 5000) @ data / 40
    assert abs(bootstrap_standard_error(means) / (data.std() / np.sqrt(40)) - 1) < 0.05


def test_streams_are_independent_and_pinned() -> None:
    assert not np.array_equal(bootstrap_counts(9, 4, "a"), bootstrap_counts(9, 4, "b"))
    assert bootstrap_counts(3, 2, "a").tolist() == bootstrap_counts(3, 2, "a").tolist()
    assert (bootstrap_counts(9, 40, "a").sum(axis=1) == 9).all()


def test_mean_of_independent_by_hand() -> None:
    # sqrt(1 + 1 + 4) / 3; (1 + 1 + 4)^2 * 4 / (1 + 1 + 16) degrees.
    error, degrees = mean_of_independent([1.0, 1.0, 4.0], 4)
    assert error == pytest.approx(np.sqrt(6) / 3)
    assert degrees == pytest.approx(8.0)
    assert mean_of_independent([2.0] * 5, 3)[1] == pytest.approx(15)  # equals: they add up
    assert mean_of_independent([1.0, 0.0, 0.0], 3)[1] == pytest.approx(3)  # one rules: its own
    assert [float(x) for x in mean_of_independent([0.0, 0.0], 3)] == [0.0, 3.0]


def test_student_interval_is_that_of_the_textbook() -> None:
    data = np.random.default_rng(4).normal(1.0, 2.0, 12)
    error = data.std(ddof=1) / np.sqrt(12)
    expected = stats.ttest_1samp(data, 0.0)
    low, high = expected.confidence_interval(0.95)
    assert student_half_width(error, 11) == pytest.approx((high - low) / 2)
    assert student_p_value(data.mean(), error, 11) == pytest.approx(expected.pvalue)


def test_without_spread_any_difference_is_certain() -> None:
    assert student_p_value(0.1, 0.0, 5) == 0.0
    assert student_p_value(0.0, 0.0, 5) == 1.0


def test_holm_by_hand() -> None:
    # In order: .005 * 4, .01 * 3, .03 * 2, and .04, which may not be below .06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_wilcoxon_by_hand() -> None:
    # Six differences of one sign: 2 of 64 orders of signs are as extreme.
    assert wilcoxon_p_value([1, 2, 3, 4, 5, 6]) == pytest.approx(2 / 64)
    # The negative ranks sum to 3; {}, {1}, {2}, {3} and {1, 2} sum to no more, on either side.
    assert wilcoxon_p_value([1, 2, -3, 4, 5, 6]) == pytest.approx(10 / 64)
    assert wilcoxon_p_value([0, 0, 1, 2, 3, 4, 5, 6]) == pytest.approx(2 / 64)
    assert wilcoxon_p_value([0, 0]) == 1.0


@pytest.mark.parametrize("pairs", [1, 3, 5, 6, 9])
def test_the_least_p_of_wilcoxon_is_reached(pairs: int) -> None:
    assert wilcoxon_p_value(np.arange(1.0, pairs + 1)) == pytest.approx(smallest_wilcoxon_p(pairs))


def test_vargha_delaney_by_hand() -> None:
    assert vargha_delaney([1, 2, 3], [1, 2, 3]) == 0.5
    assert vargha_delaney([2, 3], [1, 2]) == (1 + 0.5 + 1 + 1) / 4
    assert vargha_delaney([5, 6], [1, 2]) == 1.0
    u = stats.mannwhitneyu([1.5, 4, 7, 2], [1, 3, 5, 6, 0]).statistic
    assert vargha_delaney([1.5, 4, 7, 2], [1, 3, 5, 6, 0]) == pytest.approx(u / 20)


def test_ranks_and_friedman_by_hand() -> None:
    scores = [[0.9, 0.5, 0.1], [0.8, 0.6, 0.2], [0.5, 0.7, 0.1], [0.9, 0.3, 0.4]]
    assert mean_ranks(scores).tolist() == [1.25, 2.0, 2.75]
    # 12 N / (k (k + 1)) (sum of squared mean ranks - k (k + 1)^2 / 4), chi-squared with k - 1.
    statistic = 12 * 4 / 12 * (1.25**2 + 2.0**2 + 2.75**2 - 3 * 16 / 4)
    assert friedman_p_value(scores) == pytest.approx(stats.chi2.sf(statistic, 2))
    assert friedman_p_value([[1.0, 1.0, 1.0]] * 4) == 1.0
    assert mean_ranks([[1.0, 1.0, 0.0]]).tolist() == [1.5, 1.5, 3.0]


@pytest.mark.parametrize(
    ("treatments", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)]
)
def test_critical_difference_has_the_published_quantiles(treatments: int, q: float) -> None:
    """Table 5 (a) of Demšar, Statistical Comparisons of Classifiers, JMLR 7 (2006)."""
    expected = q * np.sqrt(treatments * (treatments + 1) / (6 * 14))
    assert nemenyi_critical_difference(treatments, 14) == pytest.approx(expected, rel=4e-4)
