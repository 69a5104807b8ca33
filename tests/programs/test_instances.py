"""Instances in this process: what is refused unexecuted, fresh modules, types of settings."""

from __future__ import annotations

from typing import Any

import pytest

from llamea_gpu.errors import SearcherError
from llamea_gpu.programs import Program, make, read_program
from llamea_gpu.programs.shipped import shipped
from llamea_gpu.searchers.registry import resolve_program

SOURCE = '''"""About the module."""
from dataclasses import dataclass

VISITS = []


@dataclass
class Note:
    text: str = "fresh"


class Mine:
    """Does one thing. Then another.

    And more."""

    def __init__(self, size=4, rate=0.5, greedy=False, base=1 / 3):
        self.settings = (size, rate, greedy, base)

    def __call__(self, evaluate, space, rng):
        VISITS.append(Note())
        return len(VISITS)
'''


@pytest.fixture
def mine() -> Program:
    return read_program(SOURCE)


@pytest.mark.parametrize("name", tuple(shipped()))
def test_every_shipped_optimizer_loads_and_is_made(name: str) -> None:
    found = resolve_program(name)
    assert (found.short_name, found.provenance.origin) == (name, "shipped")
    assert found.program.idea.endswith((".", "…"))
    assert type(make(found.program)).__name__ == found.program.class_name


def test_the_class_gets_the_settings(mine: Program) -> None:
    assert mine.settings == {"size": 4, "rate": 0.5, "greedy": False}
    made: Any = make(mine.with_settings(size=6, rate=2, greedy=True))
    assert made.settings == (6, 2.0, True, 1 / 3)


def test_an_integer_serves_as_a_float_and_becomes_one(mine: Program) -> None:
    rate = mine.with_settings(rate=1).settings["rate"]
    assert (rate, type(rate)) == (1.0, float)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"speed": 1}, r"one of \(size, rate, greedy\), but got 'speed'"),
        ({"base": 0.5}, "but got 'base'"),
        ({"size": 2.0}, "size must be of type int like its default 4, but got 2.0"),
        ({"size": True}, "size must be of type int"),
        ({"greedy": 1}, "greedy must be of type bool"),
        ({"rate": "0.5"}, "rate must be of type float"),
    ],
)
def test_a_wrong_setting_is_refused(mine: Program, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SearcherError, match=said):
        mine.with_settings(**settings)


def test_each_instance_has_a_module_of_its_own(mine: Program) -> None:
    runs: list[Any] = [make(mine), make(mine)]
    assert [run(None, None, None) for run in runs] == [1, 1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import os", "imports 'os', which is not allowed"),
        ("import llamea_gpu", "imports 'llamea_gpu'"),
        ("data = open('secret').read()", "'open'"),
        ("import scipy.io", "'scipy.io'"),
    ],
)
def test_a_source_that_breaks_the_contract_is_refused_unexecuted(line: str, said: str) -> None:
    source = SOURCE.replace("VISITS = []", f"raise SystemExit\n{line}")
    with pytest.raises(SearcherError, match=f"Mine must keep the rules.*{said}"):
        make(read_program(source))


def test_a_fault_of_the_constructor_names_the_optimizer() -> None:
    faulty = read_program(SOURCE.replace("self.settings =", "1 / (size - 3); self.settings ="))
    make(faulty)
    with pytest.raises(SearcherError, match=r"Mine must load .*'size': 3.*ZeroDivisionError"):
        make(faulty.with_settings(size=3))
