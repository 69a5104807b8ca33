"""SpaceView: what an optimizer may ask of a space."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from llamea_gpu.spaces.space import SearchSpace, SpaceView

VALUES = ((16, 32, 64, 128), ("flat", "persistent", "split"), (1, 2, 4))


@pytest.fixture
def space() -> SearchSpace:
    grid = np.array(list(itertools.product(*(range(len(v)) for v in VALUES))))
    return SearchSpace(["a", "b", "c"], VALUES, grid[grid.sum(axis=1) % 5 != 0])


@pytest.fixture
def view(space) -> SpaceView:
    return SpaceView(space, np.random.default_rng(0))


@pytest.mark.parametrize("n", [1, 2, 5, 20, 28])
def test_a_sample_is_distinct_and_valid(view, space, n):
    sample = view.sample(n)
    assert len(sample) == len(set(sample)) == n
    assert all(space.row(c) >= 0 for c in sample)
    assert all(type(i) is int for c in sample for i in c)


@pytest.mark.parametrize("n", [29, 1000])
def test_a_sample_beyond_the_space_is_the_whole_space_shuffled(view, space, n):
    sample = view.sample(n)
    everything = [space.configuration(i) for i in range(space.size)]
    assert sorted(sample) == everything
    assert sample != everything


def test_a_sample_of_nothing_is_empty(view):
    assert view.sample(0) == []


@pytest.mark.parametrize("n", [1, 3, 10])
def test_every_configuration_is_equally_likely(space, n):
    view = SpaceView(space, np.random.default_rng(1))
    counts = np.zeros(space.size)
    draws = 6000
    for _ in range(draws):
        counts[[space.row(c) for c in view.sample(n)]] += 1
    expected = draws * n / space.size
    # Five standard deviations of a binomial.
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_the_same_seed_gives_the_same_samples(space):
    first, second = (SpaceView(space, np.random.default_rng(7)) for _ in range(2))
    for n in (1, 3, 16, 100):
        assert first.sample(n) == second.sample(n)


def test_a_pool_is_everything_when_it_fits(view, space):
    assert np.array_equal(view.pool(10_000), space.configurations)


def test_a_pool_is_a_distinct_sample_when_it_does_not(view, space):
    pool = view.pool(10)
    assert pool.shape == (10, 3)
    assert len(set(space.rows(pool).tolist()) - {-1}) == 10


@pytest.mark.parametrize("n", [5, 1000])
def test_a_pool_may_be_overwritten_and_subtracted(view, space, n):
    before = space.fingerprint
    pool = view.pool(n)
    pool -= 100
    assert pool.min() < 0
    assert SearchSpace(space.names, space.values, space.configurations).fingerprint == before


def test_neighbors_are_those_of_the_space(view, space):
    config = space.configuration(4)
    expected = [space.configuration(i) for i in space.neighbor_rows(4, "adjacent").tolist()]
    assert view.neighbors(config, "adjacent") == expected


def test_neighbors_of_an_invalid_configuration_is_a_value_error(view):
    with pytest.raises(ValueError, match=r"repair\(\)"):
        view.neighbors((0, 0, 0))


def test_neighbors_of_an_unknown_kind_is_a_value_error(view, space):
    with pytest.raises(ValueError, match="'moore'"):
        view.neighbors(space.configuration(0), "moore")


def test_contains_tells_valid_from_invalid(view, space):
    assert view.contains(space.configuration(0))
    assert not view.contains((0, 0, 0))


def test_repair_gives_a_valid_configuration(view):
    assert view.contains(view.repair((0, 0, 0)))


def test_repair_of_nonsense_is_a_value_error(view):
    with pytest.raises(ValueError, match="3 finite numbers"):
        view.repair((0, 0))


def test_encode_is_that_of_the_space(view):
    assert view.encode([(3, 2, 2), (0, 0, 0)]).tolist() == [[1, 1, 1], [0, 0, 0]]
