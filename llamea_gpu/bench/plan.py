"""What a bench runs, and under which rules: settings, searchers, spaces, repeats.

What it does: describes searchers and tasks so that a result says exactly what was measured, and
lists the runs of a bench.

What it does not do: run anything, or hold a result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, NamedTuple, TypeVar

from pydantic import Field

from llamea_gpu.errors import BenchError
from llamea_gpu.modelled import AnyTask, WholeTask
from llamea_gpu.scoring import Measure, measure_of
from llamea_gpu.searchers.library import LibrarySearcher
from llamea_gpu.searchers.registry import Searcher
from llamea_gpu.spaces.features import (
    SpaceFeatures,
    WholeFeatures,
    compute_features,
    compute_whole_features,
)
from llamea_gpu.tasks import run_seed

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(allow_inf_nan=False, gt=0)]
Count = Annotated[int, Field(ge=0)]
Setting = bool | int | Finite | str

LOTTERY_EVALUATIONS = 10
MAX_RUNS = 1_000_000


class RunKey(NamedTuple):
    """Which run: the names of searcher and space, and the number of the repeat, from 0."""

    searcher: str
    space: str
    repeat: int


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What decides a run besides searcher, space and repeat.

    ``clock`` is empty where each recording has its own. ``cpu_limit_s`` is None for the defaults of
    `llamea_gpu.runner`, ``budget_s`` where each space has its own.
    """

    seed: Count = 1
    clock: str = ""
    charge_cpu: bool = False
    cpu_limit_s: Positive | None = None
    budget_s: Positive | None = None

    def differences(self, other: BenchSettings) -> str:
        """Where ``other`` differs, as options of the command: what stands here, and there."""
        pairs = zip(asdict(self).items(), asdict(other).values(), strict=True)
        return ", ".join(
            f"{_option(name, value)} and the command says {_option(name, other_value)}"
            for (name, value), other_value in pairs
            if value != other_value
        )


def _option(name: str, value: object) -> str:
    option = "--cpu-limit" if name == "cpu_limit_s" else f"--{name.replace('_', '-')}"
    if value in ("", None, False):
        return f"no {option}"
    return option if value is True else f"{option} {value}"


@dataclass(frozen=True, slots=True)
class SearcherInfo:
    """A searcher. ``name`` is its spec; ``kind`` is ``source`` or ``library``.

    ``digest`` is the SHA-256 of what decides what it does: source text, class and hyperparameters
    (and what runs before it), or factory, settings and library versions.
    """

    name: str
    kind: str
    digest: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpaceInfo:
    """A task's space: what results on it mean, and what a report shows of it.

    ``fingerprint`` is the SHA-256 of parameters, configurations and measurements; ``clock``,
    ``budget_s``, ``budget_evaluations``, ``axis_start_s`` and ``axis_end_s`` are the task's (see
    `llamea_gpu.tasks`), ``configurations`` its number of rows, None of a whole space, which is
    ``modelled``: its results are no measurements, and its score is that of `llamea_gpu.area`;
    ``default_ms`` the time of the
    configuration that the kernel ships with, where it is known.
    """

    name: str
    fingerprint: str
    clock: str
    budget_s: Positive
    budget_evaluations: Positive
    axis_start_s: Annotated[float, Field(allow_inf_nan=False, ge=0)]
    axis_end_s: Positive
    optimum_ms: Positive
    median_ms: Positive
    configurations: Annotated[int, Field(gt=0)] | None
    features: SpaceFeatures | WholeFeatures
    default_ms: Positive | None = None

    @property
    def modelled(self) -> bool:
        """Whether a model says what configurations cost."""
        return self.configurations is None

    @property
    def measure(self) -> Measure:
        """What scores on it are called."""
        return measure_of(self.modelled)

    @property
    def is_lottery(self) -> bool:
        """Whether the budget holds so few evaluations that a score on it is mostly luck."""
        return self.budget_evaluations < LOTTERY_EVALUATIONS


@dataclass(frozen=True, slots=True)
class Plan:
    """``repeats`` runs of each searcher on each space, with seeds that do not name the searcher."""

    settings: BenchSettings
    repeats: Annotated[int, Field(ge=1, le=10_000)]
    searchers: tuple[SearcherInfo, ...]
    spaces: tuple[SpaceInfo, ...]

    @property
    def measure(self) -> Measure:
        """What scores are called: tasks are all modelled or all measured."""
        return measure_of(any(space.modelled for space in self.spaces))

    @property
    def size(self) -> int:
        """How many runs there are."""
        return self.repeats * len(self.searchers) * len(self.spaces)

    def runs(self) -> Iterator[RunKey]:
        """Every run: a repeat of all searchers on all spaces, then the next repeat."""
        for repeat in range(self.repeats):
            for searcher in self.searchers:
                for space in self.spaces:
                    yield RunKey(searcher.name, space.name, repeat)

    def seed_of(self, run: RunKey) -> int:
        """Seed of ``run``; the same for every searcher."""
        return run_seed(self.settings.seed, run.space, run.repeat)

    def joined(self, other: Plan) -> Plan:
        """Both plans in one: every searcher and space of either, and the larger ``repeats``.

        Raises:
            BenchError: other settings, or a searcher or space that is another under its name.
        """
        if self.settings != other.settings:
            raise BenchError(
                f"a bench goes on with the settings that it began with, but it began with "
                f"{self.settings.differences(other.settings)}: give those again, or another folder "
                f"with -o"
            )
        for kind, own_items, other_items in (
            ("searcher", self.searchers, other.searchers),
            ("space", self.spaces, other.spaces),
        ):
            known = {item.name: _identity(item) for item in own_items}
            for item in other_items:
                if known.get(item.name, _identity(item)) != _identity(item):
                    raise BenchError(
                        f"the {kind} {item.name!r} is not what it was when this bench was run "
                        f"(its content, clock, budget or versions differ): use another folder"
                    )
        return replace(
            self,
            repeats=max(self.repeats, other.repeats),
            searchers=(*self.searchers, *_new(self.searchers, other.searchers)),
            spaces=(*self.spaces, *_new(self.spaces, other.spaces)),
        )


def describe_searcher(searcher: Searcher) -> SearcherInfo:
    """What ``searcher`` is."""
    if isinstance(searcher, LibrarySearcher):
        parts: list[object] = [searcher.factory, dict(searcher.settings), dict(searcher.versions)]
        return SearcherInfo(
            searcher.name, "library", _digest(parts), searcher.settings, searcher.versions
        )
    settings = searcher.program.settings
    parts = [searcher.program.source, searcher.program.class_name, settings]
    if searcher.first is not None:
        parts.append(describe_searcher(searcher.first).digest)
    return SearcherInfo(searcher.name, "source", _digest(parts), settings)


def describe_space(task: AnyTask) -> SpaceInfo:
    """What ``task`` is."""
    return SpaceInfo(
        name=task.name,
        fingerprint=task.fingerprint,
        clock=task.clock.name,
        budget_s=task.budget_s,
        budget_evaluations=task.budget_evaluations,
        axis_start_s=float(task.axis_s[0]),
        axis_end_s=float(task.axis_s[-1]),
        optimum_ms=task.optimum_ms,
        median_ms=task.median_ms,
        configurations=None if isinstance(task, WholeTask) else task.recording.space.size,
        features=(
            compute_whole_features(task.cloud)
            if isinstance(task, WholeTask)
            else compute_features(task.recording)
        ),
        default_ms=task.default_ms if isinstance(task, WholeTask) else task.recording.default_ms,
    )


def _identity(item: SearcherInfo | SpaceInfo) -> tuple[str, ...]:
    """What must be the same for runs to be comparable."""
    if isinstance(item, SearcherInfo):
        return item.kind, item.digest
    # Not to the last bit: machines may sum the same times in another order.
    return item.fingerprint, item.clock, f"{item.budget_s:.6g}", f"{item.axis_start_s:.6g}"


_Item = TypeVar("_Item", SearcherInfo, SpaceInfo)


def _new(own_items: Sequence[_Item], other_items: Sequence[_Item]) -> list[_Item]:
    known = {item.name for item in own_items}
    return [item for item in other_items if item.name not in known]


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
