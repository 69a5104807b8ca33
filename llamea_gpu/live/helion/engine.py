"""The engine for one live kernel: its processes, what is on its way, what came of it.

What it does: `KernelEngine` starts the processes early, hands the timing one the user's arguments
and what is right, takes configurations as ``helion.Config`` and gives them back with the engine's
outcomes, and has the best read side by side at the end.

What it does not do: know how Helion wants its results (see `llamea_gpu.live.helion.provider`), or
what a search makes of them.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import starmap
from time import monotonic
from typing import Any

import torch
from helion.autotuner.precompile_future import _collect_source_modules

from llamea_gpu.engine.early import early_template, inherited
from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.nvidia import free_memory
from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.engine.scratch import scratch_folder
from llamea_gpu.engine.side_by_side import Standing
from llamea_gpu.engine.template import ForkedTemplate, Template
from llamea_gpu.engine.worker import Stage
from llamea_gpu.frameworks.helion.stages import PRELOAD
from llamea_gpu.frameworks.helion.static import facts_of_device
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
# Timing processes beside the one at work. On some kernels a random configuration in four ends the
# GPU's context, and a new process takes two seconds to open.
SPARES = 2
_CONTEXT_BYTES = 1 << 30  # of a process on the GPU, with what a kernel needs beside its arguments
LOADING_S = 0.5  # of finalists, before they are read again
LEAST_READING_S = 0.5
_READING_PATIENCE_S = 5.0  # for a process that reads finalists, beyond what it was told to take
_HAND_OUT_S = 0.01  # between two looks of the thread
_UNREAD = Standing(math.inf, math.inf, math.inf, 0)
# The early copy of this process may have others.
_ENVIRONMENT = ("CUDA_", "TRITON_")

Done = list[tuple[Any, Outcome]]  # configurations, with what came of them


class KernelEngine:
    """Compiles and times configurations of a bound kernel on its arguments.

    A context manager: leaving it ends the processes.

    Args:
        kernel: the ``BoundKernel``.
        arguments: of it.
        settings: Helion's.
        compilers: compiling processes.

    Attributes:
        start_s: where the first seconds went: seconds from the beginning until each step was done;
            with "timing" before the name, those of a step of the timing process.

    Raises:
        OSError: there is no room on the disk, or no process more.
    """

    def __init__(
        self, kernel: Any, arguments: Sequence[Any], settings: Any, compilers: int
    ) -> None:
        self.kernel, self.arguments, self._settings = kernel, arguments, settings
        self._compilers = compilers
        self.start_s: dict[str, float] = {}
        self._began = monotonic()
        self._closing = ExitStack()
        self._configs: dict[int, Any] = {}  # on their way, by point
        self._silent: set[int] = set()  # points whose outcome nobody waits for
        self._expected: dict[str, int | Outcome] = {}  # points, or what came of them
        self._ready: Done = []  # expected, done and then asked for
        self._paths: dict[str, str] = {}  # of compiled code, by what a configuration looks like
        self._submitted = 0
        try:
            self.folder = self._closing.enter_context(scratch_folder(_bytes_of(arguments)))
            self._pipeline = Pipeline(
                [],
                [self.timing_stage()],
                self.folder,
                _limits(settings),
                self.timing_template(),
                spares=_spares(arguments),
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

    def __enter__(self) -> KernelEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

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

    def give_what_is_right(self, expected: Any, changed: Any, right: CorrectResult) -> None:
        """Hand the timing process a right result, and the arguments after it; it opens then."""
        modules = _collect_source_modules(sys.modules.get(self.reference_module()))
        data = TimingData(expected, changed, right, tuple(modules), _environment())
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

    def mark(self, step: str) -> None:
        """Note that a step of the start is done."""
        self.start_s.setdefault(step, round(monotonic() - self._began, 3))

    def _start_compiling(self) -> None:
        """Forks of this process, in which Helion has generated code by now."""
        stage = self._closing.enter_context(inherited(self.compile_stage()))
        forked = self._closing.enter_context(ForkedTemplate(self.folder / "forked.log"))
        self._pipeline.start_compiling([stage] * self._compilers, forked)

    # -- configurations ---------------------------------------------------------------------

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
        if not self._pipeline.compiles:  # it was ended for readings
            self._start_compiling()
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
        done, self._ready = self._ready, []
        for outcome in () if done else self._pipeline.wait(deadline):
            config = self._configs.pop(outcome.point, None)
            if config is None:  # dropped before
                continue
            if outcome.status == "ok":
                self._paths[repr(config)] = outcome.details["path"]
            if outcome.point not in self._silent:
                done.append((config, outcome))
                continue
            self._silent.remove(outcome.point)
            if repr(config) in self._expected:
                self._expected[repr(config)] = outcome
        steps = self._pipeline.opened.get("opened_s", {})
        self.start_s |= {f"timing {step}": seconds for step, seconds in steps.items()}
        return done

    def read_again(self, configs: Sequence[Any], deadline: float) -> list[Standing] | None:
        """Configurations side by side in long windows, while nothing compiles.

        Args:
            configs: those that work; the first is used to heat up.
            deadline: of ``time.monotonic``, until which to read.

        Returns:
            One for each; None where it did not work.

        Raises:
            RecordingError: the engine cannot go on.
        """
        self.end_compiling()
        unknown = [config for config in configs if repr(config) not in self._paths]
        if unknown:  # what a journal knew
            self.submit(unknown)
            while self.pending:
                self.wait()
            self.end_compiling()
        paths = [self._paths.get(repr(config), "") for config in configs]
        known = list(dict.fromkeys(filter(None, paths)))
        seconds = max(LEAST_READING_S, deadline - monotonic() - LOADING_S)
        task = {"paths": known, "seconds": seconds}
        found = self._pipeline.alone(task, seconds + _READING_PATIENCE_S)
        if found is None:
            return None
        standings = dict(zip(known, starmap(Standing, found["standings"]), strict=True))
        return [standings.get(path, _UNREAD) for path in paths]

    def drop(self) -> None:
        """Forget what is pending; what it was at is ended."""
        self._pipeline.drop()
        self._forget()

    def end_compiling(self) -> None:
        """Forget what is pending, and end compiling: nothing disturbs what is read from now on."""
        self._pipeline.end_compiling()
        self._forget()

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


def _spares(arguments: Any) -> int:
    """As many as there is room for on the GPU, each with arguments, results and right results."""
    free = free_memory()
    if free is None:
        return SPARES
    return max(0, min(SPARES, free // (3 * _bytes_of(arguments) + _CONTEXT_BYTES) - 1))


def _bytes_of(arguments: Any) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in _tensors_of(arguments))


def _tensors_of(arguments: Any) -> list[torch.Tensor]:
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]


def _limits(settings: Any) -> Limits:
    compile_s = float(settings.autotune_compile_timeout)
    if settings.autotune_budget_seconds is not None:
        share_s = COMPILE_SHARE * settings.autotune_budget_seconds
        compile_s = min(compile_s, max(share_s, FIRST_COMPILE_S))
    return Limits(compile_s=compile_s, least_compile_s=LEAST_COMPILE_S, timing_s=TIMING_S)


def _environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)}
