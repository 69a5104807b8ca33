"""What answers become: a corpus of them, and what holds for any text."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

from llamea_gpu import toml
from llamea_gpu.searchers.llm.layout import Layout
from llamea_gpu.searchers.llm.proposals import parse_proposals
from llamea_gpu.searchers.llm.reading import read_values
from llamea_gpu.searchers.llm.values import Match, match_value
from llamea_gpu.spaces.space import SpaceView

CORPUS = toml.loads(Path(__file__).with_name("answers.toml").read_text("utf-8"))["answer"]
Configuration = tuple[int, ...]


def changed(anchor: Configuration, space: SpaceView, changes: str) -> Configuration:
    """``anchor`` with ``name=JSON`` changes."""
    config = list(anchor)
    for name, text in re.findall(r"(\S+?)=(\S+)", changes):
        place = space.names.index(name)
        wanted = json.loads(text)
        kinds = [(type(value), value) for value in space.values[place]]
        config[place] = kinds.index((type(wanted), wanted))
    return tuple(config)


def known(anchor: Configuration, space: SpaceView) -> dict[Configuration, float]:
    return {
        changed(anchor, space, "block=16 warps=1"): 0.5,
        changed(anchor, space, "block=16 warps=8"): math.inf,
    }


def test_the_corpus_is_large() -> None:
    assert len({answer["name"] for answer in CORPUS}) == len(CORPUS) >= 60


@pytest.mark.parametrize("answer", CORPUS, ids=[answer["name"] for answer in CORPUS])
def test_an_answer_becomes_what_the_corpus_says(
    space: SpaceView, anchor: Configuration, answer: dict[str, Any]
) -> None:
    found = parse_proposals(
        answer["text"], Layout(space), anchor=anchor, measured=known(anchor, space), most=5
    )
    assert list(found.configs) == [changed(anchor, space, each) for each in answer["configs"]]
    assert [each.kind for each in found.rejected] == answer.get("rejected", [])
    assert len(found.repaired) == answer.get("repaired", 0), found.repaired
    notes = "\n".join(found.notes)
    assert [said for said in answer.get("says", []) if said not in notes] == [], notes


@pytest.mark.parametrize("answer", CORPUS, ids=[answer["name"] for answer in CORPUS])
def test_whatever_is_accepted_is_valid_however_the_text_ends(
    space: SpaceView, anchor: Configuration, answer: dict[str, Any]
) -> None:
    for end in range(0, len(answer["text"]), 7):
        found = parse_proposals(answer["text"][:end], Layout(space), anchor=anchor)
        assert all(space.contains(config) for config in found.configs)
        assert len(set(found.configs)) == len(found.configs)
        assert found.configs or found.rejected


def test_without_an_anchor_a_part_of_a_configuration_is_refused(space: SpaceView) -> None:
    found = parse_proposals('{"configs": [{"block": 32, "warps": 2}]}', Layout(space))
    assert found.configs == ()
    assert "it lacks stages, mode" in found.rejected[0].text


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        "{" * 50_000 + "}" * 50_000,
        "[1]*9" * 30_000,
        "(" * 100_000,
        "a" * 200_000,  # minutes, if each letter begins a word
        "a." * 100_000,
        "a(" * 60_000,
        "'" * 100_000,
        "`" * 100_000,
        '{"block": ' + "9" * 100_000 + "}",
        "//" * 80_000,
        "/*" * 80_000,
        "{'block': 32} " * 10_000,
        "\ud800{'block': '\ud800'}",
    ],
    ids=lambda text: text[:8].encode("unicode_escape").decode(),
)
def test_hostile_text_is_read_and_comes_to_an_end(
    space: SpaceView, anchor: Configuration, text: str
) -> None:
    found = parse_proposals(text, Layout(space), anchor=anchor, most=5)
    assert len(found.configs) <= 5
    assert len(found.notes) < 1_000
    assert all(len(note) < 2_000 for note in found.notes)


def test_random_damage_never_gets_an_invalid_configuration_through(
    space: SpaceView, anchor: Configuration
) -> None:
    rng = random.Random(1)
    text = json.dumps({"configs": [Layout(space).as_object(c) for c in space.sample(4)]})
    for _ in range(400):
        damaged = list(text)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.choice("{}[]\"',:0189xNt*(#\\ \n")
        found = parse_proposals("".join(damaged), Layout(space), anchor=anchor)
        assert all(space.contains(config) for config in found.configs)


def test_what_a_layout_writes_is_read_back_without_a_note(space: SpaceView) -> None:
    layout = Layout(space)
    configs = space.sample(40)
    found = parse_proposals(json.dumps([layout.as_object(c) for c in configs]), layout)
    assert (list(found.configs), found.notes) == (configs, ())


def test_nothing_is_evaluated(tmp_path: Path) -> None:
    target = tmp_path / "made"
    text = f'[__import__("pathlib").Path("{target}").touch(), {{"block": 32}}]'
    read_values(text)
    assert not target.exists()


@pytest.mark.parametrize(
    ("written", "values", "expected"),
    [
        (4, (1, 2, 4), Match(2)),
        (4.0, (1, 2, 4), Match(2)),
        (True, (0, 1), Match(1, "x: true was read as 1")),
        (True, ("true", "false"), Match(0, 'x: true was read as "true"')),
        (1, (False, True), Match(1, "x: 1 was read as true")),
        (1, (True, 1), Match(1)),
        (None, ("", "first"), Match(0, 'x: null was read as ""')),
        ("", (None, 1), Match(0, 'x: "" was read as null')),
        ("FIRST", ("", "first"), Match(1, 'x: "FIRST" was read as "first"')),
        ("tensor-descriptor", ("tensor_descriptor",), Match(0, "")),
        (90, (64, 128), Match(0, "x: 90 is no value, so 64 was taken")),
        (91, (64, 128), Match(1, "x: 91 is no value, so 128 was taken")),
        (0.4, (0, 1, 2), Match(0, "x: 0.4 is no value, so 0 was taken")),
        (-1, (0, 1, 2), None),
        (257, (64, 128), None),
        (31, (64, 128), None),
        (7, (5,), None),
        ("fast", ("flat",), None),
        ([], (1, 2), None),
        ({}, (1, 2), None),
        (10**400, (1, 2), None),
        (float("nan"), (1.0, 2.0), None),
    ],
)
def test_a_value_is_matched_or_refused(written: Any, values: Any, expected: Match | None) -> None:
    found = match_value("x", written, values)
    if expected is None:
        assert isinstance(found, str)
        assert found.startswith("x: ")
        return
    assert isinstance(found, Match)
    assert found.index == expected.index
    if expected.note or found.note == "":
        assert found.note == expected.note
