"""A cloud of a Kernel Tuner kernel whose configurations nobody could list."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamea_gpu.engine.journal import journal_path
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.kernel_tuner.kernel_script import load_kernel_script
from llamea_gpu.frameworks.kernel_tuner.unlisted import MOST_COMBINATIONS, UnlistedSpace
from llamea_gpu.recording._base import KernelTunerSettings
from llamea_gpu.recording.clouds import CloudOutcome, MixtureSettings
from llamea_gpu.recording.kernel_tuner.cloud import record_cloud
from llamea_gpu.spaces.catalogue import load_cloud

kernel_tuner = pytest.importorskip("kernel_tuner")
KERNELS = Path(__file__).resolve().parents[3] / "tuning_spaces" / "kernels" / "kernel_tuner"
SETTINGS = MixtureSettings(25, searchers=("steady_state_genetic_algorithm",), evaluations=30)
HOW = KernelTunerSettings(compilers=2, iterations=2)


@pytest.fixture
def vast(write_script: Any, tmp_path: Path) -> Path:
    """The dot product with thirteen more parameters: 1e13 combinations and more."""
    path: Path = write_script(tmp_path, unroll=(1, 2, 4, 3), fault=(0, 1))
    more = {f"p{i}": list(range(10)) for i in range(13)}
    text = path.read_text().replace('"fault": [0, 1]}', f'"fault": [0, 1], **{more}}}')
    # One in a hundred is valid where these are drawn at random.
    text = text.replace('"fault * (width', '"p0 + p1 == 3", "p2 <= p3", "fault * (width')
    defaults = {**dict.fromkeys(more, 0), "p1": 3}
    text = text.replace('"fault": 0}', f'"fault": 0, **{defaults}}}')
    path.write_text(text)
    return path


def record(script: Path, settings: MixtureSettings = SETTINGS) -> CloudOutcome:
    return record_cloud(script, script.with_name("out.cloud.parquet"), settings, HOW)


def test_a_kernel_of_1e13_combinations_is_measured(vast: Path) -> None:
    outcome = record(vast)
    cloud = load_cloud(str(vast.with_name("out.cloud.parquet")))
    assert not outcome.troubles
    assert not journal_path(vast.with_name("out.cloud.parquet")).exists()
    assert math.prod(cloud.cardinalities) > 1e13
    assert len(cloud) == 25
    for row in range(25):
        values: dict[str, Any] = cloud.value_dict(cloud.configuration(row))
        assert values["width"] <= values["unroll"]
        assert values["fault"] * (values["width"] - 1) == 0
        assert values["p0"] + values["p1"] == 3
        assert values["p2"] <= values["p3"]
        failing = values["unroll"] == 3 or values["fault"] == 1
        assert cloud.ok[row] == (not failing)
        assert cloud.compile_s[row] > 0
    (first,) = np.flatnonzero(cloud.how == "start")
    assert cloud.configuration(first) == cloud.default
    assert cloud.info.default_configuration == cloud.value_dict(cloud.default or ())
    assert set(cloud.how) >= {"start", "random", "near", "steady_state_genetic_algorithm"}
    info = cloud.info
    assert (info.kernel, info.framework, info.parallel_workers) == ("dot", "kernel_tuner (C)", 1)
    assert info.provenance["constraints"].startswith("width <= unroll")


# -- the space, against Kernel Tuner's own list -------------------------------------------------


@pytest.fixture(scope="module", params=["matmul", "histogram"])
def both(request: pytest.FixtureRequest) -> tuple[UnlistedSpace, set[tuple[int, ...]]]:
    """A space, and all configurations that Kernel Tuner lists."""
    from kernel_tuner.searchspace import Searchspace

    script = load_kernel_script(KERNELS / f"{request.param}.py")
    given = script.arguments["tune_params"], script.arguments["restrictions"], 1024
    space = UnlistedSpace(*given, script.default_configuration, np.random.default_rng(0))
    index = [{repr(v): i for i, v in enumerate(values)} for values in given[0].values()]
    listed = Searchspace(*given).list
    return space, {tuple(i[repr(v)] for i, v in zip(index, c, strict=True)) for c in listed}


Both = tuple[UnlistedSpace, set[tuple[int, ...]]]


def test_valid_is_what_kernel_tuner_lists(both: Both) -> None:
    space, listed = both
    rng = np.random.default_rng(1)
    for config in rng.integers(0, space.cardinalities, size=(60, len(space.names))):
        assert space.contains(config.tolist()) == (tuple(config.tolist()) in listed)
    assert not space.contains((99, *space.starts[0][1:]))
    assert not space.contains(space.starts[0][1:])


def test_what_is_drawn_is_valid_and_of_all_parts(both: Both) -> None:
    space, listed = both
    rng = np.random.default_rng(2)
    drawn = [space.draw(rng) for _ in range(60)]
    assert set(drawn) <= listed
    assert len(set(drawn)) > 50
    for j, count in enumerate(space.cardinalities):
        seen = Counter(config[j] for config in drawn if config is not None)
        valid = {config[j] for config in listed}
        assert len(seen) >= min(len(valid), count) - 1, space.names[j]
    sampled = space.sample(100)
    assert len(set(sampled)) == 100
    assert set(sampled) <= listed
    assert set(map(tuple, space.pool(50).tolist())) <= listed


def test_neighbors_are_those_of_the_list(both: Both) -> None:
    space, listed = both
    home = space.starts[0]
    expected = {c for c in listed if sum(a != b for a, b in zip(c, home, strict=True)) == 1}
    assert set(space.neighbors(home)) == expected
    adjacent = set(space.neighbors(home, "adjacent"))
    assert adjacent <= expected
    for j in np.flatnonzero(space.ordinal):
        line = sorted(c[j] for c in expected if c[j] != home[j])
        near = {i for i in line if i < home[j]}, {i for i in line if i > home[j]}
        kept = {c[j] for c in adjacent if c[j] != home[j]}
        assert kept == {max(near[0], default=-1), min(near[1], default=-1)} - {-1}
    with pytest.raises(ValueError, match="valid configuration"):
        space.neighbors(home, "sideways")


def test_repair_leads_to_valid_ones(both: Both) -> None:
    space, listed = both
    rng = np.random.default_rng(3)
    for config in rng.uniform(-1, np.array(space.cardinalities) + 1, size=(20, len(space.names))):
        assert space.repair(config.tolist()) in listed
    valid = next(iter(listed))
    assert space.repair(valid) == valid
    with pytest.raises(ValueError, match="finite numbers"):
        space.repair([math.nan] * len(space.names))


def test_no_window_is_large(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    space, _ = both
    sizes = []
    window = UnlistedSpace._window

    def watched(self: UnlistedSpace, chosen: Any) -> Any:
        sizes.append(math.prod(map(len, chosen)))
        return window(self, chosen)

    monkeypatch.setattr(UnlistedSpace, "_window", watched)
    space.draw()
    space.sample(30)
    space.neighbors(space.sample(40)[-1])
    assert max(sizes) <= MOST_COMBINATIONS


def test_where_nothing_is_valid_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamea_gpu.frameworks.kernel_tuner.unlisted._EMPTY_WINDOWS", 3)
    params = {"a": list(range(50)), "b": list(range(50))}
    rng = np.random.default_rng(0)
    with pytest.raises(RecordingError, match="default_configuration"):
        UnlistedSpace(params, ["a + b == 1000"], 1024, None, rng)
    known = UnlistedSpace(params, ["a + b == 98"], 1024, {"a": 49, "b": 49}, rng)
    assert known.starts == [(49, 49)]
    assert UnlistedSpace(params, [], 1024, {"a": 7.5, "b": 0}, rng).default is None
