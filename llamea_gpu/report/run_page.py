"""The page of an evolution run: which charts and tables stand where. Not here: computing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from llamea_gpu.evolution.candidate import FAILED, PARTIAL, SCORED, Candidate
from llamea_gpu.evolution.training_spaces import TrainingSpace, marks_of, times_above_best_known
from llamea_gpu.report.behaviour import behaviour_map, map_behaviour, novelty_chart
from llamea_gpu.report.charts import (
    Block,
    Box,
    Code,
    Facts,
    Page,
    Prose,
    Section,
    Table,
    Tree,
    count,
    number,
    score,
    signed,
)
from llamea_gpu.report.details import run_details
from llamea_gpu.report.progress_charts import (
    cost_chart,
    cost_sentence,
    cost_table,
    progress,
    progress_by_cost,
)
from llamea_gpu.report.run import Run, status_text
from llamea_gpu.report.tree_charts import tree_by_generation, tree_by_score
from llamea_gpu.report.yields import (
    failure_chart,
    gains,
    model_yields,
    operator_yields,
    steps,
    yield_table,
)
from llamea_gpu.scoring import MODELLED
from llamea_gpu.tasks import Trace

LEADERS = 8
BEHAVIOUR = (
    "The distance of two candidates is the one that selection uses, averaged over the spaces that "
    "both were run on. Half of it is how they search: steps, distance from the best so far, "
    "batches and spread of values, each early, midway and late. Half is where: how often they "
    "visit each value of each parameter. 0: the same behaviour; 1: nothing in common."
)


def run_page(run: Run, title: str, running: str = "") -> Page:
    """The report of ``run``; ``running`` marks one that is under way, and says when this was."""
    candidates = _candidate_table([*run.written, *run.population.seeds().candidates], run)
    return Page(
        title=title,
        kind="Evolution run",
        sentences=headline(run),
        boxes=_boxes(run),
        sections=(
            _overview(run),
            Section("tree", "Family tree", (Tree(tree_by_score(run), tree_by_generation(run)),)),
            Section("candidates", "Candidates", (candidates,)),
            _yield(run),
            _behaviour(run),
            Section("cost", "Cost", (cost_chart(run), cost_table(run))),
            _settings(run),
        ),
        details=run_details(run),
        running=running,
        scale=f"{run.measure.title}: {run.measure.scale}",
    )


def headline(run: Run) -> tuple[str, ...]:
    """What came of the run, in sentences."""
    best = run.population.best()
    if best is None:
        return (f"{count(len(run.written), 'candidate')} so far, none scored yet.",)
    text = f"Best: {best.identifier}, {run.measure.name} {score(best.p, best.standard_error)}"
    if best.is_written:
        text += f", by {best.operator}"
        seed = run.population.seeds().best()
        if seed is not None and seed.p is not None and best.p is not None:
            text += (
                f"; {signed(best.p - seed.p)} over the best seed program, {seed.identifier} "
                f"({number(seed.p)})"
            )
    idea = best.program.idea if best.program else ""
    sentences: tuple[str, ...] = (f"{text}.",)
    if idea:
        sentences += (f"Its idea: {idea}",)
    if run.ended not in ("", "complete"):
        sentences += (f"The run stopped early: {run.ended}.",)
    return sentences


def _boxes(run: Run) -> tuple[Box, ...]:
    written = run.written
    by_status = [(s, sum(c.status == s for c in written)) for s in (SCORED, PARTIAL, FAILED)]
    words = {SCORED: "scored", PARTIAL: "stopped early", FAILED: "failed"}
    note = ", ".join(f"{n} {words[status]}" for status, n in by_status if n)
    best = run.population.best()
    seed = run.population.seeds().best()
    tokens = sum(item.tokens for item in run.spending)
    usd = sum(item.usd or 0.0 for item in run.spending)
    boxes = [
        Box(
            f"best {run.measure.name}",
            number(best.p) if best else "–",
            f"± {number(best.standard_error)} · {best.identifier}" if best else "",
        ),
        Box(
            "best seed program",
            number(seed.p) if seed else "–",
            f"± {number(seed.standard_error)} · {seed.identifier}" if seed else "",
        ),
        Box("candidates", f"{len(written)} of {run.settings.candidates}", note),
        Box("answers", f"{sum(item.answered for item in run.spending):,}", _models(run)),
        Box("tokens", f"{tokens:,}", f"{usd:.2f} USD" if run.priced else "no price known"),
    ]
    return tuple(boxes)


def _models(run: Run) -> str:
    names = list(dict.fromkeys(item.model for item in run.spending if item.answered))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _overview(run: Run) -> Section:
    path = steps(run)
    blocks: list[Block] = [progress(run, path), progress_by_cost(run, path), _leaders(run)]
    if run.measure is MODELLED:
        leaders = [(c, run.traces[c.slot]) for c in run.population.elite(LEADERS)]
        blocks.append(times_table(run.spaces, leaders))
    best = run.population.best()
    if best is not None and best.program is not None:
        blocks.append(Code(f"Program of {best.identifier}", best.program.source))
    return Section("overview", "Overview", tuple(blocks))


def _leaders(run: Run) -> Table:
    leaders = run.population.elite(LEADERS)
    table = _candidate_table(leaders, run)
    ranked = f"ranked by {run.measure.name} to two decimals, then by length of the program"
    return replace(table, caption=f"Best candidates, {ranked}")


def times_table(
    spaces: Sequence[TrainingSpace],
    candidates: Sequence[tuple[Candidate, Mapping[str, Sequence[Trace]]]],
) -> Table:
    """How near the best known runs on modelled ``spaces`` were, by moment."""
    marks_s = marks_of(min(space.budget_s for space in spaces))
    return Table(
        caption="Modelled time relative to the best known, by simulated seconds (1.02: two per "
        "cent slower; geometric mean over runs)",
        columns=("candidate", "space", *(f"{mark:g} s" for mark in marks_s)),
        rows=tuple(
            (candidate.identifier, space.name, *map(number, times))
            for candidate, space, times in times_above_best_known(spaces, candidates, marks_s)
        ),
        text=frozenset({0, 1}),
    )


def _candidate_table(candidates: list[Candidate], run: Run) -> Table:
    spaces = list(dict.fromkeys(s for c in run.population.candidates for s in c.space_p()))
    rows = []
    for candidate in candidates:
        own = candidate.space_p()
        program = candidate.program
        status = status_text(candidate, run.measure)
        rows.append(
            (
                candidate.identifier,
                candidate.origin,
                ", ".join(p.identifier for p in run.parents(candidate)) or "–",
                score(candidate.p, candidate.standard_error) if candidate.p is not None else status,
                *(number(own.get(space)) for space in spaces),
                str(len(program.source.splitlines())) if program else "–",
                program.idea if program else candidate.reason[:300],
            )
        )
    columns = (
        "candidate",
        "operator",
        "parents",
        f"{run.measure.name} ± s.e.",
        *spaces,
        "lines",
        "idea or failure",
    )
    return Table(
        caption="Every candidate; choose one for its program, diff, prompts and scores",
        columns=columns,
        rows=tuple(rows),
        text=frozenset({0, 1, 2, len(columns) - 1}),
        slots=tuple(c.slot for c in candidates),
    )


def _yield(run: Run) -> Section:
    operators = operator_yields(run)
    blocks: tuple[Block, ...] = (gains(run, operators), failure_chart(run))
    blocks += (
        yield_table("operator", operators, run.measure),
        yield_table("model", model_yields(run), run.measure),
    )
    return Section("yield", "Operators and failures", blocks)


def _behaviour(run: Run) -> Section:
    behaviours = map_behaviour(run.population, run.settings.parents)
    if behaviours is None:
        few = "Fewer than three candidates have been run, so there is nothing to compare yet."
        return Section("behaviour", "Behaviour", (Prose("Behaviour", (few,)),))
    blocks = (
        behaviour_map(behaviours, run.measure),
        novelty_chart(behaviours),
        Prose("What is measured", (BEHAVIOUR,), wide=True),
    )
    return Section("behaviour", "Behaviour", blocks)


def _settings(run: Run) -> Section:
    level = "not recorded" if run.sandbox_level is None else f"level {run.sandbox_level}"
    facts = (
        ("created", run.created),
        ("llamea-gpu", run.version),
        ("sandbox of the last session", level),
        ("last session", run.ended or "under way, or it was killed"),
        ("cost", cost_sentence(run)),
    )
    settings = tuple((name, _shown(v)) for name, v in run.settings.model_dump().items())
    return Section(
        "settings", "Settings", (Facts("The run", facts), Facts("Its settings", settings))
    )


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "–"
    return "–" if value in (None, "") else str(value)
