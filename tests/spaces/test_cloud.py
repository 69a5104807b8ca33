"""What a cloud holds, refuses and merges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.clouds import NAN, same_cloud, small_cloud

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.cloud import MOST_LETTERS, RECIPES, merged


def test_it_answers_about_its_rows():
    cloud = small_cloud()
    assert len(cloud) == 7
    assert cloud.dimension == 3
    assert cloud.cardinalities == (3, 2, 3)
    assert cloud.best_ms == 0.5
    assert cloud.configuration(1) == (2, 1, 0)
    assert cloud.value_dict((2, 1, 2)) == {
        "block_sizes[0]": 64,
        "num_warps": 8,
        "pid_type": None,
    }
    assert not cloud.times_ms.flags.writeable


def test_nothing_that_ran_has_no_best():
    cloud = small_cloud(statuses=[1] * 7, times_ms=[NAN] * 7, low_ms=[NAN] * 7, high_ms=[NAN] * 7)
    assert cloud.best_ms == np.inf


def test_repeats_are_of_one_configuration_or_of_equal_code():
    assert [rows.tolist() for rows in small_cloud().repeats()] == [[0, 3, 6], [1, 4]]


def test_a_time_that_was_taken_over_is_no_repeat():
    cloud = small_cloud(benchmark_s=[0.1, 0.2, 0.0, 0.1, 0.0, 0.0, 0.1])
    assert [rows.tolist() for rows in cloud.repeats()] == [[0, 3, 6]]


def test_repeats_join_configurations_through_code_and_code_through_configurations():
    cloud = small_cloud(source=["aa", "cc", "", "cc", "bb", "", "aa"])
    assert [rows.tolist() for rows in cloud.repeats()] == [[0, 1, 3, 6]]


TOO_LONG = "x" * (MOST_LETTERS + 1)
ROW = [[1, 0, 0]] * 6


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"names": ("a", "a", "b")}, "distinct"),
        ({"values": ((16, 32, 64), (4, 8), ("flat", float("nan"), None))}, "finite"),
        ({"values": ((16, 32, 64), (4, 8))}, "each of 3 parameters must have values"),
        ({"ordinal": (1, 0, 0)}, "ordinal must be True or False"),
        ({"default": (3, 0, 0)}, "default must be value indices of the 3 parameters"),
        ({"default": (0, 0)}, "default must be value indices"),
        ({"starts": ((0, 0, 0), (0, 0, 0.5))}, "starts must be value indices"),
        ({"starts": ((0, 0, -1),)}, "starts must be value indices"),
        ({"runs": ()}, "runs must be 1 to"),
        ({"runs": ({"a": 1},)}, "UTF-8 text"),
        ({"shape": "\ud800"}, "UTF-8 text"),
        ({"configurations": [*ROW, [1, 2, 0]]}, "configurations must be indices below"),
        ({"configurations": [*ROW, [1, -1, 0]]}, "configurations must be indices below"),
        ({"configurations": [*ROW, [1, 0.5, 0]]}, "must fit int64"),
        ({"configurations": ROW}, r"must have shape \(7, 3\), but has \(6, 3\)"),
        ({"statuses": []}, "must have 1 to"),
        ({"statuses": [0, 0, 6, 0, 0, 1, 0]}, "statuses must be an index"),
        ({"times_ms": [1.0, 0.5, 1.0, 1.02, 0.51, NAN, 1.01]}, "nan where not"),
        ({"times_ms": [1.0, 0.5, NAN, 1.02, NAN, NAN, 1.01]}, "where ok"),
        ({"times_ms": [1.0, 0.5, NAN, 1.02, np.inf, NAN, 1.01]}, "times_ms must be from"),
        ({"times_ms": [1.0, 0.0, NAN, 1.02, 0.51, NAN, 1.01]}, "times_ms must be from"),
        ({"low_ms": [1.5, NAN, NAN, 1.0, 0.51, NAN, 1.0]}, "low_ms must be at most the time"),
        ({"high_ms": [0.9, NAN, NAN, 1.1, 0.52, NAN, 1.02]}, "high_ms must be at least"),
        ({"high_ms": [1.1, NAN, 1.0, 1.1, 0.52, NAN, 1.02]}, "nan where it failed"),
        ({"compile_s": [-1.0] * 7}, "compile_s must be from 0"),
        ({"benchmark_s": [NAN] * 7}, "benchmark_s must be from 0"),
        ({"at_s": [1e9] * 7}, "at_s must be from 0"),
        ({"control_ms": [-1.0] * 7}, "control_ms must be from"),
        ({"run": [0, 0, 0, 0, 0, 0, 2]}, "run must be an index of one of 2"),
        ({"run": [0, 0, 0, 0, 0, 0, -1]}, "run must be an index of one of 2"),
        ({"how": [TOO_LONG] * 7}, "how must be at most"),
        ({"source": ["\ud800"] * 7}, "source must be UTF-8"),
    ],
)
def test_what_cannot_be_is_refused(changed, rule):
    with pytest.raises(SpaceError, match=rule) as raised:
        small_cloud(**changed)
    assert "(toy-64)" in str(raised.value) or "distinct" in rule or "finite" in rule


# -- merging ------------------------------------------------------------------------------------


def later(**changed):
    """The cloud measured another time."""
    cloud = small_cloud(**changed)
    return replace(cloud, at_s=cloud.at_s + 1.0)


def test_merging_keeps_every_row_and_whose_run_it_was():
    one, two = small_cloud(), later(starts=((2, 1, 0), (0, 0, 0)))
    both = merged([one, two])
    assert len(both) == 14
    assert both.run.tolist() == [*one.run, *(two.run + 2)]
    assert len(both.runs) == 4
    assert both.starts == ((1, 0, 0), (2, 1, 0), (0, 0, 0))
    assert both.times_ms[7:].tolist() == pytest.approx(two.times_ms.tolist(), nan_ok=True)
    assert [rows.tolist() for rows in both.repeats()] == [[0, 3, 6, 7, 10, 13], [1, 4, 8, 11]]


def test_clouds_of_other_recorders_words_are_merged():
    argument = {"shape": [8, 8], "dtype": "torch.float16"}
    one = small_cloud(info=replace(INFO, framework="helion 1.5.0", arguments=(argument,)))
    named = {"name": "x", **argument, "strides": [8, 1]}
    two = later(info=replace(INFO, framework="Helion 1.5.0", arguments=(named,)))
    assert merged([one, two]).info == one.info
    other = later(info=replace(two.info, arguments=({**named, "shape": [8, 4]},)))
    with pytest.raises(SpaceError, match="differ in arguments"):
        merged([one, other])


def test_what_is_merged_is_of_the_newest_recipe():
    assert merged([small_cloud(recipe=2), later(recipe=3)]).recipe == RECIPES[-1]
    assert merged([small_cloud(recipe=2)]).recipe == RECIPES[-1]


def test_one_merged_is_itself():
    assert same_cloud(merged([small_cloud()]), small_cloud())


INFO = small_cloud().info


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"shape": "small"}, r"differ in shape \('medium' and 'small'\)"),
        ({"values": ((16, 32, 64), (4, 8), ("flat", "persistent", True))}, "differ in values"),
        ({"values": ((16, 32, 64), (4.0, 8), ("flat", "persistent", None))}, "differ in values"),
        ({"default": None}, "differ in default"),
        ({"info": replace(INFO, device="NVIDIA H100")}, "differ in device"),
        ({"info": replace(INFO, kernel="other")}, "differ in kernel"),
        ({"info": replace(INFO, framework="helion 2.0")}, "differ in framework"),
        ({"info": replace(INFO, kernel_source="")}, "differ in kernel_source"),
    ],
)
def test_clouds_of_different_things_stay_apart(changed, what):
    with pytest.raises(SpaceError, match=what):
        merged([small_cloud(), later(**changed)])


def test_the_same_measurements_twice_are_refused():
    with pytest.raises(SpaceError, match="each measurement once"):
        merged([small_cloud(), small_cloud()])
    with pytest.raises(SpaceError, match="at least one"):
        merged([])
