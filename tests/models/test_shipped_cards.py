"""The cards of the clouds that ship."""

from __future__ import annotations

import pytest

from llamea_gpu.models import card
from llamea_gpu.models.card import card_of, make_card
from llamea_gpu.spaces.catalogue import list_clouds, load_cloud


@pytest.mark.parametrize("entry", list_clouds(), ids=lambda entry: entry.name)
def test_a_cloud_that_ships_has_its_card(entry, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = load_cloud(entry.name)
    shipped = card_of(cloud, entry.path)
    assert shipped is not None
    # All that it says of the measurements themselves; the figures take ten fits.
    monkeypatch.setattr(card, "examine", lambda _: shipped.figures)
    again = make_card(cloud)
    assert (again.measurements, again.working) == (shipped.measurements, shipped.working)
    for ours, theirs in (
        (again.best_ms, shipped.best_ms),
        (again.noise, shipped.noise),
        *zip(again.run_offsets, shipped.run_offsets, strict=True),
    ):
        assert ours == (theirs and pytest.approx(theirs))


@pytest.mark.slow
def test_a_card_that_ships_is_what_the_command_gives() -> None:
    smallest = min(list_clouds(), key=lambda entry: entry.path.stat().st_size)
    shipped = card_of(load_cloud(smallest.name), smallest.path)
    assert shipped is not None
    again = make_card(load_cloud(smallest.name))
    # Other versions of scikit-learn draw other trees.
    tolerance = 1e-6 if again.versions == shipped.versions else 0.1
    assert again.digest == shipped.digest
    assert again.noise == pytest.approx(shipped.noise)
    assert set(again.figures.left_out) == set(shipped.figures.left_out)
    for ours, theirs in (
        (again.figures.folds, shipped.figures.folds),
        *((a, shipped.figures.left_out[name]) for name, a in again.figures.left_out.items()),
    ):
        assert ours.points == theirs.points
        assert ours.spearman == pytest.approx(theirs.spearman, abs=tolerance)
        assert ours.near.spearman == pytest.approx(theirs.near.spearman, abs=5 * tolerance)
