"""What is read from an archive, and the numbers that follow."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from support.report_material import candidate, small_family, write_archive

from llamea_gpu.archive import Archive
from llamea_gpu.errors import LlameaGpuError
from llamea_gpu.llm import ChatRequest, Message, Price
from llamea_gpu.report import read_source
from llamea_gpu.report.run import Run, read_run
from llamea_gpu.report.yields import failures, gain, model_yields, operator_yields, steps

PRICES = {"canned": Price(Decimal(2), Decimal(10))}  # dollars a million tokens
CALL_USD = 1000 * 2e-6 + 500 * 10e-6


def slots(candidates) -> list[int]:
    return [c.slot for c in candidates]


def test_a_run_is_read_whole(run: Run) -> None:
    assert slots(run.population.seeds().candidates) == [-2, -1]
    assert slots(run.written) == list(range(8))
    assert run.sandbox_level == 2
    assert run.ended == "complete"
    assert len(run.calls) == len(run.spending) == 10  # eight slots, two repairs
    assert set(run.traces[2]) == {"alpha", "beta"}
    assert set(run.traces[4]) == {"alpha"}  # stopped after it
    assert run.traces[5] == {}
    assert len(run.traces[2]["alpha"]) == 3


def test_a_continuation_may_have_changed_the_budgets(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "run", [candidate(0, 0.5, operator="new")])
    archive = Archive.open(folder)
    settings = read_run(folder, {}).settings.model_copy(update={"candidates": 77})
    document = settings.model_dump(mode="json")
    archive.record_event("session", sandbox_level=1, version="0.1.0", settings=document)
    archive.close()
    found = read_run(folder, {})
    assert found.settings.candidates == 77
    assert found.sandbox_level == 1
    assert found.ended == ""  # the new session has not


def test_the_traces_are_those_of_the_attempt_that_settled_the_slot(run: Run) -> None:
    assert set(run.traces[1]) == {"alpha", "beta"}  # its second attempt


def test_calls_cost_what_the_ledger_says(run_folder: Path) -> None:
    priced = read_run(run_folder, PRICES)
    assert priced.priced
    assert [item.usd for item in priced.spending] == pytest.approx([CALL_USD] * 10)
    assert {item.tokens for item in priced.spending} == {1500}


def test_without_a_price_there_are_tokens_and_no_dollars(run: Run) -> None:
    assert not run.priced
    assert {item.usd for item in run.spending} == {None}
    assert all(step.usd is None for step in steps(run))


def test_a_lost_attempt_is_charged_at_its_reservation(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "run", [candidate(0, 0.5, operator="new")])
    archive = Archive.open(folder)
    request = ChatRequest("1-0001-0", "canned", (Message("user", "x" * 400),), max_tokens=1000)
    archive.record_call(1, 0, "new", request, "openai")
    archive.record_loss("1-0001-0", 2)
    archive.close()
    lost = read_run(folder, PRICES).spending[-1]
    assert (lost.lost, lost.answered) == (2, False)
    assert lost.completion_tokens == 2000
    assert lost.prompt_tokens == 2 * request.estimated_prompt_tokens()
    assert lost.usd == pytest.approx(lost.prompt_tokens * 2e-6 + 2000 * 10e-6)


def test_parents_that_cannot_be_are_not_followed(tmp_path: Path) -> None:
    family = [
        candidate(0, 0.4, parents=(0, 1, 99, -7)),  # itself, a later one, two that never were
        candidate(1, 0.5, parents=(0, 0)),
    ]
    run = read_run(write_archive(tmp_path / "run", family), {})
    first, second = run.written
    assert run.parents(first) == ()
    assert slots(run.parents(second)) == [0]
    assert slots(run.lineage(second)) == [0, 1]


def test_best_so_far_counts_seeds_and_what_was_spent(run_folder: Path) -> None:
    found = steps(read_run(run_folder, PRICES))
    assert [step.best_p for step in found] == [0.4, 0.4, 0.55, 0.55, 0.55, 0.55, 0.55, 0.6]
    assert [step.candidate.slot for step in found if step.is_new_best] == [0, 2, 7]
    assert [step.tokens for step in found][:3] == [1500, 4500, 6000]  # slot 1 took two attempts
    assert found[-1].usd == pytest.approx(10 * CALL_USD)


def test_a_shorter_program_that_is_as_good_is_the_best(tmp_path: Path) -> None:
    first, second = candidate(0, 0.604, operator="new"), candidate(1, 0.601, operator="new")
    assert first.program is not None
    assert second.program is not None
    long = replace(
        first, program=replace(first.program, source=first.program.source + "\n# more\n")
    )
    short = replace(second, program=replace(second.program, source=first.program.source))
    found = steps(read_run(write_archive(tmp_path / "run", [long, short]), {}))
    assert [step.best for step in found] == [long, short]  # as `Population.best` has it
    assert found[-1].is_new_best


def test_gain_is_over_the_best_parent(run: Run) -> None:
    by_slot = {c.slot: c for c in run.written}
    assert gain(run, by_slot[3]) == pytest.approx(0.5 - 0.55)
    assert gain(run, by_slot[7]) == pytest.approx(0.05)
    assert gain(run, by_slot[0]) is None  # no parent
    assert gain(run, by_slot[4]) is None  # not scored everywhere


def test_operators_yield_what_was_counted_by_hand(run_folder: Path) -> None:
    found = {item.name: item for item in operator_yields(read_run(run_folder, PRICES))}
    assert next(iter(found)) == "new"  # the most slots
    new, refine = found["new"], found["refine"]
    assert (new.slots, new.scored, new.failed, new.repaired, new.new_bests) == (3, 2, 1, 1, 1)
    assert (new.with_gain, new.median_gain) == (0, None)
    assert (refine.slots, refine.partial, refine.improved, refine.with_gain) == (2, 1, 1, 1)
    assert refine.median_gain == pytest.approx(0.15)
    assert found["explore"].tokens == 3000
    assert new.usd == pytest.approx(4 * CALL_USD)
    (model,) = model_yields(read_run(run_folder, PRICES))
    assert (model.name, model.slots, model.tokens) == ("canned", 8, 15_000)


def test_failures_are_grouped_by_kind() -> None:
    found = failures([*small_family(), candidate(8, None, kind="error")])
    assert {kind: slots(group) for kind, group in found.items()} == {
        "error": [5, 8],
        "refusal": [6],
    }
    assert next(iter(found)) == "error"


def test_a_folder_that_holds_neither_says_what_it_should_be(tmp_path: Path) -> None:
    with pytest.raises(LlameaGpuError, match=r"archive\.sqlite.*bench\.json"):
        read_source(tmp_path)
