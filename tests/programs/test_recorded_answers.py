"""Admission and resolution agree: on every program of the recorded answers, and on broken ones.

What admission takes, a file with the same text is found as, and found to be the same; what cannot
be found in a file, admission does not take.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llamea_gpu.errors import AnswerError, SearcherError
from llamea_gpu.llm.replay import load_recording
from llamea_gpu.programs import Program, admit, make, read_program
from llamea_gpu.programs.defaults import with_defaults
from llamea_gpu.prompting import parse_answer
from llamea_gpu.resources import resource_dir
from llamea_gpu.searchers.registry import resolve_program

RUNS = sorted(resource_dir("generated_optimizers").glob("runs/*/answers.jsonl"))
PART = (16, pytest.param(1, marks=pytest.mark.slow))  # every 16th answer; all of them


def sources(run: Path) -> Iterator[str]:
    """What the answers of a run hold, edits of parents aside."""
    for exchange in load_recording(run):
        if exchange.answer is not None:
            try:
                yield parse_answer(exchange.answer.text, "new", ())
            except AnswerError:
                continue


def broken(source: str) -> Iterator[str]:
    """Mutants: some are programs still, most are none."""
    lines = source.split("\n")
    yield "\n".join(lines[: len(lines) // 2])
    yield "\n".join(lines[: -len(lines) // 4])
    yield source.replace("__call__(self, evaluate, space, rng)", "__call__(self, evaluate)")
    yield source.replace("__call__", "search")
    yield source.replace("def __init__(self, ", "def __init__(self, budget, ")
    yield source.replace("def __init__(self, ", "def __init__(self, *rest, ")
    yield source.replace("class ", "class class ", 1)
    yield f"import os\n{source}"
    yield f"{source}\n\nclass Another:\n    def __call__(self, evaluate, space, rng): ...\n"
    yield source.replace("\n", "\r\n")


def admitted(source: str) -> Program | None:
    try:
        return admit(source)
    except AnswerError:
        return None


def resolved(source: str, path: Path) -> Program | None:
    path.write_bytes(source.encode())
    try:
        return resolve_program(str(path)).program
    except SearcherError:
        return None


@pytest.mark.parametrize("step", PART)
def test_admission_and_resolution_agree(step: int, tmp_path: Path) -> None:
    texts = [text for run in RUNS for text in sources(run)][::step]
    assert len(texts) >= 300 / step
    texts += [text for source in texts[:: max(7, 60 // step)] for text in broken(source)]
    refused = 0
    for text in texts:
        program, found = admitted(text), resolved(text, tmp_path / "mine.py")
        if program is None:
            refused += 1
            continue
        assert found is not None, text
        assert found.source.strip("\n") == program.source.strip("\n")
        assert found.class_name == program.class_name
        assert found.hyperparameters == program.hyperparameters
        assert found.idea == program.idea
        assert found.digest == program.digest
    assert 15 <= refused <= len(texts) / 2


@pytest.mark.parametrize("step", PART)
def test_the_defaults_of_recorded_programs_can_be_replaced_in_their_text(step: int) -> None:
    texts = [text for run in RUNS for text in sources(run)][:: 4 * step]
    for program in filter(None, map(admitted, texts)):
        numbers = {k: v for k, v in program.hyperparameters if type(v) in (int, float)}
        changed = {name: type(value)(3 * value + 1) for name, value in numbers.items()}
        again = read_program(with_defaults(program, changed))
        assert again.settings == {**program.settings, **changed}
        assert read_program(with_defaults(again, numbers)).digest == program.digest
        assert (again.class_name, again.idea) == (program.class_name, program.idea)


def test_instances_of_a_recorded_program_have_its_settings() -> None:
    program = next(iter(filter(None, map(admitted, sources(RUNS[0])))))
    assert type(make(program)).__name__ == program.class_name
