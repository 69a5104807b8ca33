"""The cards of generated optimizers: provenance, and what a damaged one does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamea_gpu.errors import SearcherError
from llamea_gpu.programs import Provenance, shipped
from llamea_gpu.searchers.registry import resolve_program

SOURCE = '''class Mine:
    """Does one thing. Then another."""

    def __call__(self, evaluate, space, rng):
        evaluate(space.sample(1))
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if a promotion had put an optimizer into ``generated_optimizers``."""
    (tmp_path / "promoted.py").write_text(SOURCE)
    monkeypatch.setattr(shipped, "resource_dir", lambda _: tmp_path)
    return tmp_path


def test_a_card_tells_where_a_generated_optimizer_comes_from(folder: Path) -> None:
    card = {
        "provenance": {"model": "a-model", "run": "a-run", "parents": ["p1", "p2"]},
        "date": "2026-01-02",
        "command": "llamea-gpu evolve",
        "scores": {"validation": 0.5},
    }
    (folder / "promoted.json").write_text(json.dumps(card))
    found = resolve_program("promoted")
    assert found.program.idea == "Does one thing."
    assert found.provenance == Provenance(
        origin="shipped",
        model="a-model",
        run="a-run",
        parents=("p1", "p2"),
        date="2026-01-02",
        command="llamea-gpu evolve",
    )


@pytest.mark.parametrize("card", [[], {}, {"provenance": None}, {"provenance": {"run": 1}}])
def test_a_card_that_tells_nothing_is_no_fault(folder: Path, card: object) -> None:
    (folder / "promoted.json").write_text(json.dumps(card))
    assert resolve_program("promoted").provenance == Provenance("shipped")


def test_a_card_that_is_no_json_is_refused(folder: Path) -> None:
    (folder / "promoted.json").write_text("{")
    with pytest.raises(SearcherError, match="the card of promoted must be JSON"):
        resolve_program("promoted")
