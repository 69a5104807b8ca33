"""A finished evolution of four programs on small spaces, copied for each test."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.programs import answer
from support.promotable import PROGRAMS, SPOILT_SLOT, STRONG, WEAK_SLOT
from support.recordings import small_recording

from llamea_gpu.evolution.evaluation import Cascade
from llamea_gpu.evolution.loop import Evolution
from llamea_gpu.evolution.session import build_ledger, build_problem, start
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.llm import ChatAnswer, ChatRequest, Usage
from llamea_gpu.promotion import Check, PromotionSettings, gate, incumbents, procedure
from llamea_gpu.runner import Runner
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.tasks import Task, build_tasks


class Answers:
    """A route that answers each slot with its program."""

    warnings: tuple[str, ...] = ()

    async def complete(self, request: ChatRequest) -> ChatAnswer:
        _, slot, _ = request.request_id.split("-")
        text = answer(PROGRAMS[int(slot)])
        created = "2026-01-01T00:00:00+00:00"
        return ChatAnswer(text, "canned", Usage(10, 5), "stop", created, 0.0)

    async def preflight(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    with Runner.open(workers=2) as opened:
        yield opened


@pytest.fixture(autouse=True)
def one_runner_for_all(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox opens in half a second. Determinism is still over sandboxes of its own."""
    opened = contextlib.nullcontext(runner)
    monkeypatch.setattr(procedure, "open_runner", lambda *_, **__: opened)


@pytest.fixture(scope="session", autouse=True)
def one_baseline_for_all() -> Iterator[None]:
    """To read the one that ships takes a quarter of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incumbents, "load_baseline", functools.cache(incumbents.load_baseline))
        yield


@pytest.fixture(scope="session")
def spaces_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """small0 and small1 to train on; held0 and held1, with larger blocks, to validate on."""
    folder = tmp_path_factory.mktemp("spaces")
    for number in range(2):
        recording = small_recording(f"small{number}", seed=number)
        export_recording(recording, folder / f"small{number}.parquet", "native")
        other = small_recording(f"held{number}", seed=10 + number)
        values = ((32, 64, 128, 256, 512), *other.space.values[1:])
        space = type(other.space)(other.space.names, values, other.space.configurations)
        other = replace(other, space=space)
        export_recording(other, folder / f"held{number}.parquet", "native")
    return folder


@pytest.fixture(scope="session")
def tasks() -> tuple[Task, ...]:
    return build_tasks([small_recording(f"small{number}", seed=number) for number in range(2)])


@pytest.fixture(scope="session")
def finished_run(
    spaces_folder: Path, runner: Runner, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    settings = EvolutionSettings(
        model="canned",
        spaces=("small0", "small1"),
        spaces_path=(str(spaces_folder),),
        candidates=len(PROGRAMS),
        offspring=len(PROGRAMS),
        parents=2,
        repeats=3,
        bootstrap=10,
        seed_programs=("random_search",),
    )
    folder = tmp_path_factory.mktemp("runs") / "small-run"
    problem = build_problem(settings)
    archive = start(folder, settings, problem)
    cascade = Cascade(problem.tasks, runner, archive, settings)
    ledger = build_ledger(settings)
    evolution = Evolution(settings, archive, Answers(), ledger, cascade, problem.facts)
    outcome = asyncio.run(evolution.run(problem.seeds))
    archive.close()
    assert {c.slot for c in outcome.population.scored()} >= {STRONG, SPOILT_SLOT, WEAK_SLOT}
    return folder


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "small-run"))


@pytest.fixture
def settings(spaces_folder: Path, tmp_path: Path) -> PromotionSettings:
    into = tmp_path / "optimizers"
    into.mkdir()
    return PromotionSettings(
        slot=STRONG,
        repeats=8,
        tuning_runs=0,
        validation=("held0", "held1"),
        spaces_path=(spaces_folder,),
        incumbents=("random_search",),
        into=into,
        workers=2,
    )


@pytest.fixture
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes new sandboxes is tested in test_gate.py."""
    passed = Check("determinism", "0 of 2 spaces differ", "0", True, "Taken for granted.")
    monkeypatch.setattr(gate, "determinism", lambda *_: passed)
