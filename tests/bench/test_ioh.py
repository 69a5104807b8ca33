"""A recording as an IOHexperimenter problem."""

from __future__ import annotations

import math
from pathlib import Path

import ioh
import numpy as np
import pytest
from support.handmade import line_recording
from support.recordings import small_recording

from llamea_gpu.bench.ioh import problem
from llamea_gpu.errors import SpaceError, UnknownSpaceError


def test_costs_and_optimum_are_the_recordings() -> None:
    recording = small_recording("ioh-1")
    found = problem(recording)
    assert found.meta_data.name == "ioh-1"
    assert found.meta_data.n_variables == 4
    assert [int(b) for b in found.bounds.ub] == [4, 3, 2, 1]
    first = int(recording.time_ms.argmin())
    for row in range(0, 120, 7):
        if row != first:
            assert found(list(recording.space.configuration(row))) == recording.time_ms[row]
    assert not found.state.final_target_found
    best = recording.space.configuration(first)
    assert found(list(best)) == recording.optimum_ms == found.optimum.y
    assert tuple(found.optimum.x) == best
    assert found.state.final_target_found


def test_what_is_not_valid_costs_infinity() -> None:
    found = problem("matmul-2048")
    assert found([99] * found.meta_data.n_variables) == math.inf


def test_an_algorithm_of_theirs_runs_with_their_logger(tmp_path: Path) -> None:
    found = problem("softmax-4096x4096")
    logger = ioh.logger.Analyzer(
        root=str(tmp_path),
        folder_name="logs",
        algorithm_name="climber",
        triggers=[ioh.logger.trigger.ALWAYS],
    )
    found.attach_logger(logger)
    rng = np.random.default_rng(1)
    upper = np.array(found.bounds.ub)
    x = rng.integers(0, upper + 1)
    y = found(x.tolist())
    for _ in range(300):
        new = np.where(rng.random(x.size) < 0.3, rng.integers(0, upper + 1), x)
        cost = found(new.tolist())
        if cost <= y:
            x, y = new, cost
    assert found.state.evaluations == 301
    assert found.state.current_best.y == y < math.inf
    found.reset()
    logger.close()
    assert list((tmp_path / "logs").glob("*.json"))


def test_two_problems_live_side_by_side() -> None:
    one, other = (
        problem(small_recording("ioh-a", seed=1)),
        problem(small_recording("ioh-b", seed=2)),
    )
    assert one([0, 0, 0, 0]) != other([0, 0, 0, 0])


def test_what_gives_no_problem_is_said() -> None:
    with pytest.raises(UnknownSpaceError):
        problem("no-such-space")
    with pytest.raises(SpaceError, match="works"):
        problem(line_recording([math.inf, math.inf]))
