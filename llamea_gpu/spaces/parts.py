"""Random parts of a recording: more search spaces from the same measurements.

What is bred on a few spaces fits them; spaces are dear, since each configuration was compiled and
timed on a GPU. A part keeps some of the values of some parameters, and with them another number of
configurations, another optimum, other parameters that matter and another budget. It is still the
same kernel: a part says nothing about other kernels, and little about the whole space, whose
budget is larger. It is what is left when somebody narrows a kernel's parameters by hand.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.errors import SpaceError
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.spaces.space import SearchSpace

LEAST_CONFIGURATIONS = 150
LEAST_PARAMETERS = 4  # that still vary
LEAST_WORKING = 0.25  # of the configurations of a part
FIXED_SHARE = 0.3  # of the drops: a parameter keeps a single value
_LARGEST_SHARE, _SMALLEST_SHARE = 1 / 2, 1 / 8  # of the whole space
_ATTEMPTS = 200

Mask = NDArray[np.bool_]


def random_part(recording: Recording, number: int) -> Recording:
    """The ``number``-th random part of a recording, the same on every machine.

    Values are dropped one at a time, or all but one of a parameter's, until no more than a share of
    the configurations is left (log-uniform, an eighth to a half). Recordings of one space on
    several devices have the same parts. Parameters that do not vary any more are left out; so is
    the default configuration where the part does not hold it.

    Raises:
        SpaceError: a negative number, or the space is too small to have parts.
    """
    if number < 0:
        raise SpaceError(f"a part's number must be 0 or more, but got {number}")
    space, name = recording.space, recording.info.name
    digest = hashlib.sha256(f"{space.fingerprint}/{number}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    for _ in range(_ATTEMPTS):
        kept = _thinned(space, rng)
        if _enough(recording, kept):
            return _part(recording, kept, f"{name}.part{number}")
    raise SpaceError(
        f"a part must have at least {LEAST_CONFIGURATIONS} configurations, {LEAST_PARAMETERS} "
        f"parameters that vary and {LEAST_WORKING:.0%} that work, but none of {_ATTEMPTS} of "
        f"{name} ({space.size} configurations, {space.dimension} parameters) has: use the whole"
    )


def _thinned(space: SearchSpace, rng: np.random.Generator) -> Mask:
    """(N,) whether each configuration is left."""
    share = float(np.exp(rng.uniform(np.log(_SMALLEST_SHARE), np.log(_LARGEST_SHARE))))
    kept = np.ones(space.size, dtype=bool)
    while kept.sum() > share * space.size:
        left = space.configurations[kept]
        varying = [j for j in range(space.dimension) if len(np.unique(left[:, j])) > 1]
        column = int(rng.choice(varying))
        values = rng.permutation(np.unique(left[:, column]))
        fixes = len(varying) > LEAST_PARAMETERS and rng.random() < FIXED_SHARE
        dropped = values[1:] if fixes else values[:1]
        kept &= ~np.isin(space.configurations[:, column], dropped)
    return kept


def _enough(recording: Recording, kept: Mask) -> bool:
    left = recording.space.configurations[kept]
    varying = sum(len(np.unique(column)) > 1 for column in left.T)
    return (
        len(left) >= LEAST_CONFIGURATIONS
        and varying >= LEAST_PARAMETERS
        and bool(recording.ok[kept].mean() >= LEAST_WORKING)
    )


def _part(recording: Recording, kept: Mask, name: str) -> Recording:
    space, info = recording.space, recording.info
    left = space.configurations[kept]
    names, values, columns = [], [], []
    fixed = {}
    for j, parameter in enumerate(space.names):
        indices, places = np.unique(left[:, j], return_inverse=True)
        if len(indices) > 1:
            names.append(parameter)
            values.append([space.values[j][i] for i in indices])
            columns.append(places)
        else:
            fixed[parameter] = space.values[j][indices[0]]
    default = info.default_configuration
    if default is not None:
        contains_default = all(
            default.get(parameter) == value for parameter, value in fixed.items()
        )
        default = {k: v for k, v in default.items() if k not in fixed} if contains_default else None
    return Recording.from_rows(
        names,
        values,
        np.stack(columns, axis=1),
        recording.time_ms[kept],
        recording.compile_s[kept],
        recording.benchmark_s[kept],
        recording.status[kept],
        replace(
            info,
            name=name,
            default_configuration=default,
            provenance={**info.provenance, "part_of": info.name},
        ),
    )
