"""Helion's measurements on the engine: compiling and timing side by side.

What it does: `PipelinedProvider` stands in for Helion's own benchmark provider, for our searches
and for Helion's alike. Batches are answered as Helion answers them (accuracy, statuses, logs);
besides, configurations can be submitted and waited for one by one.

What it does not do: read finalists again, which Helion does in the user's process; measure where it
cannot (another device than an NVIDIA GPU, several processes, a benchmark or check of the user's,
arguments that cannot be copied): there it says why and leaves everything to Helion's own provider.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
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
from llamea_gpu.engine.template import ForkedTemplate, Template
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.stages import PRELOAD
from llamea_gpu.frameworks.helion.static import facts_of_device
from llamea_gpu.frameworks.helion.timing import time_call
from llamea_gpu.live.helion.stages import (
    ArgumentsTimingStage,
    BoundCompileStage,
    CorrectResult,
    save_arguments,
)

HOPELESS = 3.0  # times the best: then one launch is enough
LEAST_COMPILE_S = 3.0
# What one configuration may compile for until it is known what is usual: a share of a budget of
# seconds, and never less than so many.
COMPILE_SHARE = 1 / 6
FIRST_COMPILE_S = 10.0
TIMING_S = 10.0
_POLL_S = 0.25  # how often the budget is looked at
_STATUSES = {
    "ok": "ok",
    "incorrect": "accuracy_error",
    "timeout": "timeout",
}


class PipelinedProvider(LocalBenchmarkProvider):  # type: ignore[misc]
    """Helion's provider on the engine; see the module's docstring.

    Args:
        compilers: compiling processes; None for one a core but one.
        arguments: what Helion hands to every provider.
    """

    def __init__(self, *, compilers: int | None = None, **arguments: Any) -> None:
        self._closing = ExitStack()
        self._pipeline: Pipeline | None = None
        self._timing_template: Template | None = None
        self.compilers = compilers or max(1, len(os.sched_getaffinity(0)) - 1)
        self._configs: dict[int, Any] = {}
        self._submitted = 0
        self._done: list[tuple[Any, BenchmarkResult]] = []
        self._default: Any = None
        self._why_not = _unsupported(arguments["kernel"], arguments["settings"], arguments["args"])
        try:
            if not self._why_not:
                self._folder = Path(
                    self._closing.enter_context(
                        tempfile.TemporaryDirectory(
                            prefix="llamea-gpu-tune-", dir=_scratch(arguments["args"])
                        )
                    )
                )
                self._timing_template = early_template()
                if self._timing_template is None:
                    # It imports what timing needs while Helion computes what is right.
                    template = Template(PRELOAD, self._folder / "template.log")
                    self._timing_template = self._closing.enter_context(template)
            super().__init__(**arguments)
        except BaseException:
            self._closing.close()
            raise
        if not self._why_not:
            self._jobs = self.compilers

    @property
    def pending(self) -> int:
        """Configurations that were submitted and not yet returned by :meth:`wait`."""
        return len(self._configs) + len(self._done)

    @property
    def streams(self) -> bool:
        """Whether the engine runs: whether `submit` and `wait` may be called."""
        return self._pipeline is not None

    def setup(self) -> None:
        """Start the engine, or say why not."""
        super().setup()
        if not self._why_not:
            try:
                self._pipeline = self._started()
            except Exception as error:  # pickling and saving raise whatever they like
                self._why_not = f"{type(error).__name__}: {error}"
                self._closing.close()
        if self._why_not:
            self.log.warning(
                f"Compiling and timing take turns, in Helion's own way: {self._why_not}"
            )

    def cleanup(self) -> None:
        """End the engine's processes."""
        self._close()
        super().cleanup()

    def submit(self, configs: Sequence[Any]) -> None:
        """Queue configurations."""
        assert self._pipeline is not None
        tasks = []
        for config in configs:
            if self._default is not None and config == self._default:
                # While the timing process starts; Helion has run this one before.
                self._default = None
                self._done.append((config, self._measured_here(config)))
                continue
            self._configs[self._submitted] = config
            tasks.append(Task(self._submitted, dict(config.config)))
            self._submitted += 1
        self._pipeline.submit(tasks)

    def wait(self, deadline: float | None = None) -> list[tuple[Any, BenchmarkResult]]:
        """Configurations with their results as they come: at least one, unless time is up.

        After ``deadline`` (of ``time.monotonic``) it returns with what there is. Where the engine
        gives up, what was pending is measured in Helion's own way.
        """
        if not self._done and self._pipeline is not None:
            try:
                for outcome in self._pipeline.wait(deadline):
                    config = self._configs.pop(outcome.point)
                    self._done.append((config, self._result(config, outcome)))
            except RecordingError as error:
                self.log.warning(f"Going on in Helion's own way: {error}")
                self._close()
        if not self._done and self._pipeline is None and self._configs:
            rest = list(self._configs.values())
            self._configs.clear()
            results = super().benchmark(rest, raise_if_no_viable_config=False)
            self._done += zip(rest, results, strict=True)
        done, self._done = self._done, []
        return done

    def drop(self) -> None:
        """Forget what is pending; what it was at is ended."""
        if self._pipeline is not None:
            self._pipeline.drop()
        self._configs.clear()

    def pause(self) -> None:
        """End the engine: nothing disturbs the final readings."""
        self._close()

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

    def _started(self) -> Pipeline:
        device = _device_of(self.args)
        data = self._folder / "arguments.pt"
        save_arguments(data, self.args, self._baseline_output, self._baseline_post_args)
        default = self.config_spec.default_config()
        reference = self.kernel.compile_config(default, allow_print=False)
        kernel = inherited(
            BoundCompileStage(self.kernel, self.args, self._folder, facts_of_device(device))
        )
        compile_stage = self._closing.enter_context(kernel)
        timing = ArgumentsTimingStage(
            name=self.kernel.kernel.name,
            data=data,
            right=CorrectResult(
                absolute=self._effective_atol,
                relative=self._effective_rtol,
                scaled=getattr(self, "_scale_atol", False),
                changed=tuple(self.mutated_arg_indices),
                checked=self.settings.autotune_accuracy_check,
                arguments_checked=os.getenv("CHECK_INPUT_ACCURACY", "1") == "1",
            ),
            device=device.index or 0,
            modules=tuple(_collect_source_modules(sys.modules.get(reference.__module__))),
            environment={
                name: value for name, value in os.environ.items() if name.startswith("TRITON_")
            },
        )
        compile_s = float(self.settings.autotune_compile_timeout)
        if self.settings.autotune_budget_seconds is not None:
            share_s = COMPILE_SHARE * self.settings.autotune_budget_seconds
            compile_s = min(compile_s, max(share_s, FIRST_COMPILE_S))
        limits = Limits(
            compile_s=compile_s,
            least_compile_s=LEAST_COMPILE_S,
            timing_s=TIMING_S,
        )
        forked = self._closing.enter_context(ForkedTemplate(self._folder / "forked.log"))
        pipeline = Pipeline(
            [compile_stage] * self.compilers,
            [timing],
            self._folder,
            limits,
            forked,
            timing_template=self._timing_template,
            spares=1,
            deduplicate=True,
            hopeless=HOPELESS,
        )
        self._closing.push(pipeline)
        self._default = default
        return pipeline

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
        time_ms = time_call(lambda: function(*arguments))["time_ms"] if right else math.inf
        status = "ok" if right else "accuracy_error"
        self._note(config, status, time_ms, compile_s, None)
        return BenchmarkResult(config, function, time_ms, status, compile_s)

    def _result(self, config: Any, outcome: Outcome) -> BenchmarkResult:
        status = _STATUSES.get(outcome.status, "error")
        time_ms = float(outcome.details.get("time_ms", math.inf)) if status == "ok" else math.inf
        if status == "ok" and "same_as" in outcome.details:
            status = "deduplicated"
        compile_s = None if status == "deduplicated" else outcome.compile_s
        self._note(config, status, time_ms, compile_s, outcome.details.get("source"))
        if status not in ("ok", "deduplicated"):
            message = outcome.details.get("message", "")
            self.log.debug(lambda: f"{outcome.status}: {config!r}: {message}")
        return BenchmarkResult(
            config, CompiledLater(self.kernel, config), time_ms, status, compile_s
        )

    def _note(
        self, config: Any, status: str, time_ms: float, compile_s: float | None, source: str | None
    ) -> None:
        """In Helion's log and metrics, as its own provider does."""
        metrics = self._autotune_metrics
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
