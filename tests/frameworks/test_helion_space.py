"""HelionSpace over real ConfigSpecs: all that it hands out is a configuration Helion takes."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.helion_live import bound_kernel
from support.helion_spaces import config_of, seeds_of, space_of

KERNELS = ("matmul", "batched_matmul", "attention", "softmax", "layer_norm", "swiglu")
# The B200's spaces have more slots than the H200's (test_static), so two of those do.
CASES = [(kernel, "B200") for kernel in KERNELS] + [("matmul", "H200"), ("softmax", "H200")]


@pytest.fixture(scope="module", params=CASES, ids=["-".join(case) for case in CASES])
def bound(request: pytest.FixtureRequest) -> Iterator[Any]:
    with bound_kernel(*request.param) as (kernel, _):
        yield kernel


def test_all_that_it_hands_out_is_normalised_distinct_and_taken_by_helion(bound: Any) -> None:
    space = space_of(bound, seeds=seeds_of(bound))
    rng = np.random.default_rng(1)
    sampled = space.sample(90)
    assert len(set(sampled)) == 90
    near = [n for home in sampled[:2] for kind in ("hamming", "adjacent")
            for n in space.neighbors(home, kind)]  # fmt: skip
    repaired = [space.repair(rng.uniform(-3, 12, len(space.names))) for _ in range(40)]
    everything = list(dict.fromkeys([*sampled, *near, *repaired, *map(tuple, space.pool(60))]))
    configs = [config_of(space, indices) for indices in everything]
    assert len(everything) > 180
    assert len(set(configs)) == len(everything)  # two index tuples are never the same to Helion
    helions = bound.config_spec.create_config_generation()  # with nothing kept between questions
    assert [helions.unflatten(space.flat(indices)) for indices in everything] == configs
    for config in configs[::5]:
        assert helions.flatten(config) == space._config_gen.flatten(config)
    for indices, config in zip(everything, configs, strict=True):
        assert space.canonical(indices) == indices
        strict = copy.deepcopy(config)
        bound.config_spec.normalize(strict)  # raises where the user's own config would be refused
        assert {key: strict.config[key] for key in config.config} == config.config


def test_what_helion_draws_is_in_the_space(bound: Any) -> None:
    random.seed(1)
    helions = bound.config_spec.create_config_generation()
    space = space_of(bound)
    for _ in range(60):
        flat = helions.random_flat()
        indices = space.canonical(space._nearest(flat))
        assert indices is not None
        assert config_of(space, indices) == helions.unflatten(flat)  # may change lists in place


@pytest.mark.filterwarnings("ignore:Raw SymInt value")  # torch's, of Helion's graph
def test_a_sample_becomes_triton_code(bound: Any) -> None:
    space = space_of(bound)
    random_ones = space.sample(3)[1:]
    for indices in [random_ones[0], space.neighbors(random_ones[1])[0]]:
        code = bound.to_triton_code(config_of(space, indices))
        assert "@triton.jit" in code


def test_it_looks_as_the_contract_says(bound: Any) -> None:
    space = space_of(bound, seeds=seeds_of(bound))
    assert space.size is None
    assert len(set(space.names)) == len(space.names) == len(space.values) == len(space.ordinal)
    assert space.cardinalities == tuple(map(len, space.values))
    assert min(space.cardinalities) > 1
    for values, ordinal in zip(space.values, space.ordinal, strict=True):
        assert all(v is None or isinstance(v, int | float | str) for v in values)
        assert len(set(values)) == len(values)
        if ordinal:
            assert all(type(v) in (int, float) for v in values)
            assert list(values) == sorted(values)
    assert space.ordinal[space.names.index("num_warps")]
    assert not space.ordinal[space.names.index("pid_type")]
    code = space.encode(space.sample(20))
    assert code.shape == (20, len(space.names))
    assert code.min() >= 0
    assert code.max() <= 1
    pool = space.pool(40)
    assert pool.shape == (40, len(space.names))
    assert pool.dtype == np.int64


def test_the_first_configurations_are_the_default_and_then_the_compilers_seeds(bound: Any) -> None:
    generation = bound.config_spec.create_config_generation()
    pairs = generation.seed_flat_config_pairs()
    default = generation.unflatten(generation.default_flat())
    wanted = list(dict.fromkeys([default, *(config for _, config in pairs)]))
    space = space_of(bound, seeds=seeds_of(bound))
    first = space.sample(1) + space.sample(len(wanted) + 3)
    assert first[0] == space.default
    assert [config_of(space, c) for c in first[: len(wanted)]] == wanted
    assert not {config_of(space, c) for c in first[len(wanted) :]} & set(wanted)
