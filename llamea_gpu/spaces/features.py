"""The landscape of a recording in numbers: what is hard about it, and where its structure lies.

Of a cloud, which holds some of a whole space and no fair sample of it, only what that bears.
Everything is a function of the recording or cloud alone, the same on every machine. Times enter as
logarithms, because kernel times are heavy-tailed and a factor is what matters. Nothing here names
the optimum's configuration: features go into prompts, and a prompt must not give the answer away.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.spaces.space import SearchSpace

FloatArray = NDArray[np.float64]

NEAR_PERCENT = (1, 5, 10)
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
STRONGEST_PAIRS = 5
SAMPLED_ROWS = 2_000


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
        interactions: (a, b, share of the variance of log time that the pair explains beyond all
            parameters on their own), strongest first.
        hamming_degree: mean number of Hamming-1 neighbours.
        neighbour_autocorrelation: correlation of log time across pairs of Hamming-1 neighbours.
        local_optima: configurations that no Hamming-1 neighbour beats, plateaus included;
            ``local_optima_share`` of those that work. In a space too large for a table of
            neighbours, these and the next two are taken over 2,000 evenly spaced rows.
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


@dataclass(frozen=True, slots=True)
class WholeFeatures:
    """What a cloud tells of a whole space.

    Attributes:
        dimension: parameters; ``combinations``: of their values, valid or not, as a power of ten.
        measured: measurements behind all this; ``failure_share`` of them failed. They lie where
            searchers have been, not everywhere alike.
        optimum_ms: the best of them; ``default_ms``: the kernel's default, inf where it fails.
        starts: configurations that are given.
        main_effects (in ``parameters``): among what was measured.
        compile_s, benchmark_s: (median, 90 % quantile, maximum), over all and over working ones.
    """

    name: str
    kernel: str
    device: str
    framework: str
    dimension: int
    combinations: float
    measured: int
    failure_share: float
    optimum_ms: float
    median_ms: float
    default_ms: float | None
    starts: int
    parameters: tuple[ParameterFeatures, ...]
    compile_s: tuple[float, float, float]
    benchmark_s: tuple[float, float, float]


def compute_whole_features(cloud: Cloud) -> WholeFeatures:
    """Features of the space of ``cloud``.

    Raises:
        SpaceError: no configuration works.
    """
    ok, info = cloud.ok, cloud.info
    if not ok.any():
        raise SpaceError(f"{info.name}: features need at least one working configuration")
    return WholeFeatures(
        name=info.name,
        kernel=info.kernel,
        device=info.device,
        framework=info.framework,
        dimension=cloud.dimension,
        combinations=float(np.sum(np.log10(cloud.cardinalities))),
        measured=len(cloud),
        failure_share=float(1 - ok.mean()),
        optimum_ms=cloud.best_ms,
        median_ms=float(np.median(cloud.times_ms[ok])),
        default_ms=cloud.default_ms,
        starts=len(cloud.starts),
        parameters=_parameters(cloud, cloud.configurations[ok], cloud.times_ms[ok]),
        compile_s=_time_profile(cloud.compile_s),
        benchmark_s=_time_profile(cloud.benchmark_s[ok]),
    )


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
    around = _neighbourhood(recording)
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
        parameters=_parameters(space, space.configurations[ok].astype(np.int64), times),
        interactions=_interactions(recording),
        hamming_degree=around.degree,
        neighbour_autocorrelation=around.autocorrelation,
        local_optima=around.optima,
        local_optima_share=around.optima / around.looked_at if around.looked_at else 0.0,
        fitness_distance_correlation=_distance_correlation(recording),
        compile_s=_time_profile(recording.compile_s),
        benchmark_s=_time_profile(recording.benchmark_s[ok]),
    )


def _parameters(
    space: SearchSpace | Cloud, configurations: NDArray[np.int64], times_ms: FloatArray
) -> tuple[ParameterFeatures, ...]:
    """Of (n, d) configurations that work."""
    log_time = np.log(times_ms)
    columns = zip(space.names, space.values, space.ordinal, configurations.T, strict=True)
    return tuple(
        ParameterFeatures(
            name,
            len(values),
            ordinal,
            ", ".join("''" if value == "" else str(value) for value in values),
            _explained(log_time, column),
        )
        for name, values, ordinal, column in columns
    )


def _time_profile(values: FloatArray) -> tuple[float, float, float]:
    median, most, slowest = np.quantile(values, (0.5, 0.9, 1.0))
    return float(median), float(most), float(slowest)


@dataclass(frozen=True, slots=True)
class _Neighbourhood:
    optima: int
    looked_at: int  # working configurations among those whose neighbours were looked at
    autocorrelation: float
    degree: float


def _neighbourhood(recording: Recording) -> _Neighbourhood:
    space, time_ms, ok = recording.space, recording.time_ms, recording.ok
    table = space.neighbor_table("hamming")
    if table is not None:
        rows: NDArray[np.int64] = np.arange(space.size)
        degrees = np.diff(table.start)
        targets = table.indices.astype(np.int64)
    else:  # too many neighbours for a table: evenly spaced rows stand for all
        rows = np.linspace(0, space.size - 1, SAMPLED_ROWS).astype(np.int64)
        lists = [space.neighbor_rows(int(row), "hamming") for row in rows]
        degrees = np.array([len(neighbors) for neighbors in lists])
        targets = np.concatenate(lists).astype(np.int64)
    sources = np.repeat(rows, degrees)
    beaten = np.zeros(space.size, dtype=np.bool_)
    beaten[sources[time_ms[targets] < time_ms[sources]]] = True
    working = rows[ok[rows]]
    both = ok[sources] & ok[targets]
    return _Neighbourhood(
        optima=int(np.sum(~beaten[working])),
        looked_at=len(working),
        autocorrelation=_correlation(
            np.log(time_ms[sources[both]]), np.log(time_ms[targets[both]])
        ),
        degree=float(degrees.mean()),
    )


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


def _interactions(recording: Recording) -> tuple[tuple[str, str, float], ...]:
    """Pairs whose cell means explain what an additive model of all parameters leaves over.

    Looking at the residual, not at the times, keeps constraints (which make parameters depend on
    each other) from passing as interactions. The share expected from noise alone, (cells - 1) times
    the mean square within cells, is subtracted (omega squared), so that pairs with many cells do
    not win by size.
    """
    space = recording.space
    configurations = space.configurations[recording.ok].astype(np.int64)
    log_time = np.log(recording.time_ms[recording.ok])
    total = float(np.sum((log_time - log_time.mean()) ** 2))
    varying = [i for i, cardinality in enumerate(space.cardinalities) if cardinality > 1]
    if np.ptp(log_time) == 0 or len(varying) < 2:
        return ()
    residual = _additive_residual(configurations, space.cardinalities, log_time)
    squares = float(np.sum(residual**2))
    interactions = []
    for a, b in itertools.combinations(varying, 2):
        codes = configurations[:, a] * space.cardinalities[b] + configurations[:, b]
        cells = int(np.count_nonzero(np.bincount(codes)))
        if cells >= len(codes):
            continue
        between = squares * _explained(residual, codes)
        share = (between - (cells - 1) * (squares - between) / (len(codes) - cells)) / total
        if share > 0:
            interactions.append((space.names[a], space.names[b], share))
    # Stable: equal shares keep the order of the parameters.
    return tuple(sorted(interactions, key=lambda item: -item[2])[:STRONGEST_PAIRS])


def _additive_residual(
    configurations: NDArray[np.int64], cardinalities: tuple[int, ...], log_time: FloatArray
) -> FloatArray:
    """What the best sum of one-parameter effects leaves, by least squares on indicator columns."""
    offsets = np.concatenate([[0], np.cumsum(cardinalities)])
    columns = configurations + offsets[:-1]
    normal = np.zeros((offsets[-1], offsets[-1]))
    moment = np.zeros(offsets[-1])
    centred = log_time - log_time.mean()
    for first in columns.T:
        np.add.at(moment, first, centred)
        for second in columns.T:
            np.add.at(normal, (first, second), 1.0)
    effects = np.linalg.lstsq(normal, moment, rcond=1e-10)[0]
    residual: FloatArray = centred - effects[columns].sum(axis=1)
    return residual


def _explained(values: FloatArray, groups: NDArray[np.int64]) -> float:
    """Share of the variance of ``values`` that lies between ``groups``."""
    total = float(np.var(values))
    if total == 0:
        return 0.0
    counts = np.bincount(groups)
    means = np.bincount(groups, weights=values)[counts > 0] / counts[counts > 0]
    between = np.sum(counts[counts > 0] * (means - values.mean()) ** 2) / len(values)
    return float(between / total)
