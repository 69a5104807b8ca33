"""A modelled space: what a configuration of a whole space would measure, by a cloud and its fit.

What was measured answers as it was measured; the rest is predicted. An answer is a function of the
configuration alone: it holds no noise (`SpaceModel.noise` says how much readings have), and asking
twice is asking once.

A model is never stored: it is fitted again from the cloud, to the same answers. Since that takes
seconds, the trees are kept as plain arrays in a cache folder, under the digest of the cloud and the
version of its recipe: ``$LLAMEA_GPU_CACHE``, else ``$XDG_CACHE_HOME/llamea_gpu``, else
``~/.cache/llamea_gpu``. What cannot be read or written there is fitted anew.

It does not know which configurations are valid, nor whether it is any good: that is the gate's
(:mod:`llamea_gpu.models.gate`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from llamea_gpu.errors import SpaceError
from llamea_gpu.files import open_regular, write_atomically
from llamea_gpu.models.features import FeatureTable
from llamea_gpu.models.readings import Readings
from llamea_gpu.models.recipe import Arrays, Fit, Predictions, grow
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.quoting import quoted
from llamea_gpu.spaces.space import Configuration

_FITTED: dict[str, Fit] = {}  # of this process
_MOST_FITTED = 64


class Outcome(NamedTuple):
    """What measuring a configuration would give.

    Attributes:
        status: index into :data:`~llamea_gpu.spaces.recording.STATUSES`.
        time_ms: inf where it fails.
        compile_s: seconds of the first compilation; benchmark_s: to check and time.
        measured: whether the configuration is one of the cloud's.
        code: number of its generated code, the same for all measured configurations that have it;
            -1 where it was not measured.
    """

    status: int
    time_ms: float
    compile_s: float
    benchmark_s: float
    measured: bool
    code: int = -1


class SpaceModel:
    """What configurations would measure.

    Attributes:
        cloud: the measurements behind it.
        digest: identity of the cloud, see `cloud_digest`.
        readings: the cloud's repeats and runs, reconciled.
        best_ms: the best time that was measured: no answer is below it.
    """

    def __init__(self, cloud: Cloud) -> None:
        """Fit a model to a cloud, or take the fit from the cache.

        Raises:
            SpaceError: fewer than 20 measurements work.
        """
        self.cloud = cloud
        self.digest = cloud_digest(cloud)
        self.readings = Readings.of(cloud)
        self._table = FeatureTable(cloud.names, cloud.values, cloud.ordinal)
        self._fit = self._fitted()
        self._cardinalities = cloud.cardinalities
        self._known = self._measured()
        self.best_ms = min(outcome.time_ms for outcome in self._known.values())

    def __reduce__(self) -> tuple[type[SpaceModel], tuple[Cloud]]:
        # The trees are found in the cache where it is read.
        return SpaceModel, (self.cloud,)

    @property
    def noise(self) -> float:
        """Relative standard deviation of a reading near the best; nan without repeats."""
        return self.readings.noise

    def outcome(self, config: Sequence[int]) -> Outcome:
        """What one configuration would measure.

        Raises:
            SpaceError: not the value indices of the cloud's parameters.
        """
        configuration = tuple(config)
        known = self._known.get(configuration)
        if known is not None:
            return known
        self._check(configuration)
        return self._outcomes(self._fit.one(self._table.one(configuration)))[0]

    def outcomes(self, configs: Iterable[Sequence[int]]) -> list[Outcome]:
        """What each of several configurations would measure; raises what `outcome` does."""
        configurations = [tuple(config) for config in configs]
        unknown = [c for c in dict.fromkeys(configurations) if c not in self._known]
        for configuration in unknown:
            self._check(configuration)
        predicted: dict[Configuration, Outcome] = {}
        if unknown:
            outcomes = self._outcomes(self._fit.many(self._table.many(unknown)))
            predicted = dict(zip(unknown, outcomes, strict=True))
        return [self._known.get(c) or predicted[c] for c in configurations]

    def _outcomes(self, predictions: Predictions) -> list[Outcome]:
        columns = (
            predictions.status.tolist(),
            # The best measured time is the model's best: rounding must not pass it.
            np.maximum(np.exp(predictions.log_ms), self.best_ms).tolist(),
            predictions.seconds.tolist(),
        )
        return [
            Outcome(status, math.inf if status else time_ms, compile_s, benchmark_s, False)
            for status, time_ms, (compile_s, benchmark_s) in zip(*columns, strict=True)
        ]

    def _check(self, configuration: Configuration) -> None:
        sizes = self._cardinalities
        if len(configuration) != len(sizes) or not all(
            0 <= index < size for index, size in zip(configuration, sizes, strict=True)
        ):
            raise SpaceError(
                f"a configuration must be value indices of the {len(sizes)} parameters, below "
                f"{quoted(sizes)}, but got {quoted(configuration)}"
            )

    def _measured(self) -> dict[Configuration, Outcome]:
        readings = self.readings
        predicted = self._fit.many(self._table.many(self.cloud.configurations)).seconds
        seconds = np.stack([readings.compile_s, readings.benchmark_s], axis=1)
        seconds = np.where(np.isfinite(seconds), seconds, predicted)
        times = np.exp(readings.log_ms)
        known = {}
        for row, status in enumerate(readings.status.tolist()):
            time_ms = math.inf if status else float(times[row])
            compile_s, benchmark_s = seconds[row].tolist()
            code = int(readings.group[row])
            outcome = Outcome(status, time_ms, compile_s, benchmark_s, True, code)
            known[self.cloud.configuration(row)] = outcome
        return known

    def _fitted(self) -> Fit:
        key = f"{self.digest}-{self.cloud.recipe}"
        if key not in _FITTED:
            if len(_FITTED) >= _MOST_FITTED:
                _FITTED.clear()
            arrays = self._arrays(cache_folder() / f"{key}.npz")
            _FITTED[key] = Fit(arrays, self.readings.version)
        return _FITTED[key]

    def _arrays(self, file: Path) -> Arrays:
        arrays = _read(file)
        if arrays is None:
            features = self._table.many(self.cloud.configurations)
            arrays = grow(features, self.readings, np.ones(len(self.cloud), dtype=np.bool_))
            _write(file, arrays)
        return arrays


def cloud_digest(cloud: Cloud) -> str:
    """SHA-256 of a cloud's parameters and measurements, in hexadecimal.

    What it is called, where it comes from and its recipe do not count.
    """
    head = [cloud.names, [[repr(v) for v in vs] for vs in cloud.values], cloud.ordinal]
    digest = hashlib.sha256(json.dumps(head).encode())
    columns: tuple[npt.NDArray[Any], ...] = (
        *(cloud.configurations.astype("<i8"), cloud.statuses, cloud.run.astype("<i8")),
        *(cloud.times_ms, cloud.low_ms, cloud.high_ms),
        *(cloud.compile_s, cloud.benchmark_s, cloud.at_s),
    )
    for column in columns:
        digest.update(np.ascontiguousarray(column).tobytes())
    for words in (cloud.source, cloud.how):
        digest.update(json.dumps(words.tolist()).encode())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where what can be worked out again is kept; see the module's docstring."""
    if own := os.environ.get("LLAMEA_GPU_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "llamea_gpu"


def _read(file: Path) -> Arrays | None:
    try:
        with open_regular(file) as stream, np.load(stream, allow_pickle=False) as stored:
            return dict(stored)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write(file: Path, arrays: Arrays) -> None:
    def fill(temporary: Path) -> None:
        with temporary.open("wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]  # its stub wants no keywords

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, fill)
    except OSError:
        return  # a cache that cannot be written only costs time
