"""A model that has not passed its gate is refused unless it is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.modelled import formula_cloud

from llamea_gpu.errors import TaskError
from llamea_gpu.modelled import load_tasks
from llamea_gpu.models.card import Order, card_path, make_card, write_card
from llamea_gpu.spaces.formats import export_cloud


@pytest.mark.usefixtures("few_trees")
def test_a_model_is_refused_without_a_card_and_with_one_that_rejects_it(tmp_path: Path) -> None:
    file = tmp_path / "formula.cloud.parquet"
    cloud = formula_cloud(500)
    export_cloud(cloud, file)
    with pytest.raises(TaskError, match="has no card of these measurements: `llamea-gpu spaces"):
        load_tasks([str(file)], unfit=False)
    card = make_card(cloud)
    rejected = replace(card, order=Order({}, {}, -1.0))
    write_card(rejected, card_path(file))
    with pytest.raises(TaskError, match=r"has not \(searchers: rank correlation -1.000"):
        load_tasks([str(file)], unfit=False)
    write_card(card, card_path(file))
    assert card.passed
    (task,) = load_tasks([str(file)], unfit=False)
    assert task.model.digest == card.digest
