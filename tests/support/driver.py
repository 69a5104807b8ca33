"""Runs a searcher in this process, without the sandbox: for trusted code under test only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from llamea_gpu.errors import BudgetExhausted, Stalled
from llamea_gpu.spaces.space import SpaceView
from llamea_gpu.tasks import Evaluator, Task, Trace


class Evaluate:
    """The contract's ``evaluate`` over an `Evaluator`."""

    def __init__(self, task: Task, max_idle_asks: int = 10_000) -> None:
        self.evaluator = Evaluator(task, max_idle_asks=max_idle_asks)
        self._space = task.recording.space

    @property
    def spent(self) -> float:
        return self.evaluator.spent

    @property
    def parallel(self) -> int:
        return self.evaluator.parallel

    @property
    def pending(self) -> int:
        return self.evaluator.pending

    def submit(self, configs: Sequence[tuple[int, ...]] | np.ndarray) -> None:
        self.evaluator.submit(self._rows(configs))

    def wait(self) -> list[tuple[tuple[int, ...], float]]:
        rows, costs_ms = self.evaluator.wait()
        configs = map(self._space.configuration, rows.tolist())
        return list(zip(configs, costs_ms.tolist(), strict=True))

    def __call__(self, configs: Sequence[tuple[int, ...]] | np.ndarray) -> list[float]:
        costs: list[float] = self.evaluator.ask(self._rows(configs)).tolist()
        return costs

    def _rows(self, configs: Sequence[tuple[int, ...]] | np.ndarray) -> np.ndarray:
        rows = self._space.rows(configs)
        if rows.size and rows.min() < 0:
            raise ValueError(f"not a valid configuration: {configs[int(np.argmin(rows))]}")
        return rows


def run_in_process(optimizer: Any, task: Task, seed: int, max_idle_asks: int = 10_000) -> Trace:
    """One run. Faults of the optimizer are raised, not recorded."""
    evaluate = Evaluate(task, max_idle_asks)
    rng = np.random.default_rng(seed)
    outcome = "finished"
    try:
        optimizer(evaluate, SpaceView(task.recording.space, rng), rng)
    except BudgetExhausted:
        outcome = "budget"
    except Stalled:
        outcome = "stalled"
    return evaluate.evaluator.trace(outcome=outcome, seed=seed)
