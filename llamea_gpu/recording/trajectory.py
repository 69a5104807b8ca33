"""A searcher that runs while others' configurations are measured: its trajectory, ask by ask.

A searcher under the optimizer contract is a function that calls ``evaluate``. Here it runs in a
thread of its own, but never beside its owner: :meth:`Trajectory.ask` lets it go until it needs a
result that is not there. So it may use the global random state and a space without locks.

It measures nothing and isolates nothing: generated optimizers run in this very process, screened
as :mod:`llamea_gpu.programs.instances` says.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from llamea_gpu.contract import Configuration, Optimizer
from llamea_gpu.errors import BudgetExhausted, SearcherError, Stalled
from llamea_gpu.modelled import WholeSpace
from llamea_gpu.programs import make
from llamea_gpu.searchers.registry import ProgramSearcher, resolve

_MOST_IDLE_ASKS = 10_000
_MOST_PENDING = 1 << 16
_PATIENCE_S = 10.0  # that a searcher may think, before it is left behind
_LEADERS = 8


def optimizer_of(spec: str) -> Optimizer:
    """A fresh instance of the optimizer that ``spec`` names: a program, or a library's.

    Raises:
        SearcherError: nothing has that name, or it cannot run outside of the sandbox.
    """
    searcher = resolve(spec)
    if not isinstance(searcher, ProgramSearcher):
        return searcher.build()
    if searcher.first is not None:
        raise SearcherError(f"{spec} runs in the sandbox alone: it cannot propose configurations")
    return make(searcher.program)


class Trajectory:
    """One run of a searcher.

    Args:
        name: of the searcher.
        optimizer: what runs.
        space: for it alone; its ``leaders`` are kept up to date.
        rng: its randomness.
        evaluations: its budget.
        parallel: how many configurations on their way it is told are worth having.
    """

    def __init__(
        self,
        name: str,
        optimizer: Optimizer,
        space: WholeSpace,
        rng: np.random.Generator,
        evaluations: int,
        parallel: int,
    ) -> None:
        self.name = name
        self.ended = False
        self.trouble = ""  # why it ended before its budget, if by a fault
        self.asked = 0  # configurations that it wanted
        self.evaluations, self.parallel, self.space = evaluations, parallel, space
        self.costs: dict[Configuration, float] = {}
        self.wanted: deque[Configuration] = deque()
        self.abandoned = False
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._news = True  # since it paused
        self._thread = threading.Thread(
            target=self._run, args=(optimizer, rng), name=name, daemon=True
        )
        self._thread.start()

    def ask(self) -> Configuration | None:
        """The next configuration that it wants; None while it waits, and once it has ended."""
        while not self.wanted and self._news and not self.ended:
            self._news = False
            self._go.release()
            if not self._paused.acquire(timeout=_PATIENCE_S):
                self._abandon(f"it thought for more than {_PATIENCE_S:g} s")
        return self.wanted.popleft() if self.wanted else None

    def tell(self, config: Configuration, cost: float) -> None:
        """A measurement, of whoever's configuration; inf for one that does not work."""
        if config not in self.costs:
            self.costs[config] = cost
            self._news = True

    def stop(self) -> None:
        """End it."""
        if not self.ended:
            self._abandon("")
            self._go.release()
            self._thread.join(timeout=_PATIENCE_S)

    # -- in the searcher's thread -----------------------------------------------------------

    def pause(self) -> None:
        """Let the owner go on, until there is something new."""
        self._paused.release()
        self._go.acquire()
        if self.abandoned:
            raise BudgetExhausted

    def _run(self, optimizer: Optimizer, rng: np.random.Generator) -> None:
        self._go.acquire()
        evaluate = _Evaluate(self)
        try:
            if not self.abandoned:
                evaluate(self.space.starts)
                optimizer(evaluate, self.space, rng)
        except (BudgetExhausted, Stalled):
            pass
        except Exception as fault:
            self.trouble = self.trouble or f"{type(fault).__name__}: {fault}"[:400]
        finally:
            self.ended = True
            self._paused.release()

    def _abandon(self, why: str) -> None:
        self.abandoned = self.ended = True
        self.trouble = self.trouble or why
        self.wanted.clear()


class _Evaluate:
    """The contract's evaluate; see `llamea_gpu.contract.Evaluate`.

    What anybody has measured is known, and is free.
    """

    def __init__(self, run: Trajectory) -> None:
        self._run = run
        self._mine: dict[Configuration, None] = {}  # whatever it visited
        self._queued: list[tuple[Configuration, Configuration]] = []  # as given, as known
        self._best: list[tuple[float, Configuration]] = []
        self._idle = 0

    @property
    def spent(self) -> float:
        return min(1.0, len(self._mine) / self._run.evaluations)

    @property
    def parallel(self) -> int:
        return self._run.parallel

    @property
    def pending(self) -> int:
        return len(self._queued)

    def __call__(self, configs: Any) -> list[float]:
        known = [canonical for _, canonical in self._accepted(configs)]
        self._visit(known)
        costs = self._run.costs
        while any(config not in costs for config in known):
            self._run.pause()
        self._learn(known)
        return [costs[config] for config in known]

    def submit(self, configs: Any) -> None:
        accepted = self._accepted(configs)
        if len(self._queued) + len(accepted) > _MOST_PENDING:
            raise ValueError(f"at most {_MOST_PENDING} configurations may be pending")
        self._visit([canonical for _, canonical in accepted])
        self._queued += accepted

    def wait(self) -> list[tuple[Configuration, float]]:
        costs = self._run.costs
        while self._queued:
            measured = [(config, known) for config, known in self._queued if known in costs]
            if measured:
                self._queued = [pair for pair in self._queued if pair[1] not in costs]
                self._learn([known for _, known in measured])
                return [(config, costs[known]) for config, known in measured]
            self._run.pause()
        return []

    def _accepted(self, configs: Any) -> list[tuple[Configuration, Configuration]]:
        if self._run.abandoned:
            raise BudgetExhausted
        accepted = []
        for config in configs:
            known = self._run.space.canonical(config)
            if known is None:
                raise ValueError(
                    f"evaluate needs valid configurations, but got {config!r:.200}: use repair() "
                    f"first"
                )
            accepted.append((tuple(map(int, config)), known))
        return accepted

    def _visit(self, configs: Sequence[Configuration]) -> None:
        """Want what is new to it, as far as the budget goes."""
        self._idle += 1
        for config in configs:
            if config in self._mine:
                continue
            if len(self._mine) >= self._run.evaluations:
                raise BudgetExhausted
            self._idle = 0
            self._mine[config] = None
            if config not in self._run.costs:
                self._run.wanted.append(config)
                self._run.asked += 1
        if self._idle > _MOST_IDLE_ASKS:
            raise Stalled(f"no new configuration in {_MOST_IDLE_ASKS} asks")

    def _learn(self, configs: Sequence[Configuration]) -> None:
        """Keep the leaders of its space: its own best."""
        costs = self._run.costs
        fresh = {(costs[config], config) for config in configs if math.isfinite(costs[config])}
        self._best = sorted({*self._best, *fresh})[:_LEADERS]
        self._run.space.leaders = [config for _, config in self._best]


MakeSpace = Callable[[np.random.Generator], WholeSpace]


class Trajectories:
    """One searcher's runs, one after another, each from a seed of its own."""

    def __init__(
        self,
        spec: str,
        make_space: MakeSpace,
        rng: np.random.Generator,
        evaluations: int,
        parallel: int,
    ) -> None:
        self.spec, self.trouble = spec, ""
        self._make_space, self._rng = make_space, rng
        self._budget = (evaluations, parallel)
        self._run: Trajectory | None = None
        self._given_up = False
        optimizer_of(spec)  # a fault of the spec shows now

    def ask(self, known: Mapping[Configuration, float]) -> Configuration | None:
        """What its run wants next; None while that waits. ``known`` is what a new run may know."""
        if self._given_up:
            return None
        if self._run is None or (self._run.ended and not self._run.wanted):
            self._follow(known)
        return None if self._run is None else self._run.ask()

    def tell(self, config: Configuration, cost: float) -> None:
        """A measurement, of whoever's configuration."""
        if self._run is not None:
            self._run.tell(config, cost)

    def stop(self) -> None:
        """End the run."""
        if self._run is not None:
            self._run.stop()

    def _follow(self, known: Mapping[Configuration, float]) -> None:
        """Begin another run; none where the last one brought nothing or failed."""
        last = self._run
        if last is not None and (last.trouble or not last.asked):
            self._given_up, self.trouble = True, last.trouble
            return
        rng = self._rng.spawn(1)[0]
        run = Trajectory(
            self.spec, optimizer_of(self.spec), self._make_space(rng), rng, *self._budget
        )
        for config, cost in known.items():
            run.tell(config, cost)
        self._run = run
