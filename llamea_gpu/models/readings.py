"""What a cloud says of each configuration, once repeats and runs are reconciled.

A configuration, or one code that several configurations share, may have been timed several times,
on several machines:

- **Runs** are brought to the scale of the one with the most measurements: a run is slower by the
  median, over codes that both have timed, of the difference of log times.
- **A reading is steady** when its quartiles lie within 10 % of each other. An unsteady one is a
  machine that did something else; it counts only where there is no steady one. Nor is a **single
  launch** steady, which is all that a recorder gives what seems to take ten times the best: where
  such code was timed again, it was often the host that had been slow, by a factor of up to a
  hundred.
- **The time** of a group (equal configurations, equal code) is the median of its steady readings.
- **Seconds to compile** are those of a run's first compilation of a code: a later one comes from
  the compiler's cache.
- **Seconds to time** are the median of a group's rows that were timed. For code that it has timed
  before, the engine books 0 s: a row with a known code and 0 s is such a one where another row of
  the group has seconds. Those of the recipe's version 2 count
  (:mod:`llamea_gpu.models.versions`).
- **Noise** is the relative standard deviation of a steady reading: from the differences of
  consecutive readings of the same code in the same run, near the best where there are enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llamea_gpu.models.versions import VERSIONS, Version
from llamea_gpu.spaces.cloud import Cloud

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

STEADY = 0.1  # widest distance of a steady reading's quartiles, as a difference of logarithms
_SINGLE = 0.1  # the same of a single launch, for its weight
_LEAST_SHARED = 3  # codes that two runs must share before one is scaled to the other
_NEAR_BEST = math.log(1.5)
_LEAST_PAIRS = 20  # of readings near the best, else all pairs are taken
_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """N rows, those of the cloud.

    Attributes:
        version: of the recipe, the cloud's.
        group: (N,) number of the group of equal configurations and equal code.
        status: (N,) index into STATUSES: the group's most frequent one.
        log_ms: (N,) logarithm of the group's time; nan where it fails.
        own_log_ms: (N,) that of the row alone, on the scale of the reference run; nan where failed.
        steady: (N,) whether the group's time comes from steady readings.
        single: (N,) whether it comes from single launches, for want of steady readings.
        weight: (N,) of the row in a fit: inverse of its variance, mean 1 over what works.
        compile_s: (N,) of the group's first compilations (median of runs); nan where none is known.
        benchmark_s: (N,) the group's median, of `timed_rows` where it has some.
        noise: relative standard deviation of a steady reading; nan without a repeat.
        run_offsets: log of how much slower each run is than the reference; nan where unknown, and
            then taken for 0.
    """

    version: Version
    group: Ints
    status: npt.NDArray[np.uint8]
    log_ms: Floats
    own_log_ms: Floats
    steady: Bools
    single: Bools
    weight: Floats
    compile_s: Floats
    benchmark_s: Floats
    noise: float
    run_offsets: tuple[float, ...]

    @property
    def ok(self) -> Bools:
        """(N,) whether the group works."""
        ok: Bools = self.status == 0
        return ok

    @classmethod
    def of(cls, cloud: Cloud) -> Readings:
        """The readings of a cloud."""
        group = cloud.groups()
        offsets = _run_offsets(cloud)
        own = np.log(cloud.times_ms) - np.nan_to_num(np.array(offsets))[cloud.run]
        spread = np.log(cloud.high_ms / cloud.low_ms)
        # Quartiles of several launches are hardly ever equal; of all, they are not known.
        single = (cloud.low_ms == cloud.high_ms) & bool((cloud.low_ms < cloud.high_ms).any())
        steady = cloud.ok & ~(spread > STEADY) & ~single  # unknown quartiles are no reproach
        noise = _noise(cloud, own, steady)
        status = _majority(group, cloud.statuses)
        works = (status == 0) & cloud.ok
        of_steady = np.isin(group, group[steady]) & (status == 0)
        trusted = _or_all(group, steady, works)
        fresh = _first_of_code(cloud)
        members = _members(group)
        return cls(
            version=VERSIONS[cloud.recipe],
            group=group,
            status=status,
            log_ms=np.where(status == 0, _medians(members, own, trusted), np.nan),
            own_log_ms=own,
            steady=of_steady,
            single=np.isin(group, group[single & works]) & (status == 0) & ~of_steady,
            weight=_weights(np.where(single, _SINGLE, spread), noise, works),
            compile_s=_medians(members, cloud.compile_s, fresh & (cloud.statuses == status)),
            benchmark_s=_medians(
                members,
                cloud.benchmark_s,
                _or_all(group, timed_rows(cloud), cloud.statuses == status),
            ),
            noise=noise,
            run_offsets=offsets,
        )


def timed_rows(cloud: Cloud) -> Bools:
    """(N,) whether a row's seconds to time are its own, or count all the same by its recipe."""
    booked = (cloud.benchmark_s == 0) & (cloud.source != "")
    timed: Bools = ~booked | VERSIONS[cloud.recipe].booked_seconds
    return timed


def _run_offsets(cloud: Cloud) -> tuple[float, ...]:
    """Log of each run's slowness against the run with the most measurements."""
    reference = int(np.bincount(cloud.run, minlength=len(cloud.runs)).argmax())
    codes = [_log_by_code(cloud, run) for run in range(len(cloud.runs))]
    offsets = []
    for run, log_by_code in enumerate(codes):
        shared = [
            log_by_code[code] - codes[reference][code]
            for code in log_by_code
            if code in codes[reference]
        ]
        known = run == reference or len(shared) >= _LEAST_SHARED
        offsets.append(float(np.median(shared)) if known else math.nan)
    return tuple(offsets)


def _log_by_code(cloud: Cloud, run: int) -> dict[str, float]:
    times: dict[str, list[float]] = {}
    for row in np.flatnonzero(cloud.ok & (cloud.run == run)):
        code = str(cloud.source[row]) or str(cloud.configuration(int(row)))
        times.setdefault(code, []).append(float(cloud.times_ms[row]))
    return {code: math.log(float(np.median(repeats))) for code, repeats in times.items()}


def _noise(cloud: Cloud, log_ms: Floats, steady: Bools) -> float:
    best = log_ms[steady].min(initial=math.inf)
    last: dict[tuple[int, str], float] = {}
    pairs = []
    for row in np.lexsort((cloud.at_s, cloud.run)):
        # A row without seconds of its own took over the time of an equal code.
        if not steady[row] or not cloud.source[row] or cloud.benchmark_s[row] <= 0:
            continue
        key = int(cloud.run[row]), str(cloud.source[row])
        if key in last:
            pairs.append((log_ms[row] - last[key], min(log_ms[row], last[key]) - best))
        last[key] = float(log_ms[row])
    near = [difference for difference, above in pairs if above <= _NEAR_BEST]
    chosen = near if len(near) >= _LEAST_PAIRS else [difference for difference, _ in pairs]
    if not chosen:
        return math.nan
    return float(_MAD * np.median(np.abs(chosen)) / math.sqrt(2))


def _weights(spread: Floats, noise: float, works: Bools) -> Floats:
    """Inverse variance: what repeats show, and what the quartiles show of this reading."""
    own = np.nan_to_num(spread) / (2 * 1.349)  # half an interquartile range, as a deviation
    variance = max(np.nan_to_num(noise), 0.01) ** 2 + own**2
    weight: Floats = np.where(works, 1 / variance, 0.0)
    return weight / weight[works].mean() if works.any() else weight


def _first_of_code(cloud: Cloud) -> Bools:
    """Whether a row is the first of its run with its code."""
    seen: set[tuple[int, str]] = set()
    first = np.ones(len(cloud), dtype=np.bool_)
    for row in np.lexsort((cloud.at_s, cloud.run)):
        key = int(cloud.run[row]), str(cloud.source[row])
        first[row] = not key[1] or key not in seen
        seen.add(key)
    return first


def _members(group: Ints) -> list[Ints]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


def _or_all(group: Ints, preferred: Bools, possible: Bools) -> Bools:
    """The preferred rows of each group, where it has none all possible ones."""
    has = np.isin(group, group[preferred & possible])
    chosen: Bools = possible & (preferred | ~has)
    return chosen


def _medians(members: list[Ints], numbers: Floats, chosen: Bools) -> Floats:
    """For each row the median of the chosen ones of its group, nan where there is none."""
    result = np.full(len(numbers), np.nan)
    for rows in members:
        picked = numbers[rows][chosen[rows]]
        if len(picked):
            result[rows] = np.median(picked)
    return result


def _majority(group: Ints, statuses: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Each row's group's most frequent status; of equally frequent ones the first by number."""
    counts = np.zeros((int(group.max()) + 1, int(statuses.max()) + 1), dtype=np.intp)
    np.add.at(counts, (group, statuses), 1)
    majority: npt.NDArray[np.uint8] = counts.argmax(axis=1)[group].astype(np.uint8)
    return majority
