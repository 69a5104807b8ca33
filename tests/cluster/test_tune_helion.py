"""Tuning a live Helion kernel on the GPUs of two nodes, which are pretended, one of them killed.

Compiling and timing are fakes in the first test; in the second, which is slow, Helion compiles.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("helion")

from support.compiling_on_node import compiling_on_node
from support.formula_timing import code_ms, read_again, timings
from support.one_machine import OneMachine, around_in, measure_by_formula, tuned

from llamea_gpu.cluster.pipeline import Gpus
from llamea_gpu.live import TuneProgress
from llamea_gpu.live.helion import cluster

# Ray leaves the files of its processes' output to the collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def kill(nodes: Any) -> Iterator[Callable[[TuneProgress], None]]:
    """Kills the second node when a random number of configurations is known."""
    moment = random.Random().randrange(3, 40)

    def note(progress: TuneProgress) -> None:
        if nodes.second is not None and progress.measured >= moment:
            nodes.kill(nodes.second)
            nodes.second = None

    yield note
    nodes.replace_second()


def lines_of(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()][1:]


def test_a_lost_node_loses_nothing(
    nodes: Any,
    kill: Callable[[TuneProgress], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = around_in(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        measure_by_formula(patch, tmp_path)
        patch.setattr(cluster, "ClusterPipeline", OneMachine)
        patch.setattr(cluster, "connected", lambda _: contextlib.nullcontext())
        patch.setattr(cluster, "find_gpus", lambda _: Gpus("H200", 2, 2))
        expected = tuned("here", around, tmp_path / "here", evaluations=60)
    trail = tmp_path / "trail"
    trail.mkdir()
    measure_by_formula(monkeypatch, trail, slow_s=0.02)
    found = tuned(nodes.address, around, tmp_path / "there", kill, evaluations=60)
    assert nodes.second is None
    timed = {tuple(line["c"]): line["ms"] for line in lines_of(tmp_path / "there")}
    assert timed == {tuple(line["c"]): line["ms"] for line in lines_of(tmp_path / "here")}
    assert len(timed) == len(lines_of(tmp_path / "there")) == len(found.measured) == 60
    assert found.best is not None
    assert expected.best is not None
    assert found.best.time_ms == expected.best.time_ms == min(timed.values())
    assert (found.code, found.trouble) == (expected.code, "")
    assert len({line["pid"] for line in timings(trail) if "path" in line}) >= 2
    (finalists,) = read_again(trail)
    assert len({Path(path).parent for path in finalists}) == 1 < len(finalists)


@pytest.mark.slow
def test_real_compilation_on_the_nodes(
    nodes: Any,
    kill: Callable[[TuneProgress], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measure_by_formula(monkeypatch, tmp_path)
    monkeypatch.setattr(cluster, "stages_on_node", partial(compiling_on_node, tmp_path))
    searcher, journal = "steady_state_genetic_algorithm", tmp_path / "journal"
    found = tuned(nodes.address, searcher, journal, kill, evaluations=50)
    lines = lines_of(journal)
    worked = [line for line in lines if line["status"] == "ok"]
    assert len({tuple(line["c"]) for line in lines}) == len(lines) == len(found.measured) == 50
    assert all(line["ms"] == code_ms(line["source"]) for line in worked)
    assert found.best is not None
    assert found.best.time_ms == min(line["ms"] for line in worked)
    assert len(read_again(tmp_path)) == 1
