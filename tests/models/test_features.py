"""Features are sums of numbers that belong to values."""

from __future__ import annotations

import numpy as np
from support.modelled import NAMES, VALUES

from llamea_gpu.models.features import FeatureTable


def table() -> FeatureTable:
    names = (*NAMES, "pid_type", "maxnreg")
    values = (*VALUES, ("flat", "blocked", "interleaved"), (None, 32, 64, 128))
    return FeatureTable(names, values, (True,) * 4 + (False,) * 4)


def test_what_a_configuration_turns_into() -> None:
    found = table()
    c = (2, 0, 3, 2, 1, 1, 2, 1)  # blocks of 64 and 16, 8 warps, 3 stages
    features = dict(zip(found.labels, found.one(c).tolist(), strict=True))
    assert features["block_sizes[0]"] == 6
    assert features["block_sizes[0] * block_sizes[1]"] == 10
    assert features["block_sizes[0] / block_sizes[1]"] == 2
    assert features["sizes / num_warps"] == 7
    assert abs(features["num_stages"] - np.log2(3)) < 1e-3
    assert features["indexing[0]"] == 1
    assert features["indexing: how many tensor_descriptor"] == 2
    assert features["pid_type = interleaved"] == 1
    assert features["pid_type = flat"] == 0
    assert features["maxnreg"] == 1


def test_one_row_has_the_features_that_it_has_among_others() -> None:
    found = table()
    rng = np.random.default_rng(0)
    sizes = [*(len(v) for v in VALUES), 3, 4]
    rows = np.stack([rng.integers(n, size=300) for n in sizes], axis=1)
    many = found.many(rows)
    assert many.dtype == np.float32
    for row, features in zip(rows, many, strict=True):
        np.testing.assert_array_equal(found.one(row), features)


def test_different_configurations_have_different_features() -> None:
    found = table()
    rng = np.random.default_rng(1)
    rows = np.unique(
        np.stack([rng.integers(n, size=2_000) for n in [*(len(v) for v in VALUES), 3, 4]], axis=1),
        axis=0,
    )
    assert len(np.unique(found.many(rows), axis=0)) == len(rows)
