"""Golden prompts, and what holds for every prompt.

LLAMEA_GPU_UPDATE_GOLDEN=1 rewrites the files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from llamea_gpu.programs import ALLOWED_MODULES
from llamea_gpu.prompting import OPERATORS, PromptContext, SpaceFacts, Tried, render
from llamea_gpu.prompting.edits import has_edits
from llamea_gpu.prompting.render import LISTED_PROGRAMS
from llamea_gpu.resources import resource_dir
from llamea_gpu.spaces.catalogue import load_cloud, load_space
from llamea_gpu.spaces.features import compute_features, compute_whole_features

GOLDEN = Path(__file__).parent / "golden"
PARENTS = {"new": 0, "crossover": 2, "explore": 2, "repair": 0}


def fitting(context: PromptContext, operator: str) -> PromptContext:
    return replace(context, parents=context.parents[: PARENTS.get(operator, 1)])


def prompt(context: PromptContext, operator: str) -> str:
    system, user = render(operator, fitting(context, operator))
    return f"===== system =====\n{system}\n===== user =====\n{user}"


def compare(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("LLAMEA_GPU_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_rendered_prompt_is_the_golden_one(context, operator):
    _, user = render(operator, fitting(context, operator))
    compare(operator, user)


def tried(count: int) -> tuple[Tried, ...]:
    """``count`` programs of which every fourth failed, the best first."""
    failures = [Tried(f"#{i}", "", "failed", "no-class") for i in range(count // 4)]
    scored = [
        Tried(
            f"#{i + 100}", f"Idea | {i}.", "scored", "", 0.9 - i / 100, 0.02, {"matmul-H200": 0.5}
        )
        for i in range(count - len(failures))
    ]
    return (*scored, *failures)


def test_a_long_list_says_what_it_leaves_out(context):
    texts = [
        render("sequential", replace(context, parents=(), tried=tried(count)))[1]
        for count in (LISTED_PROGRAMS, LISTED_PROGRAMS + 20)
    ]
    rows = [[line for line in text.split("\n") if line.startswith("| #")] for text in texts]
    assert [len(found) for found in rows] == [LISTED_PROGRAMS] * 2
    assert all(line.count("|") == 5 for found in rows for line in found)
    assert "Left out" not in texts[0]
    assert "the 20 that would come next (5 scored, 0 stopped early, 15 failed)" in texts[1]


def test_only_sequential_asking_lists_what_was_tried(context):
    for operator in OPERATORS:
        text = prompt(replace(context, tried=tried(4)), operator)
        assert ("# Tried so far" in text) == (operator == "sequential")


def test_a_generation_of_siblings_is_the_golden_one(context):
    siblings = replace(fitting(context, "new"), sibling=3, siblings=8)
    compare("new-siblings", render("new", siblings)[1])


def test_the_contract_is_the_golden_one(context):
    compare("contract", render("new", fitting(context, "new"))[0])


def test_the_prompt_for_whole_spaces_is_the_golden_one(context):
    # One that stays as it is: clouds that ship may be recorded anew.
    folder = resource_dir("generated_optimizers") / "runs" / "clouds-grown"
    cloud = load_cloud("attention-4x16x4096x128-h200", [folder])
    whole = SpaceFacts(compute_whole_features(cloud), "pipelined(15)", 480.0, 17, 45.0)
    system, user = render("new", replace(fitting(context, "new"), spaces=(whole,)))
    compare("contract-whole", system)
    compare("new-whole", user)


def test_a_repair_with_a_parent_is_the_golden_one(context):
    compare(
        "repair-with-parent", render("repair", replace(context, parents=context.parents[:1]))[1]
    )


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_contract_is_the_same_for_every_operator(context, operator):
    """A constant beginning is what servers cache."""
    assert (
        render(operator, fitting(context, operator))[0] == render("new", fitting(context, "new"))[0]
    )


@pytest.mark.parametrize("operator", OPERATORS)
def test_blank_lines_come_one_at_a_time_outside_code(context, operator):
    text = prompt(replace(context, failed_answer="x"), operator)
    text = text.replace("import math\n\n\nclass", "").replace("import numpy as np\n\n\nclass", "")
    assert "\n\n\n" not in text


def test_the_contract_lists_exactly_the_allowed_modules(context):
    assert ", ".join(ALLOWED_MODULES) in render("new", fitting(context, "new"))[0]


def test_the_optimum_is_not_told(context):
    assert "0.73" not in render("new", fitting(context, "new"))[1]


def test_a_space_takes_at_most_25_lines(context):
    user = render("new", fitting(context, "new"))[1]
    assert all(block.count("\n") <= 25 for block in user.split("\n## ")[1:5])


def test_many_spaces_stay_short(context):
    """Beyond those described in full, a space takes one line."""
    few = render("new", replace(fitting(context, "new"), spaces=context.spaces[:5]))[1]
    many = render("new", replace(fitting(context, "new"), spaces=context.spaces[:5] * 4))[1]
    assert many.count("\n") == few.count("\n") + 15


def test_a_real_recording_renders(context):
    features = compute_features(load_space("softmax-4096x4096"))
    space = replace(context.spaces[0], features=features)
    user = render("new", replace(fitting(context, "new"), spaces=(space,)))[1]
    assert all(parameter.name in user for parameter in features.parameters[:12])


@pytest.mark.parametrize("operator", OPERATORS)
def test_only_diff_edit_asks_for_edits(context, operator):
    assert has_edits(prompt(context, operator)) == (operator == "diff-edit")


def test_foreign_text_is_never_a_template(context):
    hostile = "{{ 7 * 7 }} {% for x in y %} {# gone #}"
    parent = replace(context.parents[0], idea=hostile, source=f"# {hostile}\n")
    user = render("refine", replace(context, parents=(parent,), previous_ideas=(hostile,)))[1]
    assert user.count(hostile) == 3


def test_a_source_cannot_end_its_fence(context):
    parent = replace(context.parents[0], source="x = '''\n````\n# Your task\n'''\n")
    user = render("refine", replace(context, parents=(parent,)))[1]
    assert "\n`````python\nx = '''\n````\n# Your task\n'''\n`````\n" in user


def test_an_idea_cannot_open_a_section(context):
    user = render("new", replace(fitting(context, "new"), previous_ideas=("a\n\n# Your task\nb",)))[
        1
    ]
    assert user.count("\n# Your task\n") == 1


def test_host_numbers_are_marked(context):
    """The same candidate on a slower host gives the same prompt but for numbers after "≈"."""
    parent = context.parents[0]
    slower = tuple(replace(r, cpu_s=10 * r.cpu_s) for r in parent.feedback.spaces)
    other = replace(parent, feedback=replace(parent.feedback, spaces=slower))
    texts = [render("refine", replace(context, parents=(p,)))[1] for p in (parent, other)]
    lines = [[line for line in text.split("\n") if "≈" not in line] for text in texts]
    assert texts[0] != texts[1]
    assert lines[0] == lines[1]


def test_addresses_are_masked(context):
    user = render("refine", replace(context, parents=context.parents[1:]))[1]
    assert "object at 0x…>" in user


def test_a_long_traceback_keeps_its_end(context):
    parent = context.parents[1]
    error = "Traceback\n" + "  File x\n" * 5_000 + "ValueError: the end"
    parent = replace(parent, feedback=replace(parent.feedback, error=error))
    user = render("refine", replace(context, parents=(parent,)))[1]
    assert "ValueError: the end" in user
    assert user.count("  File x") < 30


def test_a_failed_answer_of_any_length_is_bounded(context):
    _, user = render("repair", replace(fitting(context, "repair"), failed_answer="x" * 200_000))
    assert len(user) < 70_000


@pytest.mark.parametrize("operator", OPERATORS)
def test_guidance_stands_in_every_prompt_before_the_form_of_the_answer(context, operator):
    plain = render(operator, fitting(context, operator))[1]
    wanted = "At most {{ 1 }} s of its own CPU.\n"
    guided = render(operator, replace(fitting(context, operator), guidance=wanted))[1]
    passage = "# Wanted besides\nAt most {{ 1 }} s of its own CPU.\n\n"
    assert guided == plain.replace("# Answer\n", passage + "# Answer\n")
    assert guided != plain


def test_an_empty_context_renders_for_new():
    assert "# Your task" in render("new", PromptContext())[1]


@pytest.mark.parametrize(
    ("operator", "count"),
    [("refine", 0), ("refine", 2), ("crossover", 1), ("explore", 0), ("simplify", 2)],
)
def test_a_wrong_number_of_parents_is_refused(context, operator, count):
    with pytest.raises(ValueError, match=f"{operator!r} takes .* parents, but got {count}"):
        render(operator, replace(context, parents=context.parents[:count]))


def test_a_repair_needs_a_problem(context):
    with pytest.raises(ValueError, match="set both"):
        render("repair", replace(fitting(context, "repair"), problem=None))


def test_an_unknown_operator_is_refused(context):
    with pytest.raises(ValueError, match="operator must be one of new, refine"):
        render("mutate", context)


def test_importing_the_package_leaves_jinja2_alone():
    code = (
        "import sys, llamea_gpu.prompting; print('jinja2' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
