"""The score on whole spaces, by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from support.whole import ToyModel, toy_task

from llamea_gpu.area import (
    Yardstick,
    losses,
    read_yardstick,
    scores,
    write_yardstick,
    yardstick_of,
)
from llamea_gpu.errors import TaskError
from llamea_gpu.scoring import ExternalTrace, aggregate, resampled_curves, score_space

AXIS_S = np.array([1.0, 2.0, 3.0, 4.0])


def run(name: str, *points: tuple[float, float]) -> ExternalTrace:
    elapsed_s, cost_ms = zip(*points, strict=True)
    return ExternalTrace(name, np.array(elapsed_s), np.array(cost_ms))


def test_a_loss_is_of_the_best_so_far_and_never_above_the_defaults() -> None:
    runs = [
        run("a", (0.5, math.inf), (2.0, 3.0), (2.5, 9.0), (4.0, 1.5)),
        run("b", (1.0, 8.0), (3.5, 0.5)),  # worse than the default, then better than the best known
    ]
    lost = losses(runs, AXIS_S, best_ms=1.0, default_ms=6.0)
    assert lost[0] == pytest.approx(np.log([6.0, 3.0, 3.0, 1.5]))
    assert lost[1] == pytest.approx(np.log([6.0, 6.0, 6.0, 1.0]))


def yardstick(area: float = 0.5) -> Yardstick:
    return Yardstick("helion:X", "parallel(2)", 30.0, 12, 0.5, 2.5, np.full(1000, area), 0.01)


def test_the_yardstick_scores_0_and_the_best_known_at_once_1() -> None:
    made = yardstick_of(
        [run("a", (2.0, 3.0)), run("b", (1.0, 1.0))],
        AXIS_S,
        1.0,
        6.0,
        searcher="helion:X",
        clock="parallel(2)",
        budget_s=4.0,
    )
    assert made.area == pytest.approx((math.log(6.0) + 3 * math.log(3.0)) / 4 / 2)
    assert scores(made.curve, made).mean() == pytest.approx(0.0)
    assert scores(np.zeros(4), made).tolist() == [1.0] * 4
    spread = [np.mean([math.log(6.0), *[math.log(3.0)] * 3]), 0.0]
    assert made.standard_error == pytest.approx(np.std(spread, ddof=1) / math.sqrt(2))


def test_a_space_is_scored_with_its_bootstrap_error() -> None:
    task = toy_task(yardstick=yardstick())
    at_once, never = run("a", (1e-9, 0.5)), run("b", (1.0, math.inf))
    assert score_space(task, [at_once]).p == pytest.approx(1.0, abs=0.01)
    # The default takes five times the best.
    assert score_space(task, [never]).p == pytest.approx(1 - math.log(5) / 0.5)
    both = score_space(task, [at_once, never])
    assert both.p == pytest.approx((1.0 + 1 - math.log(5) / 0.5) / 2, abs=0.01)
    assert both.standard_error == pytest.approx(math.log(5) / 0.5 / 2 / math.sqrt(2), rel=0.15)
    assert both.curve.shape == (1000,)
    curves = resampled_curves(task, [at_once, never], np.array([[2, 0], [0, 2]]))
    assert curves.mean(axis=1) == pytest.approx([1.0, 1 - math.log(5) / 0.5], abs=0.01)
    assert aggregate([both, both]).p == pytest.approx(both.p)


def test_a_score_needs_a_yardstick_of_its_budget() -> None:
    trace = run("a", (1.0, 1.0))
    with pytest.raises(TaskError, match="needs its yardstick"):
        score_space(toy_task(), [trace])
    with pytest.raises(TaskError, match="of the task's budget"):
        score_space(toy_task(budget_s=20.0, yardstick=yardstick()), [trace])
    with pytest.raises(TaskError, match="something to gain"):
        yardstick(0.0)


def test_a_yardstick_is_kept_whole_or_taken_for_none(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "y.json"
    assert read_yardstick(file) is None
    write_yardstick(yardstick(), file)
    found = read_yardstick(file)
    assert found is not None
    assert found.curve.tolist() == [0.5] * 1000
    assert (found.searcher, found.runs, found.best_ms) == ("helion:X", 12, 0.5)
    for text in ("", "[]", "{}", file.read_text()[:-40], file.read_text().replace("0.5,", '"x",')):
        file.write_text(text)
        assert read_yardstick(file) is None


def test_the_toy_is_what_these_numbers_rest_on() -> None:
    task = toy_task()
    assert task.optimum_ms == ToyModel.best_ms == 0.5
    assert task.default_ms == pytest.approx(1.2)
