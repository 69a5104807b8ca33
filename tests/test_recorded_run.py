"""The recorded run that ships: its answers are real, and replaying them gives what was recorded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from llamea_gpu.archive import Archive
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.llm.replay import load_recording
from llamea_gpu.resources import resource_dir

RUN = resource_dir("generated_optimizers") / "runs" / "h200-first"
REPLAYED = 10  # candidates: the first generation, and two that were bred from it


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Candidate]:
    folder = tmp_path_factory.mktemp("replay") / "run"
    command = [sys.executable, "-m", "llamea_gpu", "evolve", "-o", str(folder), "--plain"]
    command += ["--config", str(RUN / "evolve.toml"), "--candidates", str(REPLAYED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    archive = Archive.open(folder, read_only=True)
    found = {slot: Candidate.from_document(d) for slot, d in archive.candidates().items()}
    archive.close()
    return found


@pytest.fixture(scope="module")
def recorded() -> dict[int, dict[str, object]]:
    document = json.loads((RUN / "results.json").read_text(encoding="utf-8"))
    return {row["slot"]: row for row in document["candidates"]}


def test_at_least_forty_answers_of_a_named_model_over_four_generations(recorded) -> None:
    exchanges = load_recording(RUN / "answers.jsonl")
    assert len(exchanges) >= 40
    answers = [exchange.answer for exchange in exchanges]
    assert all(answer is not None and "Claude" in answer.model for answer in answers)
    assert all(answer.created.startswith("2026-") for answer in answers)
    assert max(row["generation"] for row in recorded.values()) >= 4 - 1


def test_seed_programs_score_the_same_everywhere(replayed, recorded) -> None:
    for slot in range(-5, 0):
        assert replayed[slot].p == pytest.approx(recorded[slot]["p"], abs=1e-9)


def test_the_same_candidates_come_from_the_same_parents(replayed, recorded) -> None:
    for slot in range(REPLAYED):
        assert replayed[slot].operator == recorded[slot]["operator"]
        assert list(replayed[slot].parents) == recorded[slot]["parents"]
        assert replayed[slot].status == recorded[slot]["status"]


def test_candidates_score_what_was_recorded(replayed, recorded) -> None:
    # Their own linear algebra may differ in the last bits between machines, and then in a choice.
    for slot in range(REPLAYED):
        if recorded[slot]["p"] is not None:
            assert replayed[slot].p == pytest.approx(recorded[slot]["p"], abs=0.05)


def test_the_winner_is_what_an_answer_holds(recorded) -> None:
    best = (RUN / "best.py").read_text(encoding="utf-8")
    answers = [exchange.answer.text for exchange in load_recording(RUN / "answers.jsonl")]
    assert any(best.strip() in answer for answer in answers)
