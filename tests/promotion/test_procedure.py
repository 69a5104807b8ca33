"""Promotion from a real run folder: what is written, what is not, and which looks count."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.promotable import SPOILT_SLOT, STRONG, WEAK_SLOT
from typer.testing import CliRunner

from llamea_gpu.archive import Archive
from llamea_gpu.bench import BenchResults
from llamea_gpu.bench.plan import describe_space
from llamea_gpu.cli import app
from llamea_gpu.errors import ArchiveError, SearcherError, SettingsError
from llamea_gpu.evolution.settings import EvolutionSettings, recorded_settings
from llamea_gpu.export.helion import export_source as export_to_helion
from llamea_gpu.export.kernel_tuner import export_source as export_to_kernel_tuner
from llamea_gpu.programs import shipped
from llamea_gpu.promotion import (
    Card,
    Check,
    PromotionSettings,
    Report,
    gate,
    procedure,
    promote,
)
from llamea_gpu.promotion.card import write_promoted
from llamea_gpu.promotion.procedure import FOLDER
from llamea_gpu.runner import Runner
from llamea_gpu.searchers.registry import resolve, resolve_program
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.tasks import Task, build_tasks

IDEA = "Set one parameter after the other to its best value, then begin elsewhere."


def failed(report: Report) -> list[str]:
    return [check.name for check in report.checks if not check.passed]


def measured(report: Report, name: str) -> str:
    return next(check.measured for check in report.checks if check.name == name)


def looks(run: Path) -> list[int]:
    with closing(Archive.open(run, read_only=True)) as archive:
        return [look.slot for look in archive.looks()]


def test_a_candidate_that_passes_everything_ships(
    run: Path,
    settings: PromotionSettings,
    tasks: tuple[Task, ...],
    runner: Runner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the real frameworks, and a race."""
    (report,) = promote(run, replace(settings, tuning_runs=60))
    assert failed(report) == []
    assert (report.slot, report.name) == (STRONG, "ladder")
    path = report.path
    assert path is not None
    source = path.read_text(encoding="utf-8")

    card = Card.load(path.with_suffix(".json"))
    assert card == report.card
    assert card.source_sha256 == hashlib.sha256(source.encode()).hexdigest()
    assert card.written == {"start": 2}
    assert report.tuning is not None
    assert (
        card.hyperparameters
        == report.tuning.settings
        == resolve_program(str(path)).program.settings
    )
    assert card.validation.look == 1
    assert [d.incumbent for d in card.validation.differences] == ["random_search"]
    assert [s.space for s in card.validation.scores.spaces] == ["held0", "held1"]
    assert [s.space for s in card.training.default.spaces] == ["small0", "small1"]
    assert card.provenance.run == "small-run"
    assert len(card.provenance.prompt_sha256) == 64
    assert card.command.startswith("llamea-gpu bench ladder random_search --spaces held0")

    monkeypatch.setattr(shipped, "resource_dir", lambda _: path.parent)
    loaded = resolve_program("ladder")
    assert loaded.provenance.origin == "shipped"
    assert (loaded.provenance.model, loaded.provenance.run) == ("canned", "small-run")
    assert (loaded.provenance.date, loaded.provenance.command) == (card.date, card.command)
    assert loaded.program.idea == card.idea == IDEA
    for export in (export_to_kernel_tuner, export_to_helion):
        assert "Written by: canned in the run small-run" in export(loaded)
    assert runner.run(resolve("ladder"), tasks[0], 1).outcome == "budget"

    again = [
        *shlex.split(card.command)[1:],
        "--spaces-path",
        str(settings.spaces_path[0]),
        "--json",
    ]
    told = CliRunner().invoke(app, again)
    assert told.exit_code == 0, told.output
    standings = json.loads(told.stdout)["analysis"]["standings"]
    (p,) = [s["p"] for s in standings if s["searcher"] == "ladder"]
    assert p == card.validation.scores.p  # the card's command makes its numbers again

    kept = BenchResults.load(run / FOLDER / "slot-0-look-1")
    assert kept.analysis is not None
    standing = next(s for s in kept.analysis.standings if s.searcher == "ladder")
    assert standing.p == card.validation.scores.p


@pytest.mark.usefixtures("quick_checks")
def test_one_that_beats_nobody_is_not_written(run: Path, settings: PromotionSettings) -> None:
    (report,) = promote(run, replace(settings, slot=WEAK_SLOT))
    assert failed(report) == ["beats random_search"]
    assert report.path is None
    assert settings.into is not None
    assert not list(settings.into.iterdir())
    assert looks(run) == [WEAK_SLOT, WEAK_SLOT]  # on two spaces


@pytest.mark.usefixtures("quick_checks")
def test_own_cpu_counts_where_it_is_asked_for(
    run: Path, settings: PromotionSettings, runner: Runner
) -> None:
    (report,) = promote(run, replace(settings, charge_cpu=True))
    assert failed(report) == []
    assert report.card is not None
    assert report.path is not None
    assert Card.load(report.path.with_suffix(".json")).validation.charge_cpu
    assert report.card.command.endswith(" --charge-cpu")
    assert report.tuning is not None
    assert report.tuning.results.plan.settings.charge_cpu

    kept = BenchResults.load(run / FOLDER / "slot-0-look-1")
    assert kept.plan.settings.charge_cpu
    (task,) = build_tasks([load_space("held0", settings.spaces_path)])
    charged = kept.traces("ladder", "held0")[0]
    free = runner.run(resolve(str(report.path)), task, charged.seed)
    assert charged.rows[0] == free.rows[0]
    assert charged.elapsed_s[0] > free.elapsed_s[0]


@pytest.mark.usefixtures("quick_checks")
def test_own_cpu_counts_as_it_did_in_the_run(
    run: Path, settings: PromotionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_a_run_that_counts(text: str) -> EvolutionSettings:
        return recorded_settings(text).model_copy(update={"charge_cpu": True})

    monkeypatch.setattr(procedure, "recorded_settings", of_a_run_that_counts)
    (counted,) = promote(run, replace(settings, dry_run=True))
    (free,) = promote(run, replace(settings, dry_run=True, charge_cpu=False))
    assert counted.tuning is not None
    assert counted.tuning.results.plan.settings.charge_cpu
    assert free.tuning is not None
    assert not free.tuning.results.plan.settings.charge_cpu


@pytest.mark.usefixtures("quick_checks")
def test_one_that_fails_on_validation_is_not_written(
    run: Path, settings: PromotionSettings
) -> None:
    (report,) = promote(run, replace(settings, slot=SPOILT_SLOT))
    assert "runs" in failed(report)
    assert measured(report, "runs") == "16 of 36 runs failed"
    assert any("never seen such a block" in check.sentence for check in report.checks)
    assert report.path is None


@pytest.mark.usefixtures("quick_checks")
def test_there_is_no_second_look(run: Path, settings: PromotionSettings) -> None:
    promote(run, replace(settings, slot=WEAK_SLOT))
    again = replace(settings, slot=WEAK_SLOT, repeats=9)
    (report,) = promote(run, again)
    assert failed(report) == ["first look", "beats random_search"]
    assert "seen one of the validation spaces before" in report.checks[0].sentence
    # Nor at one of the spaces, nor without its slot; a space it has not seen is another matter.
    (report,) = promote(run, replace(again, validation=("held1",)))
    assert "first look" in failed(report)
    # The best on training has not looked; it fails, and the next one is considered.
    reports = promote(run, replace(settings, slot=None, repeats=20))
    assert [report.slot for report in reports] == [SPOILT_SLOT, STRONG]
    assert [measured(report, "first look")[:6] for report in reports] == ["look 2", "look 3"]
    assert [report.path is not None for report in reports] == [False, True]
    card = reports[-1].card
    assert card is not None
    assert (card.validation.look, card.validation.level) == (3, pytest.approx(0.05 / 12))


@pytest.mark.usefixtures("quick_checks")
def test_when_all_have_looked_there_is_nobody_to_promote(
    run: Path, settings: PromotionSettings
) -> None:
    with closing(Archive.open(run)) as archive:
        held = build_tasks([load_space("held0", settings.spaces_path)])
        for slot, document in archive.candidates().items():
            program = document["program"]
            assert isinstance(program, dict)
            archive.record_look(slot, program["digest"], [describe_space(held[0]).fingerprint])
    with pytest.raises(ArchiveError, match="has not been validated"):
        promote(run, replace(settings, slot=None))


KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from llamea_gpu.promotion import Check, PromotionSettings, gate, promote
from llamea_gpu.promotion.incumbents import Incumbents

gate.determinism = lambda *_: Check("determinism", "", "", True, "")
Incumbents.bench = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
run, spaces, slot = sys.argv[1:]
promote(Path(run), PromotionSettings(
    slot=int(slot), tuning_runs=0, repeats=5, validation=("held0", "held1"), workers=1,
    spaces_path=(Path(spaces),), incumbents=("random_search",), into=Path(run),
))
"""


@pytest.mark.usefixtures("quick_checks")
def test_a_look_that_was_killed_counts(run: Path, settings: PromotionSettings) -> None:
    arguments = [str(run), str(settings.spaces_path[0]), str(STRONG)]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    (report,) = promote(run, settings)
    assert "first look" in failed(report)
    assert report.path is None


def test_one_that_fails_before_keeps_its_look(
    run: Path,
    settings: PromotionSettings,
    quick_checks: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    differs = Check("determinism", "1 of 2 spaces differ", "0", False, "something else decides")
    monkeypatch.setattr(gate, "determinism", lambda *_: differs)
    (report,) = promote(run, replace(settings, incumbents=("random_search", "scipy:nothing")))
    assert failed(report) == [
        "determinism",
        "incumbent scipy:nothing",
        "beats random_search",
    ]
    assert "No look was spent on it" in report.checks[-1].sentence
    assert looks(run) == []


@pytest.mark.usefixtures("quick_checks")
def test_a_dry_run_looks_at_nothing(run: Path, settings: PromotionSettings) -> None:
    (report,) = promote(run, replace(settings, dry_run=True))
    assert report.passed
    assert report.path is None
    assert looks(run) == []
    assert not (run / FOLDER).exists()


@pytest.mark.parametrize(
    "change",
    [{"validation": ("small1",)}, {"spaces": ("held0",)}],
    ids=["of the run", "of tuning"],
)
def test_validation_on_a_training_space_is_refused(
    change: dict[str, tuple[str, ...]], run: Path, settings: PromotionSettings
) -> None:
    with pytest.raises(SettingsError, match="was not trained on"):
        promote(run, replace(settings, **change))


@pytest.mark.parametrize(
    ("field", "wanted"), [("spaces", "modelled"), ("validation", "recordings")]
)
def test_measured_and_modelled_spaces_do_not_mix(
    field: str, wanted: str, run: Path, settings: PromotionSettings
) -> None:
    cloud = ("clouds/helion/softmax-32768x1024-h200",)
    with pytest.raises(SettingsError, match=f"must be of one kind.*: give {wanted}"):
        promote(run, replace(settings, **{field: cloud}))


def test_only_a_scored_candidate_can_be_named(run: Path, settings: PromotionSettings) -> None:
    for slot in (-1, 99):
        with pytest.raises(ArchiveError, match="must be fully scored"):
            promote(run, replace(settings, slot=slot))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    card = Card.__new__(Card)
    object.__setattr__(card, "name", "mine")
    for taken in ("mine.py", "mine.json"):
        folder = tmp_path / taken
        folder.mkdir()
        (folder / taken).write_text("theirs")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Card, "to_json", lambda _: "{}")
            with pytest.raises(SearcherError, match="overwrites nothing"):
                write_promoted(card, "", folder)
        assert [path.name for path in folder.iterdir()] == [taken]
        assert (folder / taken).read_text() == "theirs"


@pytest.mark.usefixtures("quick_checks")
def test_the_command_says_what_failed(run: Path, settings: PromotionSettings) -> None:
    options = [
        *("--repeats", "8", "--tuning-runs", "0", "--incumbent", "random_search"),
        *("--validation", "held0", "--validation", "held1", "--into", str(settings.into)),
        *("--spaces-path", str(settings.spaces_path[0]), "--workers", "2"),
    ]
    passing = CliRunner().invoke(app, ["promote", f"{run}:{STRONG}", *options])
    assert passing.exit_code == 0, passing.output
    assert "with its card beside it" in passing.output
    failing = CliRunner().invoke(app, ["promote", f"{run}:{WEAK_SLOT}", *options])
    assert failing.exit_code == 1, failing.output
    assert "not promoted" in failing.output
    assert "beats random_search: It is not shown to beat random_search" in failing.output
