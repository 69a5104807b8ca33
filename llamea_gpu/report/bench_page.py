"""The page of a bench: which charts and tables stand where. Not here: computing them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from llamea_gpu.bench.findings import CURVE_POINTS, Analysis, SpaceStanding, Standing
from llamea_gpu.bench.plan import SpaceInfo
from llamea_gpu.bench.results import BenchResults
from llamea_gpu.bench.samples import TARGETS_PERCENT
from llamea_gpu.errors import BenchError
from llamea_gpu.report.bench_charts import (
    convergence,
    heat_map,
    mean_ranks,
    overall_convergence,
    ranking,
    reached_by_time,
)
from llamea_gpu.report.bench_tables import comparisons_table, effort_table, space_table
from llamea_gpu.report.charts import (
    Block,
    Box,
    Facts,
    Page,
    Prose,
    Section,
    Table,
    count,
    number,
    share,
)
from llamea_gpu.scoring import Measure
from llamea_gpu.spaces.features import SpaceFeatures, WholeFeatures


def bench_page(results: BenchResults, title: str) -> Page:
    """The report of a finished bench.

    Raises:
        BenchError: it is not finished.
    """
    analysis = results.analysis
    if analysis is None:
        raise BenchError("a report needs a finished bench: give its command again to finish it")
    standings, measure = analysis.standings, results.plan.measure
    names = [standing.searcher for standing in standings]
    spaces = tuple(_space(at, space, standings) for at, space in enumerate(results.plan.spaces))
    return Page(
        title=title,
        kind="Bench",
        sentences=analysis.sentences[:3] or ("One searcher was run; there is nothing to compare.",),
        boxes=_boxes(results, analysis),
        scale=f"{measure.title}: {measure.scale}",
        sections=(
            _overview(analysis, results.plan.spaces, measure),
            Section("convergence", "Convergence", (overall_convergence(standings, measure),)),
            Section("by-space", "By space", (heat_map(standings, results.plan.spaces, measure),)),
            Section(
                "targets",
                "Targets",
                (
                    *(reached_by_time(results, names, percent) for percent in TARGETS_PERCENT),
                    effort_table(standings, measure),
                ),
            ),
            Section("spaces", "Spaces", (), spaces),
            _method(results),
        ),
    )


def _boxes(results: BenchResults, analysis: Analysis) -> tuple[Box, ...]:
    best = analysis.standings[0]
    interval = best.interval
    note = best.searcher
    if interval is not None:
        note = f"[{number(interval.low)}, {number(interval.high)}] · {note}"
    decided = sum(pair.decided for pair in analysis.comparisons)
    failed = sum(standing.failed_runs for standing in analysis.standings)
    lotteries = sum(space.is_lottery for space in results.plan.spaces)
    return (
        Box(f"highest {results.plan.measure.name}", number(best.p), note),
        Box("searchers", str(len(analysis.standings)), f"{results.plan.repeats} repeats each"),
        Box(
            "spaces",
            str(len(results.plan.spaces)),
            f"{lotteries} with a budget below ten evaluations" if lotteries else "",
        ),
        Box("pairs decided", f"{decided} of {len(analysis.comparisons)}"),
        Box("runs", f"{len(results.runs):,}", f"{failed} failed" if failed else "none failed"),
    )


def _overview(analysis: Analysis, spaces: Sequence[SpaceInfo], measure: Measure) -> Section:
    blocks: list[Block] = [ranking(analysis.standings, spaces, measure)]
    if len(analysis.sentences) > 3:
        blocks.append(Prose("In words", analysis.sentences[3:], wide=analysis.ranks is None))
    if analysis.ranks is not None:
        blocks.append(mean_ranks(analysis.ranks))
    if analysis.cautions:
        blocks.append(Prose("What these numbers cannot show", analysis.cautions, wide=True))
    if analysis.comparisons:
        blocks.append(comparisons_table(analysis.comparisons, measure))
    errors = [s for s in analysis.standings if s.first_error]
    if errors:
        rows = tuple((s.searcher, str(s.failed_runs), (s.first_error or "")[:500]) for s in errors)
        columns = ("searcher", "failed runs", "the first of them said")
        blocks.append(Table("Failed runs", columns, rows, text=frozenset({0, 2})))
    return Section("overview", "Overview", tuple(blocks))


def _space(index: int, space: SpaceInfo, standings: Sequence[Standing]) -> Section:
    here: list[tuple[str, SpaceStanding]] = [
        (standing.searcher, s)
        for standing in standings
        for s in standing.spaces
        if s.space == space.name
    ]
    here.sort(key=lambda item: -item[1].p)
    axis_s = np.linspace(space.axis_start_s, space.axis_end_s, CURVE_POINTS)
    x = [float(f"{value:.5g}") for value in axis_s]
    features = space.features
    parameters = Table(
        "Parameters: main effect is the share of the variance of log time that one explains",
        ("parameter", "values", "ordered", "main effect", "which"),
        tuple(
            (
                *(p.name, str(p.cardinality), "yes" if p.ordinal else "no"),
                *(share(p.main_effect), p.values_text),
            )
            for p in features.parameters
        ),
        text=frozenset({0, 2, 4}),
    )
    key = f"space-{index}"
    measure = space.measure
    blocks: list[Block] = [
        convergence(
            f"{key}-curve",
            f"{measure.title} on {space.name}",
            here,
            x,
            "simulated seconds",
            measure,
        ),
        space_table(standings, space),
        Facts("The space", _space_facts(space)),
        parameters,
    ]
    if isinstance(features, SpaceFeatures) and features.interactions:
        rows = tuple((f"{a} × {b}", share(part)) for a, b, part in features.interactions)
        caption = "Interactions: variance of log time explained beyond single parameters"
        blocks.append(Table(caption, ("pair", "share"), rows))
    return Section(key, space.name, tuple(blocks))


def _whole_facts(space: SpaceInfo, f: WholeFeatures) -> tuple[tuple[str, str], ...]:
    budget = f"{space.budget_s:.1f} s, about {count(round(space.budget_evaluations), 'evaluation')}"
    return (
        ("kernel", f.kernel),
        ("device", f.device),
        ("framework", f.framework),
        ("costs", "modelled, not measured: see the model's card"),
        ("space", f"whole: {count(f.dimension, 'parameter')}, some 1e{f.combinations:.0f} values"),
        ("measured for the model", f"{f.measured:,}, of which {share(f.failure_share)} fail"),
        ("best measured, median", f"{f.optimum_ms:.4g} ms, {f.median_ms:.4g} ms"),
        ("clock", space.clock),
        ("budget", budget),
    )


def _space_facts(space: SpaceInfo) -> tuple[tuple[str, str], ...]:
    f = space.features
    if isinstance(f, WholeFeatures):
        return _whole_facts(space, f)
    budget = f"{space.budget_s:.1f} s, about {count(round(space.budget_evaluations), 'evaluation')}"
    near = ", ".join(f"{share(part)} within {p} %" for p, part in f.share_within.items())
    return (
        ("kernel", f.kernel),
        ("device", f.device),
        ("framework", f.framework),
        ("configurations", f"{f.size:,} in {count(f.dimension, 'parameter')}"),
        ("that fail", share(f.failure_share)),
        ("optimum, median", f"{f.optimum_ms:.4g} ms, {f.median_ms:.4g} ms"),
        ("near the optimum", near),
        ("clock", space.clock),
        ("budget", budget + (" (a lottery)" if space.is_lottery else "")),
        ("local optima", f"{f.local_optima:,} ({share(f.local_optima_share)})"),
        ("neighbours of a configuration", number(f.hamming_degree, 1)),
        ("autocorrelation of neighbours", number(f.neighbour_autocorrelation, 2)),
        ("fitness-distance correlation", number(f.fitness_distance_correlation, 2)),
        ("compilation, median and longest", f"{f.compile_s[0]:.3g} s, {f.compile_s[2]:.3g} s"),
        ("benchmark, median and longest", f"{f.benchmark_s[0]:.3g} s, {f.benchmark_s[2]:.3g} s"),
    )


def _method(results: BenchResults) -> Section:
    plan = results.plan
    settings = plan.settings
    limit = "default" if settings.cpu_limit_s is None else f"{settings.cpu_limit_s:g} s"
    facts = (
        ("command", shlex.join(results.command) or "not recorded"),
        ("llamea-gpu", results.version),
        ("repeats", str(plan.repeats)),
        ("seed", str(settings.seed)),
        ("clock", settings.clock or "each recording's own"),
        (
            "budget",
            "each space's own" if settings.budget_s is None else f"{settings.budget_s:g} s",
        ),
        ("own CPU seconds charged", "yes" if settings.charge_cpu else "no"),
        ("CPU limit of a run", limit),
    )
    searchers = Table(
        "Searchers",
        ("searcher", "kind", "versions", "digest"),
        tuple(
            (s.name, s.kind, ", ".join(f"{k} {v}" for k, v in s.versions.items()) or "–", s.digest)
            for s in plan.searchers
        ),
        text=frozenset({0, 1, 2, 3}),
    )
    spaces = Table(
        "Spaces",
        (
            "space",
            "clock",
            "budget, s",
            "evaluations",
            f"{plan.measure.best.removeprefix('the ')}, ms",
            "fingerprint",
        ),
        tuple(
            (
                *(s.name, s.clock, f"{s.budget_s:.1f}", number(s.budget_evaluations, 1)),
                *(f"{s.optimum_ms:.5g}", s.fingerprint),
            )
            for s in plan.spaces
        ),
        text=frozenset({0, 1, 5}),
    )
    return Section("method", "Method", (Facts("What was run", facts), searchers, spaces))
