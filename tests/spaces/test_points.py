"""Files of configurations that somebody wants measured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llamea_gpu.errors import SpaceFormatError
from llamea_gpu.spaces.formats.cloud_lines import read_points

HEADER = {"names": ["a", "b"], "values": [[1, 2, 4], [None, "x"]], "script": "toy", "shape": "s"}


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_points_are_read_in_order(write):
    rows = [{"c": [2, 1], "how": "proposed", "predicted_ms": 1.5}, {"c": [0, 0]}]
    points = read_points(write(lines(HEADER, *rows), "points.jsonl"))
    assert points.rows == (((2, 1), "proposed"), ((0, 0), "point"))
    assert (points.script, points.shape, points.names) == ("toy", "s", ("a", "b"))
    assert points.values == ((1, 2, 4), (None, "x"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1"),
        (lines(HEADER), "1 to"),
        (lines({"names": ["a"]}, {"c": [0]}), "'values' is missing"),
        (lines({"names": ["a"], "values": [1]}, {"c": [0]}), "an array for each of 'names'"),
        (lines(HEADER, {"c": [0]}), "line 2: 'c' must be value indices"),
        (lines(HEADER, {"c": [3, 0]}), "line 2: 'c' must be value indices"),
        (lines(HEADER, {"c": [-1, 0]}), "line 2: 'c' must be value indices"),
        (lines(HEADER, {"c": [0, True]}), "line 2: 'c' must be value indices"),
        (lines(HEADER, {"c": [0, 0]}, {"c": "x"}), "line 3: 'c' must be a JSON array"),
        (lines(HEADER, {"c": [0, 0], "how": 1}), "line 2: 'how' must be a string"),
        (lines(HEADER, [1]), "line 2: must be a JSON object"),
        (lines(HEADER) + "{", "line 2 column"),
    ],
)
def test_what_is_no_list_of_points_is_refused(write, text, problem):
    with pytest.raises(SpaceFormatError) as raised:
        read_points(write(text))
    assert problem in str(raised.value)
    assert len(str(raised.value)) < 2_000
