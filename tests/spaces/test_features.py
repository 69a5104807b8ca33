"""Features, against spaces whose numbers are known by construction or by counting."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.handmade import line_recording
from support.recordings import small_recording

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.catalogue import list_spaces, load_space
from llamea_gpu.spaces.features import compute_features
from llamea_gpu.spaces.recording import Recording, RecordingInfo


def full_grid(cost, cardinalities=(4, 3, 2)) -> Recording:
    rows = np.array(list(itertools.product(*(range(c) for c in cardinalities))))
    n = len(rows)
    return Recording.from_rows(
        [f"p{j}" for j in range(len(cardinalities))],
        [tuple(range(c)) for c in cardinalities],
        rows,
        np.exp([cost(*row) for row in rows]),
        np.full(n, 2.0),
        np.full(n, 0.5),
        np.zeros(n, int),
        RecordingInfo(name="grid", kernel="k", device="d", framework="f"),
    )


def test_one_parameter_that_explains_everything():
    features = compute_features(full_grid(lambda a, b, c: a))
    assert [p.main_effect for p in features.parameters] == pytest.approx([1, 0, 0])
    assert all(share == pytest.approx(0, abs=1e-12) for _, _, share in features.interactions)


def test_additive_effects_share_the_variance_by_their_own():
    features = compute_features(full_grid(lambda a, b, c: a + 3 * c))
    variances = np.array([np.var([0, 1, 2, 3]), 0, np.var([0, 3])])
    effects = [p.main_effect for p in features.parameters]
    assert effects == pytest.approx(variances / variances.sum())


def test_a_pure_interaction_is_found_and_has_no_main_effect():
    features = compute_features(full_grid(lambda a, b, c: (a % 2) ^ c))
    assert max(p.main_effect for p in features.parameters) == pytest.approx(0, abs=1e-12)
    first, second, share = features.interactions[0]
    assert (first, second) == ("p0", "p2")
    assert share == pytest.approx(1)


def test_on_a_slope_only_the_optimum_is_a_local_one():
    features = compute_features(full_grid(lambda a, b, c: a + b + c))
    assert features.local_optima == 1
    assert features.local_optima_share == pytest.approx(1 / 24)
    assert features.fitness_distance_correlation > 0.5


def test_local_optima_are_counted_as_defined():
    recording = small_recording()
    space, time = recording.space, recording.time_ms
    expected = sum(
        bool(recording.ok[i]) and not (time[space.neighbor_rows(i)] < time[i]).any()
        for i in range(space.size)
    )
    assert compute_features(recording).local_optima == expected


def test_the_degree_of_a_full_grid_is_the_sum_of_cardinalities_less_one():
    assert compute_features(full_grid(lambda a, b, c: a)).hamming_degree == 3 + 2 + 1


def test_shares_and_quantiles_by_counting():
    features = compute_features(line_recording([1.0, 1.005, 1.04, 1.2, np.inf]))
    assert features.failure_share == pytest.approx(0.2)
    assert features.share_within == {1: 0.4, 5: 0.6, 10: 0.6}
    assert features.optimum_ms == 1.0
    assert features.median_ms == pytest.approx(1.0225)
    assert features.cost_quantiles_ms[0.0] == 1.0
    assert features.cost_quantiles_ms[1.0] == 1.2


def test_time_profiles():
    features = compute_features(full_grid(lambda a, b, c: a))
    assert features.compile_s == (2.0, 2.0, 2.0)
    assert features.benchmark_s == (0.5, 0.5, 0.5)


def test_equal_times_have_no_structure_and_raise_nothing():
    features = compute_features(full_grid(lambda a, b, c: 0.0))
    assert {p.main_effect for p in features.parameters} == {0.0}
    assert features.neighbour_autocorrelation == 0.0
    assert features.local_optima_share == 1.0


def test_a_single_running_configuration_raises_nothing():
    assert compute_features(line_recording([np.inf, 2.0, np.inf])).local_optima == 1


def test_nothing_that_runs_is_an_error():
    with pytest.raises(SpaceError, match="at least one working"):
        compute_features(line_recording([np.inf, np.inf]))


def test_features_are_deterministic():
    assert compute_features(small_recording()) == compute_features(small_recording())


def test_numbers_stay_in_their_ranges_on_every_shipped_recording():
    for entry in list_spaces():
        recording = load_space(entry.name)
        features = compute_features(recording)
        assert all(0 <= p.main_effect <= 1 for p in features.parameters)
        assert all(0 <= share <= 1 for _, _, share in features.interactions)
        assert -1 <= features.fitness_distance_correlation <= 1
        assert 0 < features.neighbour_autocorrelation < 1
        # A plateau within the readings' noise has many: reduction has 183 of 2,562. A sample lacks
        # most of each one's neighbours: of 900 for the bilateral filter 145 have no better one.
        share = 10 if recording.info.exhaustive else 4
        assert 1 <= features.local_optima <= features.size // share
        assert 0 < features.share_within[1] <= features.share_within[5] <= features.share_within[10]
