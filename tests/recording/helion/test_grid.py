"""Grids: their files, their points, and those proposed."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamea_gpu.errors import RecordingError
from llamea_gpu.recording.helion.grid import Grid, Slot, propose_grid, read_grid

DEFAULT = {
    "block_sizes": [64, 128],
    "indexing": ["pointer", "pointer", "pointer"],
    "loop_orders": [[0, 1]],
    "reduction_loops": [None],
    "num_warps": 4,
    "atomic_indexing": [],
}
TEXT = """
[slots]
"block_sizes[1]" = [64, 128]
indexing = ["pointer", "tensor_descriptor"]
"loop_orders[0]" = [[0, 1], [1, 0]]
"reduction_loops[0]" = ["None", 1024]
num_warps = [4, 8]
"""
SLOTS = (
    Slot("block_sizes[0]", (16, 32, 64, 128, 256), 64),
    Slot("block_sizes[1]", (16, 32, 64, 128, 256), 16),
    Slot("loop_orders[0]", ((0, 1), (1, 0)), (0, 1)),
    Slot("l2_groupings[0]", (1, 2, 4, 8, 16), 1),
    Slot("reduction_loops[0]", (256, 512, 1024), None),
    Slot("num_warps", (1, 2, 4, 8, 16, 32), 4),
    Slot("pid_type", ("flat", "persistent_blocked", "persistent_interleaved"), "flat"),
    Slot("something_new", (1, 2, 3), 1),
)


def write(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text)
    return path


def test_a_grid_file_is_read_and_written_back(tmp_path: Path) -> None:
    grid = read_grid(write(tmp_path, TEXT))
    assert grid.size == 32
    assert read_grid(write(tmp_path, grid.to_toml())) == grid
    assert grid.shown_values()[2] == ("[0, 1]", "[1, 0]")
    assert grid.shown_values()[3] == (None, 1024)


def test_points_count_with_the_last_slot_fastest_and_change_the_default(tmp_path: Path) -> None:
    grid = read_grid(write(tmp_path, TEXT))
    assert grid.indices(1) == (0, 0, 0, 0, 1)
    assert grid.indices(31) == (1, 1, 1, 1, 1)
    assert len({grid.indices(point) for point in range(grid.size)}) == grid.size
    assert grid.config(31, DEFAULT) == {
        "block_sizes": [64, 128],
        "indexing": ["tensor_descriptor"] * 3,
        "loop_orders": [[1, 0]],
        "reduction_loops": [1024],
        "num_warps": 8,
        "atomic_indexing": [],
    }
    assert DEFAULT["indexing"] == ["pointer"] * 3  # as it was
    assert grid.default_point(DEFAULT) == {
        "block_sizes[1]": 128,
        "indexing": "pointer",
        "loop_orders[0]": "[0, 1]",
        "reduction_loops[0]": None,
        "num_warps": 4,
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("slots = 3", "an array of|one table"),
        ("[slots]\n", "at least one slot"),
        ("[slots]\nnum_warps = []", "at least one value"),
        ("[slots]\nnum_warps = [4, 4]", "all distinct"),
        ("[slots]\nnum_warps = 4", "must be an array"),
        ("[slots]\nnum_warps = [{a = 1}]", "must be an array"),
        ("[slots]\nnum_warps = [4]\n[more]\n", "one table"),
        ("[slots", "must be a TOML file"),
        ("[slots]\n" + "\n".join(f"s{i} = [1, 2, 3, 4]" for i in range(11)), "at most 1000000"),
    ],
)
def test_a_file_that_is_no_grid_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(RecordingError, match=problem):
        read_grid(write(tmp_path, text))


def test_a_slot_that_the_kernel_does_not_have_is_refused() -> None:
    grid = Grid(("block_sizes[7]",), ((16, 32),))
    with pytest.raises(RecordingError, match=r"block_sizes\[7\] is not"):
        grid.config(0, DEFAULT)


def test_a_proposed_grid_grows_in_the_order_of_what_matters() -> None:
    small = propose_grid(SLOTS, 9)
    assert small.names == ("block_sizes[0]", "block_sizes[1]")
    large = propose_grid(SLOTS, 500)
    by_name = dict(zip(large.names, large.values, strict=True))
    assert by_name["block_sizes[0]"] == (32, 64, 128, 256)
    assert by_name["block_sizes[1]"] == (16, 64, 128)  # the default is the least: look higher
    assert by_name["pid_type"] == ("flat", "persistent_interleaved")
    assert by_name["reduction_loops[0]"] == (512, 1024, None)
    assert "something_new" not in by_name
    assert 250 < large.size <= 500


@pytest.mark.parametrize("size", [2, 10, 100, 1000, 5000, 10**6])
def test_a_proposed_grid_keeps_its_size_and_the_default(size: int) -> None:
    grid = propose_grid(SLOTS, size)
    assert grid.size <= size
    defaults = {slot.name: slot.default for slot in SLOTS}
    for name, values in zip(grid.names, grid.values, strict=True):
        assert defaults[name] in values


def test_a_size_that_makes_no_grid_is_refused() -> None:
    with pytest.raises(RecordingError, match="2 <= size"):
        propose_grid(SLOTS, 1)
    with pytest.raises(RecordingError, match="must vary some slot"):
        propose_grid([Slot("something_new", (1, 2), 1)], 100)
