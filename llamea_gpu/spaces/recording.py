"""A recording: a search space plus what measuring every configuration gave and cost.

Row i of every array belongs to row i of ``space.configurations``. It reads and writes no files
(see :mod:`llamea_gpu.spaces.formats`) and knows nothing of clocks and budgets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.parameters import is_text
from llamea_gpu.spaces.quoting import quoted, shortened
from llamea_gpu.spaces.space import SearchSpace, Value

STATUSES: tuple[str, ...] = (
    "ok",
    "compile_error",
    "runtime_error",
    "incorrect",
    "timeout",
    "error",
)


MAX_WORKERS = 999_999
# What a kernel can take: a nanosecond to twelve days; and what compiling and timing it can: up to
# four months. Sums, ratios and logarithms of such numbers are far from the ends of floats.
LEAST_TIME_MS = 1e-6
MOST_TIME_MS = 1e9
MOST_S = 1e7


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """Where a recording comes from.

    Attributes:
        name: short, unique among the spaces of a run; letters, digits, ``._-/``.
        kernel: name of the kernel; device: name of the GPU; framework: what compiled and timed it.
        kernel_source: source text, empty when not known.
        arguments: one mapping an argument of the kernel (e.g. shape and dtype).
        default_configuration: parameter name to value; the values need not be on the grid.
        references_ms: other implementations of the same computation and their times.
        parallel_workers: configurations that compiled side by side while recording; 1 means that
            each was compiled and timed before the next (a sequential clock).
        provenance: how the numbers came about, as text.
        exhaustive: every valid configuration of the space is known to have been measured.
    """

    name: str
    kernel: str
    device: str
    framework: str
    kernel_source: str = ""
    arguments: tuple[Mapping[str, object], ...] = ()
    default_configuration: Mapping[str, Value] | None = None
    references_ms: Mapping[str, float] = field(default_factory=dict)
    parallel_workers: int = 1
    provenance: Mapping[str, str] = field(default_factory=dict)
    exhaustive: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise SpaceError("a recording must have a name, but got an empty one")
        texts = (self.name, self.kernel, self.device, self.framework, self.kernel_source)
        if not all(map(is_text, texts)):
            raise SpaceError(f"names and sources must be UTF-8 text, but {quoted(texts)} are not")
        workers = self.parallel_workers
        if type(workers) is not int or not 1 <= workers <= MAX_WORKERS:
            raise SpaceError(
                f"parallel_workers >= 1 and <= {MAX_WORKERS} must hold for an integer, but "
                f"got {quoted(workers)} ({shortened(self.name)})"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A space with the measurements of all its N configurations. Arrays are read-only.

    Attributes:
        space: the configurations.
        time_ms: (N,) kernel time, `LEAST_TIME_MS` to `MOST_TIME_MS`; inf where it failed.
        compile_s: (N,) seconds to compile, at most `MOST_S`.
        benchmark_s: (N,) seconds to check and time, at most `MOST_S`.
        status: (N,) uint8, index into :data:`STATUSES`.
        info: where it comes from.
    """

    space: SearchSpace
    time_ms: npt.NDArray[np.float64]
    compile_s: npt.NDArray[np.float64]
    benchmark_s: npt.NDArray[np.float64]
    status: npt.NDArray[np.uint8]
    info: RecordingInfo

    def __post_init__(self) -> None:
        for name in ("time_ms", "compile_s", "benchmark_s"):
            object.__setattr__(self, name, self._frozen(name, np.float64))
        object.__setattr__(self, "status", self._frozen("status", np.uint8))
        self._check(self.status < len(STATUSES), "status", f"an index into {STATUSES}")
        for name in ("compile_s", "benchmark_s"):
            array = getattr(self, name)
            self._check((array >= 0) & (array <= MOST_S), name, f"from 0 to {MOST_S:g} (seconds)")
        times = np.where(self.ok, self.time_ms, 1.0)
        self._check(
            (times >= LEAST_TIME_MS) & (times <= MOST_TIME_MS),
            "time_ms",
            f"from {LEAST_TIME_MS:g} to {MOST_TIME_MS:g} where status is ok",
        )
        self._check(self.ok | np.isposinf(self.time_ms), "time_ms", "inf where status is not ok")

    @classmethod
    def from_rows(
        cls,
        names: Sequence[str],
        values: Sequence[Sequence[Value]],
        configurations: npt.ArrayLike,
        time_ms: npt.ArrayLike,
        compile_s: npt.ArrayLike,
        benchmark_s: npt.ArrayLike,
        status: npt.ArrayLike,
        info: RecordingInfo,
    ) -> Recording:
        """Build space and recording from rows in any order.

        Args:
            names: d parameter names.
            values: d sequences of values.
            configurations: (N, d) value indices.
            time_ms: (N,) kernel times, inf where failed.
            compile_s: (N,) seconds.
            benchmark_s: (N,) seconds.
            status: (N,) indices into :data:`STATUSES`.
            info: where it comes from.

        Raises:
            SpaceError: what :class:`SearchSpace` and :class:`Recording` refuse.
        """
        space = SearchSpace(names, values, configurations)
        columns = {
            "time_ms": np.asarray(time_ms, dtype=np.float64),
            "compile_s": np.asarray(compile_s, dtype=np.float64),
            "benchmark_s": np.asarray(benchmark_s, dtype=np.float64),
            "status": np.asarray(status),
        }
        for name, column in columns.items():
            if column.shape != (space.size,):
                raise SpaceError(
                    f"{name} must have one entry a configuration ({space.size}), but has shape "
                    f"{column.shape} ({shortened(info.name)})"
                )
        source = np.empty(space.size, dtype=np.int64)  # row of the space -> row given
        source[space.rows(configurations)] = np.arange(space.size)
        ordered = {name: column[source] for name, column in columns.items()}
        return cls(space=space, info=info, **ordered)

    @property
    def ok(self) -> npt.NDArray[np.bool_]:
        """(N,) whether the configuration compiled, ran and was right."""
        ok: npt.NDArray[np.bool_] = self.status == 0
        return ok

    @property
    def timed(self) -> npt.NDArray[np.bool_]:
        """(N,) whether the configuration got as far as being timed."""
        not_compiled = self.status == STATUSES.index("compile_error")
        timed: npt.NDArray[np.bool_] = self.ok | ((self.benchmark_s > 0) & ~not_compiled)
        return timed

    @property
    def evaluation_s(self) -> npt.NDArray[np.float64]:
        """(N,) seconds that one evaluation takes on its own: compile plus benchmark."""
        return self.compile_s + self.benchmark_s

    @property
    def optimum_ms(self) -> float:
        """The best time; inf when nothing ran."""
        return float(self.time_ms.min(initial=math.inf))

    @property
    def default_ms(self) -> float | None:
        """Time of the configuration that the kernel ships with; None where that is not known."""
        helion_default_ms = self.info.references_ms.get("helion_default")
        default, space = self.info.default_configuration, self.space
        if helion_default_ms is not None or default is None:
            return helion_default_ms
        try:
            pairs = zip(space.names, space.values, strict=True)
            row = space.row(tuple(values.index(default[name]) for name, values in pairs))
        except (LookupError, ValueError):
            return None
        time_ms = float(self.time_ms[row]) if row >= 0 else math.inf
        return time_ms if math.isfinite(time_ms) else None

    def _frozen(self, name: str, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
        column = np.asarray(getattr(self, name))
        if column.shape != (self.space.size,):
            raise SpaceError(
                f"{name} must have one entry a configuration ({self.space.size}), but has shape "
                f"{column.shape} ({shortened(self.info.name)})"
            )
        array = column.astype(dtype)
        if not np.array_equal(array, column, equal_nan=array.dtype.kind == "f"):
            raise SpaceError(
                f"{name} must fit {np.dtype(dtype)}, but does not ({shortened(self.info.name)})"
            )
        array.setflags(write=False)
        return array

    def _check(self, good: npt.NDArray[np.bool_], name: str, rule: str) -> None:
        bad = np.flatnonzero(~good)
        if len(bad):
            row = int(bad[0])
            raise SpaceError(
                f"{name} must be {rule}, but {shortened(self.info.name)} has "
                f"{getattr(self, name)[row]} (status {self.status[row]}) for {len(bad)} "
                f"configurations, first row {row}"
            )
