"""What is on its way to an engine, and what came of it, as Helion's configurations.

What it does: `ConfigEngine` takes configurations as ``helion.Config``, queues them as tasks of a
pipeline, wherever its processes are, and gives them back with their outcomes.

What it does not do: start processes, on this machine (`llamea_gpu.live.helion.engine`) or on the
nodes of a cluster (`llamea_gpu.live.helion.cluster`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING, Any

from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.engine.side_by_side import Standing

if TYPE_CHECKING:
    from llamea_gpu.cluster.pipeline import ClusterPipeline

Done = list[tuple[Any, Outcome]]  # configurations, with what came of them


class ConfigEngine:
    """Has configurations of one kernel measured. A context manager: leaving it ends that.

    Attributes:
        start_s: where the first seconds went: seconds from the beginning until each step was done;
            with "timing" before the name, those of a step of the timing process.
    """

    _pipeline: Pipeline | ClusterPipeline

    def __init__(self) -> None:
        self.start_s: dict[str, float] = {}
        self._began = monotonic()
        self._closing = ExitStack()
        self._configs: dict[int, Any] = {}  # on their way, by point
        self._silent: set[int] = set()  # points whose outcome nobody waits for
        self._expected: dict[str, int | Outcome] = {}  # points, or what came of them
        self._ready: Done = []  # expected, done and then asked for
        self._submitted = 0

    def __enter__(self) -> ConfigEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def mark(self, step: str) -> None:
        """Note that a step of the start is done."""
        self.start_s.setdefault(step, round(monotonic() - self._began, 3))

    @property
    def pending(self) -> list[Any]:
        """Configurations that were submitted and not yet returned by :meth:`wait`."""
        on_way = [config for point, config in self._configs.items() if point not in self._silent]
        return [config for config, _ in self._ready] + on_way

    def expect(self, configs: Sequence[Any]) -> None:
        """Queue configurations that are sure to be submitted: they need not wait for that."""
        for config in configs:
            if repr(config) not in self._expected:
                self._expected[repr(config)] = self._queue(config, silent=True)

    def submit(self, configs: Sequence[Any], silent: bool = False) -> None:
        """Queue configurations; of ``silent`` ones :meth:`wait` says nothing."""
        for config in configs:
            known = self._expected.pop(repr(config), None)
            if known is None:
                self._queue(config, silent)
            elif isinstance(known, Outcome):
                self._ready += [] if silent else [(config, known)]
            elif not silent:
                self._configs[known] = config
                self._silent.discard(known)
        self._pipeline.poll()

    def wait(self, deadline: float | None = None) -> Done:
        """Configurations with their outcomes as they come: at least one, unless time is up.

        Args:
            deadline: of ``time.monotonic``, after which it returns with what there is.

        Raises:
            RecordingError: the engine cannot go on.
        """
        outcomes, self._ready = self._ready, []
        for outcome in () if outcomes else self._pipeline.wait(deadline):
            config = self._configs.pop(outcome.point, None)
            if config is None:  # dropped before
                continue
            self._note(config, outcome)
            if outcome.point not in self._silent:
                outcomes.append((config, outcome))
                continue
            self._silent.remove(outcome.point)
            if repr(config) in self._expected:
                self._expected[repr(config)] = outcome
        steps = self._pipeline.opened.get("opened_s", {})
        self.start_s |= {f"timing {step}": seconds for step, seconds in steps.items()}
        return outcomes

    def read_again(self, configs: Sequence[Any], deadline: float) -> list[Standing] | None:
        """Configurations side by side in long windows on one GPU, while nothing compiles.

        Args:
            configs: those that work; the first is used to heat up.
            deadline: of ``time.monotonic``, until which to read.

        Returns:
            One for each; None where it did not work.

        Raises:
            RecordingError: the engine cannot go on.
        """
        raise NotImplementedError

    def drop(self) -> None:
        """Forget what is pending; what it was at is ended."""
        self._pipeline.drop()
        self._forget()

    def end_compiling(self) -> None:
        """Forget what is pending: nothing disturbs what is read from now on."""
        raise NotImplementedError

    def _note(self, config: Any, outcome: Outcome) -> None:
        """Whatever is finished, whether somebody waits for it or not."""

    def _forget(self) -> None:
        for known in (self._configs, self._silent, self._expected, self._ready):
            known.clear()

    def _queue(self, config: Any, silent: bool) -> int:
        self._submitted += 1
        self._configs[self._submitted] = config
        if silent:
            self._silent.add(self._submitted)
        self._pipeline.submit([Task(self._submitted, dict(config.config))])
        return self._submitted
