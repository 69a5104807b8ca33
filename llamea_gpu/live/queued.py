"""Submitting and waiting where a framework measures a batch while it is called.

What it does: `QueuedEvaluate` gives such an ``evaluate`` the contract's `submit`, `wait` and
`pending`. A wait measures all that is queued as one batch.

What it does not do: overlap anything. It is part of exported files and needs nothing else.
"""

from typing import Any


class QueuedEvaluate:
    """What is called by `wait` with all that was submitted; ``space`` is the contract's."""

    max_pending = 1 << 16

    def __init__(self, space: Any) -> None:
        self.space = space
        self._queued: list[tuple[int, ...]] = []

    def __call__(self, configs: Any) -> list[float]:
        """Costs in the order of ``configs``."""
        raise NotImplementedError

    @property
    def pending(self) -> int:
        """How many submitted configurations no `wait` has handed out yet."""
        return len(self._queued)

    def submit(self, configs: Any) -> None:
        """Queue configurations, each to be handed out once by `wait`.

        Raises:
            ValueError: a configuration is not valid, or too many are on their way. Nothing is
                queued.
        """
        self._queued += self._accepted(configs)

    def wait(self) -> list[tuple[tuple[int, ...], float]]:
        """Submitted configurations with their costs; empty when nothing is pending.

        Raises:
            BudgetExhausted: the run is over.
            Stalled: too many asks in a row brought nothing new.
        """
        queued, self._queued = self._queued, []
        return list(zip(queued, self(queued), strict=True))

    def _accepted(self, configs: Any) -> list[tuple[int, ...]]:
        """Configurations to queue, as tuples; ValueError as of `submit`."""
        configs = self._valid(configs)
        if self.pending + len(configs) > self.max_pending:
            raise ValueError(
                f"at most {self.max_pending} configurations may be on their way, but got "
                f"{len(configs)} more to {self.pending}: wait for some first"
            )
        return [tuple(map(int, config)) for config in configs]

    def _valid(self, configs: Any) -> list[Any]:
        listed = list(configs)
        for config in listed:
            if not self.space.contains(config):
                raise ValueError(
                    f"configurations must be valid in this space, but {config!r:.200} is not: "
                    "check with space.contains or use space.repair"
                )
        return listed
