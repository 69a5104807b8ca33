"""The recorded run that ships: its answers are real, and replaying them gives what was recorded.

Running all its programs takes minutes of CPU. So the whole run is replayed on recorded assessments
(every prompt, plan, parsed and admitted program is made anew), and a few programs are really run.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.command_line import llamea

from llamea_gpu.archive import Archive
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.evaluation import Assessment, Cascade
from llamea_gpu.evolution.loop import Evolution, Outcome
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.session import Problem, build_ledger, build_problem, start
from llamea_gpu.evolution.settings import EvolutionSettings, read_file, validated
from llamea_gpu.llm.replay import ReplayClient, load_recording
from llamea_gpu.programs import Program
from llamea_gpu.resources import resource_dir
from llamea_gpu.runner import Runner

RUN = resource_dir("generated_optimizers") / "runs" / "h200-helion"
SEEDS = range(-5, 0)
BRED = 8  # the cheapest program of the run; it was bred from a seed program
SEED = -4  # that one


@pytest.fixture(scope="module")
def recorded() -> dict[int, dict[str, Any]]:
    document = json.loads((RUN / "results.json").read_text(encoding="utf-8"))
    return {row["slot"]: row for row in document["candidates"]}


@pytest.fixture(scope="module")
def settings() -> EvolutionSettings:
    return validated({**read_file(RUN / "evolve.toml"), "replay_strict": True})


@pytest.fixture(scope="module")
def problem(settings: EvolutionSettings) -> Problem:
    return build_problem(settings)


@dataclass
class RecordedCascade:
    """Assesses each program as the recorded run did; runs two of them too, for comparison."""

    real: Cascade
    found_anew: dict[int, Assessment] = field(default_factory=dict)

    async def assess(
        self, slot: int, attempt: int, program: Program, population: Population
    ) -> Assessment:
        if slot in (BRED, SEED):
            self.found_anew[slot] = await self.real.assess(slot, attempt, program, population)
        return recorded_assessment(slot, program)


@functools.cache
def documents() -> dict[int, dict[str, Any]]:
    lines = (RUN / "candidates.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["slot"]: row for row in map(json.loads, lines)}


def recorded_assessment(slot: int, program: Program) -> Assessment:
    then = Candidate.from_document({**documents()[slot], "program": asdict(program)})
    assert then.feedback is not None
    return Assessment(then.status, then.kind, then.message, then.feedback, then.behaviour)


@dataclass
class Replay:
    outcome: Outcome
    found_anew: dict[int, Assessment]

    @property
    def candidates(self) -> dict[int, Candidate]:
        return {c.slot: c for c in self.outcome.population.candidates}


@pytest.fixture(scope="module")
def whole_run(
    settings: EvolutionSettings, problem: Problem, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replay]:
    archive = start(tmp_path_factory.mktemp("whole") / "run", settings, problem)
    client = ReplayClient(RUN / "answers.jsonl", strict=True)  # another prompt is an error
    with Runner.open(workers=2) as runner:
        cascade = RecordedCascade(Cascade(problem.tasks, runner, archive, settings))
        ledger = build_ledger(settings)
        evolution = Evolution(settings, archive, client, ledger, cascade, problem.facts)  # type: ignore[arg-type]
        yield Replay(asyncio.run(evolution.run(problem.seeds)), cascade.found_anew)
    archive.close()


def test_over_thirty_answers_of_a_named_model_over_four_generations(recorded) -> None:
    exchanges = load_recording(RUN / "answers.jsonl")
    assert len(exchanges) >= 32
    answers = [exchange.answer for exchange in exchanges]
    assert all(answer is not None and "Claude" in answer.model for answer in answers)
    assert all(answer.created.startswith("2026-") for answer in answers)
    assert max(row["generation"] for row in recorded.values()) >= 4 - 1


def test_every_prompt_is_the_recorded_one(whole_run: Replay, settings: EvolutionSettings) -> None:
    # The client is strict, so the run would have ended with an error at the first other prompt.
    assert whole_run.outcome.reason == "complete"
    assert whole_run.outcome.warnings == ()
    assert max(whole_run.candidates) == settings.candidates - 1


def test_the_same_candidates_come_from_the_same_parents(whole_run: Replay, recorded) -> None:
    assert sorted(whole_run.candidates) == sorted(recorded)
    for slot, candidate in whole_run.candidates.items():
        row = recorded[slot]
        assert candidate.operator == row["operator"]
        assert list(candidate.parents) == row["parents"]
        assert candidate.generation == row["generation"]
        assert candidate.status == row["status"]
        assert candidate.program is not None
        assert candidate.program.idea == row["idea"]


def test_a_bred_program_scores_what_was_recorded(whole_run: Replay, recorded) -> None:
    # Its own linear algebra may differ in the last bits between machines, and then in a choice.
    found = whole_run.found_anew[BRED]
    assert recorded[BRED]["parents"] == [SEED]
    assert found.feedback.p == pytest.approx(recorded[BRED]["p"], abs=0.05)


def test_a_seed_program_scores_exactly_what_was_recorded(whole_run: Replay, recorded) -> None:
    found = whole_run.found_anew[SEED]
    assert found.feedback.p == pytest.approx(recorded[SEED]["p"], abs=1e-9)


def by_the_command(folder: Path, candidates: int) -> dict[int, Candidate]:
    settings = ("--config", RUN / "evolve.toml", "--set", "replay_strict=true")
    llamea("evolve", "-o", folder, "--plain", *settings, "--candidates", candidates)
    archive = Archive.open(folder, read_only=True)
    found = {slot: Candidate.from_document(d) for slot, d in archive.candidates().items()}
    archive.close()
    return found


def test_the_command_replays_the_first_generations(
    recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def assess(_: Cascade, slot: int, attempt: int, program: Program, *__: Any) -> Assessment:
        return recorded_assessment(slot, program)

    monkeypatch.setattr(Cascade, "assess", assess)
    found = by_the_command(tmp_path / "run", 10)
    assert sorted(found) == [*SEEDS, *range(10)]
    for slot, candidate in found.items():
        assert candidate.p == recorded[slot]["p"]
        assert list(candidate.parents) == recorded[slot]["parents"]


@pytest.mark.slow
def test_the_command_runs_seed_programs_and_the_first_answer(recorded, tmp_path: Path) -> None:
    found = by_the_command(tmp_path / "run", 1)
    for slot in SEEDS:
        assert found[slot].p == pytest.approx(recorded[slot]["p"], abs=1e-9)
    assert found[0].p == pytest.approx(recorded[0]["p"], abs=0.05)


def test_the_winner_is_what_an_answer_holds(whole_run: Replay, recorded) -> None:
    best = (RUN / "best.py").read_text(encoding="utf-8")
    answers = [exchange.answer.text for exchange in load_recording(RUN / "answers.jsonl")]
    winner = max((row for row in recorded.values() if row["p"] is not None), key=lambda r: r["p"])
    program = whole_run.candidates[winner["slot"]].program
    assert program is not None
    assert program.source.strip() == best.strip()
    assert any(best.strip() in answer for answer in answers)
