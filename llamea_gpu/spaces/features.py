"""The landscape of a recording in numbers: what is hard about it, and where its structure lies.

Everything is a function of the recording alone, the same on every machine. Times enter as
logarithms, because kernel times are heavy-tailed and a factor is what matters. Nothing here names
the optimum's configuration: features go into prompts, and a prompt must not give the answer away.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.spaces.space import Value

FloatArray = NDArray[np.float64]

NEAR_PERCENT = (1, 5, 10)
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
STRONGEST_PAIRS = 5


@dataclass(frozen=True, slots=True)
class ParameterFeatures:
    """One parameter; ``main_effect`` is the share of the variance of log time that it explains."""

    name: str
    cardinality: int
    ordinal: bool
    values_text: str
    main_effect: float


@dataclass(frozen=True, slots=True)
class SpaceFeatures:
    """A recording's landscape.

    Attributes:
        size: valid configurations; ``dimension``: parameters.
        failure_share: share of them that do not compile, launch or verify.
        cost_quantiles_ms: {quantile: time} over those that work.
        share_within: {percent: share of all configurations at most that much above the optimum}.
        interactions: (a, b, share of variance beyond both main effects), strongest first.
        hamming_degree: mean number of Hamming-1 neighbours.
        neighbour_autocorrelation: correlation of log time across pairs of Hamming-1 neighbours.
        local_optima: configurations that no Hamming-1 neighbour beats, plateaus included;
            ``local_optima_share`` of those that work.
        fitness_distance_correlation: of log time and Hamming distance to the optimum.
        compile_s, benchmark_s: (median, 90 % quantile, maximum), over all and over working ones.
    """

    name: str
    kernel: str
    device: str
    framework: str
    size: int
    dimension: int
    failure_share: float
    optimum_ms: float
    median_ms: float
    cost_quantiles_ms: dict[float, float]
    share_within: dict[int, float]
    parameters: tuple[ParameterFeatures, ...]
    interactions: tuple[tuple[str, str, float], ...]
    hamming_degree: float
    neighbour_autocorrelation: float
    local_optima: int
    local_optima_share: float
    fitness_distance_correlation: float
    compile_s: tuple[float, float, float]
    benchmark_s: tuple[float, float, float]


def compute_features(recording: Recording) -> SpaceFeatures:
    """Features of ``recording``.

    Raises:
        SpaceError: no configuration works.
    """
    space, info, ok = recording.space, recording.info, recording.ok
    if not ok.any():
        raise SpaceError(f"{info.name}: features need at least one working configuration")
    times = recording.time_ms[ok]
    optimum = float(times.min())
    sources, targets = _neighbour_pairs(recording)
    optima = _local_optima(recording.time_ms, ok, sources, targets)
    effects = _main_effects(recording)
    return SpaceFeatures(
        name=info.name,
        kernel=info.kernel,
        device=info.device,
        framework=info.framework,
        size=space.size,
        dimension=space.dimension,
        failure_share=float(1 - ok.mean()),
        optimum_ms=optimum,
        median_ms=float(np.median(times)),
        cost_quantiles_ms={q: float(np.quantile(times, q)) for q in QUANTILES},
        share_within={
            percent: float(np.sum(times <= optimum * (1 + percent / 100)) / space.size)
            for percent in NEAR_PERCENT
        },
        parameters=tuple(
            ParameterFeatures(name, len(values), ordinal, _values_text(values), effect)
            for name, values, ordinal, effect in zip(
                space.names, space.values, space.ordinal, effects, strict=True
            )
        ),
        interactions=_interactions(recording, effects),
        hamming_degree=len(sources) / space.size,
        neighbour_autocorrelation=_autocorrelation(recording.time_ms, ok, sources, targets),
        local_optima=optima,
        local_optima_share=optima / int(ok.sum()),
        fitness_distance_correlation=_distance_correlation(recording),
        compile_s=_time_profile(recording.compile_s),
        benchmark_s=_time_profile(recording.benchmark_s[ok]),
    )


def _values_text(values: tuple[Value, ...]) -> str:
    return ", ".join("''" if value == "" else str(value) for value in values)


def _time_profile(values: FloatArray) -> tuple[float, float, float]:
    median, most, slowest = np.quantile(values, (0.5, 0.9, 1.0))
    return float(median), float(most), float(slowest)


def _neighbour_pairs(
    recording: Recording,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(row, neighbour) of every ordered pair of Hamming-1 neighbours."""
    space = recording.space
    around = [space.neighbor_rows(row, "hamming") for row in range(space.size)]
    sources = np.repeat(np.arange(space.size), [len(rows) for rows in around])
    targets = np.concatenate(around) if around else np.empty(0)
    return sources, targets.astype(np.int64)


def _autocorrelation(
    time_ms: FloatArray,
    ok: NDArray[np.bool_],
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
) -> float:
    both = ok[sources] & ok[targets]
    return _correlation(np.log(time_ms[sources[both]]), np.log(time_ms[targets[both]]))


def _local_optima(
    time_ms: FloatArray,
    ok: NDArray[np.bool_],
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
) -> int:
    beaten = np.zeros(len(time_ms), dtype=bool)
    beaten[sources[time_ms[targets] < time_ms[sources]]] = True
    return int(np.sum(ok & ~beaten))


def _distance_correlation(recording: Recording) -> float:
    configurations = recording.space.configurations[recording.ok]
    log_time = np.log(recording.time_ms[recording.ok])
    best = configurations[int(np.argmin(log_time))]
    return _correlation(log_time, (configurations != best).sum(axis=1).astype(float))


def _correlation(first: FloatArray, second: FloatArray) -> float:
    """Pearson's; 0 where one side does not vary."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _main_effects(recording: Recording) -> list[float]:
    configurations = recording.space.configurations[recording.ok].astype(np.int64)
    log_time = np.log(recording.time_ms[recording.ok])
    return [_explained(log_time, column) for column in configurations.T]


def _interactions(recording: Recording, effects: list[float]) -> tuple[tuple[str, str, float], ...]:
    space = recording.space
    configurations = space.configurations[recording.ok].astype(np.int64)
    log_time = np.log(recording.time_ms[recording.ok])
    varying = [i for i, cardinality in enumerate(space.cardinalities) if cardinality > 1]
    found = []
    for a, b in itertools.combinations(varying, 2):
        joint = configurations[:, a] * space.cardinalities[b] + configurations[:, b]
        share = _explained(log_time, joint) - effects[a] - effects[b]
        found.append((space.names[a], space.names[b], max(share, 0.0)))
    # Stable: equal shares keep the order of the parameters.
    return tuple(sorted(found, key=lambda item: -item[2])[:STRONGEST_PAIRS])


def _explained(values: FloatArray, groups: NDArray[np.int64]) -> float:
    """Share of the variance of ``values`` that lies between ``groups``."""
    total = float(np.var(values))
    if total == 0:
        return 0.0
    counts = np.bincount(groups)
    means = np.bincount(groups, weights=values)[counts > 0] / counts[counts > 0]
    between = np.sum(counts[counts > 0] * (means - values.mean()) ** 2) / len(values)
    return float(between / total)
