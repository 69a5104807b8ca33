"""Defaults at their places in a program's text: what is replaced, and what stays."""

from __future__ import annotations

import ast

import pytest
from support.defaults import MINE, SOURCE, defaults_of

from llamea_gpu.errors import SearcherError
from llamea_gpu.programs import read_program
from llamea_gpu.programs.defaults import with_defaults


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
    assert with_defaults(MINE, defaults_of(SOURCE)) == SOURCE


@pytest.mark.parametrize("name", ["label", "base", "nothing", "self"])
def test_only_a_numeric_default_can_be_replaced(name: str) -> None:
    with pytest.raises(SearcherError, match=name):
        with_defaults(MINE, {name: 1})


@pytest.mark.parametrize("value", [5.0, True])
def test_a_default_keeps_its_type(value: object) -> None:
    with pytest.raises(SearcherError, match="after the edit"):
        with_defaults(MINE, {"größe": value})


def test_a_constructor_may_be_inherited() -> None:
    base = "class Base:\n    def __init__(self, size=4, rate=1e999): ...\n\n\n"
    source = f"{base}class Mine(Base):\n    def __call__(self, evaluate, space, rng): ...\n"
    program = read_program(source)
    assert program.settings == {"size": 4}  # an infinity is no literal that JSON could carry
    assert with_defaults(program, {"size": 7}) == source.replace("size=4", "size=7")
