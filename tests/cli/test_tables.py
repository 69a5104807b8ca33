"""Tables of a run, in the width of a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Column, Table
from support.candidates import candidate

from llamea_gpu.cli.tables import leaders_table, print_table
from llamea_gpu.evolution.population import Population
from llamea_gpu.scoring import MEASURED


def printed(*ps: float) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(leaders_table(Population((candidate(0, *ps),)), MEASURED))
    return captured.get()


def test_few_spaces_have_a_column_each() -> None:
    table = printed(*(0.1 * place for place in range(1, 6)))
    assert all(f"s{place}" in table and f"0.{place + 1}00" in table for place in range(5))


def test_of_many_spaces_the_worst_is_shown() -> None:
    """Forty columns would leave none of them room for a digit."""
    table = printed(*(0.9 - 0.01 * place for place in range(40)), 0.8)
    assert "worst of 41 spaces" in table
    assert "0.510 s39" in table
    assert "0.900" not in table


@pytest.mark.parametrize("width", [80, 100, 120, 1000])
def test_a_table_is_whole_at_any_width(width: int) -> None:
    """Columns without room go below; no name or number is broken, nothing is cut."""
    names = [f"searcher_number_{place}_with_a_long_name" for place in range(4)]
    table = Table(Column("space", no_wrap=True), title="all of it", caption="the end")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in range(3):
        table.add_row(f"matmul-{row}-4096x4096", *(f"{row}.{place}23456" for place in range(4)))
    console = Console(width=width)
    with console.capture() as captured:
        print_table(console, table)
    text = captured.get()
    assert max(map(len, text.splitlines())) <= width
    assert all(name in text for name in names)
    assert all(f"{row}.{place}23456" in text for row in range(3) for place in range(4))
    assert "…" not in text
    assert text.count("all of it") == text.count("the end") == 1
    assert text.count("matmul-0-4096x4096") == {80: 4, 100: 2, 120: 2, 1000: 1}[width]


def test_what_has_no_room_even_alone_is_folded() -> None:
    table = Table(Column("name", no_wrap=True), Column("file", no_wrap=True))
    table.add_row("n" * 40, "f" * 50)
    console = Console(width=80)
    with console.capture() as captured:
        print_table(console, table)
    text = captured.get()
    assert (text.count("n"), text.count("f")) == (40 + len("name") - 3, 50 + len("file") - 3)
    assert max(map(len, text.splitlines())) <= 80


def test_prose_takes_what_room_there_is() -> None:
    table = Table("name", "idea")
    table.add_row("a", "many words " * 20)
    console = Console(width=60)
    with console.capture() as captured:
        print_table(console, table)
    assert captured.get().count("many words") + captured.get().count("many\n") > 15
    assert max(map(len, captured.get().splitlines())) == 60


def test_identical_programs_share_a_row() -> None:
    one, two, other = (candidate(slot, 0.5) for slot in range(3))
    two = replace(two, program=one.program)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(leaders_table(Population((one, two, other)), MEASURED))
    assert "#0 = #1" in captured.get()
    assert "#2" in captured.get()
