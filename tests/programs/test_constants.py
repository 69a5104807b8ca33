"""Hyperparameters: their ranges, and what is drawn from them."""

from __future__ import annotations

import numpy as np
from support.defaults import MINE

from llamea_gpu.programs.constants import distinct_settings, random_settings, tunable


def test_what_can_be_tuned_are_bools_and_numbers_with_a_scale() -> None:
    assert tunable(MINE) == {
        "größe": 4,
        "rate": 0.25,
        "shift": -12,
        "damp": -0.015,
        "greedy": True,
        "many": 1000,
        "wide": 7,
    }


def test_random_settings_keep_type_sign_and_range() -> None:
    defaults = tunable(MINE)
    rng = np.random.default_rng(0)
    drawn = [random_settings(defaults, rng) for _ in range(500)]
    for name, default in defaults.items():
        values = {settings[name] for settings in drawn}
        assert {type(value) for value in values} == {type(default)}
        if default is True:
            assert values == {True, False}
            continue
        ratios = sorted(value / default for value in values)
        assert 0.2 < ratios[0] < 0.5
        assert 2.0 < ratios[-1] <= 4.1
    assert max(settings["rate"] for settings in drawn) <= 1.0
    assert sum(settings == defaults for settings in drawn) < 5  # an integer may be drawn again


def test_distinct_settings_begin_with_the_defaults_and_depend_on_the_seed_alone() -> None:
    defaults = tunable(MINE)
    drawn = distinct_settings(defaults, 6, seed=3)
    assert drawn[0] == defaults
    assert len({tuple(settings.items()) for settings in drawn}) == 6
    assert drawn == distinct_settings(defaults, 6, seed=3)
    assert drawn != distinct_settings(defaults, 6, seed=4)
    # There are two settings of one switch, however many are wanted.
    assert distinct_settings({"greedy": True}, 6, seed=0) == [{"greedy": True}, {"greedy": False}]
