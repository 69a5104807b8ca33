"""One kernel at several shapes: who starts from what, and what is best for all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.command_line import llamea

from llamea_gpu.errors import SearcherError
from llamea_gpu.live import Measured, ShapesResult, TuneSettings, TuningResult
from llamea_gpu.live.helion import tuning
from llamea_gpu.live.shapes import chosen_shapes, tune_shapes

Config = Mapping[str, Any]
# Times of four configurations: each shape has a best of its own, and "c" is second everywhere.
TIMES = {
    "small": {"a": 1.0, "b": 3.0, "c": 1.1, "d": 9.0},
    "medium": {"a": 30.0, "b": 10.0, "c": 11.0, "d": math.inf},
    "large": {"a": 400.0, "b": 150.0, "c": 100.0, "d": 900.0},
}


def result(shape: str, names: Sequence[str], told: str = "") -> TuningResult:
    measured = tuple(
        Measured({"v": name}, TIMES[shape][name], float(place))
        for place, name in enumerate(names, 1)
    )
    works = [each for each in measured if math.isfinite(each.time_ms)]
    return TuningResult(
        searcher="s", framework="f", kernel="k", device="d", seed=1, clock="wall",
        measured=measured, best=min(works, key=lambda e: e.time_ms, default=None),
        default_ms=None, elapsed_s=float(len(measured)), code=told,
    )  # fmt: skip


def tuned() -> tuple[ShapesResult, list[tuple[str, list[str], bool]]]:
    calls = []
    finds = {"small": ["d", "a"], "medium": ["d", "b"], "large": ["d", "c"]}

    def tune(shape: str, starts: Sequence[Config], alone: bool) -> TuningResult:
        names = [each["v"] for each in starts]
        calls.append((shape, names, alone))
        return result(shape, names if alone else [*names, *finds[shape]])

    return tune_shapes(list(TIMES), tune), calls


def test_each_starts_from_the_best_of_those_before_and_sees_the_others_afterwards() -> None:
    _, calls = tuned()
    assert calls == [
        ("small", [], False),
        ("medium", ["a"], False),
        ("large", ["a", "b"], False),
        ("small", ["b", "c"], True),
        ("medium", ["c"], True),
    ]


def test_the_single_best_is_that_of_least_slowdown_over_all() -> None:
    found, _ = tuned()
    assert {shape: r.best and r.best.configuration["v"] for shape, r in found.results.items()} == {
        "small": "a",
        "medium": "b",
        "large": "c",
    }
    assert found.single == {"v": "c"}
    assert found.slowdown({"v": "c"}) == pytest.approx((1.1 * 1.1 * 1.0) ** (1 / 3))
    assert found.slowdown({"v": "d"}) == math.inf
    assert found.results["small"].elapsed_s == 4.0
    assert [e.elapsed_s for e in found.results["small"].measured] == [1, 2, 3, 4]
    document = found.document(2)
    assert document["single"] == {"v": "c"}
    assert document["candidates"][1]["time_ms"] == {"small": 3.0, "medium": 10.0, "large": 150.0}
    assert "'medium': helion.Config(v='b')" in found.code
    assert "FOR_ALL = helion.Config(v='c')" in found.code


def test_nothing_is_best_for_all_where_each_fails_somewhere() -> None:
    def tune(shape: str, starts: Sequence[Config], alone: bool) -> TuningResult:
        own = "b" if shape == "small" else "d"
        done = result("small", [own])
        failed = tuple(Measured(each, math.inf, 1.0) for each in starts)
        return TuningResult(**{**vars_of(done), "measured": (*failed, *done.measured)})

    found = tune_shapes(["small", "large"], tune)
    assert found.single is None
    assert "FOR_ALL" not in found.code


def vars_of(done: TuningResult) -> dict[str, Any]:
    return {name: getattr(done, name) for name in done.__dataclass_fields__}


@pytest.mark.parametrize(
    ("text", "said"),
    [("smal,large", "did you mean small"), ("small", "one is --shape"), ("small,small", "two")],
)
def test_wrong_shapes_are_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(SearcherError, match=said):
        chosen_shapes(text, list(TIMES))
    assert chosen_shapes("all", list(TIMES)) == tuple(TIMES)


def test_kernel_tuner_and_recordings_have_no_shapes() -> None:
    arguments = ("tune", "--with", "random_search", "--shapes", "all")
    assert "--size NAME=VALUE" in llamea(*arguments, "kernel_tuner/matmul", status=2).stderr
    assert "of a kernel script" in llamea(*arguments, "--space", "matmul-2048", status=2).stderr


def test_the_journal_is_one_a_shape_and_the_last_look_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[TuneSettings] = []

    def tune(path: Path, searcher: str, settings: TuneSettings, progress: Any) -> TuningResult:
        given.append(settings)
        best = {"small": "a", "large": "c"}[str(settings.shape)]
        return result(str(settings.shape), [best, *(e["v"] for e in settings.starts)])

    monkeypatch.setattr(tuning, "tune_helion_script", tune)
    monkeypatch.setattr(tuning, "shapes_of", lambda path: tuple(TIMES))
    settings = TuneSettings(seconds=5, journal=tmp_path / "kept.jsonl")
    found = tuning.tune_helion_shapes(Path("k.py"), "random_search", settings, "small,large")
    assert [(s.shape, s.journal and s.journal.name) for s in given] == [
        ("small", "kept-small.jsonl"),
        ("large", "kept-large.jsonl"),
        ("small", None),
    ]
    assert [(s.seconds, s.evaluations) for s in given] == [(5, None), (5, None), (None, 2)]
    assert found.single == {"v": "c"}
