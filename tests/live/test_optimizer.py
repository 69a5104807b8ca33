"""Finding an optimizer by its spec: settings, provenance, what is refused, fresh instances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llamea_gpu.errors import SearcherError
from llamea_gpu.live import optimizer as module
from llamea_gpu.live.optimizer import Provenance, load_optimizer
from llamea_gpu.searchers import registry
from llamea_gpu.searchers.registry import searcher_names

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
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", searcher_names())
def test_every_shipped_optimizer_loads_and_is_made(name: str) -> None:
    loaded = load_optimizer(name)
    assert (loaded.name, loaded.provenance.origin) == (name, "shipped")
    assert loaded.idea.endswith(".")
    assert type(loaded.make()).__name__ == loaded.class_name


def test_a_file_is_named_by_its_stem_with_the_first_sentence_as_idea(mine: str) -> None:
    for spec in (mine, f"{mine}:Mine", f"{mine}?size=4"):
        loaded = load_optimizer(spec)
        assert (loaded.name, loaded.class_name) == ("mine", "Mine")
        assert loaded.idea == "Does one thing."
        assert loaded.provenance == Provenance("file")
        assert loaded.source == SOURCE


def test_hyperparameters_are_filled_in_and_keywords_win(mine: str) -> None:
    assert load_optimizer(mine).hyperparameters == {"size": 4, "rate": 0.5, "greedy": False}
    loaded = load_optimizer(f"{mine}?size=5&rate=2", size=6, greedy=True)
    assert loaded.hyperparameters == {"size": 6, "rate": 2.0, "greedy": True}
    made: Any = loaded.make()
    assert made.settings == (6, 2.0, True, 1 / 3)


def test_its_spec_names_it_again_without_the_folder(mine: str) -> None:
    assert load_optimizer(mine).spec == "mine.py"
    assert (
        load_optimizer(f"{mine}?rate=2&size=4", greedy=True).spec == "mine.py?rate=2.0&greedy=True"
    )
    loaded = load_optimizer("genetic_algorithm", offspring=9)
    assert load_optimizer(loaded.spec) == loaded


def test_an_integer_serves_as_a_float_and_becomes_one(mine: str) -> None:
    rate = load_optimizer(mine, rate=1).hyperparameters["rate"]
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
def test_a_wrong_setting_is_refused(mine: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SearcherError, match=said):
        load_optimizer(mine, **settings)


def test_each_instance_has_a_module_of_its_own(mine: str) -> None:
    loaded = load_optimizer(mine)
    runs: list[Any] = [loaded.make(), loaded.make()]
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
def test_a_source_that_breaks_the_contract_is_refused_unexecuted(
    tmp_path: Path, line: str, said: str
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(SOURCE.replace("VISITS = []", f"VISITS = []\n{line}"))
    with pytest.raises(SearcherError, match=f"broken must keep the rules.*{said}"):
        load_optimizer(str(path))


def test_a_fault_of_the_source_or_the_constructor_names_the_optimizer(tmp_path: Path) -> None:
    path = tmp_path / "faulty.py"
    path.write_text(SOURCE.replace("self.settings =", "1 / (size - 3); self.settings ="))
    load_optimizer(str(path)).make()
    with pytest.raises(SearcherError, match=r"faulty must load .*'size': 3.*ZeroDivisionError"):
        load_optimizer(str(path), size=3).make()


def shipped_with_card(
    folder: Path, monkeypatch: pytest.MonkeyPatch, card: object, name: str = "promoted"
) -> None:
    """As if a promotion had put an optimizer and its card into ``generated_optimizers``."""
    (folder / f"{name}.py").write_text(SOURCE)
    text = card if isinstance(card, str) else json.dumps(card)
    (folder / f"{name}.json").write_text(text)
    for where in (module, registry):
        monkeypatch.setattr(where, "resource_dir", lambda _: folder)


def test_a_card_tells_where_a_generated_optimizer_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = {
        "idea": "The idea on the card.",
        "provenance": {"model": "a-model", "run": "a-run", "parents": ["p1", "p2"]},
        "date": "2026-01-02",
        "command": "llamea-gpu evolve",
        "scores": {"validation": 0.5},
    }
    shipped_with_card(tmp_path, monkeypatch, card)
    loaded = load_optimizer("promoted")
    assert loaded.idea == "The idea on the card."
    assert loaded.provenance == Provenance(
        origin="shipped",
        model="a-model",
        run="a-run",
        parents=("p1", "p2"),
        date="2026-01-02",
        command="llamea-gpu evolve",
    )


@pytest.mark.parametrize(
    "card", [[], {}, {"provenance": None, "idea": 3}, {"provenance": {"run": 1}}]
)
def test_a_card_that_tells_nothing_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: object
) -> None:
    shipped_with_card(tmp_path, monkeypatch, card)
    loaded = load_optimizer("promoted")
    assert (loaded.idea, loaded.provenance) == ("Does one thing.", Provenance("shipped"))


def test_a_card_that_is_no_json_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped_with_card(tmp_path, monkeypatch, "{")
    with pytest.raises(SearcherError, match="the card of promoted must be JSON"):
        load_optimizer("promoted")
