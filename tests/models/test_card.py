"""Cards: what they say, whose they are, and what live measurements add."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.modelled import VALUES, formula_cloud, truth

from llamea_gpu.errors import SpaceError
from llamea_gpu.models.card import (
    card_of,
    card_path,
    confirmed,
    make_card,
    ordered,
    read_card,
    write_card,
)
from llamea_gpu.models.model import SpaceModel
from llamea_gpu.models.proposals import controls, propose

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def cloud():
    return formula_cloud(500)


@pytest.fixture(scope="module")
def card(cloud, few_trees):
    return make_card(cloud)


class AnyConfiguration:
    """A space in which everything is valid."""

    def canonical(self, config):
        return tuple(config)

    def neighbors(self, config, kind="hamming"):
        return [
            (*config[:j], i, *config[j + 1 :])
            for j, values in enumerate(VALUES)
            for i in range(len(values))
            if i != config[j]
        ]


@pytest.fixture(scope="module")
def proposals(cloud, few_trees):
    return propose(SpaceModel(cloud), AnyConfiguration(), 30, np.random.default_rng(0))


def measured(cloud, configs, slower: float = 1.0):
    """A cloud of true times, on a machine that is slower."""
    found = [truth(c) for c in configs]
    status = np.array([f[0] for f in found])
    times = np.where(status == 0, [f[1] * slower for f in found], np.nan)
    rows = len(found)
    codes = ["" if f[0] else str(tuple(c[:5])) for f, c in zip(found, configs, strict=True)]
    return replace(
        cloud,
        configurations=np.array(configs),
        statuses=status,
        times_ms=times,
        low_ms=times,
        high_ms=times,
        compile_s=np.ones(rows),
        benchmark_s=np.ones(rows),
        control_ms=np.full(rows, np.nan),
        source=np.array(codes),
        how=np.full(rows, "proposed"),
        run=np.zeros(rows, dtype=int),
        at_s=np.arange(rows) + 0.5,
        runs=({},),
    )


def test_a_card_survives_a_file_and_knows_its_cloud(card, cloud, tmp_path) -> None:
    file = tmp_path / "a.cloud.parquet"
    assert card_path(file) == tmp_path / "a.model.json"
    assert card_of(cloud, file) is None
    write_card(card, card_path(file))
    assert read_card(card_path(file)) == card
    assert card_of(cloud, file) == card
    assert card_of(formula_cloud(499), file) is None  # another cloud's
    write_card(replace(card, recipe=card.recipe + 1), card_path(file))
    assert card_of(cloud, file) is None  # of another recipe


def test_a_card_passes_and_says_what_is_open(card) -> None:
    assert (card.passed, card.verdict, card.reasons) == (True, "passed", [])
    assert card.open == ["its best predictions live", "searchers live"]


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 1e999}'])
def test_what_is_no_card_is_refused(text, tmp_path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SpaceError, match="must be the card of a model"):
        read_card(tmp_path / "x.json")


def test_a_card_of_another_format_is_refused(card, tmp_path) -> None:
    write_card(replace(card, format=1), tmp_path / "x.json")
    with pytest.raises(SpaceError, match="must have format 2, but has 1"):
        read_card(tmp_path / "x.json")


def test_proposals_are_new_distinct_and_good(cloud, proposals) -> None:
    model = SpaceModel(cloud)
    assert len(proposals) == 30
    assert len({time_ms for _, time_ms in proposals}) == 30
    assert not any(model.outcome(config).measured for config, _ in proposals)
    assert [ms for _, ms in proposals] == sorted(ms for _, ms in proposals)
    everything = [truth(c)[1] for c in cloud.configurations.tolist()]
    assert np.median([truth(c)[1] for c, _ in proposals]) < np.quantile(everything, 0.2)


def test_controls_are_the_default_and_the_best_measured(cloud) -> None:
    model = SpaceModel(cloud)
    found = controls(replaced_default(model, cloud))
    assert found[0] == cloud.configuration(5)
    assert len(found) == len(set(found)) == 8
    best = min(model.outcome(c).time_ms for c in map(tuple, cloud.configurations.tolist()))
    assert model.outcome(found[1]).time_ms == best


def replaced_default(model, cloud):
    return SpaceModel(replace(cloud, default=cloud.configuration(5)))


def test_good_predictions_confirm_a_model_on_any_machine(card, cloud, proposals) -> None:
    configs = [c for c, _ in proposals] + controls(SpaceModel(cloud))
    for slower in (1.0, 1.3):
        live = confirmed(card, cloud, measured(cloud, configs, slower))
        assert live.confirmation.scaled
        assert live.confirmation.predictions == 30
        assert live.confirmation.best < 1.02
        assert live.confirmation.spearman > 0.3
        assert live.passed
        beside = measured(cloud, configs, slower)
        how = np.where(np.arange(len(beside)) < 25, "proposed", "searcher")
        fewer = confirmed(card, cloud, replace(beside, how=how))
        assert fewer.confirmation.predictions == 25  # the searchers' points are no predictions
        assert live.open == ["searchers live"]


def test_bad_predictions_reject_a_model(card, cloud, proposals) -> None:
    model = SpaceModel(cloud)
    everything = [c for c in map(tuple, cells()) if not model.outcome(c).measured]
    worst = [c for c in sorted(everything, key=lambda c: -truth(c)[1]) if truth(c)[0] == 0][:30]
    live = confirmed(card, cloud, measured(cloud, worst + controls(model)))
    assert not live.passed
    assert "its best predictions, measured" in live.reasons[0]
    fails = [c for c in everything if truth(c)[0]][:30]
    live = confirmed(card, cloud, measured(cloud, fails + controls(model)))
    assert (live.confirmation.working, live.confirmation.best) == (0, None)
    assert "none works" in live.reasons[0]


def cells():
    return np.stack(np.unravel_index(np.arange(2_000), (5, 5, 5, 4, 2, 2)), axis=1).tolist()


def test_a_confirmation_needs_predictions(card, cloud) -> None:
    with pytest.raises(SpaceError, match="at least 20 measured predictions"):
        confirmed(card, cloud, measured(cloud, controls(SpaceModel(cloud))))


def test_searchers_must_come_in_the_same_order(card) -> None:
    results = {"a": 0.1, "b": 0.2, "c": 0.5, "d": 0.9, "alone": 3.0}
    live = {name: p * 2 for name, p in results.items() if name != "alone"}
    good = ordered(card, results, live)
    assert good.order.spearman == pytest.approx(1)
    assert good.passed
    bad = ordered(card, results, {name: -p for name, p in live.items()})
    assert "rank correlation -1.000" in bad.reasons[0]
    with pytest.raises(SpaceError, match="at least 4 searchers"):
        ordered(card, results, {"a": 1.0, "b": 2.0, "c": 3.0})
    with pytest.raises(SpaceError, match="finite"):
        ordered(card, results, {**live, "a": float("nan")})
