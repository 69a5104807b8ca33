"""How numbers and foreign text are written into prompts."""

from __future__ import annotations

import math

import pytest

from llamea_gpu.prompting import filters


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.61249, "0.612"), (-0.0001, "0.000"), (1.0, "1.000"), (math.nan, "-"), (-0.84, "-0.840")],
)
def test_a_score_has_three_decimals(value, text):
    assert filters.score(value) == text


def test_a_signed_score_shows_its_sign():
    assert [filters.score(v, sign=True) for v in (0.12, -0.12, -1e-9)] == [
        "+0.120",
        "-0.120",
        "+0.000",
    ]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.00000001, "< 0.01 %"),
        (0.0004, "0.04 %"),
        (0.0412, "4.1 %"),
        (0.09949, "9.9 %"),
        (0.311, "31 %"),
        (1.0, "100 %"),
        (math.inf, "-"),
    ],
)
def test_a_share_has_about_two_digits(share, text):
    assert filters.percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(8.2, "8.2"), (8, "8"), (7.96, "8"), (96.25, "96.2"), (123.4, "123"), (18432, "18,432")],
)
def test_a_count_is_readable(value, text):
    assert filters.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0001, "0"), (0.0123, "0.012"), (0.25, "0.25"), (3.42, "3.4"), (42.0, "42"), (123.0, "123")],
)
def test_seconds_have_no_exponent(value, text):
    assert filters.seconds(value) == text


@pytest.mark.parametrize(("values", "text"), [([8.2, 2760], "8.2 to 2,760"), ([5, 5.01], "5")])
def test_a_span_of_one_value_is_that_value(values, text):
    assert filters.span(values) == text


def test_a_spread_has_two_decimals():
    assert filters.spread(iter([0.618, -0.001, 0.55])) == "0.00 to 0.62"
    assert filters.spread([0.5512, 0.5498]) == "0.55"


def test_one_line_bounds_and_cleans():
    assert filters.one_line("a\n\n# b\x1b[31m\x00c", 100) == "a # b [31m c"
    assert filters.one_line("x" * 50, 10) == "x" * 9 + "…"


def test_a_fence_is_longer_than_any_inside():
    text = filters.fenced("a ``` b ````` c", "text")
    assert text == "``````text\na ``` b ````` c\n``````"


@pytest.mark.parametrize("text", ["\ud800", "\x00", "\x9b31m", "a\rb"])
def test_control_characters_and_surrogates_are_dropped(text):
    for shown in (filters.clipped(text), filters.traceback(text), filters.one_line(text, 9)):
        shown.encode()
        assert not set(text) - {"a", "b", "3", "1", "m"} & set(shown)


def test_a_clipped_text_says_how_much_is_missing():
    assert filters.clipped("x" * 70_000).endswith("(10,000 characters more)")
