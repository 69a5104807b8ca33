"""Conversations with real models, kept by ``scripts/bench_proposer.py``: replayed, the same run."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from llamea_gpu.live.recordings import counted_task
from llamea_gpu.resources import resource_dir
from llamea_gpu.runner.local import run_optimizer
from llamea_gpu.searchers.registry import resolve
from llamea_gpu.spaces.catalogue import list_spaces, load_space
from llamea_gpu.tasks import Task, run_seed

FOLDER = resource_dir("generated_optimizers") / "proposer"
EVALUATIONS = 800  # as in the script
SHIPPED = {entry.name for entry in list_spaces()}


def documents() -> dict[str, list[dict[str, Any]]]:
    """What was noted of each run, by the recording that was tuned, of those that ship."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(FOLDER.glob("*.rounds.json")):
        document = json.loads(path.read_text("utf-8"))
        if document["space"] in SHIPPED:
            found[document["space"]].append(document)
    return found


RECORDED = documents()


def spec_of(settings: dict[str, Any]) -> str:
    chosen = {**settings, "route": "replay", "structured": str(settings["structured"]).lower()}
    model = chosen.pop("model")
    return f"llm:{model}?{'&'.join(f'{key}={value}' for key, value in chosen.items())}"


@pytest.mark.skipif(not RECORDED, reason="no conversation on a recording that ships is kept")
@pytest.mark.parametrize("space", RECORDED)
def test_a_kept_conversation_gives_the_run_that_was_noted(
    space: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLAMEA_GPU_LLM_RECORDING", str(FOLDER))
    monkeypatch.setenv("LLAMEA_GPU_LLM_RECORD", str(tmp_path))
    task = counted_task(Task.build(load_space(space)), EVALUATIONS)
    for repeat in range(len(RECORDED[space])):
        searcher = resolve(spec_of(RECORDED[space][0]["settings"]))
        trace = run_optimizer(searcher.build, task, run_seed(1, space, repeat), cpu_s=None)  # type: ignore[union-attr]
        assert trace.error is None
    again = [json.loads(path.read_text("utf-8")) for path in sorted(tmp_path.glob("*.rounds.json"))]
    for document in (*again, *RECORDED[space]):
        document["settings"]["route"] = ""
    assert again == RECORDED[space]
