"""SearchSpace: membership, order, neighbours, repair, serialisation."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces import space as space_module
from llamea_gpu.spaces.space import SearchSpace

VALUES = ((16, 32, 64, 128), ("flat", "persistent", "split"), (1, 2, 4), (None, False))


def random_space(seed: int, share: float = 0.5, values=VALUES) -> SearchSpace:
    rng = np.random.default_rng(seed)
    grid = np.array(list(itertools.product(*(range(len(v)) for v in values))))
    kept = grid[rng.random(len(grid)) < share]
    return SearchSpace([f"p{j}" for j in range(len(values))], values, rng.permutation(kept))


def brute_force_neighbors(space: SearchSpace, row: int, kind: str) -> set[tuple[int, ...]]:
    center = space.configuration(row)
    valid = {tuple(c) for c in space.configurations.tolist()}
    near = [c for c in valid if sum(a != b for a, b in zip(c, center, strict=True)) == 1]
    if kind == "hamming":
        return set(near)
    found = set()
    for j in range(space.dimension):
        line = [c for c in near if c[j] != center[j]]
        if not space.ordinal[j]:
            found.update(line)
            continue
        below = [c for c in line if c[j] < center[j]]
        above = [c for c in line if c[j] > center[j]]
        found.update(sorted(below)[-1:] + sorted(above)[:1])
    return found


@pytest.fixture(params=["tuples and tables", "nothing cached", "keys of bytes"])
def space(request, monkeypatch) -> SearchSpace:
    """The same 36-odd configurations through each of the code paths for small and huge spaces."""
    if request.param == "nothing cached":
        monkeypatch.setattr(space_module, "_MAX_CACHED_ROWS", 1)
        monkeypatch.setattr(space_module, "_MAX_TABLE_EDGES", 1)
    if request.param == "keys of bytes":
        monkeypatch.setattr(space_module, "radix_weights", lambda cardinalities: None)
    return random_space(1)


def test_rows_are_in_lexicographic_order_whatever_the_order_given(space):
    rows = [tuple(c) for c in space.configurations.tolist()]
    assert rows == sorted(rows)


def test_row_and_configuration_are_inverse(space):
    assert [space.row(space.configuration(i)) for i in range(space.size)] == list(range(space.size))


def test_every_combination_that_is_not_valid_has_no_row(space):
    valid = {tuple(c) for c in space.configurations.tolist()}
    for combination in itertools.product(*(range(c) for c in space.cardinalities)):
        assert (space.row(combination) >= 0) == (combination in valid)


@pytest.mark.parametrize(
    "nonsense",
    [
        (0, 0, 0),
        (0, 0, 0, 0, 0),
        (-1, 0, 0, 0),
        (0, 0, 99, 0),
        (0, 0, 10**30, 0),
        (0.5, 0, 0, 0),
        (float("nan"), 0, 0, 0),
        ("16", "flat", "1", "None"),
        "0000",
        None,
        7,
        {},
        [[0], 0, 0, 0],
        ((0,), 0, 0, 0),
        np.zeros((2, 4), dtype=int),
        pytest.param(object(), id="an object"),
    ],
    ids=repr,
)
def test_nonsense_has_no_row_and_does_not_raise(space, nonsense):
    assert space.row(nonsense) == -1


@pytest.mark.parametrize("make", [list, np.array, lambda c: tuple(np.array(c)), lambda c: c])
def test_lists_and_arrays_are_configurations_too(space, make):
    assert space.row(make(space.configuration(5))) == 5


def test_rows_agrees_with_row(space):
    rng = np.random.default_rng(0)
    asked = rng.integers(-1, 5, (500, space.dimension))
    assert space.rows(asked).tolist() == [space.row(tuple(c)) for c in asked.tolist()]


def test_rows_accepts_ragged_and_foreign_input(space):
    good = space.configuration(3)
    assert space.rows([good, good[:-1], ("a",) * 4]).tolist() == [3, -1, -1]


def test_rows_of_nothing_is_nothing(space):
    assert space.rows(np.empty((0, space.dimension), dtype=int)).shape == (0,)


@pytest.mark.parametrize("kind", ["hamming", "adjacent"])
def test_neighbors_are_those_of_the_definition(space, kind):
    for row in range(space.size):
        found = [space.configuration(i) for i in space.neighbor_rows(row, kind).tolist()]
        assert len(found) == len(set(found))
        assert set(found) == brute_force_neighbors(space, row, kind)


@pytest.mark.parametrize("kind", ["hamming", "adjacent"])
def test_table_and_query_give_neighbors_in_the_same_order(monkeypatch, kind):
    with_table, without = random_space(2), random_space(2)
    with_table.prepare()
    monkeypatch.setattr(space_module, "_MAX_TABLE_EDGES", 1)
    assert with_table.neighbor_table(kind) is not None
    assert without.neighbor_table(kind) is None
    for row in range(with_table.size):
        expected = with_table.neighbor_rows(row, kind).tolist()
        assert without.neighbor_rows(row, kind).tolist() == expected


def test_adjacent_skips_invalid_values_of_an_ordinal_parameter():
    space = SearchSpace(["n"], [(1, 2, 4, 8)], [[0], [2], [3]])
    assert space.neighbor_rows(0, "adjacent").tolist() == [1]


def test_adjacent_takes_every_value_of_a_categorical_parameter():
    space = SearchSpace(["n"], [("a", "b", "c", "d")], [[0], [1], [2], [3]])
    assert space.neighbor_rows(0, "adjacent").tolist() == [1, 2, 3]


def test_an_unknown_neighbour_kind_is_an_error(space):
    with pytest.raises(SpaceError, match="'moore'"):
        space.neighbor_rows(0, "moore")


def test_neighbours_cannot_be_overwritten():
    space = random_space(3)
    with pytest.raises(ValueError):
        space.neighbor_rows(0, "hamming")[:] = 0


def test_configurations_cannot_be_overwritten(space):
    with pytest.raises(ValueError):
        space.configurations[0, 0] = 1


def test_prepare_builds_everything_that_is_lazy():
    space = random_space(4)
    space.prepare()
    assert space._lookup is not None
    assert set(space._tables) == {"hamming", "adjacent"}


@pytest.mark.parametrize(
    ("values", "ordinal"),
    [
        ((1, 2, 4), True),
        ((4, 2, 1), True),
        ((1, 2.5, 3), True),
        ((1, 4, 2), False),
        ((1,), False),
        ((False, True), False),
        ((0, 1, True + 1), True),
        (("1", "2"), False),
        ((None, 1, 2), False),
    ],
)
def test_ordinal_means_numbers_strictly_monotone(values, ordinal):
    assert SearchSpace(["n"], [values], [[0]]).ordinal == (ordinal,)


def test_repair_returns_a_valid_configuration_unchanged(space):
    assert space.repair_row(space.configuration(7)) == 7


def test_repair_finds_the_nearest_by_the_stated_distance(space):
    configurations = space.configurations.astype(int)
    for target in itertools.product(*(range(c) for c in space.cardinalities)):
        distance = np.zeros(space.size)
        for j, cardinality in enumerate(space.cardinalities):
            difference = np.abs(configurations[:, j] - target[j])
            distance += difference / (cardinality - 1) if space.ordinal[j] else difference != 0
        assert distance[space.repair_row(target)] == pytest.approx(distance.min())


def test_repair_breaks_ties_towards_the_lowest_row():
    # Three steps of 1/3 in different orders of summation differ in the last bit.
    values = [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2)]
    space = SearchSpace(["a", "b", "c"], values, [[0, 3, 1], [3, 0, 1], [1, 2, 1], [2, 1, 1]])
    assert space.repair_row((0, 0, 0)) == 0


def test_repair_takes_fractions_and_indices_out_of_range():
    space = SearchSpace(["n", "m"], [(1, 2, 4, 8), ("a", "b")], [[0, 0], [2, 1], [3, 1]])
    assert space.configuration(space.repair_row((2.4, 0.9))) == (2, 1)
    assert space.configuration(space.repair_row((50, 1))) == (3, 1)


@pytest.mark.parametrize("bad", [(1, 2), (0, 0, 0, float("nan")), ("a", 0, 0, 0), None, 3])
def test_repair_refuses_what_is_no_point(space, bad):
    with pytest.raises(SpaceError, match="4 finite numbers"):
        space.repair_row(bad)


def test_encode_scales_each_parameter_to_the_unit_interval():
    space = SearchSpace(["n", "m", "one"], [(1, 2, 4), ("a", "b"), (7,)], [[1, 1, 0], [2, 0, 0]])
    assert space.encode([(1, 1, 0), (2, 0, 0)]).tolist() == [[0.5, 1.0, 0.0], [1.0, 0.0, 0.0]]


def test_value_dict_names_the_values(space):
    configuration = space.configuration(0)
    expected = {f"p{j}": VALUES[j][i] for j, i in enumerate(configuration)}
    assert space.value_dict(configuration) == expected


def test_bytes_round_trip_keeps_the_fingerprint(space):
    again = SearchSpace.from_bytes(space.to_bytes())
    assert again.fingerprint == space.fingerprint
    assert again.values == space.values


def test_pickle_leaves_the_tables_behind():
    space = random_space(5)
    bare = len(pickle.dumps(space))
    space.prepare()
    assert len(pickle.dumps(space)) == bare


@pytest.mark.parametrize("data", [b"", b"PAR1", b"llamea-space-1\n{}\n", b"llamea-space-1\n{"])
def test_foreign_bytes_are_refused(data):
    with pytest.raises(SpaceError, match=r"to_bytes"):
        SearchSpace.from_bytes(data)


def test_the_fingerprint_tells_types_of_values_apart():
    prints = {
        SearchSpace(["n"], [values], [[0], [1]]).fingerprint
        for values in [(1, 2), (1.0, 2.0), (True, 2), ("1", "2"), (2, 1)]
    }
    assert len(prints) == 5


def test_the_dtype_is_the_smallest_that_fits():
    space = SearchSpace(["n"], [tuple(range(300))], [[299], [0]])
    assert space.configurations.dtype == np.uint16


def test_a_space_of_astronomic_product_works():
    values = [tuple(range(64))] * 16  # 2**96 combinations
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 64, (50, 16))
    space = SearchSpace([f"p{j}" for j in range(16)], values, np.concatenate([rows, rows ^ 1]))
    assert [tuple(c) for c in space.configurations.tolist()] == sorted(
        tuple(c) for c in np.concatenate([rows, rows ^ 1]).tolist()
    )
    assert (space.rows(rows) >= 0).all()
    assert space.row(tuple(rows[0].tolist())) == space.rows(rows[:1])[0]


@pytest.mark.parametrize(
    ("names", "values", "configurations", "complaint"),
    [
        ([], [], np.empty((1, 0), int), "at least one parameter"),
        (["a"], [], [[0]], "1 names and 0 lists"),
        (["a", "a"], [(1,), (1,)], [[0, 0]], "distinct"),
        ([""], [(1,)], [[0]], "non-empty"),
        (["a"], [()], [[0]], "at least one value"),
        (["a"], [(1, 1.0)], [[0]], "all distinct"),
        (["a"], [(1, True)], [[0]], "all distinct"),
        (["a"], [(float("nan"),)], [[0]], "finite"),
        (["a"], [((1, 2),)], [[0]], "finite numbers, strings"),
        (["a"], [(1, 2)], np.empty((0, 1), int), "at least one valid configuration"),
        (["a"], [(1, 2)], [[0], [1], [0]], "repeated, e.g. {'a': 1}"),
        (["a"], [(1, 2)], [[2]], "0 <= index < 2 must hold for 'a', but configuration 0 has 2"),
        (["a"], [(1, 2)], [[-1]], "has -1"),
        (["a"], [(1, 2)], [[0.0]], "integers"),
        (["a"], [(1, 2)], [[0, 1]], r"\(N, 1\)"),
    ],
)
def test_a_space_that_breaks_a_rule_is_refused(names, values, configurations, complaint):
    with pytest.raises(SpaceError, match=complaint):
        SearchSpace(names, values, configurations)
