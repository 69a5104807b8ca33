"""Random parts of a recording."""

from __future__ import annotations

import numpy as np
import pytest
from support.recordings import small_recording

from llamea_gpu.errors import SpaceError, UnknownSpaceError
from llamea_gpu.spaces.catalogue import load_space, load_spaces
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.spaces.parts import LEAST_CONFIGURATIONS, LEAST_PARAMETERS, random_part
from llamea_gpu.tasks import Task

SHIPPED = ("matmul-2048", "attention-2x32x1024x64", "softmax-4096x4096", "stencil-256x256x192")


@pytest.mark.parametrize("name", SHIPPED)
def test_every_row_of_a_part_is_a_row_of_the_whole(name):
    whole = load_space(name)
    measured = {
        tuple(whole.space.value_dict(config).items()): row
        for row, config in enumerate(whole.space.tuples)
    }
    for number in range(5):
        part = random_part(whole, number)
        assert part.info.name == f"{name}.part{number}"
        assert LEAST_CONFIGURATIONS <= part.space.size <= whole.space.size / 2
        assert part.space.dimension >= LEAST_PARAMETERS
        fixed = _fixed(whole, part)
        rows = []
        for config in part.space.tuples:
            values = {**fixed, **part.space.value_dict(config)}
            rows.append(measured[tuple((n, values[n]) for n in whole.space.names)])
        assert len(set(rows)) == part.space.size
        np.testing.assert_array_equal(part.time_ms, whole.time_ms[rows])
        np.testing.assert_array_equal(part.compile_s, whole.compile_s[rows])
        np.testing.assert_array_equal(part.benchmark_s, whole.benchmark_s[rows])
        np.testing.assert_array_equal(part.status, whole.status[rows])


def _fixed(whole, part):
    """The values that a part holds fast: those with which its fastest configuration is found."""
    best = part.space.value_dict(part.space.configuration(int(part.time_ms.argmin())))
    for row in np.flatnonzero(whole.time_ms == part.optimum_ms):
        values = whole.space.value_dict(whole.space.configuration(int(row)))
        if best.items() <= values.items():
            return {name: value for name, value in values.items() if name not in best}
    raise AssertionError("the part's best configuration is not in the whole")


def test_parts_are_the_same_every_time_and_differ_from_one_another():
    whole = load_space("matmul-2048")
    again = [random_part(whole, number).space.fingerprint for number in range(8)]
    assert [random_part(whole, number).space.fingerprint for number in range(8)] == again
    assert len(set(again)) == 8


def test_a_part_is_a_task_of_its_own():
    whole = Task.build(load_space("stencil-256x256x192"))
    parts = [Task.build(load_space(f"stencil-256x256x192~{number}")) for number in range(4)]
    budgets = {round(part.budget_s, 3) for part in [whole, *parts]}
    assert len(budgets) == 5
    assert all(part.optimum_ms >= whole.optimum_ms for part in parts)


def test_a_part_keeps_no_default_that_it_does_not_hold():
    whole = load_space("stencil-256x256x192")
    default = whole.info.default_configuration
    kept = 0
    for number in range(12):
        part = random_part(whole, number)
        found = part.info.default_configuration
        fixed = _fixed(whole, part)
        if found is None:
            assert any(default[name] != value for name, value in fixed.items())
        else:
            kept += 1
            assert {**fixed, **found} == dict(default)
    assert 0 < kept < 12


def test_a_split_has_parts():
    names = [recording.info.name for recording in load_spaces(["stencil-256x256x192", "train~3"])]
    assert names[0] == "stencil-256x256x192"
    assert set(names[1:]) >= {"matmul-2048.part3", "stencil-256x256x192.part3"}
    assert all(name.endswith(".part3") for name in names[1:])


def test_a_file_whose_name_looks_like_a_part_is_the_file(tmp_path):
    path = tmp_path / "one.parquet"
    export_recording(small_recording("one"), path, "native")
    path = path.rename(tmp_path / "one~3")
    assert load_space(str(path)).info.name == "one"


@pytest.mark.parametrize("spec", ["matmul-2048~", "matmul-2048~x", "matmul-2048~-1", "~3"])
def test_what_is_no_part_is_an_unknown_space(spec):
    with pytest.raises(UnknownSpaceError):
        load_space(spec)


def test_a_small_space_has_no_parts():
    with pytest.raises(SpaceError, match="use the whole"):
        random_part(small_recording("one"), 0)
    with pytest.raises(SpaceError, match="0 or more"):
        random_part(load_space("matmul-2048"), -1)
