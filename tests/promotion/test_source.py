"""The text that ships, and its name."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
from support.defaults import MINE, defaults_of

from llamea_gpu.programs import read_program
from llamea_gpu.promotion.source import shipped_text, snake_case


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
