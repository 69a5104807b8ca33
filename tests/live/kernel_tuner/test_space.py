"""The strategy's space and the simulator's: every method, the same draws, the same answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_tuner.searchspace import Searchspace
from support.recordings import small_recording
from support.tuning import only_valid, tune_params

from llamea_gpu.live.kernel_tuner.runtime import KernelTunerSpace
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.formats import import_recording
from llamea_gpu.spaces.space import SearchSpace, SpaceView

SEED = 11


def mixed() -> SearchSpace:
    """Every kind of value, one parameter with a single value, falling numbers, gaps."""
    values = (
        (8, 4, 2, 1),
        ("a", "b", "c"),
        (True, False),
        (7,),
        (0.5, 1.5, 2.5),
        (None, 3),
        (3, 1),
    )
    grid = np.array([c for c in itertools.product(*map(range, map(len, values))) if sum(c) % 3])
    return SearchSpace([f"p{j}" for j in range(len(values))], values, grid)


def single() -> SearchSpace:
    return SearchSpace(["only"], [(5, 6)], [[1]])


def diagonal() -> SearchSpace:
    """No configuration has a neighbour."""
    return SearchSpace(
        ["x", "y"], [tuple(range(50))] * 2, np.repeat(np.arange(50), 2).reshape(-1, 2)
    )


def convolution(request: pytest.FixtureRequest) -> SearchSpace:
    folder: Path = request.getfixturevalue("shared_spaces") / "kernel_tuner" / "convolution"
    return import_recording(folder / "A100_T4.json.gz", t1=folder / "T1.json")[0].space


SPACES: dict[str, Callable[[pytest.FixtureRequest], SearchSpace]] = {
    "mixed": lambda _: mixed(),
    "single": lambda _: single(),
    "diagonal": lambda _: diagonal(),
    "small": lambda _: small_recording().space,
    "attention": lambda _: load_space("attention-2x32x1024x64").space,
    "convolution": convolution,
}


@pytest.fixture(scope="module", params=SPACES)
def space(request: pytest.FixtureRequest) -> SearchSpace:
    return SPACES[request.param](request)


@pytest.fixture(scope="module")
def searchspace(space: SearchSpace) -> Searchspace:
    return Searchspace(tune_params(space), only_valid(space), 1 << 30)


@pytest.fixture
def both(space: SearchSpace, searchspace: Searchspace) -> tuple[SpaceView, KernelTunerSpace]:
    """The simulator's view and the strategy's, each with a generator of the same seed."""
    return (
        SpaceView(space, np.random.default_rng(SEED)),
        KernelTunerSpace(searchspace, np.random.default_rng(SEED)),
    )


Both = tuple[Any, Any]


def test_the_parameters_are_the_same(both: Both) -> None:
    for name in ("names", "values", "cardinalities", "ordinal", "size"):
        first, second = (getattr(view, name) for view in both)
        assert first == second
        assert type(first) is type(second)


def test_samples_and_pools_are_the_same_draws(both: Both, space: SearchSpace) -> None:
    sizes = (1, 2, 1, 7, 30, space.size // 2, space.size - 1, space.size, space.size + 5, 0)
    for n in sizes:
        first, second = (view.sample(n) for view in both)
        assert first == second
        assert all(type(i) is int for config in second for i in config)
        first, second = (view.pool(n) for view in both)
        assert np.array_equal(first, second)
        assert second.dtype == np.int64


def test_what_a_pool_hands_out_is_a_copy(both: Both, space: SearchSpace) -> None:
    for n in (space.size, space.size - 1):
        for view in both:
            view.pool(n)[:] = 77
    assert np.array_equal(*(view.pool(space.size) for view in both))


@pytest.mark.parametrize("kind", ["hamming", "adjacent"])
def test_neighbors_are_the_same_in_the_same_order(both: Both, kind: str) -> None:
    for config in both[0].sample(200):
        first, second = (view.neighbors(config, kind) for view in both)
        assert first == second
    assert both[1].neighbors(np.array(config), kind) == first


def some_configurations(space: SearchSpace) -> list[Any]:
    """Valid ones, invalid ones, and what is no configuration at all."""
    rng = np.random.default_rng(SEED)
    random = rng.integers(-1, np.array(space.cardinalities) + 1, (300, space.dimension))
    valid = space.configuration(0)
    strange = [valid[:-1], (*valid, 0), (), 5, None, "text", [*valid], tuple(map(float, valid))]
    return [*map(tuple, random.tolist()), *random[:20], *strange, valid]


def test_membership_is_the_same(both: Both, space: SearchSpace) -> None:
    answers = [[view.contains(config) for config in some_configurations(space)] for view in both]
    assert answers[0] == answers[1]
    assert True in answers[0]


def test_repairs_are_the_same(both: Both, space: SearchSpace) -> None:
    rng = np.random.default_rng(SEED)
    top = np.array(space.cardinalities)
    targets = [
        *rng.uniform(-1, top, (100, space.dimension)),
        *rng.integers(0, top, (100, space.dimension)),
        top * 1e300,
        -top * 1e300,
        space.configuration(space.size - 1),
    ]
    for target in targets:
        first, second = (view.repair(target) for view in both)
        assert first == second


def test_encodings_are_the_same(both: Both, space: SearchSpace) -> None:
    some = both[0].sample(9)
    both[1].sample(9)
    for configs in (some, np.array(some), some[0], []):
        first, second = (view.encode(configs) for view in both)
        assert np.array_equal(first, second)
        assert first.shape == second.shape


def refusals(space: SearchSpace) -> list[Callable[[Any], Any]]:
    valid = space.configuration(0)
    return [
        lambda view: view.neighbors((10**6,) * space.dimension),
        lambda view: view.neighbors(valid, "diagonal"),
        lambda view: view.neighbors(valid[:-1]),
        lambda view: view.repair((*valid, 0)),
        lambda view: view.repair([float("nan")] * space.dimension),
        lambda view: view.repair("text"),
        lambda view: view.encode([(*valid, 0)]),
    ]


def test_what_the_one_refuses_the_other_refuses(both: Both, space: SearchSpace) -> None:
    for ask in refusals(space):
        for view in both:
            with pytest.raises(ValueError):
                ask(view)


def test_values_for_the_runner_are_kernel_tuners_own() -> None:
    """Numpy scalars stay what they are, because Kernel Tuner's cache keys are their spelling."""
    params = {"x": np.array([4, 2, 8]), "y": [np.float32(0.1), np.float32(0.2)], "z": [True, False]}
    searchspace = Searchspace(params, [lambda x, z: z or x > 2], 1024)
    view = KernelTunerSpace(searchspace, np.random.default_rng(0))
    assert sorted(map(str, view.native)) == sorted(map(str, searchspace.list))
    assert all(searchspace.is_param_config_valid(config) for config in view.native)
    assert view.values[0] == (4, 2, 8)
    assert [type(values[0]) for values in view.values] == [int, float, bool]
    assert view.ordinal == (False, True, False)
    for row, config in enumerate(view.sample(view.size)):
        native = view.native[view.row(config)]
        assert tuple(values[i] for values, i in zip(view.values, config, strict=True)) == tuple(
            value.item() if isinstance(value, np.generic) else value for value in native
        ), row


def test_one_and_true_are_two_values_of_a_parameter() -> None:
    """Kernel Tuner lets a list hold both as long as not both are valid."""
    params = {"x": ["text", 1, True, 2.5], "y": [1, 2]}
    searchspace = Searchspace(params, ["x == 2.5 or x == 'text'"], 1024)
    view = KernelTunerSpace(searchspace, np.random.default_rng(0))
    assert sorted(view.native, key=str) == sorted(searchspace.list, key=str)
    assert {config[0] for config in view.sample(view.size)} == {0, 3}
