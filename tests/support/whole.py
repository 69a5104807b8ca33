"""A whole space that needs no framework: rules, a model and a task to check by hand."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from llamea_gpu.clocks import PipelinedClock
from llamea_gpu.modelled import WholeTask
from support.clouds import small_cloud

Config = tuple[int, ...]
NAMES = ("size", "warps", "stages", "kind", "modifier")
VALUES = ((16, 32, 64, 128, 256), (1, 2, 4, 8), (1, 2, 3), ("flat", "persistent"), (None, 32, 64))
CARDINALITIES = tuple(map(len, VALUES))
STARTS = ((1, 2, 0, 0, 0), (3, 3, 1, 0, 0))


class ToySpace:
    """``modifier`` means nothing where ``kind`` is flat; the largest size needs two warps."""

    names, values, cardinalities = NAMES, VALUES, CARDINALITIES
    ordinal = (True, True, True, False, False)
    size = None

    def __init__(self, rng: np.random.Generator, starts: Sequence[Config]) -> None:
        self._rng = rng
        self.starts = list(starts)
        self.leaders: list[Config] = []
        self._unsampled = list(starts)

    def canonical(self, config: Sequence[int]) -> Config | None:
        try:
            key = tuple(map(int, config))
        except TypeError:
            return None
        if (
            key != tuple(config)
            or len(key) != len(NAMES)
            or not all(0 <= i < c for i, c in zip(key, CARDINALITIES, strict=True))
        ):
            return None
        if key[0] == 4 and key[1] == 0:
            return None
        return key if key[3] else (*key[:4], 0)

    def sample(self, n: int) -> list[Config]:
        found = dict.fromkeys(self._unsampled[:n])
        del self._unsampled[: len(found)]
        while len(found) < min(n, 64):
            near = [*self.leaders, *self.starts][int(self._rng.integers(2)) :][0]
            drawn = self._rng.integers(0, CARDINALITIES)
            kept = self._rng.random(len(NAMES)) < 0.5
            config = self.canonical(np.where(kept, near, drawn).tolist())
            if config is not None:
                found[config] = None
        return list(found)

    def pool(self, n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array(self.sample(min(n, 20)), dtype=np.int64)

    def neighbors(self, config: Sequence[int], kind: str = "hamming") -> list[Config]:
        home = self.canonical(config)
        assert home is not None
        found = {}
        for j, count in enumerate(CARDINALITIES):
            near = kind == "adjacent" and self.ordinal[j]
            for i in range(count):
                if i != home[j] and not (near and abs(i - home[j]) > 1):
                    found[self.canonical((*home[:j], i, *home[j + 1 :]))] = None
        return [config for config in found if config is not None and config != home]

    def contains(self, config: Sequence[int]) -> bool:
        return self.canonical(config) is not None

    def repair(self, config: Sequence[float]) -> Config:
        highest = np.array(CARDINALITIES) - 1
        return self.canonical(np.clip(np.rint(config), 0, highest)) or self.starts[0]

    def encode(self, configs: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.asarray(configs, dtype=float).reshape(-1, len(NAMES)) / np.maximum(
            np.array(CARDINALITIES) - 1, 1
        )


class ToyKernel:
    """In the place of a bound kernel."""

    def __init__(self) -> None:
        self.inside = 0

    @contextlib.contextmanager
    def pretended(self) -> Iterator[None]:
        self.inside += 1
        yield
        self.inside -= 1

    def space(
        self, rng: np.random.Generator, starts: Sequence[Config], default: Config | None
    ) -> ToySpace:
        del default
        assert self.inside == 1
        return ToySpace(rng, starts)


class ToyOutcome(NamedTuple):
    status: int
    time_ms: float
    compile_s: float
    benchmark_s: float
    measured: bool = False
    code: int = -1


class ToyModel:
    """A function of the configuration; three stages fail to compile, the best takes 0.5 ms."""

    digest = "toy"
    best_ms = 0.5

    def outcome(self, config: Config) -> ToyOutcome:
        size, warps, stages, kind, modifier = config
        if stages == 2:
            return ToyOutcome(1, math.inf, 3.0, 0.0)
        time_ms = 0.5 + 0.3 * abs(size - 3) + 0.2 * abs(warps - 2) + 0.1 * (1 - kind) + modifier
        return ToyOutcome(0, time_ms, 1.0 + 0.5 * stages, 0.25 + 0.125 * warps)

    def outcomes(self, configs: Sequence[Config]) -> list[ToyOutcome]:
        return [self.outcome(config) for config in configs]


class ToyTask(WholeTask):
    """A task whose kernel needs nothing."""

    def bind(self) -> ToyKernel:
        return ToyKernel()


def toy_task(clock: Any = None, budget_s: float = 30.0, **fields: Any) -> ToyTask:
    """On the toy space, with two workers unless a clock is given."""
    starts = np.array(STARTS)
    times_ms = [ToyModel().outcome(start).time_ms for start in STARTS]
    ones = np.ones(len(starts))
    cloud = small_cloud(
        script="toy",
        names=NAMES,
        values=VALUES,
        ordinal=ToySpace.ordinal,
        default=STARTS[0],
        starts=STARTS,
        runs=({},),
        configurations=starts,
        statuses=np.zeros(len(starts), np.uint8),
        times_ms=np.array(times_ms),
        low_ms=ones * math.nan,
        high_ms=ones * math.nan,
        compile_s=ones,
        benchmark_s=ones / 4,
        control_ms=ones * math.nan,
        source=np.array(["", ""]),
        how=np.array(["start", "start"]),
        run=np.zeros(len(starts), np.int64),
        at_s=ones,
    )
    return ToyTask(cloud, ToyModel(), clock or PipelinedClock(2), budget_s, **fields)
