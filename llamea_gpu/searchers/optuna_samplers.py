"""Optuna's samplers: ``optuna:TPESampler``, ``CmaEsSampler``, ``GPSampler``, ``RandomSampler``.

A study is asked for as many trials as compile side by side; they are measured together, and told.
Ordinal parameters are integers (their value indices), the others categories. What is not valid
stands for the valid configuration nearest to it, whose cost the study is told for what it
suggested; a configuration that fails is told as infinite. A suggestion that was measured before
costs nothing; when a hundred in a row bring nothing new, one random configuration that is new is
measured and told, so that a run ends with its budget.

Settings are the samplers' own, with their own defaults: ``optuna:TPESampler?multivariate=true``.
``GPSampler`` needs torch and takes about a second a suggestion.

It only reads specs; Optuna is imported where a search runs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from llamea_gpu.contract import Configuration, Evaluate, Space, measured_in
from llamea_gpu.errors import SearcherError, suggestion
from llamea_gpu.searchers.library import LibrarySearcher, Setting, parse_settings, require

if TYPE_CHECKING:
    import optuna

_DEFAULTS: dict[str, dict[str, Setting]] = {
    "TPESampler": {
        "n_startup_trials": 10,
        "n_ei_candidates": 24,
        "multivariate": False,
        "group": False,
        "constant_liar": True,
    },
    "CmaEsSampler": {
        "n_startup_trials": 1,
        "sigma0": 0.5,
        "popsize": 10,
        "use_separable_cma": False,
        "with_margin": False,
        "lr_adapt": False,
    },
    "GPSampler": {"n_startup_trials": 10, "deterministic_objective": False},
    "RandomSampler": {},
}
_NOTHING_NEW = 100


def names() -> tuple[str, ...]:
    """The samplers that `resolve` knows."""
    return tuple(_DEFAULTS)


def options(name: str) -> Mapping[str, Setting]:
    """What ``?key=value`` may set of ``name``, with the defaults."""
    return _DEFAULTS[name]


def resolve(spec: str, name: str, query: str) -> LibrarySearcher:
    """The searcher that ``optuna:NAME?QUERY`` names.

    Raises:
        SearcherError: there is no such sampler or setting, a value has another type, or a library
            is missing.
    """
    if name not in _DEFAULTS:
        raise SearcherError(
            f"{spec}: Optuna has no sampler {name!r} here: {suggestion(name, _DEFAULTS)}"
        )
    versions = {"optuna": require("optuna", "optuna", spec)}
    if name == "CmaEsSampler":
        versions["cmaes"] = require("cmaes", "optuna", spec)
    if name == "GPSampler":
        if importlib.util.find_spec("torch") is None:
            raise SearcherError(f"{spec} needs torch, which is not installed: pip install torch")
        versions["torch"] = require("torch", "helion", spec)
    return LibrarySearcher(
        name=spec,
        factory="llamea_gpu.searchers.optuna_samplers:OptunaSearch",
        settings={"sampler": name, **parse_settings(spec, query, _DEFAULTS[name])},
        versions=versions,
    )


class OptunaSearch:
    """One of the samplers under the contract."""

    def __init__(self, sampler: str, **settings: Setting) -> None:
        self._sampler = sampler
        self._settings = settings

    def __call__(self, evaluate: Evaluate, space: Space, rng: np.random.Generator) -> None:
        """Ask and tell until the budget ends or everything is measured."""
        from optuna.trial import create_trial

        study = self._study(int(rng.integers(2**31)))
        parameters = _distributions(space)
        seen: set[Configuration] = set()

        def tell(config: Configuration, cost: float) -> None:
            """Let the study know of a measurement that it did not suggest."""
            params = {name: config[int(name)] for name in parameters}
            study.add_trial(create_trial(params=params, distributions=parameters, value=cost))
            seen.add(config)

        measured = measured_in(space)
        for config, cost in zip(measured, evaluate(measured), strict=True):
            tell(config, cost)
        in_vain = 0
        while len(seen) != space.size:
            trials = [study.ask(parameters) for _ in range(evaluate.parallel)]
            suggested = [_configuration(space, trial.params) for trial in trials]
            costs = evaluate(suggested)
            for trial, cost in zip(trials, costs, strict=True):
                study.tell(trial, cost)
            in_vain = 0 if set(suggested) - seen else in_vain + len(suggested)
            seen.update(suggested)
            if in_vain >= _NOTHING_NEW and len(seen) != space.size:
                new = next(config for config in space.sample(len(seen) + 1) if config not in seen)
                tell(new, *evaluate([new]))
                in_vain = 0

    def _study(self, seed: int) -> optuna.Study:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        chosen = getattr(optuna.samplers, self._sampler)
        quiet = {"warn_independent_sampling": False} if "Random" not in self._sampler else {}
        sampler = chosen(seed=seed, **quiet, **self._settings)
        return optuna.create_study(sampler=sampler)


def _distributions(space: Space) -> dict[str, optuna.distributions.BaseDistribution]:
    """By parameter number, in text; parameters with a single value are left out."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        str(j): IntDistribution(0, count - 1)
        if space.ordinal[j]
        else CategoricalDistribution(tuple(range(count)))
        for j, count in enumerate(space.cardinalities)
        if count > 1
    }


def _configuration(space: Space, suggested: dict[str, int]) -> Configuration:
    configuration = tuple(suggested.get(str(j), 0) for j in range(len(space.cardinalities)))
    return configuration if space.contains(configuration) else space.repair(configuration)
