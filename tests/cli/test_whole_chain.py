"""The whole chain on real Helion ConfigSpecs: evolve, show, compare, promote."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.answering import Answerer
from support.clouds import small_part
from support.command_line import llamea
from support.programs import answer, random_program

from llamea_gpu.archive import FILE_NAME, Archive
from llamea_gpu.bench import BenchResults
from llamea_gpu.cli import compare as compare_command
from llamea_gpu.evolution import session
from llamea_gpu.evolution.candidate import SCORED
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import recorded_settings
from llamea_gpu.programs.shipped import shipped
from llamea_gpu.promotion import Card, Check, procedure, tuning
from llamea_gpu.runner import Runner, yardsticks

pytest.importorskip("helion")

BUDGET_S = 8
LAZY = '''\
class Lazy:
    """Do nothing at all."""

    def __call__(self, evaluate, space, rng):
        return None
'''


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clouds")
    small_part("rope-4x32x4096x128-h200", "part-rope", folder)
    small_part("grouped_matmul-8192x2048-h200", "part-grouped", folder)
    return folder


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    """One for all commands: each process binds the kernels anew, and imports torch for that."""
    with Runner.open(workers=1) as opened, pytest.MonkeyPatch.context() as patch:
        for module in (session, compare_command, procedure):
            patch.setattr(module, "open_runner", lambda *_, **__: contextlib.nullcontext(opened))
        # LFBOTreeSearch itself is in tests/frameworks.
        patch.setattr(yardsticks, "RUNS", 2)
        patch.setattr(yardsticks, "SEARCHER", "steady_state_genetic_algorithm")
        patch.setattr(tuning, "FINAL_REPEATS", 5)
        yield opened


@pytest.fixture(scope="module")
def runs(clouds: Path, runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A run of two independent answers, the same once more, and under another name."""
    del runner
    steady = shipped()["steady_state_genetic_algorithm"].read_text(encoding="utf-8")
    folder = tmp_path_factory.mktemp("runs")
    settings = (
        *("--route", "batch", "--model", "canned", "--space", "part-rope", "--unfit"),
        *("--spaces-path", clouds, "--budget-s", BUDGET_S, "--candidates", 2, "--repeats", 2),
        *("--offspring", 1, "--seed-program", "random_search", "--bootstrap", 10, "--plain"),
        *("--poll-s", 0.05),
    )
    first = folder / "independent-0"
    answers = {"1-0000-0": answer(random_program(2)), "1-0001-0": answer(steady)}
    with Answerer(first, answers):
        done = llamea("evolve", "-o", first, *settings, "--strategy", "independent")
    assert "modelled score" in done.stdout
    again, other = folder / "independent-1", folder / "sequential-0"
    for copy in (again, other):
        shutil.copytree(first, copy)
    # Runs that cost nothing: what is compared here is the same, whatever it is called.
    with contextlib.closing(sqlite3.connect(other / FILE_NAME)) as archive, archive:
        renamed = "replace(value, '\"independent\"', '\"sequential\"')"
        archive.execute(f"UPDATE facts SET value = {renamed} WHERE key = 'settings'")
    return [first, again, other]


def test_a_run_is_shown_as_modelled(runs: list[Path]) -> None:
    shown = " ".join(llamea("runs", "show", runs[0]).stdout.split())
    assert "modelled score ± s.e." in shown
    assert "part-rope" in shown.split("Modelled time relative to the best known")[1]


def test_a_run_that_decides_for_itself_is_evolved_through_an_exchange(
    runner: Runner, clouds: Path, tmp_path: Path
) -> None:
    """With what a new run on whole spaces decides."""
    del runner
    folder = tmp_path / "run"
    answers = {f"1-000{slot}-0": answer(random_program(4 + slot)) for slot in range(2)}
    with Answerer(folder, answers):
        done = llamea(
            *("evolve", "-o", folder, "--plain", "--route", "batch", "--model", "canned"),
            *("--space", "part-rope", "--spaces-path", clouds, "--unfit", "--budget-s", "1"),
            *("--repeats", "2", "--candidates", "2", "--offspring", "2", "--parents", "1"),
            *("--poll-s", "0.05", "--seed-program", "random_search", "--tuned-variants", "1"),
        )
    assert "modelled" in done.stdout
    with contextlib.closing(Archive.open(folder, read_only=True)) as archive:
        settings = recorded_settings(archive.facts["settings"])
        assert (settings.fresh_seeds, settings.race_repeats) == (True, 2)
        population = Population.read(archive)
        written = population.written().candidates
        assert [c.status for c in written] == [SCORED, SCORED]
        assert all(archive.traces(c.slot, 0, "part-rope", trials=True) for c in written)
        assert [c.rescored for c in population.candidates if c.rescored] == [(1,)]
        assert "pid_type" in archive.call(0, 0).request.messages[-1].content


def test_strategies_are_compared_on_a_kernel_that_no_run_has_seen(
    runs: list[Path], clouds: Path
) -> None:
    options = ("--on", "part-grouped", "--spaces-path", clouds, "--repeats", 5)
    refused = llamea("runs", "compare", *runs, *options, status=2)
    assert "must have passed its gate" in refused.stderr
    found = json.loads(llamea("runs", "compare", *runs, *options, "--unfit", "--json").stdout)
    assert found["training"]["measure"] == found["again"]["measure"] == "modelled score"
    assert found["again"]["spaces"] == ["part-grouped"]
    rows = [row for row in found["again"]["strategies"] if row["answers"] == 2]
    assert [(row["strategy"], row["runs"]) for row in rows] == [
        ("independent", 2),
        ("sequential", 1),
    ]
    assert rows[1]["difference"] == pytest.approx(0.0)  # all three runs had the same answers
    near = {row["strategy"]: row for row in found["again"]["near_best_known"]}
    assert near["independent"]["seconds"] == BUDGET_S
    assert 1.0 <= near["independent"]["mean"] == near["independent"]["worst"]
    assert [cost["answers"] for cost in found["costs"]] == [4, 2, 2, 2, 2]


def test_a_promotion_on_models_says_so(
    runs: list[Path], clouds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy, into = tmp_path / "lazy.py", tmp_path / "into"
    lazy.write_text(LAZY, encoding="utf-8")
    into.mkdir()
    # In fresh processes, which import torch once more: tests/promotion/test_gate.py.
    passed = Check("determinism", "0 of 1 spaces differ", "0", True, "Taken for granted.")
    monkeypatch.setattr(procedure.gate, "determinism", lambda *_: passed)
    command = (
        *("promote", f"{runs[0]}:1", "--validation", "part-grouped", "--spaces-path", clouds),
        *("--repeats", 8, "--tuning-runs", 0, "--incumbent", lazy, "--into", into),
        *("--name", "steady"),
    )
    assert "must have passed its gate" in llamea(*command, status=2).stderr
    done = llamea(*command, "--unfit")
    assert "default modelled score" in done.stdout
    assert "modelled, not measured: part-grouped (gate: not judged)" in done.stdout
    card = Card.load(into / "steady.json")
    assert card.modelled is not None
    assert card.modelled.budget_s == BUDGET_S
    assert card.modelled.yardstick.startswith(f"{yardsticks.SEARCHER} under parallel(")
    (space,) = card.modelled.spaces
    assert (space.space, space.gate, len(space.digest)) == ("part-grouped", "not judged", 64)
    assert space.clock.startswith("pipelined(")
    assert space.near_best[0] >= 1.0
    beaten = next(check for check in card.checks if check.name.startswith("beats"))
    assert beaten.measured.startswith("modelled score +")
    assert card.command.endswith(f"--budget-s {BUDGET_S} --unfit")
    kept = BenchResults.load(runs[0] / procedure.FOLDER / "slot-1-look-1")
    assert kept.plan.settings.budget_s == BUDGET_S
    assert kept.analysis is not None
    standings = {row.searcher: row.p for row in kept.analysis.standings}
    assert standings["steady"] == card.validation.scores.p
    assert "--spaces part-grouped --repeats 8" in card.command
