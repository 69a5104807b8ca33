"""Recording: rows follow the space, and measurements keep the rules."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from support.recordings import small_recording

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.recording import Recording, RecordingInfo

INFO = RecordingInfo(name="r", kernel="k", device="d", framework="f")


def make(**changed) -> Recording:
    rows = {
        "names": ["a", "b"],
        "values": [(1, 2), ("x", "y")],
        "configurations": [[1, 1], [0, 0], [1, 0]],
        "time_ms": [11.0, 0.5, np.inf],
        "compile_s": [1.0, 2.0, 3.0],
        "benchmark_s": [0.1, 0.2, 0.3],
        "status": [0, 0, 4],
        "info": INFO,
    }
    return Recording.from_rows(**{**rows, **changed})


def test_measurements_are_sorted_with_the_configurations():
    recording = make()
    assert recording.space.configurations.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert recording.time_ms.tolist() == [0.5, np.inf, 11.0]
    assert recording.compile_s.tolist() == [2.0, 3.0, 1.0]
    assert recording.benchmark_s.tolist() == [0.2, 0.3, 0.1]
    assert recording.status.tolist() == [0, 4, 0]


def test_the_derived_numbers():
    recording = make()
    assert recording.ok.tolist() == [True, False, True]
    assert recording.evaluation_s.tolist() == pytest.approx([2.2, 3.3, 1.1])
    assert recording.optimum_ms == 0.5


@pytest.mark.parametrize(
    ("default", "told", "time_ms"),
    [
        ({"a": 2, "b": "y"}, {}, 11.0),
        ({"a": 2, "b": "x"}, {}, None),  # it fails
        ({"a": 1, "b": "y"}, {}, None),  # not measured
        ({"a": 3, "b": "y"}, {}, None),  # not on the grid
        ({"a": 1}, {}, None),
        (None, {}, None),
        ({"a": 2, "b": "y"}, {"helion_default": 4.0}, 4.0),  # of the kernel itself
    ],
)
def test_the_default_is_known_where_it_was_measured(default, told, time_ms):
    info = dataclasses.replace(INFO, default_configuration=default, references_ms=told)
    assert make(info=info).default_ms == time_ms


def test_the_optimum_is_inf_when_nothing_ran():
    assert make(time_ms=[np.inf] * 3, status=[1, 2, 3]).optimum_ms == np.inf


@pytest.mark.parametrize("name", ["time_ms", "compile_s", "benchmark_s", "status"])
def test_arrays_are_read_only(name):
    with pytest.raises(ValueError):
        getattr(make(), name)[0] = 0


def test_the_callers_arrays_are_copied():
    times = np.array([11.0, 0.5, np.inf])
    recording = make(time_ms=times)
    times[:] = 0
    assert recording.optimum_ms == 0.5


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"time_ms": [0.0, 1.0, np.inf]}, "from 1e-06 to 1e[+]09"),
        ({"time_ms": [-1.0, 1.0, np.inf]}, "from 1e-06 to 1e[+]09"),
        ({"time_ms": [np.nan, 1.0, np.inf]}, "from 1e-06 to 1e[+]09"),
        ({"time_ms": [np.inf, 1.0, np.inf]}, "from 1e-06 to 1e[+]09"),
        ({"time_ms": [1e-310, 1.0, np.inf]}, "from 1e-06 to 1e[+]09"),
        ({"time_ms": [1e300, 1.0, np.inf]}, "from 1e-06 to 1e[+]09"),
        ({"compile_s": [1e300, 1.0, 1.0]}, "compile_s must be from 0 to 1e[+]07"),
        ({"time_ms": [1.0, 1.0, 1.0]}, "inf where status is not ok"),
        ({"time_ms": [1.0, 1.0, np.nan]}, "inf where status is not ok"),
        ({"compile_s": [-1.0, 1.0, 1.0]}, "compile_s must be from 0 to 1e[+]07"),
        ({"benchmark_s": [np.nan, 1.0, 1.0]}, "benchmark_s must be from 0 to 1e[+]07"),
        ({"benchmark_s": [np.inf, 1.0, 1.0]}, "benchmark_s must be from 0 to 1e[+]07"),
        ({"status": [0, 0, 6]}, "status must be an index"),
        ({"status": [0, 0, -1]}, "uint8"),
        ({"status": [0, 0, 4.5]}, "uint8"),
        ({"time_ms": [1.0, 1.0]}, "one entry a configuration"),
        ({"time_ms": [[1.0, 1.0, 1.0]]}, "one entry a configuration"),
    ],
)
def test_measurements_that_break_a_rule_are_refused(changed, complaint):
    with pytest.raises(SpaceError, match=complaint):
        make(**changed)


@pytest.mark.parametrize("changed", [{"name": ""}, {"parallel_workers": 0}])
def test_info_that_breaks_a_rule_is_refused(changed):
    with pytest.raises(SpaceError, match="must"):
        dataclasses.replace(INFO, **changed)


def test_a_recording_survives_pickling():
    recording = small_recording()
    again = pickle.loads(pickle.dumps(recording))
    assert again.space.fingerprint == recording.space.fingerprint
    assert np.array_equal(again.time_ms, recording.time_ms)
    assert again.info == recording.info
