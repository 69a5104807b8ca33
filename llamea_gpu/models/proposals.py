"""What a model holds for the best of what was not measured: to be measured, and held against it.

A genetic search over the model: crosses of the best, some values changed, and all neighbours of the
best few, each made valid by the real space. Configurations of which a model says exactly the same
differ, to it, in nothing: of those one is proposed.

It measures nothing; :func:`llamea_gpu.models.card.confirmed` reads what measuring gave.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from llamea_gpu.files import write_text
from llamea_gpu.models.model import SpaceModel
from llamea_gpu.spaces.space import Configuration

PROPOSED, CONTROL = "proposed", "control"
CONTROLS = 8  # measured ones beside the proposals, which bring their run to the cloud's scale

_PARENTS = 100
_CHILDREN = 400  # a round
_STEPPED = 4  # of the best, whose neighbours are asked for in a round
_ROUNDS = 40
_PATIENCE = 6  # rounds in which none of the best changes


class WholeSpace(Protocol):
    """What the search needs of a framework's space."""

    def canonical(self, config: Sequence[int]) -> Configuration | None:
        """The configuration's normal form; None where there is none."""

    def neighbors(self, config: Sequence[int], kind: str = "hamming") -> list[Configuration]:
        """Valid ones that differ in one parameter."""


def propose(
    model: SpaceModel, space: WholeSpace, count: int, rng: np.random.Generator
) -> list[tuple[Configuration, float]]:
    """At most ``count`` configurations that were not measured, with predicted ms, best first."""
    search = _Search(model)
    search.add(map(tuple, model.cloud.configurations.tolist()))
    stepped: set[Configuration] = set()
    best: list[Configuration] = []
    unchanged = 0
    for _ in range(_ROUNDS):
        parents = search.parents()
        fresh = [c for c in parents if c not in stepped][:_STEPPED]
        stepped.update(fresh)
        search.add(near for c in fresh for near in space.neighbors(c))
        children = (_child(parents, model.cloud.cardinalities, rng) for _ in range(_CHILDREN))
        search.add(child for c in children if (child := space.canonical(c)) is not None)
        before, best = best, [config for config, _ in search.proposals(count)]
        unchanged = unchanged + 1 if best == before else 0
        if unchanged == _PATIENCE:
            break
    return search.proposals(count)


def controls(model: SpaceModel) -> list[Configuration]:
    """The default and the best measured ones, whose times the cloud knows."""
    cloud = model.cloud
    log_ms = model.readings.log_ms
    order = np.argsort(log_ms)[: int(np.isfinite(log_ms).sum())].tolist()
    first = [cloud.default] if cloud.default is not None else []
    configs = dict.fromkeys([*first, *(cloud.configuration(row) for row in order)])
    return list(configs)[:CONTROLS]


def unmeasured(
    model: SpaceModel, visits: Iterable[Configuration], count: int
) -> list[Configuration]:
    """At most ``count`` of the visits that were not measured, best first by the model.

    One of each group that the model cannot tell apart.
    """
    search = _Search(model)
    search.add(visits)
    return [config for config, _ in search.proposals(count)]


def write_proposals(
    model: SpaceModel,
    proposals: Sequence[tuple[Configuration, float]],
    path: Path,
    visited: Iterable[tuple[Configuration, str]] = (),
) -> None:
    """JSON lines: what is to be measured, a header and then a configuration a line.

    ``c`` are value indices, ``values`` the same by name, ``how`` is proposed or control,
    ``predicted_ms`` what the model says. The proposals come first, then the controls, then what is
    ``visited``, each with its ``how``.
    """
    cloud = model.cloud
    header = {
        "cloud": cloud.info.name,
        "digest": model.digest,
        "script": cloud.script,
        "shape": cloud.shape,
        "names": cloud.names,
        "values": cloud.values,
    }
    others = [*((c, CONTROL) for c in controls(model)), *visited]
    lines = [
        {"c": c, "how": origin, "predicted_ms": time_ms, "values": cloud.value_dict(c)}
        for c, origin, time_ms in [
            *((c, PROPOSED, ms) for c, ms in proposals),
            *((c, origin, model.outcome(c).time_ms) for c, origin in others),
        ]
    ]
    write_text(path, "".join(json.dumps(line) + "\n" for line in [header, *lines]))


class _Search:
    """Every configuration that was met, and the best by the model."""

    def __init__(self, model: SpaceModel) -> None:
        self._model = model
        self._times: dict[Configuration, float] = {}
        self._measured: set[Configuration] = set()

    def add(self, configs: Iterable[Configuration]) -> None:
        new = [c for c in dict.fromkeys(configs) if c not in self._times]
        for config, outcome in zip(new, self._model.outcomes(new), strict=True):
            self._times[config] = outcome.time_ms
            if outcome.measured:
                self._measured.add(config)

    def parents(self) -> list[Configuration]:
        return [config for config, _ in self._ranked()[:_PARENTS]]

    def proposals(self, count: int) -> list[tuple[Configuration, float]]:
        by_time: dict[float, Configuration] = {}
        for config, time_ms in self._ranked():
            if len(by_time) == count:
                break
            if config not in self._measured and np.isfinite(time_ms):
                by_time.setdefault(time_ms, config)
        return [(config, time_ms) for time_ms, config in by_time.items()]

    def _ranked(self) -> list[tuple[Configuration, float]]:
        return sorted(self._times.items(), key=lambda item: (item[1], item[0]))


def _child(
    parents: Sequence[Configuration], cardinalities: Sequence[int], rng: np.random.Generator
) -> Configuration:
    mother, father = (parents[int(rng.random() ** 2 * len(parents))] for _ in range(2))
    from_mother = rng.random(len(mother)) < 0.5
    genes = [m if take else f for m, f, take in zip(mother, father, from_mother, strict=True)]
    for j in rng.integers(len(genes), size=rng.integers(0, 3)):
        genes[j] = int(rng.integers(cardinalities[j]))
    return tuple(genes)
