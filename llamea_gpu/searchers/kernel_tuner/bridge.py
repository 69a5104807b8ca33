"""What Kernel Tuner's search code is given in place of a GPU: a runner, a budget and options.

The code that searches is Kernel Tuner's, unchanged: strategy, `CostFunc`, `Searchspace`. This
module answers it from the contract's ``evaluate``:

- A whole batch of valid configurations is handed to ``evaluate`` at once, revisits included, so
  that parallel clocks work and the host counts every ask. One that breaks a constraint never gets
  here, costs nothing and is float max, as in Kernel Tuner.
- A failure is an error result, which `CostFunc` turns into float max.
- The end of the budget is Kernel Tuner's first: the rest of a batch is None, and `CostFunc` raises
  `StopCriterionReached`. Code that swallows that and asks again meets `BudgetExhausted`.
- When every configuration has been visited, the search ends as well.

What it does not do: keep time, or know a strategy. Of the contract it needs ``evaluate``,
``evaluate.spent`` and ``evaluate.parallel`` alone, so that it serves live tuning as it is.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from kernel_tuner import util
from kernel_tuner.interface import Options
from kernel_tuner.runners.runner import Runner

from llamea_gpu.contract import Evaluate, Value
from llamea_gpu.errors import BudgetExhausted
from llamea_gpu.searchers.kernel_tuner.searchspace import ListedSearchspace

Tune = Callable[[ListedSearchspace, Runner, Options], Any]
_OBJECTIVE = "time"
# A batch that keeps the workers busy for longer is measured in pieces: random sampling asks for all
# of the space at once, and Kernel Tuner looks at the budget after every result.
_MAX_ROUNDS = 8
_MAX_SEQUENTIAL_PIECE = 1000


class ContractBudget(util.TuningBudget):  # type: ignore[misc]
    """Kernel Tuner's budget, read from ``evaluate.spent`` instead of the host's clock.

    The contract knows shares of a budget, not seconds: ``time_limit`` is None, and the time spent
    reads as none.
    """

    def __init__(self, evaluate: Evaluate, max_fevals: int) -> None:
        super().__init__(time_limit=None, max_fevals=max_fevals)
        self._evaluate = evaluate
        self.is_refused = False  # evaluate has said that the budget is used up
        self._announced = False

    @property
    def is_spent(self) -> bool:
        """Whether the contract's budget is used up."""
        return self.is_refused or self._evaluate.spent >= 1.0

    def get_time_spent(self) -> timedelta:
        """None: results must not depend on the host's clock."""
        return timedelta()

    def is_done(self) -> bool:
        """Whether a first visit would be refused."""
        return self.is_spent or super().is_done()

    def raise_exception_if_done(self) -> None:
        """End the search, in Kernel Tuner's way the first time.

        Raises:
            StopCriterionReached: once.
            BudgetExhausted: from then on.
        """
        if not self.is_done():
            return
        if self._announced:
            raise BudgetExhausted
        self._announced = True
        raise util.StopCriterionReached("the budget is used up")

    def get_fraction_consumed(self) -> float:
        """The larger one of the shares of time and of evaluations, 0 to 1."""
        fraction: float = max(super().get_fraction_consumed(), self._evaluate.spent)
        return min(1.0, fraction)


class ContractRunner(Runner):  # type: ignore[misc]
    """Kernel Tuner's runner, which "benchmarks" by asking ``evaluate``."""

    def __init__(
        self, evaluate: Evaluate, searchspace: ListedSearchspace, budget: ContractBudget
    ) -> None:
        super().__init__()
        self._evaluate = evaluate
        self._searchspace = searchspace
        self._budget = budget
        self._visited: set[int] = set()
        self.dev = SimpleNamespace(max_threads=searchspace.max_threads, name="Simulation")
        self.units: dict[str, str] = {}

    def get_device_info(self) -> SimpleNamespace:
        """The simulated device."""
        return self.dev

    def get_environment(self, tuning_options: Options) -> dict[str, Any]:  # noqa: ARG002
        """Nothing is known of one."""
        return {}

    def run(
        self,
        parameter_space: Sequence[Sequence[Value]],
        tuning_options: Options,  # noqa: ARG002
    ) -> list[dict[str, Any] | None]:
        """A result for each configuration; None for those after the budget's end.

        Raises:
            ValueError: a configuration that Kernel Tuner would not find in its cache, whose keys
                are text: 16.0 equals 16, but reads differently.
        """
        configs = list(parameter_space)
        results: list[dict[str, Any] | None] = []
        for piece in self._pieces(configs):
            if self._budget.is_done():
                results += [None] * len(piece)
            else:
                results += self._measured(piece)
        return results

    def ask_beyond_the_budget(self) -> None:
        """Have the host say that the budget is used up, when it is and something is left to ask.

        Raises:
            BudgetExhausted: always, then.
        """
        if self._budget.is_refused:
            raise BudgetExhausted
        if not self._budget.is_spent:
            return
        for row, position in enumerate(self._searchspace.positions):
            if row not in self._visited:
                self._evaluate([position])

    def _pieces(self, configs: list[Sequence[Value]]) -> Iterator[list[Sequence[Value]]]:
        workers = self._evaluate.parallel
        size = len(configs)
        if workers == 1:
            size = _MAX_SEQUENTIAL_PIECE
        elif size > _MAX_ROUNDS * workers:
            size = workers
        # An empty batch is asked for too: the host ends a search that asks for nothing forever.
        for start in range(0, max(len(configs), 1), max(size, 1)):
            yield configs[start : start + size]

    def _measured(self, configs: list[Sequence[Value]]) -> Sequence[dict[str, Any] | None]:
        rows = [self._row(config) for config in configs]
        valid_rows = [row for row in rows if row is not None]
        positions = self._searchspace.positions
        try:
            costs = dict(
                zip(valid_rows, self._evaluate([positions[row] for row in valid_rows]), strict=True)
            )
        except BudgetExhausted:
            self._budget.is_refused = True
            return [None] * len(configs)
        fresh = costs.keys() - self._visited
        self._visited |= fresh
        self._budget.add_evaluations(len(fresh))
        return [
            self._result(config, None if row is None else costs[row])
            for config, row in zip(configs, rows, strict=True)
        ]

    def _row(self, config: Sequence[Value]) -> int | None:
        """The configuration's place in the list; None when it is not valid."""
        row: int | None = self._searchspace.get_param_config_index(tuple(config))
        if row is not None and not _reads_like(config, self._searchspace.list[row]):
            raise ValueError(
                f"Kernel Tuner looks configurations up as text, so their values must read like "
                f"those of tune_params, but {tuple(config)} does not read like "
                f"{self._searchspace.list[row]}"
            )
        return row

    def _result(self, config: Sequence[Value], cost_ms: float | None) -> dict[str, Any]:
        result = dict(zip(self._searchspace.param_names, config, strict=False))
        if cost_ms is None:
            error: util.ErrorConfig = util.InvalidConfig()
        elif math.isinf(cost_ms):
            error = util.RuntimeFailedConfig()
        else:
            return {**result, _OBJECTIVE: cost_ms}
        return {**result, _OBJECTIVE: error, "__error__": error}


def _reads_like(config: Sequence[Value], listed: tuple[Value, ...]) -> bool:
    return all(
        type(value) is type(known) or str(value) == str(known)
        for value, known in zip(config, listed, strict=True)
    )


def search(
    tune: Tune,
    evaluate: Evaluate,
    searchspace: ListedSearchspace,
    *,
    strategy: str = "",
    options: Mapping[str, Any],
    seed: int = 0,
) -> None:
    """Run ``tune``, a strategy's function of that name, until it returns.

    ``options`` are its ``strategy_options``; ``strategy`` is the name it goes by and ``seed`` what
    `tune_kernel` takes as such: strategies draw from the global generators, but pymoo's.

    Raises:
        BudgetExhausted: the search has come to the budget's end.
    """
    max_fevals = min(options.get("max_fevals", searchspace.size), searchspace.size)
    budget = ContractBudget(evaluate, max_fevals)
    runner = ContractRunner(evaluate, searchspace, budget)
    tuning_options = Options(
        strategy=strategy,
        strategy_options=Options(options),
        objective=[_OBJECTIVE],
        objective_higher_is_better=[False],
        tune_params=searchspace.tune_params,
        restrictions=[],
        restrictions_unmodified=[],
        metrics=None,
        cache={},
        cachefile=None,
        simulation_mode=False,
        verbose=False,
        seed=seed,
        budget=budget,
    )
    if "max_fevals" in options:
        tuning_options["max_fevals"] = options["max_fevals"]
    with contextlib.suppress(BudgetExhausted):  # which `ContractBudget` may have raised by itself
        tune(searchspace, runner, tuning_options)
    runner.ask_beyond_the_budget()
