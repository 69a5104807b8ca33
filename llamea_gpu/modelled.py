"""Tuning tasks on whole spaces: too large to list, with costs that a model says.

What it does: `PlacedSpace` numbers the configurations that a run meets, so that the host's
`Evaluator` and the sandbox's channel, which know rows, work on a whole space as on a recording;
`WholeTask` holds a space, a model of its costs, a clock and a budget.

What it does not do: fit a model (`llamea_gpu.models`), know how a framework normalises a
configuration (`llamea_gpu.frameworks.helion.whole`), or score (`llamea_gpu.scoring`).

As live: the configurations that a kernel starts from (its default and the compiler's seeds) are
measured first, and a space draws its samples around the best so far. Whatever comes out of such a
task is modelled, not measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.area import Yardstick
from llamea_gpu.baseline import AXIS_POINTS
from llamea_gpu.clocks import Clock, Measurement, PipelinedClock, make_clock
from llamea_gpu.errors import TaskError
from llamea_gpu.models.model import Outcome, SpaceModel
from llamea_gpu.models.readings import timed_rows
from llamea_gpu.models.versions import VERSIONS
from llamea_gpu.spaces.catalogue import cloud_file, is_cloud, load_cloud, load_spaces
from llamea_gpu.spaces.recording import STATUSES
from llamea_gpu.spaces.space import Configuration, Value
from llamea_gpu.tasks import CostSource, Evaluator, Task, Trace, build_tasks

if TYPE_CHECKING:
    from llamea_gpu.frameworks.helion.whole import BoundKernel
    from llamea_gpu.spaces.cloud import Cloud
    from llamea_gpu.spaces.recording import RecordingInfo

FloatArray = NDArray[np.float64]

BUDGET_S = 45.0  # of a live tuning that its user waits for
LEADERS = 8  # the best so far that a space draws around; as many as live
# Configurations that one run may look at. A run of some 500 measurements meets some 20,000.
MAX_PLACES = 1 << 18
_SPACE = 1  # makes a space's random numbers others than its searcher's
_COMPILE_ERROR = STATUSES.index("compile_error")


class WholeSpace(Protocol):
    """The contract's ``space`` of a framework, on the host: `HelionSpace` is one."""

    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    cardinalities: tuple[int, ...]
    ordinal: tuple[bool, ...]
    starts: list[Configuration]
    leaders: list[Configuration]

    @property
    def size(self) -> int | None:
        """None: the configurations cannot be counted."""

    def canonical(self, config: Sequence[int]) -> Configuration | None:
        """The normalised configuration; None where it is not valid."""

    def sample(self, n: int) -> list[Configuration]:
        """As of the contract."""

    def pool(self, n: int) -> NDArray[np.int64]:
        """As of the contract."""

    def neighbors(self, config: Sequence[int], kind: str = "hamming") -> list[Configuration]:
        """As of the contract."""

    def contains(self, config: Sequence[int]) -> bool:
        """As of the contract."""

    def repair(self, config: Sequence[float]) -> Configuration:
        """As of the contract."""

    def encode(self, configs: Any) -> NDArray[np.float64]:
        """As of the contract."""


class PlacesFull(Exception):  # noqa: N818 - ends a run, as the end of a budget does
    """A run looks at more configurations than any that tunes has reason to."""


class PlacedSpace:
    """A whole space in one run, where each configuration that was met has a row.

    Rows count up from 0 in the order in which configurations are met, so that they depend on the
    run alone. It is the `CostSource` of the run's Evaluator: a row's costs are asked of the model
    when the row is first measured. With ``timed_once`` measured code takes no seconds to time when
    another configuration had it before.
    """

    def __init__(self, space: WholeSpace, model: SpaceModel, timed_once: bool = False) -> None:
        self.space = space
        self._model = model
        self._timed_once = timed_once
        self._codes: set[int] = set()  # that were to be timed
        self._places: list[Configuration] = []
        self._rows: dict[Configuration, int] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._leaders: dict[Configuration, float] = {}

    # -- places -----------------------------------------------------------------------------

    def row(self, config: Sequence[int]) -> int:
        """The row of what ``config`` is normalised to; -1 where it is not valid.

        Raises:
            PlacesFull: there are `MAX_PLACES`.
        """
        canonical = self.space.canonical(config)
        return -1 if canonical is None else self.place(canonical)

    def place(self, canonical: Configuration) -> int:
        """The row of a normalised configuration.

        Raises:
            PlacesFull: there are `MAX_PLACES`.
        """
        row = self._rows.setdefault(canonical, len(self._places))
        if row == len(self._places):
            if row == MAX_PLACES:
                raise PlacesFull(f"a run may look at {MAX_PLACES:,} configurations, not at more")
            self._places.append(canonical)
        return row

    def configuration(self, row: int) -> Configuration:
        """The normalised configuration of a row."""
        return self._places[row]

    def parameters(self) -> dict[str, Any]:
        """What may be told of the space: names, values, and which have an order."""
        space = self.space
        return {"names": space.names, "values": space.values, "ordinal": space.ordinal}

    # -- costs ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._places)

    def times_ms(self, rows: Sequence[int] | NDArray[Any]) -> FloatArray:
        """(n,) modelled times; of rows that are or were to be measured."""
        row_numbers = [int(row) for row in rows]
        self._ask(row_numbers)
        return np.array([self._outcomes[row].time_ms for row in row_numbers], dtype=np.float64)

    def measurements(self, rows: Sequence[int]) -> list[Measurement]:
        """What measuring them takes, as the model says."""
        self._ask(rows)
        return [(row, *_seconds(self._outcomes[row])) for row in rows]

    def status(self, row: int) -> int:
        """As of every `CostSource`."""
        self._ask([row])
        return self._outcomes[row].status

    def visited(self, row: int) -> None:
        """Keep the best, which the space draws around."""
        time_ms = self._outcomes[row].time_ms
        if time_ms == math.inf:
            return
        leaders = self._leaders
        if len(leaders) == LEADERS and time_ms >= max(leaders.values()):
            return
        leaders[self._places[row]] = time_ms
        best = sorted(leaders, key=leaders.__getitem__)[:LEADERS]
        self._leaders = {config: leaders[config] for config in best}
        self.space.leaders = best

    def configurations(self, rows: Sequence[int]) -> NDArray[np.int32]:
        """(n, d) value indices."""
        indices = [self._places[row] for row in rows]
        return np.array(indices, dtype=np.int32).reshape(len(indices), len(self.space.names))

    def rows_of(self, trace: Trace) -> list[int]:
        """Rows of what another run on this space has visited."""
        if trace.configurations is None:
            return [-1] * trace.rows.size
        rows = [self.row(config) for config in map(tuple, trace.configurations.tolist())]
        self._ask([row for row in rows if row >= 0])
        return rows

    def _ask(self, rows: Sequence[int]) -> None:
        new = [row for row in dict.fromkeys(rows) if row not in self._outcomes]
        if len(new) == 1:
            outcomes = [self._model.outcome(self._places[new[0]])]
        else:
            outcomes = self._model.outcomes([self._places[row] for row in new])
        for row, outcome in zip(new, outcomes, strict=True):
            if self._timed_once and outcome.code in self._codes:
                outcome = outcome._replace(benchmark_s=0.0)
            if outcome.measured:
                self._codes.add(outcome.code)
            self._outcomes[row] = outcome


def _seconds(outcome: Outcome) -> tuple[float, float, bool]:
    """As of `Recording.timed`: whether it got as far as being timed."""
    timed = not outcome.status or (outcome.benchmark_s > 0 and outcome.status != _COMPILE_ERROR)
    return outcome.compile_s, outcome.benchmark_s, timed


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run's space, with the kernel that it belongs to."""

    places: PlacedSpace
    kernel: BoundKernel


@dataclass(frozen=True, eq=False)
class WholeTask:
    """Tuning on a modelled whole space.

    ``cloud`` is what was measured of it, ``model`` what it says of everything else. ``yardstick``
    is what scores are made with; None where none is wanted.
    """

    cloud: Cloud
    model: SpaceModel
    clock: Clock
    budget_s: float = BUDGET_S
    yardstick: Yardstick | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.budget_s) and self.budget_s > 0):
            raise TaskError(f"a budget must be positive seconds, but got {self.budget_s}")
        if not self.cloud.starts:
            raise TaskError(
                f"{self.name}: a task needs configurations to start from, but there are none"
            )
        if not math.isfinite(self.optimum_ms):
            raise TaskError(f"{self.name}: a task needs a configuration that works, but has none")

    @property
    def name(self) -> str:
        """The cloud's name."""
        return self.cloud.info.name

    @property
    def info(self) -> RecordingInfo:
        """Where it comes from."""
        return self.cloud.info

    @property
    def optimum_ms(self) -> float:
        """The best time that was measured: what is best of all is not known."""
        return self.model.best_ms

    @property
    def median_ms(self) -> float:
        """Of the measured times."""
        return float(np.median(self.cloud.times_ms[self.cloud.ok]))

    @property
    def default_ms(self) -> float:
        """What the kernel takes untuned: modelled time of its default, else of its best start."""
        configurations = self.cloud.starts if self.cloud.default is None else (self.cloud.default,)
        times_ms = [outcome.time_ms for outcome in self.model.outcomes(configurations)]
        best_ms = min(times_ms)
        return best_ms if math.isfinite(best_ms) else self.median_ms

    @property
    def evaluation_s(self) -> float:
        """What an evaluation takes, about: of configurations within twice the best."""
        cloud = self.cloud
        timed = cloud.ok & timed_rows(cloud)
        near = timed & (np.nan_to_num(cloud.times_ms, nan=np.inf) <= 2 * self.optimum_ms)
        compile_s, benchmark_s = (
            float(np.mean(column[near])) for column in (cloud.compile_s, cloud.benchmark_s)
        )
        side_by_side_s = compile_s / self.clock.workers
        if self.clock.name.startswith("pipelined"):
            return max(side_by_side_s, benchmark_s)
        return side_by_side_s + benchmark_s

    @property
    def budget_evaluations(self) -> float:
        """How many evaluations the budget holds, about."""
        return self.budget_s / self.evaluation_s

    @property
    def axis_s(self) -> FloatArray:
        """The time axis of the score, (1000,)."""
        return np.linspace(0.0, self.budget_s, AXIS_POINTS + 1)[1:]

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """How many values each parameter has."""
        return self.cloud.cardinalities

    @property
    def fingerprint(self) -> str:
        """SHA-256 of parameters, measurements and how the model is made of them."""
        return hashlib.sha256(f"{self.model.digest} {self.cloud.recipe}".encode()).hexdigest()

    def visited(self, trace: Trace) -> NDArray[np.int64]:
        """(n, d) value indices of a trace's visits.

        Raises:
            TaskError: the trace does not say.
        """
        if trace.configurations is None:
            raise TaskError(
                f"{self.name}: a trace on a whole space must hold its configurations, but has none"
            )
        return trace.configurations.astype(np.int64)

    def value_dict(self, configuration: Sequence[int]) -> dict[str, Value]:
        """A configuration as parameter name to value."""
        return self.cloud.value_dict(configuration)

    def required_yardstick(self) -> Yardstick:
        """What a score is made with.

        Raises:
            TaskError: there is none, or it is one of other costs or another budget.
        """
        yardstick = self.yardstick
        if yardstick is None:
            raise TaskError(
                f"{self.name}: a score on a whole space needs its yardstick, but there is none: "
                "llamea_gpu.runner.yardsticks.with_yardsticks makes it"
            )
        if yardstick.budget_s != self.budget_s:
            raise TaskError(
                f"{self.name}: a yardstick must be of the task's budget ({self.budget_s:g} s), but "
                f"is of {yardstick.budget_s:g} s: "
                "llamea_gpu.runner.yardsticks.with_yardsticks makes it"
            )
        return yardstick

    def costs(self) -> CostSource:
        """None by itself.

        Raises:
            TaskError: always: each run has a `PlacedSpace` of its own.
        """
        raise TaskError(f"{self.name}: the costs of a whole space belong to a run: use `opened`")

    def bind(self) -> BoundKernel:
        """The kernel, bound once in a process.

        Raises:
            SpaceError: what it needs is not here, or not what was measured.
        """
        from llamea_gpu.frameworks.helion.whole import bind

        return bind(self.cloud)

    @contextlib.contextmanager
    def opened(self, seed: int) -> Iterator[Run]:
        """A run's space, whose randomness depends on ``seed``.

        Raises:
            SpaceError: as for `bind`.
        """
        kernel = self.bind()
        with kernel.pretended():
            rng = np.random.default_rng([seed, _SPACE])
            space = kernel.space(rng, self.cloud.starts, self.cloud.default)
            # As the engine does it; Helion itself times equal code again.
            once = self.clock.name.startswith("pipelined")
            once = once and not VERSIONS[self.cloud.recipe].booked_seconds
            yield Run(PlacedSpace(space, self.model, once), kernel)


def load_tasks(
    specs: Sequence[str],
    search_path: Sequence[Path] = (),
    clock: str = "",
    *,
    unfit: bool = True,
    budget_s: float | None = None,
) -> tuple[AnyTask, ...]:
    """Tasks on recordings, or on clouds, by name or file; the clock is each one's own unless given.

    ``unfit`` allows models that have not passed their gate. ``budget_s`` are the simulated seconds
    of a run on a whole space, `BUDGET_S` unless given.

    Raises:
        UnknownSpaceError: nothing answers to a spec, or one comes twice.
        TaskError: recordings and modelled spaces together, a model that is not fit, or a budget
            that is not positive or is for recordings, which have their own.
    """
    clouds = [spec for spec in specs if is_cloud(spec, search_path)]
    if not clouds:
        if budget_s is not None:
            raise TaskError(
                f"a budget is chosen for whole spaces alone, since a recording's follows from its "
                f"measurements, but got {budget_s:g} s for {', '.join(specs)}: leave --budget-s out"
            )
        return build_tasks(load_spaces(specs, search_path), clock)
    if len(clouds) < len(specs) or len(set(clouds)) < len(clouds):
        raise TaskError(
            f"tasks must be on recordings, which are measured, or on whole spaces, which are "
            f"modelled, each named once, since their scores mean different things, but got "
            f"{', '.join(specs)}"
        )
    loaded = (_load_whole(spec, search_path, clock, unfit) for spec in clouds)
    chosen_s = BUDGET_S if budget_s is None else budget_s
    return tuple(replace(task, budget_s=chosen_s) for task in loaded)


def _load_whole(spec: str, search_path: Sequence[Path], clock: str, unfit: bool) -> WholeTask:
    cloud = load_cloud(spec, search_path)
    if not unfit:
        _refuse_unfit(spec, cloud, cloud_file(spec, search_path))
    chosen = make_clock(clock) if clock else default_clock(cloud)
    return WholeTask(cloud, SpaceModel(cloud), chosen)


def _refuse_unfit(spec: str, cloud: Cloud, file: Path) -> None:
    """TaskError unless the model's card says that it has passed its gate."""
    from llamea_gpu.models.card import card_of, card_path

    card = card_of(cloud, file)
    if card is None:
        raise TaskError(
            f"a model must have passed its gate, but that of {spec} has no card of these "
            f"measurements: `llamea-gpu spaces model {spec} --card {card_path(file)}` makes it, "
            f"--unfit uses the model all the same"
        )
    if not card.passed:
        raise TaskError(
            f"a model must have passed its gate, but that of {spec} has not "
            f"({'; '.join(card.reasons)}): measure more, or use it all the same with --unfit"
        )


def begin(evaluator: Evaluator, places: PlacedSpace | None, start: Trace | None) -> None:
    """What a run on a whole space starts with is measured before its searcher begins.

    Raises:
        BudgetExhausted: the budget does not even hold that.
    """
    if places is not None and start is None:
        evaluator.ask(np.array([places.place(c) for c in places.space.starts], dtype=np.int64))


def default_clock(cloud: Cloud) -> Clock:
    """The engine's, with as many compilers as measured the cloud."""
    return PipelinedClock(cloud.info.parallel_workers)


AnyTask = Task | WholeTask
