"""What the page's script is given of each candidate."""

from __future__ import annotations

import json

import numpy as np
from support.report_material import PROGRAM, candidate, program, trace, write_archive

from llamea_gpu.report.details import Lines, median_regret, run_details
from llamea_gpu.report.run import Run, read_run


def test_texts_come_back_from_their_lines() -> None:
    lines = Lines()
    texts = ["a\nb\n", "b\n\nc", "", "a\nb\n"]
    numbered = [lines.add(text) for text in texts]
    known = lines.all()
    assert ["\n".join(known[n] for n in numbers) for numbers in numbered] == texts
    assert sorted(known) == ["", "a", "b", "c"]


def test_a_diff_and_the_parent_give_the_child(run: Run) -> None:
    found = run_details(run)
    by_slot = {item["slot"]: item for item in found["candidates"]}

    def source(slot: int) -> list[str]:
        return [found["lines"][n] for n in by_slot[slot]["source"]]

    assert "\n".join(source(2)) == PROGRAM.format(slot=12)
    (parent,) = by_slot[2]["parents"]
    before, after = source(parent["slot"]), source(2)
    rebuilt, at = [], 0
    for group in parent["diff"]:
        for changed, a0, a1, b0, b1 in group:
            rebuilt += before[at:a0] + (after[b0:b1] if changed else before[a0:a1])
            at = a1
    assert rebuilt + before[at:] == after


def test_prompts_answers_and_numbers_are_there(run: Run) -> None:
    found = run_details(run)
    second = next(item for item in found["candidates"] if item["slot"] == 1)
    assert [call["operator"] for call in second["calls"]] == ["new", "repair"]
    (_, system), (_, user) = second["calls"][0]["messages"]
    assert found["lines"][system[0]] == "The contract."
    assert found["lines"][user[0]] == "Write a class. #1"
    assert second["spaces"][0]["space"] == "alpha"
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_median_regret_waits_for_half_of_the_runs() -> None:
    runs = [
        trace([1, 2], [2.0, 1.0]),
        trace([1, 2], [np.inf, 3.0]),
        trace([1, 2], [np.inf, np.inf]),
    ]
    found = median_regret(runs, np.array([0.0, 1.0, 2.0]), best_ms=1.0)
    assert list(found) == [np.inf, np.inf, 2.0]


def test_programs_too_long_to_compare_have_no_diff(tmp_path) -> None:
    long = program(0, "# x\n" * 4000)
    family = [candidate(0, 0.4, program=long), candidate(1, 0.5, parents=(0,))]
    found = run_details(read_run(write_archive(tmp_path / "run", family), {}))
    assert found["candidates"][1]["parents"] == [{"slot": 0, "id": "#0", "p": 0.4, "diff": None}]
