"""Tables that several commands print, in the width that there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import TextType

from llamea_gpu.cli.text import cell
from llamea_gpu.evolution.bandit import reward
from llamea_gpu.evolution.candidate import FAILED, PARTIAL, SCORED, Candidate
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings
from llamea_gpu.report import charts as report
from llamea_gpu.scoring import MODELLED, Measure

LEADERS = 8
_UNBOUNDED = 100_000
_FRAME = 3  # of a column: padding, and the line beside it
_MOST_COLUMNS = 8  # of spaces: a terminal has no room for more


def print_table(console: Console, table: Table, keys: int = 1) -> None:
    """Print a table; columns without room go into further ones, which repeat the first ``keys``.

    Room is what a column needs to be read: no word or number is broken, where rich would. What has
    too little even by itself is folded, never cut.
    """
    spans = [_span(console, column) for column in table.columns]
    places = list(range(keys, len(spans)))
    title: TextType | None = table.title
    while True:
        chosen = [*range(keys), *places]
        while len(chosen) > keys + 1 and _least_width(spans[at] for at in chosen) > console.width:
            chosen.pop()
        places = places[len(chosen) - keys :]
        widths = _widths([spans[at] for at in chosen], console.width)
        columns = [
            replace(table.columns[at].copy(), width=w, no_wrap=False, overflow="fold")
            for at, w in zip(chosen, widths, strict=True)
        ]
        part = Table(*columns, title=title, caption=None if places else table.caption)
        for row in zip(*(table.columns[at].cells for at in chosen), strict=True):
            part.add_row(*row)
        console.print(part)
        title = None
        if not places:
            return


def printed(table: report.Table) -> Table:
    """A report's table for a terminal."""
    columns = (
        Column(cell(name), overflow="fold")
        if place in table.text
        else Column(cell(name), justify="right", no_wrap=True)
        for place, name in enumerate(table.columns)
    )
    terminal_table = Table(*columns, title=cell(table.caption))
    for row in table.rows:
        terminal_table.add_row(*map(cell, row))
    return terminal_table


def _span(console: Console, column: Column) -> tuple[int, int]:
    """The least width that breaks no word, and the width that breaks no line."""
    options = console.options.update(width=_UNBOUNDED)
    cells = [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
    most = max(cell.maximum for cell in cells)
    if column.no_wrap:
        return max(cells[0].minimum, *(cell.maximum for cell in cells[1:]), 0), most
    return max(cell.minimum for cell in cells), most


def _least_width(spans: Iterable[tuple[int, int]]) -> int:
    return 1 + sum(least + _FRAME for least, _ in spans)


def _widths(spans: Sequence[tuple[int, int]], room: int) -> list[int]:
    """Every column's least, and what is left for those that want more, the narrowest first."""
    widths = [least for least, _ in spans]
    left = room - _least_width(spans)
    for at in sorted(range(len(spans)), key=lambda at: spans[at][1] - spans[at][0]):
        more = max(0, min(left, spans[at][1] - widths[at]))
        widths[at] += more
        left -= more
    return widths


def generation_table(population: Population, offspring: int, measure: Measure) -> Table:
    """Best so far by generation."""
    table = Table(title="best so far by generation")
    for column in ("generation", "candidates", "scored", "stopped early", "failed", "best so far"):
        table.add_column(column, justify="left" if column == "best so far" else "right")
    table.add_column(f"{measure.name} ± s.e.")
    so_far: list[Candidate] = []
    seeds, written = population.seeds().candidates, population.written().candidates
    groups = [("seeds", seeds)] if seeds else []
    groups += [
        (str(start // offspring), written[start : start + offspring])
        for start in range(0, len(written), offspring)
    ]
    for name, group in groups:
        so_far += group
        best = Population(tuple(so_far)).best()
        counts = Counter(candidate.status for candidate in group)
        table.add_row(
            name,
            str(len(group)),
            *(str(counts[status]) for status in (SCORED, PARTIAL, FAILED)),
            cell(best.identifier) if best else "-",
            score_text(best) if best else "-",
        )
    return table


def leaders_table(population: Population, measure: Measure, size: int = LEADERS) -> Table:
    """The best candidates with their scores by space; of many spaces, on the worst."""
    same: dict[int, list[str]] = {}  # identical programs share a row
    leaders: list[Candidate] = []
    first: dict[str, int] = {}
    for candidate in population.scored():
        digest = candidate.program.digest if candidate.program else ""
        slot = first.setdefault(digest, candidate.slot) if digest else candidate.slot
        same.setdefault(slot, []).append(candidate.identifier)
        if slot == candidate.slot and len(leaders) < size:
            leaders.append(candidate)
    spaces = list(leaders[0].space_p()) if leaders else []
    many = len(spaces) > _MOST_COLUMNS
    shown = [f"worst of {len(spaces)} spaces"] if many else [cell(space) for space in spaces]
    columns = ("candidate", "operator", "parents", f"{measure.name} ± s.e.", *shown)
    table = Table(*columns, title="best candidates", caption=_ranked(measure))
    for candidate in leaders:
        own = candidate.space_p()
        table.add_row(
            cell(" = ".join(same[candidate.slot])),
            cell(candidate.origin),
            " ".join(f"#{slot}" if slot >= 0 else "seed" for slot in candidate.parents) or "-",
            score_text(candidate),
            *([_worst(own)] if many else [_p(own.get(space)) for space in spaces]),
        )
    return table


def _ranked(measure: Measure) -> str:
    text = f"ranked by {measure.name} to two decimals, then by length of the program"
    return f"{text}; {measure.scale}" if measure is MODELLED else text


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _worst(own: Mapping[str, float]) -> str:
    space = min(own, key=own.__getitem__)
    return f"{own[space]:.3f} {cell(space)}"


def arms_table(population: Population, settings: EvolutionSettings) -> Table:
    """What each operator and each model brought: what the bandit learns from."""
    table = Table(title="operators and models", caption="better: chance to beat the better parent")
    for column in ("operator or model", "candidates", "scored", "better", "tokens each"):
        table.add_column(column, justify="left" if column == "operator or model" else "right")
    written = population.answered().candidates
    groups: dict[str, list[Candidate]] = {}
    for candidate in written:
        groups.setdefault(candidate.operator, []).append(candidate)
    if len(settings.models) > 1:
        for candidate in written:
            groups.setdefault(candidate.asked_model, []).append(candidate)
    for name, group in groups.items():
        rewards = [reward(candidate, population, settings) for candidate in group]
        table.add_row(
            cell(name),
            str(len(group)),
            str(sum(candidate.status == SCORED for candidate in group)),
            f"{sum(rewards) / len(rewards):.2f}",
            f"{sum(candidate.tokens for candidate in group) // len(group):,}",
        )
    return table


def score_text(candidate: Candidate) -> str:
    """``score ± standard error``, or how it ended."""
    if candidate.p is None:
        return "stopped early" if candidate.status == PARTIAL else cell(candidate.kind)
    return f"{candidate.p:.3f} ± {candidate.standard_error:.3f}"
