"""The engine for one live kernel: its processes, what is on its way, what came of it.

What it does: `KernelEngine` starts the processes early, hands the timing one the user's arguments
and what is right, has configurations measured as a `ConfigEngine` does, and the best read side by
side at the end.

What it does not do: know how Helion wants its results (see `llamea_gpu.live.helion.provider`), or
what a search makes of them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any

import torch
from helion.autotuner.precompile_future import _collect_source_modules

from llamea_gpu.engine.early import early_template, inherited
from llamea_gpu.engine.finalists import LEAST_READING_S, standings_of
from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.nvidia import free_memory
from llamea_gpu.engine.pipeline import Outcome, Pipeline
from llamea_gpu.engine.scratch import scratch_folder
from llamea_gpu.engine.side_by_side import Standing
from llamea_gpu.engine.template import ForkedTemplate, Template
from llamea_gpu.engine.worker import Stage
from llamea_gpu.frameworks.helion.stages import PRELOAD
from llamea_gpu.frameworks.helion.static import facts_of_device
from llamea_gpu.live.helion.config_engine import ConfigEngine
from llamea_gpu.live.helion.stages import (
    ArgumentsTimingStage,
    BoundCompileStage,
    CorrectResult,
    TimingData,
    save,
)

HOPELESS = 3.0  # times the best: then one launch is enough
LEAST_COMPILE_S = 3.0
# What one configuration may compile for until it is known what is usual: a share of a budget of
# seconds, and never less than so many.
COMPILE_SHARE = 1 / 6
FIRST_COMPILE_S = 10.0
TIMING_S = 10.0
LEAST_TIMING_S = 2.0
# Timing processes beside the one at work. On some kernels a random configuration in four ends the
# GPU's context, and a new process takes two seconds to open.
SPARES = 2
_CONTEXT_BYTES = 1 << 30  # of a process on the GPU, with what a kernel needs beside its arguments
LOADING_S = 0.5  # of finalists, before they are read again
_HAND_OUT_S = 0.01  # between two looks of the thread
# The early copy of this process may have others.
_ENVIRONMENT = ("CUDA_", "TRITON_")


class KernelEngine(ConfigEngine):
    """Compiles and times configurations of a bound kernel on its arguments, on this machine.

    Leaving it ends the processes.

    Args:
        kernel: the ``BoundKernel``.
        arguments: of it.
        settings: Helion's.
        compilers: compiling processes.

    Raises:
        OSError: there is no room on the disk, or no process more.
    """

    _pipeline: Pipeline

    def __init__(
        self, kernel: Any, arguments: Sequence[Any], settings: Any, compilers: int
    ) -> None:
        super().__init__()
        self.kernel, self.arguments, self._settings = kernel, arguments, settings
        self._compilers = compilers
        self._paths: dict[str, str] = {}  # of compiled code, by what a configuration looks like
        try:
            self.folder = self._closing.enter_context(scratch_folder(_bytes_of(arguments)))
            self._pipeline = Pipeline(
                [],
                [self.timing_stage()],
                self.folder,
                limits_of(settings, settings.autotune_budget_seconds),
                self.timing_template(),
                spares=spares_for(arguments, free_memory()),
                deduplicate=True,
                hopeless=HOPELESS,
            )
            self._closing.push(self._pipeline)
            with contextlib.suppress(Exception):  # Helion meets it again, and says it
                self.reference_module()  # imports what forks need, too
            self._start_compiling()
        except BaseException:
            self._closing.close()
            raise
        self.mark("processes")

    # -- processes --------------------------------------------------------------------------

    def timing_template(self) -> Template:
        """The early copy of this process, or one that has to import first."""
        early = early_template()
        self.mark("no copy" if early is None else "copy")
        if early is not None:
            return early
        return self._closing.enter_context(Template(PRELOAD, self.folder / "template.log"))

    def timing_stage(self) -> Stage:
        """What the timing process does."""
        arguments, data = self.folder / "arguments.pt", self.folder / "right.pt"
        gpu = f"cuda:{device_of(self.arguments).index or 0}"
        return ArgumentsTimingStage(self.kernel.kernel.name, arguments, data, gpu, _environment())

    def compile_stage(self) -> Stage:
        """What the compiling processes do."""
        gpu = facts_of_device(device_of(self.arguments))
        return BoundCompileStage(self.kernel, self.arguments, self.folder, gpu)

    def reference(self) -> Any:
        """The configuration that says what is right; before Helion 1.5 the default."""
        spec = self.kernel.config_spec
        return getattr(spec, "autotune_reference_config", spec.default_config)()

    def reference_module(self) -> str:
        """The module of its code, which Helion has or will have generated in any case."""
        return str(self.kernel.compile_config(self.reference(), allow_print=False).__module__)

    def give_arguments(self) -> None:
        """Hand the timing process the arguments."""
        save(self.arguments, self.folder / "arguments.pt")
        self.mark("arguments")

    def give_what_is_right(self, expected: Any, changed: Any, criterion: CorrectResult) -> None:
        """Hand the timing process a right result, and the arguments after it; it opens then."""
        modules = _collect_source_modules(sys.modules.get(self.reference_module()))
        data = TimingData(expected, changed, criterion, tuple(modules), _environment())
        save(data, self.folder / "right.pt")
        self.mark("what is right")

    @contextlib.contextmanager
    def meanwhile(self, *works: Callable[[], None]) -> Iterator[list[Exception]]:
        """Have threads hand out work, and do ``works``, while this one does something else.

        Yields:
            What they have raised, in the end.
        """
        over, faults = threading.Event(), list[Exception]()

        def hand_out() -> None:
            while not over.wait(_HAND_OUT_S):
                self._pipeline.poll()

        def guarded(work: Callable[[], None]) -> None:
            try:
                work()
            except Exception as fault:  # pickling and saving raise whatever they like
                faults.append(fault)

        threads = [threading.Thread(target=guarded, args=(work,)) for work in (hand_out, *works)]
        for thread in threads:
            thread.start()
        try:
            yield faults
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _start_compiling(self) -> None:
        """Forks of this process, in which Helion has generated code by now."""
        stage = self._closing.enter_context(inherited(self.compile_stage()))
        forked = self._closing.enter_context(ForkedTemplate(self.folder / "forked.log"))
        self._pipeline.start_compiling([stage] * self._compilers, forked)

    # -- configurations ---------------------------------------------------------------------

    def submit(self, configs: Sequence[Any], silent: bool = False) -> None:
        """See `ConfigEngine.submit`."""
        if not self._pipeline.compiles:  # it was ended for readings
            self._start_compiling()
        super().submit(configs, silent)

    def read_again(self, configs: Sequence[Any], deadline: float) -> list[Standing] | None:
        """See `ConfigEngine.read_again`."""
        self.end_compiling()
        unknown = [config for config in configs if repr(config) not in self._paths]
        if unknown:  # what a journal knew
            self.submit(unknown)
            while self.pending:
                self.wait()
            self.end_compiling()
        paths = [self._paths.get(repr(config), "") for config in configs]
        seconds = max(LEAST_READING_S, deadline - monotonic() - LOADING_S)
        return standings_of(self._pipeline, paths, seconds)

    def end_compiling(self) -> None:
        """See `ConfigEngine.end_compiling`."""
        self._pipeline.end_compiling()
        self._forget()

    def _note(self, config: Any, outcome: Outcome) -> None:
        if outcome.status == "ok":
            self._paths[repr(config)] = outcome.details["path"]


def why_not(kernel: Any, settings: Any, arguments: Sequence[Any]) -> str:
    """Why the engine cannot measure this kernel; empty where it can."""
    device = device_of(arguments)
    if device is None or device.type != "cuda" or torch.version.hip:
        return f"the engine needs tensors on one NVIDIA GPU, but there is {device}"
    if kernel.env.process_group_name is not None:
        return "the kernel is distributed"
    for name in (
        "autotune_benchmark_fn",
        "autotune_baseline_accuracy_check_fn",
        "autotune_search_acf",
    ):
        if getattr(settings, name, None):
            return f"{name} is set"
    if getattr(kernel.env, "backend_name", "triton") != "triton":
        return f"the backend is {kernel.env.backend_name}"
    return ""


def device_of(arguments: Any) -> Any:
    """The device of the arguments' tensors; None where they are on several, or there are none."""
    devices = {tensor.device for tensor in _tensors_of(arguments)}
    gpus = {device for device in devices if device.type != "cpu"} or devices
    return gpus.pop() if len(gpus) == 1 else None


def spares_for(arguments: Any, free: int | None) -> int:
    """As many as there is room for on a GPU, each with arguments, results and right results.

    ``free`` are the bytes that nobody uses there; None: not known.
    """
    if free is None:
        return SPARES
    return max(0, min(SPARES, free // (3 * _bytes_of(arguments) + _CONTEXT_BYTES) - 1))


def _bytes_of(arguments: Any) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in _tensors_of(arguments))


def _tensors_of(arguments: Any) -> list[torch.Tensor]:
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]


def limits_of(settings: Any, budget_s: float | None) -> Limits:
    """After which processes are killed, by Helion's settings and a budget of seconds."""
    compile_s = float(settings.autotune_compile_timeout)
    if budget_s is not None:
        compile_s = min(compile_s, max(COMPILE_SHARE * budget_s, FIRST_COMPILE_S))
    return Limits(
        compile_s=compile_s,
        least_compile_s=LEAST_COMPILE_S,
        timing_s=TIMING_S,
        least_timing_s=LEAST_TIMING_S,
    )


def _environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)}
