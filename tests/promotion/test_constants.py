"""Hyperparameters: their ranges, and their way into the program's text."""

from __future__ import annotations

import ast
from dataclasses import replace

import numpy as np
import pytest

from llamea_gpu.errors import SearcherError
from llamea_gpu.programs import read_program
from llamea_gpu.programs.defaults import with_defaults
from llamea_gpu.promotion.constants import random_settings, tunable
from llamea_gpu.promotion.source import shipped_text, snake_case

SOURCE = '''\
"""Größe, in a module that counts bytes: äöü."""


class Mine:
    def __init__(self, größe=4, rate=0.25, *, shift=-12, damp=-1.5e-2, greedy=True,  # ünd
                 label="x", base=1 / 3, none=0, many=1_000, cap=float("inf"), wide=(
                     7
                 )):
        self.all = (größe, rate, shift, damp, greedy, many, wide)  # stays

    def __call__(self, evaluate, space, rng):
        evaluate(space.sample(1))
'''

MINE = read_program(SOURCE)


def defaults_of(source: str) -> dict[str, object]:
    return {k: v for k, v in read_program(source).hyperparameters if not isinstance(v, str)}


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


@pytest.mark.parametrize(
    "values",
    [
        {"größe": 16},
        {"rate": 0.999},
        {"shift": -3},
        {"damp": -0.06},
        {"greedy": False},
        {"many": 4000},
        {"wide": 28},
        {"größe": 1, "rate": 1e-05, "shift": -48, "damp": -1.0, "greedy": False, "wide": 2},
    ],
    ids=lambda values: "-".join(values),
)
def test_the_text_changes_at_the_literals_and_nowhere_else(values: dict[str, object]) -> None:
    edited = with_defaults(MINE, values)
    before = defaults_of(SOURCE)
    assert defaults_of(edited) == {**before, **values}
    assert [type(v) for v in defaults_of(edited).values()] == [type(v) for v in before.values()]
    assert edited.count("\n") == SOURCE.count("\n")
    back = with_defaults(read_program(edited), {name: before[name] for name in values})
    assert ast.dump(ast.parse(back)) == ast.dump(ast.parse(SOURCE))
    assert "# ünd" in edited
    assert "# stays" in edited


def test_the_defaults_themselves_change_nothing() -> None:
    assert with_defaults(MINE, tunable(MINE)) == SOURCE


@pytest.mark.parametrize("name", ["label", "base", "nothing", "self"])
def test_only_a_numeric_default_can_be_replaced(name: str) -> None:
    with pytest.raises(SearcherError, match=name):
        with_defaults(MINE, {name: 1})


@pytest.mark.parametrize("value", [5.0, True])
def test_a_default_keeps_its_type(value: object) -> None:
    with pytest.raises(SearcherError, match="after the edit"):
        with_defaults(MINE, {"größe": value})


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
