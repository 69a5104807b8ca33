"""Helion's measurements on the engine: compiling and timing side by side.

What it does: `PipelinedProvider` stands in for Helion's own benchmark provider, for our searches
and for Helion's alike. Batches are answered as Helion answers them (accuracy, statuses, logs);
besides, configurations can be submitted and waited for one by one, and the best be read again side
by side.

What it does not do: measure where it cannot (another device than an NVIDIA GPU, several processes,
a benchmark or check of the user's, arguments that cannot be copied): there it says why and leaves
everything to Helion's own provider.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import helion
import torch
from helion.autotuner.benchmark_provider import (
    BenchmarkResult,
    LocalBenchmarkProvider,
    _clone_args,
)
from helion.autotuner.logger import AutotuneLogEntry
from helion.autotuner.precompile_future import _collect_source_modules
from helion.autotuner.progress_bar import iter_with_progress

from llamea_gpu.engine.early import early_template
from llamea_gpu.engine.inherited import inherited
from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.engine.scratch import memory_folder
from llamea_gpu.engine.side_by_side import Standing
from llamea_gpu.engine.template import ForkedTemplate, Template
from llamea_gpu.engine.worker import Stage
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.compiling import generate, source_key
from llamea_gpu.frameworks.helion.stages import PRELOAD
from llamea_gpu.frameworks.helion.static import facts_of_device
from llamea_gpu.frameworks.helion.timing import time_call
from llamea_gpu.live.helion.journal import Remembered
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
LOADING_S = 0.5  # of finalists, before they are read again
LEAST_READING_S = 0.5
_READING_PATIENCE_S = 5.0  # for a process that reads finalists, beyond what it was told to take
_POLL_S = 0.25  # how often the budget is looked at
_HAND_OUT_S = 0.01  # between two looks of the thread
_UNREAD = Standing(math.inf, math.inf, math.inf, 0)
# The early copy of this process may have others.
_ENVIRONMENT = ("CUDA_", "TRITON_")
_STATUSES = {
    "ok": "ok",
    "incorrect": "accuracy_error",
    "timeout": "timeout",
}


class PipelinedProvider(LocalBenchmarkProvider):  # type: ignore[misc]
    """Helion's provider on the engine; see the module's docstring.

    Args:
        compilers: compiling processes; None for one a core but one.
        expected: gives configurations that are sure to be submitted: they compile while Helion
            computes what is right, and are timed as soon as that is known.
        arguments: what Helion hands to every provider.

    Attributes:
        on_measured: told of each configuration that the engine has measured, with ``status`` (of
            recordings), ``ms``, ``lo``, ``hi``, ``compile_s``, ``bench_s``, ``source``,
            ``message``, ``control`` and ``launches``.
        until_cleanup: what is to be closed when the search has ended.
        start_s: where the first seconds went: seconds from the beginning until each step was done;
            with "timing" before the name, those of a step of the timing process.
    """

    def __init__(
        self,
        *,
        compilers: int | None = None,
        expected: Callable[[], Sequence[Any]] = tuple,
        **arguments: Any,
    ) -> None:
        self._closing = ExitStack()
        self.until_cleanup = ExitStack()
        self._pipeline: Pipeline | None = None
        self.compilers = compilers or max(1, len(os.sched_getaffinity(0)) - 1)
        self.on_measured: Callable[[Any, Mapping[str, Any]], None] | None = None
        self.start_s: dict[str, float] = {}
        self._began = monotonic()
        self._configs: dict[int, Any] = {}  # on their way, by point
        self._paths: dict[str, str] = {}  # of compiled code, by what a configuration looks like
        self._submitted = 0
        self._done: list[tuple[Any, BenchmarkResult]] = []
        self._silent: set[int] = set()  # points whose result nobody waits for
        self._ahead: dict[str, int | Outcome] = {}  # expected ones: points, or what came of them
        self._compiled_here: Any = None  # by Helion, and not measured yet
        self._here: Any = None  # to be measured in this process by the next wait
        self._why_not = _unsupported(arguments["kernel"], arguments["settings"], arguments["args"])
        try:
            if not self._why_not:
                self._open(expected, **arguments)
            with self._meanwhile(self._give_arguments):
                super().__init__(**arguments)
        except BaseException:
            self._close()
            raise
        self._mark("baseline")
        if not self._why_not:
            self._jobs = self.compilers

    @property
    def pending(self) -> int:
        """Configurations that were submitted and not yet returned by :meth:`wait`."""
        here = self._here is not None
        return len(self._configs) - len(self._silent) + len(self._done) + here

    @property
    def streams(self) -> bool:
        """Whether the engine runs: whether `submit` and `wait` may be called."""
        return self._pipeline is not None

    def setup(self) -> None:
        """Start the engine, or say why not."""
        if not self._why_not:
            try:
                with self._meanwhile():
                    self._give_what_is_right()
                self._mark("what is right")
            except Exception as error:  # pickling and saving raise whatever they like
                self._why_not = f"{type(error).__name__}: {error}"
                self._close()
        if self._why_not:
            super().setup()
            self.log.warning(
                f"Compiling and timing take turns, in Helion's own way: {self._why_not}"
            )

    def cleanup(self) -> None:
        """End the engine's processes."""
        self._forget()
        self._close()
        self.until_cleanup.close()
        super().cleanup()

    def submit(self, configs: Sequence[Any]) -> None:
        """Queue configurations."""
        if self._pipeline is None:  # the engine has given up
            self._configs |= {self._number(): config for config in configs}
            return
        if not self._pipeline.compiles:  # it was ended for readings
            self._start_compiling()
        tasks = []
        for config in configs:
            known = self._ahead.pop(repr(config), None)
            if isinstance(known, Outcome):
                self._done.append((config, self._result(config, known)))
                continue
            number = self._number() if known is None else known
            if known is None:
                tasks.append(Task(number, dict(config.config)))
            self._configs[number] = config
            self._silent.discard(number)
            if config == self._compiled_here:
                # Its result need not wait for the process that times. That one gets it
                # nevertheless, and knows what is hopeless.
                self._here, self._compiled_here = config, None
                self._silent.add(number)
        self._pipeline.submit(tasks)
        self._pipeline.poll()

    def wait(self, deadline: float | None = None) -> list[tuple[Any, BenchmarkResult]]:
        """Configurations with their results as they come: at least one, unless time is up.

        After ``deadline`` (of ``time.monotonic``) it returns with what there is. Where the engine
        gives up, what was pending is measured in Helion's own way.
        """
        if self._here is not None:
            config, self._here = self._here, None
            self._done.append((config, self._measured_here(config)))
        if not self._done and self._pipeline is not None:
            self._collect(deadline)
        if not self._done and self._pipeline is None and self._configs:
            rest = [c for number, c in self._configs.items() if number not in self._silent]
            self._configs.clear()
            self._silent.clear()
            results = super().benchmark(rest, raise_if_no_viable_config=False)
            self._done += zip(rest, results, strict=True)
        done, self._done = self._done, []
        if done and "second result" not in self.start_s and self._pipeline is not None:
            steps = self._pipeline.opened.get("opened_s", {})
            self.start_s |= {f"timing {step}": seconds for step, seconds in steps.items()}
        for _ in done:
            self._mark("second result" if "first result" in self.start_s else "first result")
        return done

    def read_again(self, configs: Sequence[Any], deadline: float) -> list[Standing] | None:
        """Configurations side by side in long windows, while nothing compiles.

        Args:
            configs: those that work; the first is used to heat up.
            deadline: of ``time.monotonic``, until which to read.

        Returns:
            One for each; None where the engine cannot.
        """
        self.drop_queued()
        unknown = [config for config in configs if repr(config) not in self._paths]
        if unknown:  # what a journal knew, or what was measured here
            self._compiled_here = None
            self.submit(unknown)
            while self._pipeline is not None and self._configs:
                self._collect(None)
            self._done.clear()
        if self._pipeline is None:
            return None
        self._pipeline.end_compiling()
        paths = [self._paths.get(repr(config), "") for config in configs]
        known = list(dict.fromkeys(filter(None, paths)))
        seconds = max(LEAST_READING_S, deadline - monotonic() - LOADING_S)
        task = {"paths": known, "seconds": seconds}
        try:
            found = self._pipeline.alone(task, seconds + _READING_PATIENCE_S)
        except RecordingError as error:
            self._give_up(error)
            return None
        if found is None:
            return None
        standings = dict(zip(known, starmap(Standing, found["standings"]), strict=True))
        return [standings.get(path, _UNREAD) for path in paths]

    def _collect(self, deadline: float | None) -> None:
        """Take in what the engine has finished by then."""
        assert self._pipeline is not None
        try:
            outcomes = self._pipeline.wait(deadline)
        except RecordingError as error:
            self._give_up(error)
            return
        for outcome in outcomes:
            config = self._configs.pop(outcome.point, None)
            if config is None:  # dropped before
                continue
            if outcome.status == "ok":
                self._paths[repr(config)] = outcome.details["path"]
            if outcome.point in self._silent:
                self._silent.remove(outcome.point)
                if repr(config) in self._ahead:
                    self._ahead[repr(config)] = outcome
            else:
                self._done.append((config, self._result(config, outcome)))

    def _give_up(self, error: Exception) -> None:
        self._why_not = str(error)
        self.log.warning(f"Going on in Helion's own way: {error}")
        self._close()
        super().setup()

    def _number(self) -> int:
        self._submitted += 1
        return self._submitted

    def drop(self) -> None:
        """Forget what is pending; what it was at is ended."""
        if self._pipeline is not None:
            self._pipeline.drop()
        self._forget()

    def drop_queued(self) -> None:
        """Forget what is pending, and end compiling: nothing disturbs what is read from now on."""
        if self._pipeline is not None:
            self._pipeline.end_compiling()
        self._forget()

    def _forget(self) -> None:
        self._configs.clear()
        self._silent.clear()
        self._ahead.clear()
        self._here = None

    def benchmark(
        self,
        configs: list[Any],
        *,
        desc: str = "Benchmarking",
        raise_if_no_viable_config: bool = True,
    ) -> list[Any]:
        """One result a configuration, in their order; see Helion's ``BenchmarkProvider``."""
        if self._pipeline is None:
            return list(
                super().benchmark(
                    configs, desc=desc, raise_if_no_viable_config=raise_if_no_viable_config
                )
            )
        unique = list({repr(config): config for config in configs}.values())
        self.submit(unique)
        found = {
            repr(config): result
            for config, result in iter_with_progress(
                self._until_budget_ends(len(unique)),
                total=len(unique),
                description=desc,
                enabled=self.settings.autotune_progress_bar,
            )
        }
        return [found.get(repr(config)) or _unmeasured(config) for config in configs]

    def _until_budget_ends(self, count: int) -> Iterator[tuple[Any, BenchmarkResult]]:
        while count:
            for pair in self.wait(monotonic() + _POLL_S):
                count -= 1
                yield pair
            if count and self.budget_exceeded_fn():
                self.drop()
                return

    def _open(
        self,
        expected: Callable[[], Sequence[Any]],
        *,
        kernel: Any,
        settings: Any,
        config_spec: Any,
        args: Any,
        **_: Any,
    ) -> None:
        """Start the processes, which make ready while Helion computes what is right."""
        self.kernel, self.config_spec, self.args = kernel, config_spec, args
        try:
            folder = tempfile.TemporaryDirectory(prefix="llamea-gpu-tune-", dir=_scratch(args))
            self._folder = Path(self._closing.enter_context(folder))
            template = self._timing_template()
            self._pipeline = Pipeline(
                [],
                [self._timing_stage(kernel.kernel.name, _device_of(args))],
                self._folder,
                _limits(settings),
                template,
                spares=1,
                deduplicate=True,
                hopeless=HOPELESS,
            )
            self._closing.push(self._pipeline)
            with contextlib.suppress(Exception):  # Helion meets it again, and says it
                self._reference_code()  # imports what forks need, too
            self._start_compiling()
            self._expect(expected())
            self._mark("compiling")
        except OSError as error:  # no room on the disk, no more processes
            self._why_not = f"{type(error).__name__}: {error}"
            self._close()

    def _expect(self, configs: Sequence[Any]) -> None:
        """Queue configurations that nobody has asked for yet."""
        assert self._pipeline is not None
        self._ahead = {repr(config): self._number() for config in configs}
        unique = {repr(config): config for config in configs}
        for looks, number in self._ahead.items():
            assert isinstance(number, int)
            self._configs[number] = unique[looks]
            self._silent.add(number)
            self._pipeline.submit([Task(number, dict(unique[looks].config))])

    @contextlib.contextmanager
    def _meanwhile(self, *works: Callable[[], None]) -> Iterator[None]:
        """Have threads hand out work, and do ``works``, while this one does something else."""
        pipeline, over, faults = self._pipeline, threading.Event(), list[Exception]()
        if pipeline is None:
            yield
            return

        def hand_out() -> None:
            while not over.wait(_HAND_OUT_S):
                pipeline.poll()

        def guarded(work: Callable[[], None]) -> None:
            try:
                work()
            except Exception as fault:  # pickling and saving raise whatever they like
                faults.append(fault)

        threads = [threading.Thread(target=guarded, args=(work,)) for work in (hand_out, *works)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()
            if faults:
                self._why_not = f"{type(faults[0]).__name__}: {faults[0]}"
                self._close()

    def _give_arguments(self) -> None:
        save(self.args, self._folder / "arguments.pt")
        self._mark("arguments")

    def _reference_code(self) -> tuple[Any, str]:
        """The configuration that says what is right, and the module of its code."""
        spec = self.config_spec  # before 1.5 it has no reference but the default
        reference = getattr(spec, "autotune_reference_config", spec.default_config)()
        return reference, self.kernel.compile_config(reference, allow_print=False).__module__

    def _timing_template(self) -> Template:
        """The early copy of this process, or one that has to import first."""
        early = early_template()
        self._mark("no copy" if early is None else "copy")
        if early is not None:
            return early
        return self._closing.enter_context(Template(PRELOAD, self._folder / "template.log"))

    def _timing_stage(self, name: str, device: Any) -> Stage:
        arguments, data = self._folder / "arguments.pt", self._folder / "right.pt"
        gpu = f"cuda:{device.index or 0}"
        return ArgumentsTimingStage(name, arguments, data, gpu, _environment())

    def _compile_stage(self) -> Stage:
        gpu = facts_of_device(_device_of(self.args))
        return BoundCompileStage(self.kernel, self.args, self._folder, gpu)

    def _start_compiling(self) -> None:
        """Compiling processes: forks of this one, in which Helion has generated code by now."""
        assert self._pipeline is not None
        stage = self._closing.enter_context(inherited(self._compile_stage()))
        forked = self._closing.enter_context(ForkedTemplate(self._folder / "forked.log"))
        self._pipeline.start_compiling([stage] * self.compilers, forked)

    def _give_what_is_right(self) -> None:
        """Hand the timing process what is right."""
        reference, module = self._reference_code()
        data = TimingData(
            expected=self._baseline_output,
            changed=self._baseline_post_args,
            right=CorrectResult(
                absolute=self._effective_atol,
                relative=self._effective_rtol,
                scaled=getattr(self, "_scale_atol", False),
                changed=tuple(self.mutated_arg_indices),
                checked=self.settings.autotune_accuracy_check,
                arguments_checked=os.getenv("CHECK_INPUT_ACCURACY", "1") == "1",
            ),
            modules=tuple(_collect_source_modules(sys.modules.get(module))),
            environment=_environment(),
        )
        save(data, self._folder / "right.pt")
        if getattr(self.settings, "autotune_baseline_fn", None) is None:
            self._compiled_here = reference

    def _subprocess_benchmark_enabled(self) -> bool:
        """Helion's own second process, which imports for seconds, only where the engine is not."""
        return bool(self._why_not) and bool(super()._subprocess_benchmark_enabled())

    def _measured_here(self, config: Any) -> BenchmarkResult:
        """Check and time a configuration in the user's process."""
        start = perf_counter()
        function = self.kernel.compile_config(config, allow_print=False)
        compile_s = perf_counter() - start
        arguments = _clone_args(self.args, None, idx_to_clone=self.mutated_arg_indices)
        result = function(*arguments)
        right = not self.settings.autotune_accuracy_check or self._validate_against_baseline(
            config, result, arguments
        )
        times = time_call(lambda: function(*arguments)) if right else {}
        time_ms = times.get("time_ms", math.inf)
        status = "ok" if right else "accuracy_error"
        told = self.on_measured is not None  # code is generated for that alone
        source = source_key(generate(self.kernel, config.config)) if told else None
        seconds = perf_counter() - start - compile_s
        outcome = Outcome(-1, "ok" if right else "incorrect", compile_s, seconds, times, {})
        self._tell(config, replace(outcome, details={**times, "source": source}))
        self._note(config, status, time_ms, compile_s, source)
        return BenchmarkResult(config, function, time_ms, status, compile_s)

    def _result(self, config: Any, outcome: Outcome) -> BenchmarkResult:
        status = _STATUSES.get(outcome.status, "error")
        time_ms = float(outcome.details.get("time_ms", math.inf)) if status == "ok" else math.inf
        if status == "ok" and "same_as" in outcome.details:
            status = "deduplicated"
        compile_s = None if status == "deduplicated" else outcome.compile_s
        self._tell(config, outcome)
        self._note(config, status, time_ms, compile_s, outcome.details.get("source"))
        if status not in ("ok", "deduplicated"):
            message = outcome.details.get("message", "")
            self.log.debug(lambda: f"{outcome.status}: {config!r}: {message}")
        return BenchmarkResult(
            config, CompiledLater(self.kernel, config), time_ms, status, compile_s
        )

    def remembered(self, config: Any, known: Remembered) -> BenchmarkResult:
        """What an earlier run has measured, as a result."""
        status = _STATUSES.get(known.status, "error")
        function = CompiledLater(self.kernel, config)
        return BenchmarkResult(config, function, known.time_ms, status, known.compile_s)

    def _tell(self, config: Any, outcome: Outcome) -> None:
        if self.on_measured is None:
            return
        details = outcome.details
        worked = outcome.status == "ok"
        self.on_measured(
            config,
            {
                "status": outcome.status,
                "ms": details.get("time_ms") if worked else None,
                "lo": details.get("low_ms") if worked else None,
                "hi": details.get("high_ms") if worked else None,
                "compile_s": round(outcome.compile_s, 3),
                "bench_s": round(outcome.benchmark_s, 4),
                "source": details.get("source"),
                "message": details.get("message"),
                "control": None,
                "launches": details.get("launches"),
            },
        )

    def _mark(self, step: str) -> None:
        self.start_s.setdefault(step, round(monotonic() - self._began, 3))

    def _note(
        self, config: Any, status: str, time_ms: float, compile_s: float | None, source: str | None
    ) -> None:
        """In Helion's log and metrics, as its own provider does."""
        metrics = self._autotune_metrics
        metrics.num_configs_tested += 1
        if status == "ok" and hasattr(metrics, "num_successful_candidate_measurements"):
            metrics.num_successful_candidate_measurements += 1
        elif status == "accuracy_error":
            self._record_accuracy_failure(config)
        elif status == "error":
            self._record_compile_failure(config)
        config_id = self.log.register_config(config)
        if config_id is None:
            return
        entry = {
            "generation": metrics.num_generations,
            "status": status,
            "perf_ms": time_ms if math.isfinite(time_ms) else None,
            "compile_time": compile_s,
            "config_id": config_id,
            "config": config,
            "source_hash": source,
            "completed_at": perf_counter(),
        }
        fields = AutotuneLogEntry._fields  # fewer before Helion 1.5
        self.log.record_autotune_entry(
            AutotuneLogEntry(**{key: value for key, value in entry.items() if key in fields})
        )

    def _close(self) -> None:
        self._pipeline = None
        self._closing.close()


class CompiledLater:
    """The compiled function of a configuration, made in this process when it is first needed.

    The machine code is in Triton's cache by then.
    """

    def __init__(self, kernel: Any, config: Any) -> None:
        self._kernel, self._config = kernel, config
        self._function: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the function."""
        return self._made()(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__globals__", "__name__", "__qualname__"):
            raise AttributeError(name)
        return getattr(self._made(), name)

    def _made(self) -> Callable[..., Any]:
        if self._function is None:
            self._function = self._kernel.compile_config(self._config, allow_print=False)
        return self._function


def _unsupported(kernel: Any, settings: Any, arguments: Sequence[Any]) -> str:
    """Why the engine cannot measure this kernel; empty where it can."""
    device = _device_of(arguments)
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


def _limits(settings: Any) -> Limits:
    compile_s = float(settings.autotune_compile_timeout)
    if settings.autotune_budget_seconds is not None:
        share_s = COMPILE_SHARE * settings.autotune_budget_seconds
        compile_s = min(compile_s, max(share_s, FIRST_COMPILE_S))
    return Limits(compile_s=compile_s, least_compile_s=LEAST_COMPILE_S, timing_s=TIMING_S)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)}


def _device_of(arguments: Any) -> Any:
    """The device of the arguments' tensors; None where they are on several, or there are none."""
    from torch.utils._pytree import tree_leaves

    devices = {leaf.device for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)}
    gpus = {device for device in devices if device.type != "cpu"} or devices
    return gpus.pop() if len(gpus) == 1 else None


def _scratch(arguments: Any) -> str | None:
    """Memory rather than a disk for copies of the arguments, where there is enough of it."""
    from torch.utils._pytree import tree_leaves

    needed = sum(
        leaf.untyped_storage().nbytes()
        for leaf in tree_leaves(arguments)
        if isinstance(leaf, torch.Tensor)
    )
    return memory_folder(needed)


def _unmeasured(config: Any) -> BenchmarkResult:
    return BenchmarkResult(config, helion.Config, math.inf, "error", None)
