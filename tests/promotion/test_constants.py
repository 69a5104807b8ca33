"""Hyperparameters: their ranges; the text that ships, and its name."""

from __future__ import annotations

import ast
from dataclasses import replace

import numpy as np
import pytest
from support.defaults import MINE, defaults_of

from llamea_gpu.programs import read_program
from llamea_gpu.promotion.constants import random_settings, tunable
from llamea_gpu.promotion.source import shipped_text, snake_case


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


def test_the_shipped_text_has_a_docstring_and_does_the_same() -> None:
    mine = replace(MINE, idea='Says "one" thing\\.')
    text = shipped_text(mine, {"größe": 9})
    owner = next(n for n in ast.parse(text).body if isinstance(n, ast.ClassDef))
    assert ast.get_docstring(owner) == 'Says "one" thing\\.'
    assert defaults_of(text)["größe"] == 9
    again = shipped_text(replace(read_program(text), idea="Another idea."), {"größe": 9})
    assert again == text  # laid out, and one docstring is enough


@pytest.mark.parametrize(
    ("class_name", "name"),
    [
        ("AdaptiveTabu", "adaptive_tabu"),
        ("GPUSearch2", "gpu_search2"),
        ("_LFBOTree", "lfbo_tree"),
        ("One_Two", "one_two"),
    ],
)
def test_names(class_name: str, name: str) -> None:
    assert snake_case(class_name) == name
