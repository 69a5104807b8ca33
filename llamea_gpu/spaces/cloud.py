"""A cloud: measured configurations of a space that is too large to list.

Row i of every array is the i-th measurement. A configuration may have been measured several times,
and several configurations may have had the same generated code: what such rows differ in is noise.
The points are no random sample (``how`` says where each comes from), and what is not among them is
unknown: a model may be fitted to a cloud, a task cannot be run on it.

It reads and writes no files (see :mod:`llamea_gpu.spaces.formats`) and knows neither the
constraints of the space nor how a framework normalises a configuration: the indices are those of
the normalised one, as the recorder found them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.parameters import checked_names, checked_values, is_text
from llamea_gpu.spaces.quoting import quoted, shortened
from llamea_gpu.spaces.recording import (
    LEAST_TIME_MS,
    MOST_S,
    MOST_TIME_MS,
    STATUSES,
    RecordingInfo,
)
from llamea_gpu.spaces.space import Configuration, Value

MOST_MEASUREMENTS = 1 << 18
MOST_RUNS = 1 << 10
MOST_STARTS = 1 << 12
MOST_LETTERS = 200  # of a word in a column: a hash, a searcher
# Of models, the last one for new clouds; what they are: llamea_gpu.models.versions.
RECIPES = (2, 3)

_FLOATS = ("times_ms", "low_ms", "high_ms", "compile_s", "benchmark_s", "control_ms", "at_s")
_WORDS = ("source", "how")


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """N measurements of configurations of d parameters, in the order of measurement.

    Arrays are read-only.

    Attributes:
        info: where it comes from; ``default_configuration`` has the values of ``default``,
            ``parallel_workers`` the compiling processes, ``exhaustive`` is False.
        script: name of the kernel script, without its suffix; shape: which of its shapes. Both say
            how the real space can be bound again.
        names: d parameters; values: those of each; ordinal: whether they have an order.
        default: value indices of the configuration that the framework would run untuned; None where
            it is none of the space's.
        starts: what every searcher is given to begin with, the default and the compiler's seeds.
        runs: one mapping of texts for each measuring run: its machine, versions and facts.
        configurations: (N, d) int64 value indices.
        statuses: (N,) uint8, index into :data:`~llamea_gpu.spaces.recording.STATUSES`.
        times_ms: (N,) kernel time, nan where it failed.
        low_ms, high_ms: (N,) its quartiles, nan where not known.
        compile_s, benchmark_s: (N,) seconds to compile; to check and time. Code that was compiled
            before in a run takes the seconds of a hit in the compiler's cache; code that was timed
            before may have taken over that time, in 0 s.
        control_ms: (N,) time of the run's default configuration right after this one, nan where it
            was not timed: shows a drift of the machine.
        source: (N,) hash of the generated code, "" where not known.
        how: (N,) who proposed it: start, random, near, cross, step, again, or a searcher.
        run: (N,) int64 index into ``runs``.
        at_s: (N,) seconds from the beginning of the run until it was known.
        recipe: version of the recipe that a model of it is made by, one of :data:`RECIPES`.
    """

    info: RecordingInfo
    script: str
    shape: str
    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    ordinal: tuple[bool, ...]
    default: Configuration | None
    starts: tuple[Configuration, ...]
    runs: tuple[Mapping[str, str], ...]
    configurations: npt.NDArray[np.int64]
    statuses: npt.NDArray[np.uint8]
    times_ms: npt.NDArray[np.float64]
    low_ms: npt.NDArray[np.float64]
    high_ms: npt.NDArray[np.float64]
    compile_s: npt.NDArray[np.float64]
    benchmark_s: npt.NDArray[np.float64]
    control_ms: npt.NDArray[np.float64]
    source: npt.NDArray[np.str_]
    how: npt.NDArray[np.str_]
    run: npt.NDArray[np.int64]
    at_s: npt.NDArray[np.float64]
    recipe: int = RECIPES[-1]

    def __post_init__(self) -> None:
        self._freeze_space()
        self._freeze_arrays()
        self._check_numbers()

    def __len__(self) -> int:
        return len(self.statuses)

    @property
    def dimension(self) -> int:
        """d, the number of parameters."""
        return len(self.names)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """How many values each parameter has."""
        return tuple(map(len, self.values))

    @property
    def ok(self) -> npt.NDArray[np.bool_]:
        """(N,) whether the configuration compiled, ran and was right."""
        ok: npt.NDArray[np.bool_] = self.statuses == 0
        return ok

    @property
    def best_ms(self) -> float:
        """The best time; inf when nothing ran."""
        return float(self.times_ms[self.ok].min(initial=math.inf))

    @property
    def default_ms(self) -> float | None:
        """The median of the default's times; None where there is none, or it was not timed."""
        if self.default is None:
            return None
        rows = self.ok & (self.configurations == np.array(self.default)).all(axis=1)
        return float(np.median(self.times_ms[rows])) if rows.any() else None

    def configuration(self, row: int) -> Configuration:
        """The configuration of a row, as the optimizer contract has it."""
        return tuple(self.configurations[row].tolist())

    def value_dict(self, configuration: Sequence[int]) -> dict[str, Value]:
        """A configuration as parameter name to value."""
        columns = zip(self.names, self.values, configuration, strict=True)
        return {name: values[i] for name, values, i in columns}

    def groups(self) -> npt.NDArray[np.intp]:
        """(N,) numbers: rows of equal configurations or codes, also by way of others, share one."""
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        rows = np.arange(len(self))
        _, configuration = np.unique(self.configurations, axis=0, return_inverse=True)
        _, code = np.unique(self.source, return_inverse=True)
        known = self.source != ""
        first = configuration.max() + 1  # of the numbers of codes
        ends = np.concatenate([configuration.ravel(), first + code.ravel()[known]])
        starts = np.concatenate([rows, rows[known]])
        size = int(max(len(rows), ends.max() + 1))
        links = coo_matrix((np.ones(len(ends)), (starts, size + ends)), shape=(2 * size, 2 * size))
        _, label = connected_components(links, directed=False)
        _, group = np.unique(label[: len(rows)], return_inverse=True)
        return group.astype(np.intp)

    def repeats(self) -> list[npt.NDArray[np.intp]]:
        """Rows of a group that were timed, two or more each.

        Rows that took over another one's time, without a timing of their own, are left out.
        """
        timed = np.flatnonzero(self.ok & (self.benchmark_s > 0))
        group = self.groups()[timed]
        rows_by_group = [timed[group == number] for number in dict.fromkeys(group.tolist())]
        return [rows for rows in rows_by_group if len(rows) > 1]

    # -- checks -----------------------------------------------------------------------------

    def _freeze_space(self) -> None:
        if type(self.recipe) is not int or self.recipe not in RECIPES:
            raise self._error(
                f"the recipe of a cloud's model must be one of {RECIPES}, but is "
                f"{quoted(self.recipe)}: a later llamea_gpu may know it"
            )
        texts = [self.script, self.shape, *(t for run in self.runs for t in [*run, *run.values()])]
        if not all(isinstance(text, str) and is_text(text) for text in texts):
            raise self._error(
                "script, shape and what is said of a run must be UTF-8 text, but are not"
            )
        if not 1 <= len(self.runs) <= MOST_RUNS:
            raise self._error(f"runs must be 1 to {MOST_RUNS}, but are {len(self.runs)}")
        names = checked_names(self.names)
        if len(self.values) != len(names) or len(self.ordinal) != len(names):
            raise self._error(
                f"each of {len(names)} parameters must have values and say whether they have an "
                f"order, but there are {len(self.values)} and {len(self.ordinal)}"
            )
        if not all(type(ordinal) is bool for ordinal in self.ordinal):
            raise self._error(f"ordinal must be True or False, but is {quoted(self.ordinal)}")
        pairs = zip(names, self.values, strict=True)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "values", tuple(checked_values(n, v) for n, v in pairs))
        object.__setattr__(self, "ordinal", tuple(self.ordinal))
        object.__setattr__(self, "runs", tuple(dict(run) for run in self.runs))
        if len(self.starts) > MOST_STARTS:
            raise self._error(f"starts must be at most {MOST_STARTS}, but are {len(self.starts)}")
        object.__setattr__(self, "starts", tuple(self._checked(s, "starts") for s in self.starts))
        if self.default is not None:
            object.__setattr__(self, "default", self._checked(self.default, "default"))

    def _checked(self, configuration: Sequence[int], name: str) -> Configuration:
        try:
            array = np.asarray(configuration)
        except ValueError:
            array = np.empty((0, 0))
        good = array.shape == (len(self.names),) and array.dtype.kind in "iu"
        if not good or not ((array >= 0) & (array < self.cardinalities)).all():
            raise self._error(
                f"{name} must be value indices of the {len(self.names)} parameters, but got "
                f"{quoted(configuration)}"
            )
        return tuple(array.tolist())

    def _freeze_arrays(self) -> None:
        statuses = np.asarray(self.statuses)
        if statuses.ndim != 1 or not 1 <= len(statuses) <= MOST_MEASUREMENTS:
            raise self._error(
                f"a cloud must have 1 to {MOST_MEASUREMENTS} measurements in one column of "
                f"statuses, but has shape {statuses.shape}"
            )
        rows = len(statuses)
        self._freeze("configurations", np.int64, (rows, len(self.names)))
        self._freeze("statuses", np.uint8, (rows,))
        self._freeze("run", np.int64, (rows,))
        for name in _FLOATS:
            self._freeze(name, np.float64, (rows,))
        for name in _WORDS:
            self._freeze(name, np.str_, (rows,))

    def _freeze(self, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
        column = np.asarray(getattr(self, name))
        if column.shape != shape:
            raise self._error(f"{name} must have shape {shape}, but has {column.shape}")
        with np.errstate(invalid="ignore"):  # what does not fit is found by comparing
            array = column.astype(dtype)
        if not np.array_equal(array, column, equal_nan=array.dtype.kind == "f"):
            raise self._error(f"{name} must fit {np.dtype(dtype)}, but does not")
        array.setflags(write=False)
        object.__setattr__(self, name, array)

    def _check_numbers(self) -> None:
        cells = self.configurations
        most = np.array(self.cardinalities)
        within: npt.NDArray[np.bool_] = np.all((cells >= 0) & (cells < most), axis=1)
        self._check(within, "configurations", f"indices below {quoted(self.cardinalities)}")
        self._check(self.statuses < len(STATUSES), "statuses", f"an index into {STATUSES}")
        at_run = (self.run >= 0) & (self.run < len(self.runs))
        self._check(at_run, "run", f"an index of one of {len(self.runs)} runs")
        for name in ("compile_s", "benchmark_s", "at_s"):
            array = getattr(self, name)
            self._check((array >= 0) & (array <= MOST_S), name, f"from 0 to {MOST_S:g} (seconds)")
        plausible = f"from {LEAST_TIME_MS:g} to {MOST_TIME_MS:g}"
        for name in ("times_ms", "low_ms", "high_ms", "control_ms"):
            array = getattr(self, name)
            good = np.isnan(array) | ((array >= LEAST_TIME_MS) & (array <= MOST_TIME_MS))
            self._check(good, name, f"{plausible} or nan")
        known = ~np.isnan(self.times_ms)
        self._check(known == self.ok, "times_ms", f"{plausible} where ok, nan where not")
        quartiles = ((self.low_ms, "low_ms", 1), (self.high_ms, "high_ms", -1))
        for array, name, sign in quartiles:
            beside = known & (sign * (self.times_ms - array) >= 0)
            good = np.isnan(array) | beside
            side = "most" if sign > 0 else "least"
            self._check(good, name, f"at {side} the time, or nan; nan where it failed")
        for name in _WORDS:
            lengths = np.char.str_len(getattr(self, name))
            self._check(lengths <= MOST_LETTERS, name, f"at most {MOST_LETTERS} letters long")
            if not is_text("".join(set(getattr(self, name).tolist()))):
                raise self._error(f"{name} must be UTF-8 text, but is not")

    def _check(self, good: npt.NDArray[np.bool_], name: str, rule: str) -> None:
        bad = np.flatnonzero(~good)
        if len(bad):
            row = int(bad[0])
            raise self._error(
                f"{name} must be {rule}, but is {quoted(getattr(self, name)[row].tolist())} (status"
                f" {self.statuses[row]}) for {len(bad)} measurements, first row {row}"
            )

    def _error(self, problem: str) -> SpaceError:
        return SpaceError(f"{problem} ({shortened(self.info.name)})")


_ARRAYS = ("configurations", "statuses", *_FLOATS, *_WORDS)
_SHARED = ("shape", "names", "values", "ordinal", "default")


def merged(clouds: Iterable[Cloud]) -> Cloud:
    """One cloud of all measurements, run after run; information from the first.

    Its model is made by the newest recipe, since nobody has run on it yet.

    Raises:
        SpaceError: none at all; of different kernels, shapes, arguments, devices, frameworks or
            parameters; or one run's measurements twice.
    """
    inputs = list(clouds)
    if not inputs:
        raise SpaceError("clouds to merge must be at least one, but there is none")
    first = inputs[0]
    for other in inputs[1:]:
        _check_same_space(first, other)
    _check_distinct_runs(inputs)
    offsets = np.cumsum([0, *(len(cloud.runs) for cloud in inputs)])
    starts = dict.fromkeys(start for cloud in inputs for start in cloud.starts)
    run = [cloud.run + offset for cloud, offset in zip(inputs, offsets, strict=False)]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(cloud, name) for cloud in inputs]) for name in _ARRAYS
    }
    return replace(
        first,
        starts=tuple(starts),
        runs=tuple(run for cloud in inputs for run in cloud.runs),
        run=np.concatenate(run),
        recipe=RECIPES[-1],
        **columns,
    )


def _check_same_space(first: Cloud, other: Cloud) -> None:
    facts = [_facts(cloud.info) for cloud in (first, other)]
    differing = [name for name, fact in facts[0].items() if fact != facts[1][name]]
    differing += [n for n in _SHARED if getattr(first, n) != getattr(other, n)]
    # Equal numbers of other types (1, 1.0, True) are other values to a framework.
    if "values" not in differing and repr(first.values) != repr(other.values):
        differing.append("values")
    if differing:
        name = differing[0]
        pair = [getattr(c if hasattr(c, name) else c.info, name) for c in (first, other)]
        raise SpaceError(
            f"clouds to merge must be of one kernel, shape, device and framework, but "
            f"{shortened(first.info.name)} and {shortened(other.info.name)} differ in "
            f"{', '.join(differing)} ({quoted(pair[0])} and {quoted(pair[1])}): keep them apart"
        )


def _facts(info: RecordingInfo) -> dict[str, object]:
    """What clouds of one kernel share, in the words that all recorders have for it."""
    arguments = [
        {key: argument[key] for key in ("shape", "dtype", "value") if key in argument}
        for argument in info.arguments
    ]
    return {
        "kernel": info.kernel,
        "device": info.device,
        "framework": info.framework.lower(),
        "kernel_source": info.kernel_source,
        "arguments": arguments,
    }


def _check_distinct_runs(clouds: Sequence[Cloud]) -> None:
    """A run that comes twice would look like repeats without any noise."""
    seen: dict[bytes, str] = {}
    for cloud in clouds:
        for number in range(len(cloud.runs)):
            rows = cloud.run == number
            if not rows.any():
                continue
            columns = (cloud.configurations, cloud.times_ms, cloud.at_s)
            key = b"".join(column[rows].tobytes() for column in columns)
            if key in seen:
                raise SpaceError(
                    f"clouds to merge must hold each measurement once, but a run of "
                    f"{shortened(cloud.info.name)} is in {shortened(seen[key])} too: name it once"
                )
            seen[key] = cloud.info.name
