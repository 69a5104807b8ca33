"""Resampling is deterministic and fair."""

from __future__ import annotations

import numpy as np

from llamea_gpu.statistics import bootstrap_counts, bootstrap_standard_error


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
