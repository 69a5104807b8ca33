"""``spaces model``: verdict, card, and what completes a card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import llamea
from support.modelled import formula_cloud

from llamea_gpu.models import recipe
from llamea_gpu.spaces.formats import export_cloud


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clouds")
    few = {part: max(8, trees // 10) for part, trees in recipe._TREES.items()}
    export_cloud(formula_cloud(500), path / "formula.cloud.parquet")
    card = path / "formula.model.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "_TREES", few)
        shown = llamea("spaces", "model", path / "formula.cloud.parquet", "--card", card).stdout
    (path / "shown.txt").write_text(shown)
    return path


def test_the_verdict_is_printed_with_its_figures(folder: Path) -> None:
    shown = (folder / "shown.txt").read_text()
    assert "formula: 500 measurements" in shown
    assert "passed" in shown
    assert "not measured yet: its best predictions live, searchers live" in shown
    for name in ("folds", "cross", "near"):
        assert f"│ {name} " in shown


def test_a_list_shows_the_verdict(folder: Path) -> None:
    rows = json.loads(llamea("spaces", "list", "--spaces-path", folder, "--json").stdout)
    states = {row["name"]: row["model"] for row in rows}
    assert states["formula"] == "passed"
    assert states["matmul-2048"] == ""
    (folder / "broken").mkdir()
    export_cloud(formula_cloud(30), folder / "broken" / "b.cloud.parquet")
    (folder / "broken" / "b.model.json").write_text("{")
    export_cloud(formula_cloud(30), folder / "broken" / "c.cloud.parquet")
    listed = llamea("spaces", "list", "--spaces-path", folder / "broken", "--json").stdout
    states = {row["name"]: row["model"] for row in json.loads(listed)}
    assert (states["b"], states["c"]) == ("unreadable", "not examined")


def test_searchers_results_complete_the_card_that_is_there(folder: Path, tmp_path: Path) -> None:
    results = tmp_path / "order.json"
    ps = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
    results.write_text(json.dumps({"model": ps, "live": {k: -v for k, v in ps.items()}}))
    arguments = ("spaces", "model", folder / "formula.cloud.parquet", "--order", results, "--json")
    made = json.loads(llamea(*arguments, "--card", tmp_path / "new.json").stdout)
    assert made["passed"] is False
    assert made["order"]["spearman"] == pytest.approx(-1)
    assert json.loads((tmp_path / "new.json").read_text())["order"] == made["order"]
    results.write_text("[]")
    refused = llamea(*arguments, status=2)
    assert "must be JSON of" in refused.stderr


def test_proposals_need_a_number_and_a_file_and_a_framework(folder: Path, tmp_path: Path) -> None:
    file = folder / "formula.cloud.parquet"
    assert "--propose N -o FILE" in llamea("spaces", "model", file, "--propose", 3, status=2).stderr
