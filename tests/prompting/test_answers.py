"""Finding the program in the answers that models really give."""

from __future__ import annotations

import contextlib
import time

import pytest

from llamea_gpu.errors import AnswerError
from llamea_gpu.prompting import Feedback, ParentView, parse_answer
from llamea_gpu.prompting.answers import MAX_ANSWER_CHARS

PROGRAM = '''import numpy as np


class Walk:
    """Walks."""

    def __init__(self, step=1):
        self.step = step

    def __call__(self, evaluate, space, rng):
        while True:
            evaluate(space.sample(self.step))
'''
EXCERPT = "class Walk:\n    def __call__(self, evaluate, space, rng): ...\n"
OTHER = PROGRAM.replace("Walk", "Run").replace("step", "stride")


def fence(code: str, language: str = "python", sign: str = "```") -> str:
    return f"{sign}{language}\n{code}{sign}"


def kind_of(text: str, operator: str = "new", parents=()) -> str:
    with pytest.raises(AnswerError) as caught:
        parse_answer(text, operator, parents)
    return caught.value.kind


def parent(source: str = PROGRAM) -> ParentView:
    return ParentView("c1", "walks", source, Feedback(None, None, "smoke", "error"))


ACCEPTED = {
    "idea line, then a fence": f"Idea: walk.\n\n{fence(PROGRAM)}",
    "text after": f"{fence(PROGRAM)}\nThis class walks; `evaluate` ends it.",
    "py tag": fence(PROGRAM, "py"),
    "upper-case tag with title": fence(PROGRAM, "Python title=walk.py"),
    "no tag": fence(PROGRAM, ""),
    "tildes": fence(PROGRAM, "python", "~~~"),
    "long fence": fence(PROGRAM, "python", "`````"),
    "fence indented in a list": "1. Code:\n\n"
    + "\n".join("   " + s for s in fence(PROGRAM).split("\n")),
    "bare code": PROGRAM,
    "bare code between prose": f"Here is the optimizer:\n\n{PROGRAM}\nIt walks until the end.",
    "bare code with a stray closing fence": f"{PROGRAM}```\nDone.",
    "CRLF": fence(PROGRAM).replace("\n", "\r\n"),
    "old Mac line ends": fence(PROGRAM).replace("\n", "\r"),
    "byte-order mark": "\ufeff" + PROGRAM,
    "thinking, with a draft": f"<think>maybe {fence(OTHER)}</think>{fence(PROGRAM)}",
    "thinking without its opening tag": f"hm\n{fence(OTHER)}\n</think>\n{fence(PROGRAM)}",
    "a shell block before": f"{fence('pip install scipy' + chr(10), 'bash')}\n{fence(PROGRAM)}",
    "a usage example after": f"{fence(PROGRAM)}\n{fence('Walk()(evaluate, space, rng)' + chr(10))}",
    "an unfinished usage example after": f"{fence(PROGRAM)}\n```python\nWalk()(evaluate,",
    "a draft before": f"{fence(OTHER)}\nBetter:\n{fence(PROGRAM)}",
    "an excerpt after": f"{fence(PROGRAM)}\nThe heart:\n{fence(EXCERPT)}",
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_the_program_is_found(text):
    assert parse_answer(text, "new") == PROGRAM


def test_a_fence_inside_a_docstring_does_not_end_the_block():
    program = PROGRAM.replace('"""Walks."""', '"""Walks.\n\n    ```\n    example\n    ```\n    """')
    assert parse_answer(fence(program), "new") == program


def test_a_fence_of_the_other_sign_is_content():
    program = PROGRAM.replace("Walks.", "Walks.\n~~~\nexample\n~~~\n")
    assert parse_answer(fence(program), "new") == program


REFUSED = {
    "empty": "",
    "only blanks": " \n\t\r\n",
    "only a closed thought": "<think>a lot</think>  ",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_an_answer_without_text_is_empty(text):
    assert kind_of(text) == "empty"


TRUNCATED = {
    "open fence": f"Idea: walk.\n```python\n{PROGRAM[:150]}",
    "open fence after a closed draft": f"{fence(OTHER)}\nBetter:\n```python\n{PROGRAM[:120]}",
    "open fence that ends at a statement": f"```python\n{PROGRAM}",
    "open thought": "<think>first I consider",
}


@pytest.mark.parametrize("text", TRUNCATED.values(), ids=TRUNCATED.keys())
def test_a_truncated_answer_is_named_as_such(text):
    assert kind_of(text) == "truncated"


NO_CLASS = {
    "prose": "I would suggest a genetic algorithm, a class of algorithms that works well.",
    "a function": fence("def search(evaluate):\n    return evaluate([])\n"),
    "another language": fence("#include <vector>\nint main() { return 0; }\n", "cpp"),
}


@pytest.mark.parametrize("text", NO_CLASS.values(), ids=NO_CLASS.keys())
def test_an_answer_without_a_class_is_named_as_such(text):
    assert kind_of(text) == "no-class"


def test_a_brace_in_prose_is_not_json():
    assert parse_answer("{walking} it is\n" + fence(PROGRAM), "new") == PROGRAM


def test_an_answer_over_the_limit_is_refused():
    assert kind_of("x" * (MAX_ANSWER_CHARS + 1)) == "too-long"


HOSTILE = {
    "blanks": " " * 199_000 + "`",
    "fence and blanks": "```" + " " * 190_000 + "`",
    "tildes": "~" * 199_000 + "`",
    "backticks": "`" * 199_000,
    "fences": "```\n" * 49_000,
    "word": "class " + "a" * 190_000,
    "dots": "from " + "." * 190_000,
    "assignment": "import x\n" + "a" * 190_000,
    "colons": "import x\nclass A:\n pass\n" + "a" + ":" * 190_000,
    "brackets": '{"code": ' + "[" * 150_000,
    "think": "<think>" * 28_000,
    "search": "<<<<<<< SEARCH\n" * 13_000,
    "line feeds": "\n" * 199_000 + "x",
}


@pytest.mark.parametrize("operator", ["new", "diff-edit"])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_work_is_linear_in_the_answer(text, operator):
    """Quadratic work on 200,000 characters would take minutes; CPU time, not wall time."""
    begin = time.process_time()
    with contextlib.suppress(AnswerError):
        parse_answer(text, operator, [parent()])
    assert time.process_time() - begin < 5


def test_a_parent_repeated_is_refused():
    assert kind_of(fence(PROGRAM + "\n\n"), "refine", [parent()]) == "unchanged"


def test_edits_are_applied_to_the_first_parent():
    text = (
        "Idea: larger steps.\n```\n<<<<<<< SEARCH\n    def __init__(self, step=1):\n=======\n"
        "    def __init__(self, step=4):\n>>>>>>> REPLACE\n```"
    )
    changed = parse_answer(text, "diff-edit", [parent(), parent(OTHER)])
    assert changed == PROGRAM.replace("step=1", "step=4")


def test_a_complete_class_answers_a_diff_edit_too():
    assert parse_answer(fence(OTHER), "diff-edit", [parent()]) == OTHER


def test_edits_that_change_nothing_are_refused():
    same = "        self.step = step"
    edit = f"<<<<<<< SEARCH\n{same}\n=======\n{same}\n>>>>>>> REPLACE"
    assert kind_of(edit, "diff-edit", [parent()]) == "unchanged"


def test_a_diff_edit_without_a_parent_is_the_caller_s_fault():
    with pytest.raises(ValueError, match="pass the parent"):
        parse_answer(fence(PROGRAM), "diff-edit")
