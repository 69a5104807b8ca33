"""Tables of a run, in the width of a terminal."""

from __future__ import annotations

from rich.console import Console
from support.candidates import candidate

from llamea_gpu.cli.tables import leaders_table
from llamea_gpu.evolution.population import Population


def printed(*ps: float) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(leaders_table(Population((candidate(0, *ps),))))
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
