"""Golden prompts, and what a prompt must hold and must not.

LLAMEA_GPU_UPDATE_GOLDEN=1 rewrites the files.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llamea_gpu.prompting.proposer import render_proposer
from llamea_gpu.runner.local import RecordedSpace
from llamea_gpu.searchers.llm.history import History
from llamea_gpu.searchers.llm.layout import Layout
from llamea_gpu.searchers.llm.proposals import parse_proposals
from llamea_gpu.searchers.llm.workload import argument_of, workload_of
from llamea_gpu.spaces.catalogue import load_space
from llamea_gpu.spaces.formats import import_recording
from llamea_gpu.spaces.recording import STATUSES, Recording
from llamea_gpu.spaces.space import SearchSpace, SpaceView

GOLDEN = Path(__file__).parent / "golden"
KERNELS = ("matmul", "attention", "convolution", "layer_norm")


@pytest.fixture(params=KERNELS, scope="module")
def recording(request: pytest.FixtureRequest) -> Recording:
    if request.param == "convolution":
        shared: Path = request.getfixturevalue("shared_spaces")
        return import_recording(shared / "kernel_tuner" / "convolution" / "A100.json.gz")[0]
    shipped = {
        "matmul": "matmul-2048",
        "attention": "attention-2x32x1024x64",
        "layer_norm": "layer_norm-4096x8192",
    }
    return load_space(shipped[request.param])


def described(recording: Recording) -> tuple[RecordedSpace, Layout, History]:
    space = RecordedSpace(recording, np.random.default_rng(7))
    layout = Layout(space)
    history = History(layout)
    history.default = space.facts.default
    return space, layout, history


def first_prompt(recording: Recording) -> str:
    space, layout, _ = described(recording)
    workload = workload_of(space.facts.info, recording.info.parallel_workers)
    system, user = render_proposer(workload, layout.describe(space.facts.default), 15)
    return f"===== system =====\n{system}\n===== user =====\n{user}"


def refinement(recording: Recording) -> str:
    space, layout, history = described(recording)
    measured = [*([space.facts.default] if space.facts.default else []), *space.sample(24)]
    rows = [recording.space.row(config) for config in measured]
    history.add(
        measured,
        recording.time_ms[rows].tolist(),
        [STATUSES[recording.status[row]] for row in rows],
    )
    progress = history.progress(
        number=2,
        rounds=4,
        gain=0.031,
        last=measured[-6:],
        notes=("configuration 3 was refused: num_warps: 64 is none of [4, 8]",),
    )
    workload = workload_of(space.facts.info, recording.info.parallel_workers)
    user = render_proposer(workload, layout.describe(space.facts.default), 15, progress)[1]
    return user[user.index("# Results") :]


def compare(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("LLAMEA_GPU_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_the_first_prompt_is_the_golden_one(
    recording: Recording, request: pytest.FixtureRequest
) -> None:
    compare(f"first-{request.node.callspec.params['recording']}", first_prompt(recording))


def test_the_refinement_is_the_golden_one(
    recording: Recording, request: pytest.FixtureRequest
) -> None:
    compare(f"refine-{request.node.callspec.params['recording']}", refinement(recording))


def test_the_whole_space_is_told(recording: Recording) -> None:
    prompt = first_prompt(recording)
    space = recording.space
    for name, values in zip(space.names, space.values, strict=True):
        marks = ("Fixed", f"- {name}: ")
        lines = [line for line in prompt.split("\n") if line.startswith(marks) and name in line]
        assert all(json.dumps(value) in lines[-1] for value in values), lines


def test_nothing_is_told_that_the_run_has_not_measured(recording: Recording) -> None:
    """Other times of the recording change nothing, and its references are nowhere."""
    info = replace(recording.info, references_ms={"default": 123.456, "library": 77.777})
    slower = replace(recording, time_ms=recording.time_ms * 3, info=info)
    assert first_prompt(slower) == first_prompt(recording)
    space, *_ = described(slower)
    assert "123.456" not in refinement(slower)
    assert not space.facts.info.references_ms


@pytest.mark.parametrize("kind", ["first", "refine"])
def test_blank_lines_come_one_at_a_time(recording: Recording, kind: str) -> None:
    text = first_prompt(recording) if kind == "first" else refinement(recording)
    assert "\n\n\n" not in re.sub(r"`{3,}\w+\n.*?\n`{3,}", "CODE", text, flags=re.S)
    assert not [line for line in text.split("\n") if line != line.rstrip()]


def test_constraints_are_told_in_words(shared_spaces: Path) -> None:
    path = shared_spaces / "kernel_tuner" / "convolution" / "A100.json.gz"
    recording = import_recording(path)[0]
    rules = Layout(RecordedSpace(recording, np.random.default_rng(0))).describe(None).rules
    assert "use_padding 1 only with use_shmem 1" in rules
    space = recording.space
    *pairs, last = rules
    assert last == "some combinations of three or more values are not valid"
    for rule in pairs:
        for clause in rule.split("; "):
            match = re.fullmatch(r"(\S+) (\S+) only with (\S+) (.+)", clause)
            assert match is not None, clause
            name, values, other, allowed = match.groups()
            mine, theirs = space.names.index(name), space.names.index(other)
            found = {
                space.values[theirs][row[theirs]]
                for row in space.configurations
                if str(space.values[mine][row[mine]]) in values.split("/")
            }
            assert found == {json.loads(text) for text in allowed.split(", ")}, clause


def test_more_constraints_are_only_told_of_where_there_are_some() -> None:
    grid = [[i, j, k] for i in range(3) for j in range(3) for k in range(3)]
    by_pair = [row for row in grid if row[0] + row[1] < 4]
    by_three = [row for row in by_pair if sum(row) != 2]
    told = []
    for rows in (grid, by_pair, by_three):
        space = SearchSpace(("a", "b", "c"), [(1, 2, 3)] * 3, rows)
        layout = Layout(SpaceView(space, np.random.default_rng(0)))
        told.append(layout.describe(None).rules)
    more = "some combinations of three or more values are not valid"
    assert told == [(), ("a 3 only with b 1, 2",), ("a 3 only with b 1, 2", more)]


def test_a_list_is_one_field_and_the_schema_says_so(space: SpaceView) -> None:
    layout = Layout(space)
    described = layout.describe(None)
    field = next(each for each in described.parameters if each.name == "indexing")
    assert (field.length, field.values) == (2, ('"pointer"', '"descriptor"'))
    assert described.fixed == (("version", "1"),)
    config = layout.schema(3)["properties"]["configs"]["items"]
    assert config["properties"]["indexing"]["type"] == "array"
    assert config["required"] == [each.name for each in described.parameters]
    assert config["properties"]["buffer"] == {
        "anyOf": [{"type": "null"}, {"type": "boolean", "enum": [False, True]}]
    }


def test_each_element_of_a_list_is_told_with_its_own_values() -> None:
    space = SearchSpace(("block[0]", "block[1]"), [(16, 32, 64), (16, 32)], [[0, 0], [2, 1]])
    layout = Layout(SpaceView(space, np.random.default_rng(0)))
    user = render_proposer(workload_of(None, 1), layout.describe((2, 1)), 5)[1]
    line = "- block: list of 2; number 1 one of [16, 32, 64]; number 2 one of [16, 32]"
    assert f"\n{line}; default [64, 32]\n" in user


def test_long_values_are_told_whole_and_kept_apart() -> None:
    """A list of strings is soon longer than a message about a wrong value should be."""
    kinds = ("pointer", "tensor_descriptor")
    names = tuple(f"indexing[{i}]" for i in range(4))
    rows = [[0, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]]
    layout = Layout(SpaceView(SearchSpace(names, [kinds] * 4, rows), np.random.default_rng(0)))
    first, second, third = (tuple(row) for row in rows)
    described = layout.describe(first)
    assert json.loads(described.parameters[0].default) == [kinds[i] for i in first]
    history = History(layout)
    history.add([first, second, third], [1.0, 2.0, 3.0], [None] * 3)
    progress = history.progress(number=2, rounds=4, gain=None, last=(), notes=())
    (effect,) = progress.effects
    assert [(json.loads(value)[3], count) for value, _, count, _ in effect.values] == [
        ("pointer", 1),
        ("tensor_descriptor", 1),
        ("tensor_descriptor", 1),
    ]
    assert progress.common == ()
    before, after = progress.leaders[0].change.removeprefix("indexing ").split(" → ")
    assert (json.loads(before)[3], json.loads(after)[3]) == ("pointer", "tensor_descriptor")


def test_elements_of_an_incomplete_list_are_fields_of_their_own() -> None:
    names = ("loops[0]", "loops[2]", "order[0].1")
    space = SearchSpace(names, [(1, 2)] * 3, [[0, 0, 0], [1, 1, 1]])
    layout = Layout(SpaceView(space, np.random.default_rng(0)))
    assert [field.name for field in layout.fields] == list(names)


def test_failures_are_described_by_what_only_they_have(space: SpaceView) -> None:
    layout = Layout(space)
    history = History(layout)
    configs = space.sample(60)
    bad = [config for config in configs if config[0] == 3 and config[3] == 1]
    assert len(bad) >= 2
    costs = [math.inf if config in bad else 1.0 + config[1] for config in configs]
    history.add(configs, costs, ["out of shared memory" if c in bad else None for c in configs])
    progress = history.progress(number=2, rounds=4, gain=None, last=(), notes=())
    assert 'block = 128 and mode = "persistent"' in progress.suspects
    assert all("out of shared memory" in text for text in progress.failures)
    assert progress.failed == len(bad)


def test_what_a_single_value_explains_is_no_pair_and_one_failure_is_no_pattern() -> None:
    names, values = ("a", "b", "c"), [(0, 1, 2)] * 3
    space = SearchSpace(names, values, list(itertools.product(range(3), repeat=3)))
    history = History(Layout(SpaceView(space, np.random.default_rng(0))))
    failed = [(2, 0, 0), (2, 0, 1), (0, 2, 2), (1, 2, 2), (1, 1, 0)]
    worked = [(0, 0, 1), (0, 1, 0), (1, 0, 2), (0, 2, 0), (0, 0, 0)]
    history.add(failed, [math.inf] * 5, [None] * 5)
    history.add(worked, [1.0] * 5, [None] * 5)
    progress = history.progress(number=2, rounds=4, gain=None, last=(), notes=())
    assert progress.suspects == ("a = 2", "b = 2 and c = 2")


def test_foreign_text_is_never_a_template_and_cannot_end_its_fence() -> None:
    info = replace(
        load_space("matmul-2048").info,
        kernel="{{ 7 * 7 }}\n# Your task",
        kernel_source="````\n{% for x in y %}\n````",
    )
    space, layout, _ = described(replace(load_space("matmul-2048"), info=info))
    user = render_proposer(workload_of(info, 1), layout.describe(space.facts.default), 5)[1]
    assert "{{ 7 * 7 }} # Your task, compiled by" in user
    assert "\n`````python\n````\n{% for x in y %}\n````\n`````\n" in user
    assert user.count("\n# Your task\n") == 1


def test_long_sources_and_many_notes_are_bounded() -> None:
    recording = load_space("matmul-2048")
    info = replace(recording.info, kernel_source="x = 1\n" * 50_000)
    space, layout, history = described(recording)
    history.add([space.facts.default], [1.0], [None])
    progress = history.progress(
        number=2, rounds=4, gain=0.0, last=(), notes=[f"note {i} " + "x" * 900 for i in range(90)]
    )
    user = render_proposer(workload_of(info, 1), layout.describe(space.facts.default), 5, progress)[
        1
    ]
    assert len(user) < 40_000
    assert "… and 76 more like these" in user


def test_an_argument_is_described_as_far_as_it_is_known() -> None:
    full = argument_of({"name": "a", "shape": [4, 8], "dtype": "torch.float16", "stride": [8, 1]})
    assert (full.shape, full.strides) == ((4, 8), (8, 1))
    for odd in ({"shape": "?"}, {"shape": [-1]}, {"shape": [2**50, 2**50]}, {"shape": [1.5]}, {}):
        assert argument_of(odd).shape is None


def test_a_live_helion_kernel_with_rolled_reductions_lists_them() -> None:
    """Helion's own LLM search leaves ``reduction_loops`` out."""
    pytest.importorskip("helion")
    from support.helion_live import bound_kernel
    from support.helion_spaces import space_of

    with bound_kernel("layer_norm", "H200") as (bound, _):
        space = space_of(bound)
        layout = Layout(space)
        user = render_proposer(workload_of(None, 16), layout.describe(space.default), 15)[1]
        line = next(line for line in user.split("\n") if line.startswith("- reduction_loops: "))
        assert line.startswith("- reduction_loops: list of 1, each one of [")
        assert "; default [" in line
        config = space.sample(5)[-1]
        found = parse_proposals(json.dumps([layout.as_object(config)]), layout)
        assert (found.configs, found.notes) == ((config,), ())
