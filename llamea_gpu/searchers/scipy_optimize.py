"""scipy's global optimizers: ``scipy:dual_annealing``, ``differential_evolution``, ``direct``.

They search a box with one coordinate for each parameter that has several values: its value index,
from half a step below the first to half a step above the last (differential evolution knows
integers, and gets the indices themselves). A point stands for the valid configuration nearest to
it. A configuration that fails costs ten times the worst cost so far (1,000 ms before any), because
they compute with costs. Where several configurations compile side by side, differential evolution
hands over whole generations.

The limits on iterations and evaluations are lifted (``direct``: 20,000 of either): the budget ends
a run. A search that considers itself converged, or asks 2,000 times in a row for what was measured
before, is begun again with new random numbers. Every other default is scipy's own, and can be set:
``scipy:differential_evolution?popsize=4``. The local search of dual annealing asks again for the
configuration it is at (differences of 1e-8 are none here), which is free, and ends at once.
``direct`` draws no random numbers: its repeats are all the same, and it is not begun again.

It only reads specs; scipy is imported where a search runs.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamea_gpu.contract import Configuration, Evaluate, Space, measured_in
from llamea_gpu.errors import SearcherError, suggestion
from llamea_gpu.searchers.library import LibrarySearcher, Setting, parse_settings, require

_DEFAULTS: dict[str, dict[str, Setting]] = {
    "dual_annealing": {
        "initial_temp": 5230.0,
        "restart_temp_ratio": 2e-05,
        "visit": 2.62,
        "accept": -5.0,
        "no_local_search": False,
    },
    "differential_evolution": {
        "strategy": "best1bin",
        "popsize": 15,
        "recombination": 0.7,
        "init": "latinhypercube",
    },
    "direct": {"eps": 1e-4, "locally_biased": True},
}
_UNLIMITED = 10**9
_STUCK_AFTER = 2_000  # asks that bring nothing new
_DIRECT_LIMIT = 20_000  # it allocates for all of them
_COST_BEFORE_ANY = 1000.0
_LEAST_POPULATION = 5  # that scipy's differential evolution accepts


def names() -> tuple[str, ...]:
    """The methods that `resolve` knows."""
    return tuple(_DEFAULTS)


def options(name: str) -> Mapping[str, Setting]:
    """What ``?key=value`` may set of ``name``, with the defaults."""
    return _DEFAULTS[name]


def resolve(spec: str, name: str, query: str) -> LibrarySearcher:
    """The searcher that ``scipy:NAME?QUERY`` names.

    Raises:
        SearcherError: there is no such method or setting, or a value has another type.
    """
    if name not in _DEFAULTS:
        raise SearcherError(
            f"{spec}: scipy has no global method {name!r} here: {suggestion(name, _DEFAULTS)}"
        )
    return LibrarySearcher(
        name=spec,
        factory="llamea_gpu.searchers.scipy_optimize:ScipySearch",
        settings={"method": name, **parse_settings(spec, query, _DEFAULTS[name])},
        versions={"scipy": require("scipy", "dev", spec)},
    )


class _EverythingSeen(BaseException):
    """There is no configuration left to measure."""


class _NothingNew(BaseException):
    """A search keeps asking for what was measured."""


class ScipySearch:
    """One of the methods under the contract."""

    def __init__(self, method: str, **settings: Setting) -> None:
        self._method = method
        self._settings = settings

    def __call__(self, evaluate: Evaluate, space: Space, rng: np.random.Generator) -> None:
        """Search until the budget ends or everything is measured."""
        objective = _Objective(evaluate, space)
        try:
            if not objective.varying:
                objective.of_many([np.empty(0)])
            while True:
                with contextlib.suppress(_NothingNew):
                    self._search(objective, rng)
                if self._method == "direct":  # it would only repeat itself
                    return
        except _EverythingSeen:
            return

    def _search(self, objective: _Objective, rng: np.random.Generator) -> None:
        import scipy.optimize

        method = getattr(scipy.optimize, self._method)
        parameters = inspect.signature(method).parameters
        # The generator, under the name that this scipy gives it; direct takes none.
        name = next((name for name in ("rng", "seed") if name in parameters), None)
        randomness = {} if name is None else {name: rng}
        try:
            method(objective, **randomness, **self._settings | _ARGUMENTS[self._method](objective))
        except SystemError as error:
            # What the objective raises in direct, as scipy 1.15 (the last for Python 3.10) has it.
            raise error.__cause__ or error from None


class _Objective:
    """Costs of points in the box. ``varying`` are the parameters with several values."""

    def __init__(self, evaluate: Evaluate, space: Space) -> None:
        self._evaluate = evaluate
        self._space = space
        self._seen: set[Configuration] = set()
        self._in_vain = 0
        self._worst_ms: float | None = None
        self.varying = [j for j, count in enumerate(space.cardinalities) if count > 1]
        self.last_index = np.array([space.cardinalities[j] - 1 for j in self.varying])
        self.parallel = evaluate.parallel
        self._measured = measured_in(space)

    def known(self) -> NDArray[np.float64]:
        """(n, d) points that another search has measured, best first; given out once."""
        measured, self._measured = self._measured, ()
        return np.array([[config[j] for j in self.varying] for config in measured], dtype=float)

    def __call__(self, point: NDArray[np.float64]) -> float:
        """Cost of one point."""
        return self.of_many([point])[0]

    def of_many(self, points: Iterable[NDArray[np.float64]]) -> list[float]:
        """Costs of several, measured together."""
        configurations = [self._configuration(point) for point in points]
        costs = self._evaluate(configurations)
        known = len(self._seen)
        self._seen.update(configurations)
        if len(self._seen) == self._space.size:
            raise _EverythingSeen
        self._in_vain = 0 if len(self._seen) > known else self._in_vain + len(configurations)
        if self._in_vain > _STUCK_AFTER:
            self._in_vain = 0
            raise _NothingNew
        worked = [cost for cost in costs if np.isfinite(cost)]
        if worked:
            self._worst_ms = max(self._worst_ms or 0.0, *worked)
        failure = _COST_BEFORE_ANY if self._worst_ms is None else 10 * self._worst_ms
        return [cost if np.isfinite(cost) else failure for cost in costs]

    def _configuration(self, point: NDArray[np.float64]) -> Configuration:
        full = np.zeros(len(self._space.cardinalities))
        full[self.varying] = np.clip(point, -0.5, self.last_index + 0.5)
        return self._space.repair(full.tolist())


def _dual_annealing(objective: _Objective) -> dict[str, Any]:
    known = objective.known()
    return {
        "bounds": _box(objective),
        "maxiter": _UNLIMITED,
        "maxfun": _UNLIMITED,
        "x0": known[0] if len(known) else None,
    }


def _differential_evolution(objective: _Objective) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "bounds": [(0, last) for last in objective.last_index],
        "integrality": np.ones(len(objective.varying), dtype=bool),
        "maxiter": _UNLIMITED,
        "tol": 0,
        "polish": False,  # it would begin where the budget ends
    }
    if objective.parallel > 1:
        arguments["updating"] = "deferred"
        arguments["workers"] = lambda _, points: objective.of_many(points)
    known = objective.known()
    if len(known) >= _LEAST_POPULATION:
        arguments["init"] = known
    return arguments


def _direct(objective: _Objective) -> dict[str, Any]:
    return {
        "bounds": _box(objective),
        "maxiter": _DIRECT_LIMIT,
        "maxfun": _DIRECT_LIMIT,
        "vol_tol": 0.0,
        "len_tol": 0.0,
    }


# What does not come from a spec; it goes before what does.
_ARGUMENTS = {
    "dual_annealing": _dual_annealing,
    "differential_evolution": _differential_evolution,
    "direct": _direct,
}


def _box(objective: _Objective) -> list[tuple[float, float]]:
    return [(-0.5, last + 0.5) for last in objective.last_index]
