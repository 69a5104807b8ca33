"""What HelionSpace promises of each operation, on one real ConfigSpec and on invented ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import helion
import numpy as np
import pytest
from helion.autotuner import config_fragment as fragments
from support.helion_live import bound_kernel
from support.helion_spaces import config_of, space_of, user_space


@pytest.fixture(scope="module")
def matmul() -> Iterator[Any]:
    with bound_kernel("matmul", "H200") as (kernel, _):
        yield kernel


def test_the_same_generator_gives_the_same_and_pythons_own_is_left_alone(matmul: Any) -> None:
    random.seed(5)
    untouched = random.getstate()
    first, second, other = (space_of(matmul, seed) for seed in (3, 3, 4))
    assert [first.sample(n) for n in (4, 9)] == [second.sample(n) for n in (4, 9)]
    assert first.pool(30).tolist() == second.pool(30).tolist()
    assert first.sample(20) != other.sample(20)
    assert random.getstate() == untouched


def test_neighbours_along_a_range_are_one_step_away(matmul: Any) -> None:
    space = space_of(matmul)
    home = space.sample(2)[1]
    near = space.neighbors(home, "adjacent")
    warps = space.names.index("num_warps")
    steps = sorted(n[warps] - home[warps] for n in near if n[warps] != home[warps])
    assert set(steps) <= {-1, 1}
    assert steps
    assert set(near) < set(space.neighbors(home, "hamming"))
    assert home not in space.neighbors(home)
    with pytest.raises(ValueError, match="kind must be"):
        space.neighbors(home, "far")
    with pytest.raises(ValueError, match="repair"):
        space.neighbors((99,) * len(home))


def test_lists_have_neighbours_that_are_the_same_throughout(matmul: Any) -> None:
    space = space_of(matmul)
    indexing = [j for j, name in enumerate(space.names) if name.startswith("indexing")]
    assert len(indexing) == 3
    home = space.starts[0]
    assert {home[j] for j in indexing} == {0}
    assert any({n[j] for j in indexing} == {1} for n in space.neighbors(home))


def test_an_alias_is_valid_and_means_its_normalised_form(matmul: Any) -> None:
    space = space_of(matmul)
    flat = space.starts[0]  # flat grid: the multiplier of persistent ones means nothing
    multiplier = space.names.index("num_sm_multiplier")
    alias = (*flat[:multiplier], 3, *flat[multiplier + 1 :])
    assert space.contains(alias)
    assert space.canonical(alias) == space.canonical(flat)
    assert space.repair(alias) == space.repair(flat)
    assert not any(n[multiplier] == 3 for n in space.neighbors(flat))


def test_what_is_no_configuration_is_not_contained(matmul: Any) -> None:
    space = space_of(matmul)
    home = list(space.starts[0])
    off = [[*home[:-1], index] for index in (-1, 99, 0.5, float("nan"), float("inf"), "0", None)]
    for wrong in [(), home[:-1], [*home, 0], "text", None, 7, *off]:
        assert not space.contains(wrong)
    for right in [tuple(home), home, np.array(home), [float(index) for index in home]]:
        assert space.contains(right)


def test_repair_refuses_what_has_no_nearest(matmul: Any) -> None:
    space = space_of(matmul)
    n = len(space.names)
    for wrong in ([float("nan")] * n, [0.0] * (n - 1), [float("inf")] * n):
        with pytest.raises(ValueError, match="finite numbers"):
            space.repair(wrong)


def test_what_the_user_fixed_is_no_parameter(matmul: Any) -> None:
    space = space_of(matmul, overrides={"num_warps": 8, "indexing": "pointer"})
    assert not [name for name in space.names if name.startswith(("num_warps", "indexing"))]
    for indices in [*space.sample(30), *space.neighbors(space.starts[0])]:
        assert config_of(space, indices).num_warps == 8


def test_what_the_user_refuses_is_not_in_the_space(matmul: Any) -> None:
    space = space_of(matmul, accepts=lambda config: config.num_warps >= 8)
    default = space_of(matmul).default  # 4 warps
    assert not space.contains(default)
    assert space.starts == []
    assert space.default is None
    assert space.contains(space.repair(default))
    given = [*space.sample(40), *space.pool(30).tolist()]
    given += space.neighbors(given[0])
    assert len(given) > 100
    assert all(config_of(space, tuple(indices)).num_warps >= 8 for indices in given)
    with pytest.raises(helion.exc.NoConfigFound):
        space_of(matmul, accepts=lambda _: False).repair(default)


def test_repair_falls_back_to_the_default_where_helion_refuses(matmul: Any) -> None:
    space = space_of(matmul, accepts=lambda config: config.num_warps <= 4)
    wanted = [float(c - 1) for c in space.cardinalities]
    repaired = space.repair(wanted)
    assert space.contains(repaired)
    before = space.names.index("num_warps")
    assert repaired[:3] == tuple(c - 1 for c in space.cardinalities[:3])
    assert space.values[before][repaired[before]] == 4


def test_powers_of_two_are_encoded_by_their_exponent_as_helion_does(matmul: Any) -> None:
    space = space_of(matmul)
    at = space.names.index("block_sizes[0]")
    generation = space._config_gen
    for indices in space.sample(20):
        flat = space.flat(indices)
        (theirs,) = generation.flat_spec[0].encode(flat[0])
        low, high = np.log2([space.values[at][0], space.values[at][-1]])
        assert space.encode([indices])[0, at] == pytest.approx((theirs - low) / (high - low))


EVERY_KIND = {
    "power": lambda: fragments.PowerOfTwoFragment(4, 64, 8),
    "small": lambda: fragments.IntegerFragment(2, 5, 3),
    "huge": lambda: fragments.IntegerFragment(1, 1_000_000, 777),
    "signed": lambda: fragments.IntegerFragment(-500, 500, 0),
    "choice": lambda: fragments.EnumFragment((None, "a", 3, (1, 2))),
    "flag": fragments.BooleanFragment,
    "threads": lambda: fragments.NumThreadsFragment(16),
    "order": lambda: fragments.PermutationFragment(3),
    "list": lambda: fragments.ListOf(fragments.IntegerFragment(0, 2, 0), 2),
    "empty": lambda: fragments.ListOf(fragments.BooleanFragment(), 0),
    "fixed": lambda: fragments.IntegerFragment(7, 7),
}


def test_every_kind_of_fragment_becomes_parameters() -> None:
    space = user_space({name: make() for name, make in EVERY_KIND.items()})
    shown = dict(zip(space.names, space.values, strict=True))
    assert shown["power"] == (4, 8, 16, 32, 64)
    assert shown["small"] == (2, 3, 4, 5)
    assert len(shown["huge"]) <= 65
    assert {1, 777, 1_000_000} <= set(shown["huge"])  # both ends, and the default
    assert {-500, 0, 500} <= set(shown["signed"])
    assert shown["choice"] == (None, "a", 3, "(1, 2)")
    assert shown["flag"] == (False, True)
    assert shown["threads"] == (0, 1, 2, 4, 8, 16)
    assert [name for name in shown if name.startswith("order")] == ["order.0", "order.1"]
    assert [name for name in shown if name.startswith("list")] == ["list[0]", "list[1]"]
    assert not {"empty", "fixed"} & set(shown)
    configs = [config_of(space, indices).config for indices in space.sample(300)]
    assert {tuple(c["order"]) for c in configs} == {
        (0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0),
    }  # fmt: skip
    assert {type(c["choice"]) for c in configs} == {type(None), str, int, tuple}
    assert {c["flag"] for c in configs} == {False, True}
    assert all(c["fixed"] == 7 and c["empty"] == [] for c in configs)


@pytest.mark.parametrize("name", EVERY_KIND)
def test_every_kind_alone_goes_there_and_back(name: str) -> None:
    space = user_space({name: EVERY_KIND[name](), "other": fragments.BooleanFragment()})
    for indices in space.sample(100):
        flat = space._config_gen.flatten(config_of(space, indices))
        assert space._nearest(flat) == indices


def test_a_long_permutation_is_drawn_whole() -> None:
    space = user_space({"order": fragments.PermutationFragment(6)})
    assert space.cardinalities == (6, 5, 4, 3, 2)
    configs = {tuple(config_of(space, c).config["order"]) for c in space.sample(500)}
    assert len(configs) == 500
    assert all(sorted(order) == list(range(6)) for order in configs)


def test_a_kind_that_is_not_known_takes_the_values_of_the_default_and_the_seeds() -> None:
    class Strange(fragments.ConfigSpecFragment):
        def default(self) -> object:
            return "a"

        def random(self) -> object:
            return "never listed"

    space = user_space({"strange": Strange(), "flag": fragments.BooleanFragment()})
    assert space.names == ("flag",)
    space = user_space(
        {"strange": Strange(), "flag": fragments.BooleanFragment()}, seeds=[["b", True]]
    )
    assert space.values == (("a", "b"), (False, True))
    assert config_of(space, space.starts[1]).config == {"strange": "b", "flag": True}


def test_valid_configurations_are_found_where_they_are_rare(matmul: Any) -> None:
    """About one in a thousand of those that Helion draws."""

    def rare(config: Any) -> bool:
        few = (config.num_warps, config.num_stages, config.pid_type) == (8, 2, "flat")
        return few and config.l2_groupings == [4]

    space = space_of(matmul, accepts=rare)
    assert rare(config_of(space, space.sample(1)[0]))


def test_a_tiny_space_gives_what_there_is() -> None:
    space = user_space({"a": fragments.BooleanFragment(), "b": fragments.BooleanFragment()})
    assert sorted(space.sample(1000)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(space.pool(1000)) == 4
    assert space.sample(0) == []


def test_more_than_can_be_normalised_quickly_is_not_made(matmul: Any) -> None:
    assert len(space_of(matmul).sample(100_000)) == 1024


def test_the_pool_keeps_its_random_part_and_moves_with_the_best(matmul: Any) -> None:
    space = space_of(matmul)
    before = {tuple(row) for row in space.pool(100).tolist()}
    leader = space.sample(3)[-1]
    space.leaders = [leader]
    after = {tuple(row) for row in space.pool(100).tolist()}
    near = set(space.neighbors(leader))
    assert len(after) == 100
    assert len(space.pool(10)) == 10
    assert {tuple(row) for row in space.pool(100).tolist()} == after
    assert len(after & before) >= 40
    assert len(after & near) >= 40
