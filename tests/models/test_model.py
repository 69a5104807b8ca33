"""What a model answers, and that it answers the same always."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.clouds import small_cloud
from support.modelled import VALUES, formula_cloud, truth

from llamea_gpu.errors import SpaceError
from llamea_gpu.models import model as module
from llamea_gpu.models.model import SpaceModel, cloud_digest


def draws(n: int, seed: int = 5) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    return [tuple(int(rng.integers(len(v))) for v in VALUES) for _ in range(n)]


def test_what_was_measured_answers_as_measured(model) -> None:
    readings = model.readings
    for row in range(len(model.cloud)):
        outcome = model.outcome(model.cloud.configuration(row))
        assert outcome.measured
        assert outcome.status == readings.status[row]
        if outcome.status:
            assert outcome.time_ms == math.inf
        else:
            assert outcome.time_ms == pytest.approx(math.exp(readings.log_ms[row]), rel=1e-12)
        assert outcome.benchmark_s == readings.benchmark_s[row]


def test_what_was_not_measured_is_close_to_the_truth(model) -> None:
    new = [c for c in draws(600) if not model.outcome(c).measured]
    found = [(model.outcome(c), truth(c)) for c in new]
    assert np.mean([(o.status == 0) == (t[0] == 0) for o, t in found]) > 0.95
    both = [(o, t) for o, t in found if o.status == t[0] == 0]
    assert np.median([abs(math.log(o.time_ms / t[1])) for o, t in both]) < 0.15
    assert np.median([abs(o.compile_s / t[2] - 1) for o, t in both]) < 0.1
    assert all(math.isinf(o.time_ms) == (o.status != 0) for o, _ in found)


def test_nothing_is_better_than_the_best_measured(model) -> None:
    assert min(o.time_ms for o in model.outcomes(draws(3_000))) >= model.best_ms


def test_several_at_once_answer_as_one_by_one(model) -> None:
    asked = [*draws(100), model.cloud.configuration(0)]
    asked += asked[:3]
    assert model.outcomes(asked) == [model.outcome(c) for c in asked]
    assert model.outcomes([]) == []


def test_a_fit_that_was_kept_and_one_made_anew_answer_alike(model, monkeypatch, tmp_path) -> None:
    asked = draws(200)
    expected = model.outcomes(asked)
    monkeypatch.setattr(module, "grow", None)  # from the cache alone
    monkeypatch.setattr(module, "_FITTED", {})
    assert SpaceModel(model.cloud).outcomes(asked) == expected
    monkeypatch.undo()
    monkeypatch.setattr(module, "_FITTED", {})
    monkeypatch.setenv("LLAMEA_GPU_CACHE", str(tmp_path / "new"))
    assert SpaceModel(model.cloud).outcomes(asked) == expected
    (kept,) = (tmp_path / "new").iterdir()
    for damaged in (b"", kept.read_bytes()[:1000], b"PK\x03\x04 no archive"):
        kept.write_bytes(damaged)
        monkeypatch.setattr(module, "_FITTED", {})
        assert SpaceModel(model.cloud).outcomes(asked[:20]) == expected[:20]


def test_a_cache_that_cannot_be_written_is_no_fault(model, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LLAMEA_GPU_CACHE", str(tmp_path / "file" / "folder"))
    monkeypatch.setattr(module, "_FITTED", {})
    assert SpaceModel(model.cloud).outcomes(draws(5)) == model.outcomes(draws(5))


def test_where_nothing_fails_no_failure_is_predicted() -> None:
    cloud = formula_cloud(120)
    works = np.flatnonzero(cloud.ok)
    columns = ("configurations", "statuses", "times_ms", "low_ms", "high_ms", "compile_s")
    columns += ("benchmark_s", "control_ms", "source", "how", "run", "at_s")
    kept = replace(cloud, **{name: getattr(cloud, name)[works] for name in columns})
    assert {o.status for o in SpaceModel(kept).outcomes(draws(300))} == {0}


@pytest.mark.parametrize("config", [(0,) * 5, (0,) * 7, (9,) + (0,) * 5, (-1,) + (0,) * 5])
def test_what_is_no_configuration_is_refused(model, config) -> None:
    with pytest.raises(SpaceError, match="value indices of the 6 parameters"):
        model.outcome(config)
    with pytest.raises(SpaceError, match="value indices of the 6 parameters"):
        model.outcomes([config])


def test_too_few_measurements_make_no_model() -> None:
    with pytest.raises(SpaceError, match="at least 20 measurements that work, but there are 5"):
        SpaceModel(small_cloud())


def test_a_digest_is_of_measurements_and_not_of_names() -> None:
    cloud = formula_cloud(40)
    assert cloud_digest(cloud) == cloud_digest(formula_cloud(40))
    assert cloud_digest(cloud) == cloud_digest(replace(cloud, info=replace(cloud.info, name="x")))
    times = cloud.times_ms.copy()
    row = int(np.flatnonzero(cloud.ok)[0])
    times[row] = cloud.low_ms[row]
    assert cloud_digest(cloud) != cloud_digest(replace(cloud, times_ms=times))
    words = np.where(np.arange(len(cloud)) == 0, "other", cloud.how)
    assert cloud_digest(cloud) != cloud_digest(replace(cloud, how=words))
