"""GPUs of several nodes as one engine. The GPUs are pretended, the nodes and processes are real."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import ray
from support.recorder_stages import FACTS, fake_engine, trail
from support.waiting import GENEROUS_S, wait_until

from llamea_gpu.cluster.connection import connected
from llamea_gpu.cluster.engine import EngineSpec
from llamea_gpu.cluster.pipeline import ClusterPipeline, Gpus, find_gpus
from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.errors import ClusterError, RecordingError

LIMITS = Limits(start_s=GENEROUS_S)
SHORT = Limits(compile_s=4.0, timing_s=4.0, start_s=GENEROUS_S)  # for what hangs
# Ray leaves the files of its processes' output to the collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module", autouse=True)
def connection(nodes: Any) -> Iterator[None]:
    with connected(nodes.address):
        yield


def spec(
    folder: Path, seconds: float = 0.0, refuses: str = "", limits: Limits = LIMITS
) -> EngineSpec:
    return EngineSpec(functools.partial(fake_engine, folder, seconds, refuses), limits)


def tasks_of(count: int) -> list[Task]:
    return [Task(point, {"x": point}) for point in range(count)]


def essential(outcome: Outcome) -> tuple[object, ...]:
    told = tuple(outcome.details.get(key) for key in ("time_ms", "source", "low_ms"))
    return outcome.point, outcome.status, str(told)


def test_outcomes_are_those_of_one_machine(tmp_path: Path) -> None:
    behaviours: list[dict[str, str]] = [
        {},
        {"compile": "refused"},
        {"time": "error"},
        {"compile": "crash-once"},
        {"time": "crash-once"},
        {"compile": "hang"},
        {"time": "hang"},
    ]
    behaviours += [{}] * 17
    tasks = [Task(point, {"x": point, **does}) for point, does in enumerate(behaviours)]
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with Pipeline(*fake_engine(here, 0.0, "", here), here, SHORT) as pipeline:
        expected = sorted(essential(outcome) for outcome in pipeline.run(tasks))
    gpus = find_gpus()
    assert gpus == Gpus("H200", 2, 1)
    with ClusterPipeline(spec(there, limits=SHORT), gpus, compilers=2) as cluster:
        assert cluster.facts() == [FACTS] * 2
        assert sorted(essential(outcome) for outcome in cluster.run(tasks)) == expected
        assert cluster.pending == 0
    assert len({line["pid"] for line in trail(there) if line["kind"] == "time"}) >= 2
    wait_until(lambda: not any(Path(f"/proc/{line['pid']}").exists() for line in trail(there)))


def test_what_a_lost_node_had_is_measured_elsewhere(nodes: Any, tmp_path: Path) -> None:
    total, moment = 120, random.Random().randrange(5, 60)
    measured: Counter[int] = Counter()
    with ClusterPipeline(spec(tmp_path, 0.05), find_gpus(), compilers=2) as cluster:
        cluster.facts()
        cluster.submit(tasks_of(total))
        while cluster.pending:
            measured.update(outcome.point for outcome in cluster.wait() if outcome.status == "ok")
            if nodes.second is not None and sum(measured.values()) >= moment:
                nodes.kill(nodes.second)
                nodes.second = None
        assert measured == Counter(range(total))
        nodes.second = nodes.add("H200")  # its engine comes back where there is a GPU
        deadline = monotonic() + GENEROUS_S
        while cluster.ready < 2:
            assert monotonic() < deadline
            assert [outcome.status for outcome in cluster.run(tasks_of(2))] == ["ok"] * 2
    assert len({line["pid"] for line in trail(tmp_path) if line["kind"] == "time"}) == 3


def test_what_is_dropped_is_not_handed_out(tmp_path: Path) -> None:
    with ClusterPipeline(spec(tmp_path, 0.2), find_gpus(), compilers=2) as cluster:
        cluster.facts()
        done = [outcome.point for outcome in cluster.run(tasks_of(40), monotonic() + 1.0)]
        dropped = cluster.drop()
        done += [outcome.point for outcome in cluster.wait()]
        assert cluster.pending == 0
        assert sorted([*done, *dropped]) == list(range(40))
        assert dropped
        assert {outcome.point for outcome in cluster.run(tasks_of(4))} == {0, 1, 2, 3}


def test_a_stage_that_refuses_is_named_with_its_node(tmp_path: Path) -> None:
    with (
        ClusterPipeline(spec(tmp_path, refuses="no such kernel"), find_gpus(), 2) as cluster,
        pytest.raises(RecordingError, match=r".+ \([0-9a-f]{8}\): no such kernel"),
    ):
        cluster.facts()


def test_two_kinds_of_gpu_never_mix(nodes: Any) -> None:
    other = nodes.add("H100")
    try:
        with pytest.raises(ClusterError, match=r"one kind, but the cluster has H100, H200: choose"):
            find_gpus()
        assert find_gpus("H100") == Gpus("H100", 1, 1)
        assert find_gpus("H200").count == 2
        with pytest.raises(ClusterError, match="must have a GPU of kind A100"):
            find_gpus("A100")
    finally:
        nodes.leave(other)
        wait_until(lambda: "accelerator_type:H100" not in ray.cluster_resources())
