"""SEARCH/REPLACE: what matches, what is refused, and what the refusal says."""

from __future__ import annotations

import pytest

from llamea_gpu.errors import AnswerError
from llamea_gpu.prompting.edits import MAX_EDITS, Edit, apply_edits, parse_edits

SOURCE = """class Walk:
    def __init__(self, step=1):
        self.step = step

    def __call__(self, evaluate, space, rng):
        while True:
            evaluate(space.sample(self.step))
"""


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def edited(*pairs: tuple[str, str]) -> str:
    return apply_edits(SOURCE, parse_edits("\n".join(block(*pair) for pair in pairs)))


def refusal(text: str) -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        apply_edits(SOURCE, parse_edits(text))
    return caught.value


def test_an_exact_block_is_replaced():
    assert edited(("        self.step = step", "        self.step = 2 * step")) == SOURCE.replace(
        "= step\n", "= 2 * step\n"
    )


def test_an_empty_replacement_deletes():
    text = "<<<<<<< SEARCH\n        self.step = step\n=======\n>>>>>>> REPLACE"
    assert apply_edits(SOURCE, parse_edits(text)) == SOURCE.replace(
        "        self.step = step\n", ""
    )


def test_blocks_apply_in_order_to_the_result_so_far():
    changed = edited(
        ("        self.step = step", "        self.step = 2"),
        ("        self.step = 2", "        self.step = 3"),
    )
    assert "self.step = 3" in changed


def test_markers_may_vary_in_length_and_trailing_blanks():
    text = "<<<<< search  \n        self.step = step\n=====\n        self.step = 2\n>>>>>REPLACE "
    assert "self.step = 2" in apply_edits(SOURCE, parse_edits(text))


def test_trailing_blanks_are_forgiven():
    assert "self.step = 2" in edited(("        self.step = step   ", "        self.step = 2"))


def test_a_block_written_without_its_indentation_is_shifted():
    changed = edited(("while True:\n    evaluate(space.sample(self.step))", "while 1:\n    pass"))
    assert changed.endswith("        while 1:\n            pass\n")


def test_a_block_written_too_deep_is_shifted_back():
    changed = edited(("            self.step = step", "            self.step = 2"))
    assert changed == SOURCE.replace("= step\n", "= 2\n")


def test_lines_of_another_relative_indentation_do_not_match():
    error = refusal(block("while True:\nevaluate(space.sample(self.step))", "pass"))
    assert error.kind == "missed-search"


def test_part_of_a_line_does_not_match():
    assert refusal(block("self.step", "self.x")).kind == "missed-search"


def test_a_miss_names_the_block_and_the_nearest_line():
    text = block("        self.step = step", "        self.step = 2")
    error = refusal(text + block("        self.stepp = stepp", "x"))
    assert error.kind == "missed-search"
    assert "block 2" in str(error)
    assert "the nearest line is 3, `self.step = 2`" in str(error)


def test_a_miss_of_existing_lines_says_that_they_are_apart():
    error = refusal(block("        self.step = step\n        while True:", "x"))
    assert "line 3" in str(error)
    assert "one after the other" in str(error)


@pytest.mark.parametrize("blank", ["", "  "])
def test_an_ambiguous_block_is_refused_with_both_places(blank):
    source = "a = 1\nb = 2\na = 1\n"
    with pytest.raises(AnswerError, match="lines 1 and 3") as caught:
        apply_edits(source, [Edit((f"a = 1{blank}",), ("a = 3",))])
    assert caught.value.kind == "ambiguous-search"


def test_an_exact_match_wins_over_a_tolerant_one():
    source = "if x:\n    a = 1\na = 1\n"
    assert apply_edits(source, [Edit(("a = 1",), ("a = 3",))]) == "if x:\n    a = 1\na = 3\n"


def test_the_most_blocks_are_read():
    blocks = "\n".join([block("x", "y")] * MAX_EDITS)
    assert len(parse_edits(blocks)) == MAX_EDITS


MALFORMED = {
    "no divider": ("<<<<<<< SEARCH\nx\n>>>>>>> REPLACE", "malformed-edit"),
    "nested": (
        "<<<<<<< SEARCH\nx\n<<<<<<< SEARCH\ny\n=======\nz\n>>>>>>> REPLACE",
        "malformed-edit",
    ),
    "empty search": (block("  ", "x"), "malformed-edit"),
    "no end": ("<<<<<<< SEARCH\nx\n=======\ny", "truncated"),
    "no divider, no end": ("<<<<<<< SEARCH\nx", "truncated"),
    "too many": ("\n".join([block("x", "y")] * (MAX_EDITS + 1)), "too-long"),
    "no block": ("nothing to change", "no-edits"),
    "no change": (block("        self.step = step", "        self.step = step"), "unchanged"),
}


@pytest.mark.parametrize(("text", "kind"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_edits_are_refused(text, kind):
    assert refusal(text).kind == kind
