"""Helion's measurements on the engine: compiling and timing side by side.

What it does: `PipelinedProvider` stands in for Helion's own benchmark provider, for our searches
and for Helion's alike. Batches are answered as Helion answers them (accuracy, statuses, logs);
besides, configurations can be submitted and waited for one by one, and the best be read again side
by side.

What it does not do: measure where the engine cannot (another device than an NVIDIA GPU, several
processes, a benchmark or check of the user's, arguments that cannot be copied): there it says why
and leaves everything to Helion's own provider.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from time import monotonic, perf_counter
from typing import Any, ClassVar

import helion
from helion.autotuner.benchmark_provider import (
    BenchmarkResult,
    LocalBenchmarkProvider,
    _clone_args,
)
from helion.autotuner.logger import AutotuneLogEntry
from helion.autotuner.progress_bar import iter_with_progress

from llamea_gpu.engine.pipeline import Outcome
from llamea_gpu.engine.side_by_side import Standing
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.compiling import generate, source_key
from llamea_gpu.frameworks.helion.timing import time_call
from llamea_gpu.live.helion.engine import KernelEngine, why_not
from llamea_gpu.live.helion.journal import Remembered
from llamea_gpu.live.helion.stages import CorrectResult

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
        expected: gives configurations that are sure to be submitted: they compile while Helion
            computes what is right, and are timed as soon as that is known.
        arguments: what Helion hands to every provider.

    Attributes:
        compilers: as above.
        on_measured: told of each configuration that the engine has measured, with ``status`` (of
            recordings), ``ms``, ``lo``, ``hi``, ``compile_s``, ``bench_s``, ``source``,
            ``message``, ``control`` and ``launches``.
        until_cleanup: what is to be closed when the search has ended.
        start_s: where the first seconds went; see `llamea_gpu.live.helion.engine.KernelEngine`.
    """

    make_engine: ClassVar[Callable[..., KernelEngine]] = KernelEngine

    def __init__(
        self,
        *,
        compilers: int | None = None,
        expected: Callable[[], Sequence[Any]] = tuple,
        **arguments: Any,
    ) -> None:
        self.compilers = compilers or max(1, len(os.sched_getaffinity(0)) - 1)
        self.on_measured: Callable[[Any, Mapping[str, Any]], None] | None = None
        self.until_cleanup = ExitStack()
        self.start_s: dict[str, float] = {}
        self._engine: KernelEngine | None = None
        self._closing = ExitStack()
        self._done: list[tuple[Any, BenchmarkResult]] = []
        self._left: list[Any] = []  # for Helion's own way, where the engine has given up
        self._compiled_here: Any = None  # by Helion, and not measured yet
        self._here: Any = None  # to be measured in this process by the next wait
        kernel, settings, args = (arguments[name] for name in ("kernel", "settings", "args"))
        self._why_not = why_not(kernel, settings, args)
        try:
            if not self._why_not:
                self._start(kernel, settings, args, expected)
            self._compute_what_is_right(arguments)
        except BaseException:
            self._close()
            raise

    @property
    def pending(self) -> int:
        """Configurations that were submitted and not yet returned by :meth:`wait`."""
        on_way = [] if self._engine is None else self._engine.pending
        here = self._here is not None
        return len(on_way) + len(self._done) + len(self._left) + here

    @property
    def streams(self) -> bool:
        """Whether the engine runs: whether `submit` and `wait` may be called."""
        return self._engine is not None

    def setup(self) -> None:
        """Hand the engine what is right, or say why it does not measure."""
        if self._engine is not None:
            try:
                with self._engine.meanwhile() as faults:
                    self._give_what_is_right(self._engine)
            except Exception as error:  # pickling and saving raise whatever they like
                faults = [error]
            self._refuse(faults)
        if self._why_not:
            super().setup()
            self.log.warning(
                f"Compiling and timing take turns, in Helion's own way: {self._why_not}"
            )

    def cleanup(self) -> None:
        """End the engine's processes."""
        self._close()
        self.until_cleanup.close()
        super().cleanup()

    def submit(self, configs: Sequence[Any]) -> None:
        """Queue configurations."""
        if self._engine is None:
            self._left += configs
            return
        here = [config for config in configs if config == self._compiled_here][:1]
        if here:
            # Its result need not wait for the process that times. That one gets it nevertheless,
            # and knows what is hopeless.
            self._here, self._compiled_here = here[0], None
            self._engine.submit(here, silent=True)
        self._engine.submit([config for config in configs if config not in here])

    def wait(self, deadline: float | None = None) -> list[tuple[Any, BenchmarkResult]]:
        """Configurations with their results as they come: at least one, unless time is up.

        After ``deadline`` (of ``time.monotonic``) it returns with what there is. Where the engine
        gives up, what was pending is measured in Helion's own way.
        """
        if self._here is not None:
            config, self._here = self._here, None
            self._done.append((config, self._measured_here(config)))
        if not self._done and self._engine is not None:
            try:
                for config, outcome in self._engine.wait(deadline):
                    self._done.append((config, self._result(config, outcome)))
            except RecordingError as error:
                self._give_up(error)
        if not self._done and self._left:
            rest, self._left = self._left, []
            results = super().benchmark(rest, raise_if_no_viable_config=False)
            self._done += zip(rest, results, strict=True)
        done, self._done = self._done, []
        if self._engine is not None:
            for _ in done[:2]:
                first = "first result" not in self.start_s
                self._engine.mark("first result" if first else "second result")
        return done

    def read_again(self, configs: Sequence[Any], deadline: float) -> list[Standing] | None:
        """See `KernelEngine.read_again`; None also where the engine has given up."""
        self._here = None
        if self._engine is None:
            return None
        try:
            return self._engine.read_again(configs, deadline)
        except RecordingError as error:
            self._give_up(error)
            return None

    def end_measuring(self) -> None:
        """Forget what is pending, and end compiling."""
        self._here = None
        if self._engine is not None:
            self._engine.end_compiling()

    def benchmark(
        self,
        configs: list[Any],
        *,
        desc: str = "Benchmarking",
        raise_if_no_viable_config: bool = True,
    ) -> list[Any]:
        """One result a configuration, in their order; see Helion's ``BenchmarkProvider``."""
        if self._engine is None:
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
                if self._engine is not None:
                    self._engine.drop()
                return

    def _start(
        self, kernel: Any, settings: Any, args: Any, expected: Callable[[], Sequence[Any]]
    ) -> None:
        """Start the engine, or note why it cannot."""
        try:
            engine = self.make_engine(kernel, args, settings, self.compilers)
        except OSError as error:  # no room on the disk, no process more
            self._why_not = f"{type(error).__name__}: {error}"
            return
        self._engine = self._closing.enter_context(engine)
        self.start_s = engine.start_s
        engine.expect(expected())

    def _compute_what_is_right(self, arguments: Mapping[str, Any]) -> None:
        """What Helion's provider does first, while the engine makes ready."""
        if self._engine is None:
            super().__init__(**arguments)
            return
        with self._engine.meanwhile(self._engine.give_arguments) as faults:
            super().__init__(**arguments)
            self._engine.mark("baseline")
        if not faults:
            self._jobs = self.compilers
        self._refuse(faults)

    def _give_what_is_right(self, engine: KernelEngine) -> None:
        right = CorrectResult(
            absolute=self._effective_atol,
            relative=self._effective_rtol,
            scaled=getattr(self, "_scale_atol", False),
            changed=tuple(self.mutated_arg_indices),
            checked=self.settings.autotune_accuracy_check,
            arguments_checked=os.getenv("CHECK_INPUT_ACCURACY", "1") == "1",
        )
        engine.give_what_is_right(self._baseline_output, self._baseline_post_args, right)
        if getattr(self.settings, "autotune_baseline_fn", None) is None:
            self._compiled_here = engine.reference()

    def _refuse(self, faults: Sequence[Exception]) -> None:
        """Do without the engine where it cannot begin."""
        if faults:
            self._why_not = f"{type(faults[0]).__name__}: {faults[0]}"
            self._close()

    def _give_up(self, error: Exception) -> None:
        """Do without the engine from now on."""
        assert self._engine is not None
        self._why_not = str(error)
        self.log.warning(f"Going on in Helion's own way: {error}")
        self._left += self._engine.pending
        self._close()
        super().setup()

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
        self._engine = self._here = None
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


def _unmeasured(config: Any) -> BenchmarkResult:
    return BenchmarkResult(config, helion.Config, math.inf, "error", None)
