"""Clouds on the command line: import, list, show; and those that ship."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.clouds import small_cloud
from support.command_line import llamea

from llamea_gpu.errors import UnknownSpaceError
from llamea_gpu.resources import resource_dir
from llamea_gpu.spaces.catalogue import list_clouds, list_spaces, load_cloud, load_space
from llamea_gpu.spaces.cloud import RECIPES
from llamea_gpu.spaces.formats import export_cloud

SHIPPED = "clouds/helion/rope-4x32x4096x128-h200"


def test_what_ships_is_listed_as_clouds_and_not_as_recordings() -> None:
    rows = json.loads(llamea("spaces", "list", "--json").stdout)
    kinds = {row["name"]: row["kind"] for row in rows}
    assert kinds[SHIPPED] == "cloud"
    assert kinds["matmul-2048"] == "recording"
    assert not [entry for entry in list_spaces() if "cloud" in entry.name]
    assert SHIPPED in llamea("spaces", "list").stdout


@pytest.mark.parametrize("entry", list_clouds(), ids=lambda entry: entry.name)
def test_a_cloud_that_ships_says_what_it_is_of(entry) -> None:
    cloud = load_cloud(entry.name)
    assert entry.name == f"clouds/helion/{cloud.info.name}"
    assert len(cloud) > 400
    assert cloud.default in cloud.starts
    assert set(cloud.starts) <= set(map(tuple, cloud.configurations.tolist()))
    assert cloud.best_ms < cloud.info.references_ms["helion_default"]
    assert f"def {cloud.info.kernel}(" in cloud.info.kernel_source
    script = resource_dir("tuning_spaces") / "kernels" / "helion" / f"{cloud.script}.py"
    assert cloud.info.kernel_source in script.read_text(encoding="utf-8")


def test_a_cloud_is_shown_with_what_was_measured_twice(tmp_path: Path) -> None:
    path = tmp_path / "toy.cloud.parquet"
    export_cloud(small_cloud(), path)
    shown = json.loads(llamea("spaces", "show", path, "--json").stdout)
    assert (shown["kind"], shown["measurements"], shown["configurations"]) == ("cloud", 7, 5)
    assert shown["status"] == {"ok": 5, "compile_error": 1, "timeout": 1}
    assert shown["how"] == {"start": 3, "random": 1, "step": 1, "cross": 1, "generated:x": 1}
    assert shown["default_ms"] == 1.01
    best = shown["best"][0]
    assert best == {
        "time_ms": 0.5,
        "timed": 1,
        "configuration": {"block_sizes[0]": 64, "num_warps": 8, "pid_type": "flat"},
    }
    assert (shown["noise"]["repeated"], shown["noise"]["timings"]) == (2, 5)
    assert shown["noise"]["median"] == pytest.approx((0.02 / 1.01 + 0.01 / 0.505) / 2)
    assert shown["controls"] == {"count": 2, "least_ms": 1.0, "most_ms": 1.03}
    text = llamea("spaces", "show", path).stdout
    assert "the default timed 2 times in between: 1 to 1.03 ms" in text
    assert "7 of 5 configurations" in text
    assert "persistent" in text


def test_a_cloud_in_which_nothing_ran_is_shown(tmp_path: Path) -> None:
    path, nan = tmp_path / "toy.cloud.parquet", [float("nan")] * 7
    failed = small_cloud(statuses=[1] * 7, times_ms=nan, low_ms=nan, high_ms=nan, default=None)
    export_cloud(failed, path)
    assert "nothing was timed twice" in llamea("spaces", "show", path).stdout


def test_clouds_of_one_kernel_become_one(tmp_path: Path, shared_spaces: Path) -> None:
    folder, out = shared_spaces / "helion_whole_h200", tmp_path / "rope.cloud.parquet"
    rope = [folder / f"rope-medium{near}.jsonl.gz" for near in ("", "-near")]
    done = llamea("spaces", "import", *rope, "-o", out, "--name", "rope")
    assert "rope, a cloud of 2030 measurements" in done.stdout
    again = llamea("spaces", "import", *rope, "-o", out, status=2)
    assert "--force" in again.stderr
    assert load_cloud(str(out)).recipe == RECIPES[-1]
    other = folder / "matmul-medium.jsonl.gz"
    mixed = llamea("spaces", "import", rope[0], other, "-o", tmp_path / "b.cloud.parquet", status=2)
    assert "differ in kernel" in mixed.stderr


def test_an_import_is_of_the_newest_recipe_and_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path, out = tmp_path / "toy.cloud.parquet", tmp_path / "out.cloud.parquet"
    export_cloud(small_cloud(recipe=2), path)
    llamea("spaces", "import", path, "-o", out)
    shown = [json.loads(llamea("spaces", "show", file, "--json").stdout) for file in (path, out)]
    assert [cloud["recipe"] for cloud in shown] == [2, RECIPES[-1]]


def test_what_cannot_be_imported_together_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "toy.cloud.parquet"
    export_cloud(small_cloud(), path)
    native = resource_dir("tuning_spaces") / "matmul-2048.parquet"
    out = tmp_path / "out.cloud.parquet"
    assert "1 are clouds" in llamea("spaces", "import", path, native, "-o", out, status=2).stderr
    twice = llamea("spaces", "import", path, path, "-o", out, status=2)
    assert "each measurement once" in twice.stderr
    named = llamea("spaces", "import", path, "-o", tmp_path / "out.parquet", status=2)
    assert "NAME.cloud.parquet" in named.stderr


def test_a_cloud_is_no_recording() -> None:
    with pytest.raises(UnknownSpaceError, match="is a cloud"):
        load_space(SHIPPED)
    with pytest.raises(UnknownSpaceError, match=r"did you mean .*rope"):
        load_cloud(SHIPPED[:-1])


def test_recording_a_cloud_has_no_grid_and_a_name_of_its_own(tmp_path: Path) -> None:
    command = ("spaces", "record", "helion", "rope", "--whole", 10)
    out = tmp_path / "rope.cloud.parquet"
    gridded = llamea(*command, "--auto", 5, "--partial", "-o", out, status=2)
    assert "no grid and no sample, but got --auto, --partial" in gridded.stderr
    assert "NAME.cloud.parquet" in llamea(*command, "-o", tmp_path / "a.parquet", status=2).stderr
    assert "name it with -o" in llamea(*command, status=2).stderr
    out.touch()
    assert "must be a new file" in llamea(*command, "-o", out, status=2).stderr
    grid = ("spaces", "record", "helion", "rope", "--searcher", "random_search", "-o", out)
    assert "needs --whole" in llamea(*grid, status=2).stderr
    tuned = ("spaces", "record", "kernel-tuner", "mine.py", "-o", tmp_path / "b.cloud.parquet")
    sampled = llamea(*tuned, "--whole", 10, "--sample", 5, status=2)
    assert "no grid and no sample, but got --sample" in sampled.stderr
    assert "must be a Python file" in llamea(*tuned, "--whole", 10, status=2).stderr
