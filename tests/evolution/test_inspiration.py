"""Programs brought along: from files and earlier runs, as text, with where they came from."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from support.candidates import candidate
from support.programs import BROKEN, answer, climber_program, random_program

from llamea_gpu.archive import Archive
from llamea_gpu.errors import ArchiveError, SearcherError, SettingsError
from llamea_gpu.evolution.candidate import FAILED, SCORED
from llamea_gpu.evolution.inspiration import expand_inspirations, load_inspiration
from llamea_gpu.evolution.plan import plan_slot
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.session import build_problem
from llamea_gpu.evolution.settings import EvolutionSettings, with_absolute_paths
from llamea_gpu.resources import resource_dir

ANSWERS = {(slot, 0): answer(climber_program(slot + 2)) for slot in range(4)}


@pytest.fixture
async def earlier(harness, settings, scripted) -> Path:
    """The folder of a finished run."""
    _, archive = await harness.run(settings, scripted(ANSWERS))
    archive.close()
    return archive.path.parent


def brought(tmp_path: Path, source: str, name: str = "brought.py") -> str:
    file = tmp_path / name
    file.write_text(source)
    return str(file)


async def test_a_file_is_evaluated_first_and_costs_no_answer(
    harness, settings, scripted, tmp_path_factory: pytest.TempPathFactory
) -> None:
    licensed = "# SPDX-License-Identifier: MIT OR Apache-2.0\n" + climber_program(9)
    spec = brought(tmp_path_factory.mktemp("brought"), licensed)
    settings = settings.model_copy(update={"inspirations": (spec,)})
    client = scripted(ANSWERS)
    outcome, archive = await harness.run(settings, client)
    with closing(archive):
        found = outcome.population.candidates[2]
        assert (found.slot, found.status, found.inspiration) == (-3, SCORED, True)
        assert (found.identifier, found.attempts, found.tokens) == ("brought.py", 0, 0)
        assert len(client.asked) == 4
        (provenance,) = json.loads(archive.facts["inspirations"])
        assert provenance["licence"] == "MIT OR Apache-2.0"
        assert (provenance["spec"], provenance["digest"]) == (spec, found.program.digest)


async def test_feedback_goes_on_comparing_with_human_designed_searchers(
    harness, settings, scripted, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = brought(tmp_path_factory.mktemp("brought"), climber_program(9))
    settings = settings.model_copy(update={"inspirations": (spec,), "candidates": 2})
    outcome, archive = await harness.run(settings, scripted(ANSWERS))
    archive.close()
    for found in outcome.population.candidates[2:]:
        assert {r.reference for r in found.feedback.spaces} <= set(settings.seed_programs)
        assert max(r.reference_p for r in found.feedback.spaces) != 0.0


async def test_a_run_inspires_by_its_best_by_name(earlier: Path) -> None:
    specs = expand_inspirations([str(earlier)])
    with closing(Archive.open(earlier, read_only=True)) as archive:
        documents = archive.candidates()
    best = max((d["feedback"]["p"], s) for s, d in documents.items() if s >= 0)[0]
    assert 1 <= len(specs) <= 3
    slots = [int(spec.rpartition("#")[2]) for spec in specs]
    assert min(slots) >= 0
    assert documents[slots[0]]["feedback"]["p"] == pytest.approx(best, abs=0.01)
    found = load_inspiration(specs[0])
    assert found.name == f"{earlier.name}#{slots[0]}"
    assert found.program.source == documents[slots[0]]["program"]["source"]
    assert found.provenance["model"] == "canned"
    assert expand_inspirations(specs) == specs  # named candidates stay what they are


async def test_a_candidate_of_a_run_that_is_not_there(earlier: Path) -> None:
    with pytest.raises(ArchiveError, match="#77"):
        load_inspiration(f"{earlier}#77")


def test_shipped_optimizers_by_name() -> None:
    shipped = sorted(path.stem for path in resource_dir("generated_optimizers").glob("*.py"))
    assert expand_inspirations(["shipped", "genetic_algorithm"]) == (*shipped, "genetic_algorithm")
    assert load_inspiration("genetic_algorithm").provenance["origin"] == "shipped"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import os\n" + climber_program(3), "admission"),
        (climber_program(3).replace("start=3", "start"), "start has none"),
        ("x = 1\n", "class"),
    ],
)
def test_what_a_models_answer_may_not_be_is_refused(
    tmp_path: Path, source: str, error: str
) -> None:
    with pytest.raises((SettingsError, SearcherError), match=error):
        load_inspiration(brought(tmp_path, source))


async def test_a_file_that_fails_in_the_sandbox_is_a_failed_parent(
    harness, settings, scripted, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = brought(tmp_path_factory.mktemp("brought"), BROKEN)
    settings = settings.model_copy(update={"inspirations": (spec,), "candidates": 2})
    outcome, archive = await harness.run(settings, scripted(ANSWERS))
    archive.close()
    assert outcome.population.candidates[2].status == FAILED
    assert outcome.population.candidates[2] not in outcome.population.elite(9)


def test_a_folder_without_a_run_and_a_name_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="run"):
        expand_inspirations([str(tmp_path)])
    with pytest.raises(SearcherError, match="genetic_algorithm"):
        load_inspiration("genetic_algoritm")


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    specs = ["run#3", "run", "mine.py:Best", "sub/mine.py?start=2", "genetic_algorithm", "shipped"]
    found = with_absolute_paths({"inspirations": specs}, tmp_path)["inspirations"]
    assert found == [*(f"{tmp_path}/{spec}" for spec in specs[:4]), *specs[4:]]


def test_other_inspirations_are_another_problem(settings, tmp_path: Path) -> None:
    spec = brought(tmp_path, climber_program(9))
    settings = settings.model_copy(update={"inspirations": (spec,)})
    before = build_problem(settings).fingerprint
    brought(tmp_path, random_program(9))
    assert build_problem(settings).fingerprint != before


def test_half_of_the_first_generation_builds_on_what_was_brought() -> None:
    settings = EvolutionSettings(model="m", offspring=8)
    population = Population(
        (candidate(-1, 0.9, inspiration=True, operator="x"), candidate(-2, 0.5, operator="y"))
    )
    plans = [plan_slot(slot, population, settings) for slot in range(8)]
    assert [plan.operator == "new" for plan in plans] == [True, False] * 4
    assert all(plan.parents for plan in plans if plan.operator != "new")
