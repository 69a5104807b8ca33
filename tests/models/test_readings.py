"""Repeats and runs, reconciled."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.clouds import small_cloud
from support.modelled import formula_cloud

from llamea_gpu.models.features import FeatureTable
from llamea_gpu.models.readings import Readings
from llamea_gpu.models.recipe import times as times_of


def test_equal_configurations_and_equal_code_are_one_group() -> None:
    group = Readings.of(small_cloud()).group
    assert group[0] == group[3] == group[6]  # the same configuration
    assert group[1] == group[4]  # the same code
    assert len({group[0], group[1], group[2], group[5]}) == 4


def test_a_group_answers_with_its_median_and_its_first_compilation() -> None:
    readings = Readings.of(small_cloud())
    # Of 1.0 (with quartiles 20 % apart), 1.02, 1.01, the last in another run.
    assert math.exp(readings.log_ms[0]) == pytest.approx(math.sqrt(1.02 * 1.01))
    assert readings.compile_s[0] == 1.0  # 2 s in one run, nothing in the other; .1 s was a cache
    assert math.isnan(readings.log_ms[2])
    assert readings.status.tolist() == [0, 0, 4, 0, 0, 1, 0]


def test_an_unsteady_reading_counts_only_where_there_is_no_steady_one() -> None:
    cloud = small_cloud()
    high = cloud.high_ms.copy()
    high[3] = 2.0  # of 1.02
    high[4] = 2.0  # the twin of 1 has unknown quartiles, which are no reproach
    readings = Readings.of(replace(cloud, high_ms=high))
    assert math.exp(readings.log_ms[0]) == pytest.approx(1.01)
    assert math.exp(readings.log_ms[1]) == pytest.approx(0.5)
    assert readings.weight[3] < readings.weight[6] / 10


def test_a_single_launch_counts_where_code_was_not_timed_properly_and_is_not_contradicted() -> None:
    cloud = formula_cloud(500)
    works = np.flatnonzero(cloud.ok & (cloud.how != "random"))
    wrong, right = works[:5], works[5:10]
    once = np.concatenate([wrong, right])
    times = cloud.times_ms.copy()
    times[wrong] *= 40  # the host was busy
    low, high = cloud.low_ms.copy(), cloud.high_ms.copy()
    low[once] = high[once] = times[once]
    codes = cloud.source.copy()
    codes[once] = [f"once {i}" for i in once]
    single = replace(cloud, times_ms=times, low_ms=low, high_ms=high, source=codes)
    readings = Readings.of(single)
    alone = readings.single[once]
    assert alone.sum() >= 8  # of equal configurations, one may have been timed properly
    assert not readings.steady[once[alone]].any()
    features = FeatureTable(cloud.names, cloud.values, cloud.ordinal).many(cloud.configurations)
    rows = np.ones(len(cloud), dtype=bool)
    found = np.exp(times_of(features, readings, rows, features[once[alone]]))
    truth = np.exp(Readings.of(cloud).log_ms[once[alone]])
    assert np.abs(np.log(found / truth)).max() < np.log(2)


def test_runs_are_brought_to_the_scale_of_the_largest() -> None:
    cloud = formula_cloud(600, noise=0.001, runs=3)
    readings = Readings.of(cloud)
    assert readings.run_offsets[0] == 0
    assert readings.run_offsets[1:] == pytest.approx([0.01, 0.02], abs=0.001)
    apart = readings.log_ms - np.log(cloud.times_ms)
    late = cloud.ok & (cloud.run == 2)
    assert np.median(apart[late]) == pytest.approx(-0.02, abs=0.002)


def test_noise_is_that_of_repeats() -> None:
    assert Readings.of(formula_cloud(2_000, noise=0.01)).noise == pytest.approx(0.01, rel=0.3)
    alone = formula_cloud(30)
    codes = np.array([f"{code}{i}" if code else "" for i, code in enumerate(alone.source)])
    assert math.isnan(Readings.of(replace(alone, source=codes)).noise)
