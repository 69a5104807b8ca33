"""An optimizer inside Kernel Tuner on the engine: measured as it is submitted, in other processes.

What it does: `PipelinedStrategy` has configurations measured by
`llamea_gpu.live.kernel_tuner.runner.PipelinedRunner` in place of Kernel Tuner's sequential runner,
`PipelinedEvaluate` is the contract's evaluate over it.

What it does not do: measure where the engine cannot; then it says why, and Kernel Tuner's runner
does.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from llamea_gpu.cluster.connection import connected
from llamea_gpu.cluster.engine import DEVICE, EngineSpec
from llamea_gpu.cluster.facts import installed
from llamea_gpu.cluster.pipeline import ClusterPipeline, find_gpus
from llamea_gpu.engine.early import early_template, fork_early
from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.nvidia import free_memory
from llamea_gpu.engine.pipeline import Pipeline
from llamea_gpu.engine.template import Template
from llamea_gpu.errors import BudgetExhausted, SearcherError
from llamea_gpu.frameworks.kernel_tuner.stage import PRELOAD
from llamea_gpu.live.kernel_tuner.facts import ExplainingEvaluate, device_name
from llamea_gpu.live.kernel_tuner.handed import (
    HandedStage,
    call_of,
    call_on_node,
    save_call,
    shared_file,
    why_not,
)
from llamea_gpu.live.kernel_tuner.runner import PipelinedRunner, TolerantRun, config_key
from llamea_gpu.live.kernel_tuner.runtime import KernelTunerConfiguration, KernelTunerStrategy

EngineName = Literal["pipelined", "framework"]
# Processes that start CUDA at once: all of them at once hold one another up, and the first result.
OPENING = 4
TIMEOUT_S = 60.0  # for compiling, checking and timing one configuration
_CONTEXT_BYTES = 3 << 28  # of a process that uses a GPU: CUDA's own
_ROOM = 0.8  # of the free memory


class PipelinedEvaluate(ExplainingEvaluate):
    """``evaluate`` over the engine; see `llamea_gpu.contract.Evaluate`."""

    def __init__(self, func: Any, space: Any) -> None:
        super().__init__(func, space)
        self._asked: list[tuple[KernelTunerConfiguration, int]] = []  # with rows, as submitted
        self._sent: dict[str, int] = {}  # rows by Kernel Tuner's key

    @property
    def pending(self) -> int:
        """How many submitted configurations no `wait` has handed out yet."""
        return len(self._asked)

    def submit(self, configs: Any) -> None:
        """Queue configurations, each to be handed out once by `wait`.

        Raises:
            ValueError: a configuration is not valid, or too many are on their way. Nothing is
                queued.
            BudgetExhausted: the run is over.
            Stalled: too many asks in a row brought nothing new.
        """
        configs = self._accepted(configs)
        rows = [self.space.row(config) for config in configs]
        self._count_idle(1, len(self._unknown(rows)))
        self._asked += zip(configs, rows, strict=True)
        self._send(rows)

    def wait(self) -> list[tuple[KernelTunerConfiguration, float]]:
        """Submitted configurations with their costs as they come; empty when nothing is pending.

        Raises:
            BudgetExhausted: the run is over.
            Stalled: too many asks in a row brought nothing new.
        """
        if not self._asked:
            self([])
        while self._asked:
            costs = self._cost_of
            if finished := [(config, costs[row]) for config, row in self._asked if row in costs]:
                self._asked = [pair for pair in self._asked if pair[1] not in costs]
                return finished
            self._collect()
        return []

    def _measure(self, rows: Sequence[int]) -> None:
        if not rows:
            self._take_in([])
        self._send(rows)
        while self._unknown(rows):
            self._collect()

    def _send(self, rows: Sequence[int]) -> None:
        """Submit what is new, as far as the budget goes."""
        runner, options = self.func.runner, self.func.tuning_options
        keys = {config_key(self.space.native[row]): row for row in self._unknown(rows)}
        fresh = [(key, row) for key, row in keys.items() if key not in self._sent]
        room = max(options.budget.get_evaluations_remaining() - runner.on_way, 0)
        fresh = fresh[: int(min(room, len(fresh)))]
        self._sent.update(fresh)
        runner.submit([self.space.native[row] for _, row in fresh], options)

    def _collect(self) -> None:
        """Take in what is finished, waiting for it at most until the time is up."""
        runner = self.func.runner
        if not runner.on_way:  # all that is left is beyond the budget
            raise BudgetExhausted
        try:
            keys = runner.collect(self.func.tuning_options)
        except Exception as reason:
            self.fault = reason
            raise BudgetExhausted from reason
        for key in keys:
            self._take_in([self._sent[key]])
        if not keys:
            self._take_in([])

    def _take_in(self, rows: Sequence[int]) -> None:
        """Have Kernel Tuner note what is finished; with nothing, it looks at the clock."""
        try:
            super()._measure(rows)
        except BudgetExhausted:
            self.func.results.extend(self.func.runner.unclaimed())  # done before the end
            raise


class PipelinedStrategy(KernelTunerStrategy):
    """A strategy whose configurations are measured on the engine, where it can.

    Args:
        engine: ``framework`` for Kernel Tuner's own runner.
        processes: that measure; None: as many as there are cores but one, and memory on the GPU.
        timeout_s: for compiling, checking and timing one configuration on the engine.
        cluster: measure on all GPUs of this cluster (:mod:`llamea_gpu.cluster`), of the kind
            ``gpu`` where it has several. ``processes`` are then those of each of them.
        tolerant: where Kernel Tuner's own runner measures, see `TolerantRun`.

    Attributes:
        on_begin: is given the evaluate before the optimizer asks for anything.
        on_batch: is given all of Kernel Tuner's results so far, after each ask.
        why_not: why the engine did not measure the latest run; device: its name.
    """

    on_begin: Callable[[ExplainingEvaluate], None] = staticmethod(lambda _: None)
    on_batch: Callable[[Sequence[Mapping[str, Any]]], None] = staticmethod(lambda _: None)
    why_not = device = ""

    def __init__(
        self,
        name: str,
        make: Callable[..., Any],
        hyperparameters: Mapping[str, Any],
        seed: int | None = None,
        *,
        engine: EngineName = "pipelined",
        processes: int | None = None,
        timeout_s: float = TIMEOUT_S,
        cluster: str = "",
        gpu: str = "",
        tolerant: bool = False,
    ) -> None:
        super().__init__(name, make, hyperparameters, seed)
        if engine not in ("pipelined", "framework"):
            raise SearcherError(
                f"the engine must be 'pipelined' or 'framework', but got {engine!r}"
            )
        self._engine = engine
        self._processes = processes
        self._timeout_s = timeout_s
        self._cluster, self._gpu = cluster, gpu
        self._tolerant = tolerant
        if cluster and engine != "pipelined":
            raise SearcherError(
                f"on a cluster the engine must be 'pipelined', but got {engine!r}: leave it out"
            )
        if engine == "pipelined" and not cluster:
            prepare()

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> Any:
        """What ``tune_kernel`` calls; returns its results."""
        self.device = device_name(runner)
        with self._measuring(searchspace, runner, tuning_options) as used:
            on_engine = isinstance(used, PipelinedRunner)
            kind = PipelinedEvaluate if on_engine else ExplainingEvaluate
            self.make_evaluate = partial(self._begun, kind)
            try:
                return super().tune(searchspace, used, tuning_options)
            finally:
                if on_engine:
                    self.why_not = used.why_not

    def _begun(self, kind: type[ExplainingEvaluate], func: Any, space: Any) -> ExplainingEvaluate:
        measure = func.eval_all

        def measured(configs: Any) -> Any:
            try:
                return measure(configs)
            finally:
                self.on_batch(func.results)

        func.eval_all = measured
        evaluate = kind(func, space)
        self.on_begin(evaluate)
        return evaluate

    def _own_runner(self, runner: Any) -> Any:
        if self._tolerant:
            TolerantRun(runner)
        return runner

    @contextmanager
    def _measuring(self, searchspace: Any, runner: Any, options: Any) -> Iterator[Any]:
        self.why_not = ""
        if self._engine == "framework" or getattr(runner, "simulation_mode", False):
            yield self._own_runner(runner)
            return
        with ExitStack() as stack:
            used, self.why_not = None, why_not(runner)
            if self._cluster:
                if self.why_not:
                    raise SearcherError(f"this cannot be measured on a cluster: {self.why_not}")
                used = stack.enter_context(self._on_cluster(searchspace, runner, options))
            elif not self.why_not:
                try:
                    started = self._started(searchspace, runner, options)
                    used = stack.enter_context(started)
                except Exception as error:  # pickling raises whatever it likes
                    self.why_not = f"{type(error).__name__}: {error}"
            # A tolerant runner's quiet is of our own making.
            if used is None and (self._tolerant or not runner.quiet):
                print(f"{self.name}: Kernel Tuner's own runner measures, since {self.why_not}")
            yield used or self._own_runner(runner)

    @contextmanager
    def _started(self, searchspace: Any, runner: Any, options: Any) -> Iterator[PipelinedRunner]:
        with ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="llamea-gpu-tune-")
            folder = Path(stack.enter_context(temporary))
            call = stack.enter_context(shared_file(folder))
            size = save_call(call, call_of(searchspace, runner, options))
            template: Template | None = early_template()
            if template is None:
                template = stack.enter_context(Template(PRELOAD, folder / "template.log"))
            processes = self._processes or _affordable(size)
            stage = HandedStage(call, folder / "device")
            limits = Limits(timing_s=self._timeout_s)
            stages = [stage] * processes
            pipeline = Pipeline(stages, (), folder, limits, template, opening=OPENING)
            stack.enter_context(pipeline)
            yield PipelinedRunner(self._own_runner(runner), pipeline, processes)

    @contextmanager
    def _on_cluster(self, searchspace: Any, runner: Any, options: Any) -> Iterator[PipelinedRunner]:
        """Results are of the nodes' GPUs; this process's own is of their kind."""
        call = {**call_of(searchspace, runner, options), "device": DEVICE}
        with tempfile.TemporaryDirectory(prefix="llamea-gpu-tune-") as folder:
            save_call(Path(folder) / "call", call)
            saved = (Path(folder) / "call").read_bytes()
        with connected(self._cluster):
            gpus = find_gpus(self._gpu)
            own_gpu = str(runner.dev.name)
            if runner.kernel_source.lang != "C" and gpus.kind.split("-")[0] not in own_gpu:
                raise SearcherError(
                    f"the GPU of this process must be of the cluster's kind, which is "
                    f"{gpus.kind}, but it is {own_gpu}: name another kind, or use another machine"
                )
            processes = self._processes or max(1, gpus.cores - 1)
            spec = EngineSpec(
                partial(call_on_node, saved, processes),
                Limits(timing_s=self._timeout_s),
                PRELOAD,
                versions=installed(["kernel_tuner"]),
            )
            with ClusterPipeline(spec, gpus, processes) as pipeline:
                own = self._own_runner(runner)
                yield PipelinedRunner(own, pipeline, processes * gpus.count)


def prepare() -> None:
    """Make a copy of this process that measures at once, while CUDA is not in use."""
    for name in PRELOAD:
        with suppress(Exception):  # a library that is not there, or does not load
            import_module(name)
    fork_early()


def _affordable(argument_bytes: int) -> int:
    """Processes for which there are cores, and memory on the GPU."""
    count = max(1, len(os.sched_getaffinity(0)) - 1)
    free = free_memory()
    if free is None:
        return count
    return max(1, min(count, int(_ROOM * free) // (_CONTEXT_BYTES + 2 * argument_bytes)))
