"""Which spaces a name, a pattern or a suite stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recordings import small_recording

from llamea_gpu.bench.suites import spaces_of, suite_spaces, suites
from llamea_gpu.errors import BenchError, UnknownSpaceError
from llamea_gpu.spaces.catalogue import load_cloud, load_spaces
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.spaces.recording import Recording


def recordings(*named: str, path: tuple[Path, ...] = ()) -> list[Recording]:
    return load_spaces(spaces_of(named, path), path)


def names(*named: str) -> list[str]:
    return [recording.info.name for recording in recordings(*named)]


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    for place in ("convolution_milo/A100_T4", "gemm_milo/W7800_T4", "gemm_milo/RTX_T4"):
        file = tmp_path / "cachefiles" / f"{place}.json.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        export_recording(small_recording(place), file, "t4")
    return tmp_path


def test_what_ships_is_there() -> None:
    assert {"quick", "train", "validation", "test", "hub"} <= set(suites())
    assert len(names("quick")) == 4
    assert len(names("train")) == 13


def test_the_hub_is_what_the_search_path_has_of_it(hub: Path) -> None:
    found = recordings("hub", path=(hub,))
    assert len(found) == 2
    assert {"A100" in r.info.name or "W7800" in r.info.name for r in found} == {True}


def test_without_the_hub_it_is_said_where_to_get_it() -> None:
    with pytest.raises(BenchError, match=r"github\.com/AutoTuningAssociation/benchmark_hub"):
        suite_spaces("hub")


def test_an_unknown_suite_names_those_there_are() -> None:
    with pytest.raises(BenchError, match="did you mean hub"):
        suite_spaces("hubb")


def test_patterns_names_and_splits_mix_and_nothing_comes_twice() -> None:
    found = names("matmul*2048*", "validation", "softmax-4096x4096")
    assert sorted(found[:3]) == ["matmul-2048", "matmul-2048x2048x1024", "matmul_gelu-2048x8192"]
    assert len(found) == len(set(found)) == 9


def test_parts_of_a_split_of_a_pattern_and_of_a_name() -> None:
    found = names("rms_norm-16384x4096~1", "rms*~2", "validation~1")
    assert found[:2] == ["rms_norm-16384x4096.part1", "rms_norm-16384x4096.part2"]
    assert len(found) == len(set(found)) == 8


def test_the_small_spaces_are_parts_of_validation_and_of_nothing_else() -> None:
    whole = set(names("validation"))
    parts = recordings("small")
    assert len(parts) == 5 * len(whole)
    assert {part.info.provenance["part_of"] for part in parts} == whole
    assert all(190 <= part.space.size <= 1_050 for part in parts)


def test_a_pattern_without_a_match_is_an_error() -> None:
    with pytest.raises(UnknownSpaceError, match="'zz\\*' matches none"):
        names("matmul*", "zz*")
    with pytest.raises(UnknownSpaceError, match="matmul-2048"):
        names("matmul-2084")


def test_a_benchs_own_files_are_no_spaces(tmp_path: Path) -> None:
    from llamea_gpu.spaces.catalogue import list_spaces

    for name in ("bench.json", "bench.jsonl", "bench.parquet"):
        (tmp_path / name).write_text("{}")
    assert not [entry for entry in list_spaces((tmp_path,)) if "bench" in entry.name]


def test_no_kernel_is_on_both_sides_of_the_split_of_whole_spaces() -> None:
    parts = [suite_spaces(f"whole-{part}") for part in ("train", "validation", "test")]
    kernels = [{load_cloud(name).info.kernel for name in part} for part in parts]
    assert all(kernels)
    assert len(set.union(*kernels)) == sum(map(len, kernels))
    assert set().union(*parts) <= set(suite_spaces("whole"))


def test_a_pattern_for_recordings_does_not_reach_clouds() -> None:
    assert not [name for name in spaces_of(["*attention*"]) if name.startswith("clouds/")]
    assert spaces_of(["clouds/helion/swiglu*"]) == ("clouds/helion/swiglu-8192x8192-h200",)
