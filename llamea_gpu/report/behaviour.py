"""The map of a run's behaviours, and how they spread while it went on.

Distances are those that selection uses (`llamea_gpu.evolution.behaviour`). It does not look at
code or costs. Names that models or files chose go through ``label``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.evolution.behaviour import distances, novelty
from llamea_gpu.evolution.candidate import Candidate
from llamea_gpu.evolution.population import Population
from llamea_gpu.prompting import OPERATORS
from llamea_gpu.report.charts import (
    LEGEND,
    Chart,
    Table,
    axis,
    figure,
    lines,
    marks,
    number,
    operator_style,
)
from llamea_gpu.report.run import candidate_marks
from llamea_gpu.scoring import Measure

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class BehaviourMap:
    """Distances of the ``candidates`` that have a behaviour, and a map of them.

    ``distance`` is (n, n); ``place`` (n, 2) is classical scaling of it, ``explained`` the share of
    the positive squared spread that the two axes hold. ``novelty`` (n,) is the distance to the
    nearest earlier candidate, ``elite_spread`` (n,) the mean distance within the elite when the
    candidate was settled (nan while it has fewer than two members).
    """

    candidates: tuple[Candidate, ...]
    distance: FloatArray
    place: FloatArray
    explained: float
    novelty: FloatArray
    elite_spread: FloatArray


def map_behaviour(population: Population, elite: int) -> BehaviourMap | None:
    """The map, with an elite of that size; None with fewer than three candidates that were run."""
    candidates = tuple(c for c in population.candidates if c.behaviour)
    if len(candidates) < 3:
        return None
    distance = distances([c.behaviour for c in candidates])
    place, explained = classical_scaling(distance)
    by_slot = novelty({c.slot: c.behaviour for c in candidates})
    return BehaviourMap(
        candidates=candidates,
        distance=distance,
        place=place,
        explained=explained,
        novelty=np.array([by_slot[c.slot] for c in candidates]),
        elite_spread=_elite_spread(candidates, distance, elite),
    )


def classical_scaling(distance: FloatArray) -> tuple[FloatArray, float]:
    """Torgerson's classical scaling into the plane: (n, 2) and the share of spread it holds.

    Each axis points to where its largest coordinate is, so that the map does not flip.
    """
    n = len(distance)
    centre = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centre @ distance**2 @ centre)
    order = np.argsort(values)[::-1][:2]
    eigenvalues = np.clip(values[order], 0, None)
    place = vectors[:, order] * np.sqrt(eigenvalues)
    peaks = place[np.argmax(np.abs(place), axis=0), np.arange(place.shape[1])]
    place = place * np.where(peaks < 0, -1.0, 1.0)
    spread = float(values[values > 0].sum())
    return place, float(eigenvalues.sum() / spread) if spread > 0 else 1.0


def _elite_spread(candidates: Sequence[Candidate], distance: FloatArray, size: int) -> FloatArray:
    index = {candidate.slot: i for i, candidate in enumerate(candidates)}
    population = Population()
    spread = []
    for candidate in candidates:
        population = population.with_candidate(candidate)
        elite = [index[c.slot] for c in population.elite(size)]
        pairs = distance[np.ix_(elite, elite)][np.triu_indices(len(elite), 1)]
        spread.append(float(pairs.mean()) if pairs.size else np.nan)
    return np.array(spread)


def behaviour_map(behaviours: BehaviourMap, measure: Measure) -> Chart:
    """Candidates in the plane, near each other when they search alike."""
    traces = []
    brought = ("seed program", "inspiration")
    names = (*brought, *OPERATORS)
    own = [c.origin for c in behaviours.candidates]
    present = [n for n in names if n in own] + sorted(set(own) - set(names))
    for name in present:
        tone, symbol = ("@muted", "x") if name in brought else operator_style(name)[:2]
        here = [i for i, operator in enumerate(own) if operator == name]
        candidates = [behaviours.candidates[i] for i in here]
        marker = {
            "color": tone,
            "symbol": symbol,
            "size": [6 + 8 * max(0.0, candidate.p or 0.0) for candidate in candidates],
            "opacity": 0.85,
            "line": {"width": 1, "color": "@paper"},
        }
        x, y = behaviours.place[here].T.tolist()
        traces.append(candidate_marks(name, candidates, measure, x, y, marker=marker))
    return Chart(
        key="behaviour-map",
        title="Map of behaviour",
        summary=f"Candidates that search alike lie close together; larger marks have a higher "
        f"{measure.name}. The two axes hold {100 * behaviours.explained:.0f} % of the spread, so "
        f"distances are approximate.",
        figure=figure(
            traces,
            x=axis("first axis of classical scaling", showticklabels=False),
            y=axis("second axis", showticklabels=False, scaleanchor="x"),
            height=440,
            legend=LEGEND,
            hovermode="closest",
        ),
        table=_behaviour_table(behaviours, measure),
    )


def novelty_chart(behaviours: BehaviourMap) -> Chart:
    """Distance to the nearest earlier candidate, and spread of the elite, over the run."""
    written = [i for i, c in enumerate(behaviours.candidates) if c.is_written]
    slots = [behaviours.candidates[i].slot for i in written]
    hover_options = {"customdata": slots, "hovertemplate": "#%{x}: %{y:.3f}<extra></extra>"}
    traces = [
        marks(
            "to the nearest earlier candidate",
            slots,
            behaviours.novelty[written].tolist(),
            marker={"color": "@s1", "size": 7},
            **hover_options,
        ),
        lines(
            "mean within the elite",
            slots,
            behaviours.elite_spread[written].tolist(),
            line={"color": "@s2", "width": 2, "shape": "hv"},
            **hover_options,
        ),
    ]
    spread = [float(v) for v in behaviours.elite_spread[written] if np.isfinite(v)]
    sentence = (
        f"The elite's members are {spread[0]:.2f} apart on average when the first candidate is "
        f"settled, and {spread[-1]:.2f} at the end"
        if spread
        else "The elite has had no two members yet"
    )
    return Chart(
        key="novelty",
        title="Diversity over the run",
        summary=sentence + " (0: the same behaviour; 1: nothing in common).",
        figure=figure(
            traces,
            x=axis("candidate"),
            y=axis("distance of behaviour", rangemode="tozero"),
            legend=LEGEND,
        ),
    )


def _behaviour_table(behaviours: BehaviourMap, measure: Measure) -> Table:
    rows = []
    for i, candidate in enumerate(behaviours.candidates):
        earlier = behaviours.distance[i, :i]
        nearest = behaviours.candidates[int(np.argmin(earlier))].identifier if i else "–"
        novelty = float(behaviours.novelty[i])
        rows.append((candidate.identifier, nearest, number(novelty), number(candidate.p)))
    return Table(
        caption="Behaviour of the candidates that were run",
        columns=("candidate", "nearest earlier", "distance to it", measure.name),
        rows=tuple(rows),
        text=frozenset({0, 1}),
    )
