"""Tables of an evolution run that several commands print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rich.table import Table

from llamea_gpu.cli.text import cell
from llamea_gpu.evolution.bandit import reward
from llamea_gpu.evolution.candidate import FAILED, PARTIAL, SCORED, Candidate
from llamea_gpu.evolution.population import Population
from llamea_gpu.evolution.settings import EvolutionSettings

RANKED = "ranked by P to two decimals, then by length of the program"
_MOST_COLUMNS = 8  # of spaces: a terminal has no room for more


def generation_table(population: Population, offspring: int) -> Table:
    """Best so far by generation."""
    table = Table(title="best so far by generation")
    for column in ("generation", "candidates", "scored", "stopped early", "failed", "best so far"):
        table.add_column(column, justify="left" if column == "best so far" else "right")
    table.add_column("P ± s.e.")
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


def leaders_table(population: Population, size: int = 8) -> Table:
    """The best candidates with their P by space; of many spaces, on the worst."""
    leaders = population.elite(size)
    spaces = list(leaders[0].space_p()) if leaders else []
    many = len(spaces) > _MOST_COLUMNS
    shown = [f"worst of {len(spaces)} spaces"] if many else [cell(space) for space in spaces]
    columns = ("candidate", "operator", "parents", "P ± s.e.", *shown)
    table = Table(*columns, title="best candidates", caption=RANKED)
    for candidate in leaders:
        own = candidate.space_p()
        table.add_row(
            cell(candidate.identifier),
            cell(candidate.origin),
            " ".join(f"#{slot}" if slot >= 0 else "seed" for slot in candidate.parents) or "-",
            score_text(candidate),
            *([_worst(own)] if many else [_p(own.get(space)) for space in spaces]),
        )
    return table


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
    """``P ± standard error``, or how it ended."""
    if candidate.p is None:
        return "stopped early" if candidate.status == PARTIAL else cell(candidate.kind)
    return f"{candidate.p:.3f} ± {candidate.standard_error:.3f}"
