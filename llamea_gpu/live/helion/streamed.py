"""Helion's measurements by an engine, wherever that measures.

What it does: `StreamedProvider` stands in for Helion's own benchmark provider. Configurations can
be submitted and waited for one by one, and the best be read again side by side; batches are
answered as Helion answers them (accuracy, statuses, logs).

What it does not do: know where the engine's processes are: on this machine
(`llamea_gpu.live.helion.provider`) or on the nodes of a cluster (`llamea_gpu.live.helion.cluster`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from time import monotonic, perf_counter
from typing import Any, ClassVar

import helion
from helion.autotuner.benchmark_provider import BenchmarkResult, LocalBenchmarkProvider
from helion.autotuner.logger import AutotuneLogEntry
from helion.autotuner.progress_bar import iter_with_progress

from llamea_gpu.engine.pipeline import Outcome
from llamea_gpu.engine.side_by_side import Standing
from llamea_gpu.live.helion.config_engine import ConfigEngine
from llamea_gpu.live.helion.journal import Remembered

_POLL_S = 0.25  # how often the budget is looked at
_STATUSES = {
    "ok": "ok",
    "incorrect": "accuracy_error",
    "timeout": "timeout",
}


class StreamedProvider(LocalBenchmarkProvider):  # type: ignore[misc]
    """Helion's provider by an engine; see the module's docstring.

    Args:
        compilers: compiling processes.
        expected: gives configurations that are sure to be submitted: they need not wait for that.
        arguments: what Helion hands to every provider.

    Attributes:
        compilers: as above.
        on_measured: told of each configuration that the engine has measured, with ``status`` (of
            recordings), ``ms``, ``lo``, ``hi``, ``compile_s``, ``bench_s``, ``source``,
            ``message``, ``control`` and ``launches``.
        until_cleanup: what is to be closed when the search has ended.
        start_s: where the first seconds went; see `ConfigEngine`.
        gpus: how many measure.
        measures_here: whether this process can launch the kernel.
        loading_s: what reading the best again takes beside reading them.
    """

    gpus = 1
    measures_here: ClassVar[bool] = True
    loading_s: ClassVar[float] = 0.0

    def __init__(
        self, *, compilers: int, expected: Callable[[], Sequence[Any]] = tuple, **arguments: Any
    ) -> None:
        self.compilers = compilers
        self.on_measured: Callable[[Any, Mapping[str, Any]], None] | None = None
        self.until_cleanup = ExitStack()
        self.start_s: dict[str, float] = {}
        self._engine: ConfigEngine | None = None
        self._closing = ExitStack()
        self._done: list[tuple[Any, BenchmarkResult]] = []
        try:
            engine = self._started(arguments)
            if engine is not None:
                self._engine = self._closing.enter_context(engine)
                self.start_s = engine.start_s
                engine.expect(expected())
            self._compute_what_is_right(arguments)
        except BaseException:
            self._close()
            raise

    @property
    def streams(self) -> bool:
        """Whether the engine runs: whether `submit` and `wait` may be called."""
        return self._engine is not None

    def cleanup(self) -> None:
        """Let go of the engine."""
        self._close()
        self.until_cleanup.close()
        super().cleanup()

    def submit(self, configs: Sequence[Any]) -> None:
        """Queue configurations."""
        if self._engine is not None:
            self._engine.submit(configs)

    def wait(self, deadline: float | None = None) -> list[tuple[Any, BenchmarkResult]]:
        """Configurations with their results as they come: at least one, unless time is up.

        After ``deadline`` (of ``time.monotonic``) it returns with what there is.

        Raises:
            RecordingError: the engine cannot go on, and nothing else can measure.
        """
        self._collect(deadline)
        results, self._done = self._done, []
        if self._engine is not None:
            for _ in results[:2]:
                first = "first result" not in self.start_s
                self._engine.mark("first result" if first else "second result")
        return results

    def read_again(self, configs: Sequence[Any], deadline: float) -> list[Standing] | None:
        """See `ConfigEngine.read_again`; None also where the engine has given up."""
        return None if self._engine is None else self._engine.read_again(configs, deadline)

    def end_measuring(self) -> None:
        """Forget what is pending, and end compiling."""
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
        results = {
            repr(config): result
            for config, result in iter_with_progress(
                self._until_budget_ends(len(unique)),
                total=len(unique),
                description=desc,
                enabled=self.settings.autotune_progress_bar,
            )
        }
        return [results.get(repr(config)) or _unmeasured(config) for config in configs]

    def _until_budget_ends(self, count: int) -> Iterator[tuple[Any, BenchmarkResult]]:
        while count:
            for pair in self.wait(monotonic() + _POLL_S):
                count -= 1
                yield pair
            if count and self.budget_exceeded_fn():
                if self._engine is not None:
                    self._engine.drop()
                return

    def _started(self, arguments: Mapping[str, Any]) -> ConfigEngine | None:
        """The engine; None where it cannot measure this."""
        raise NotImplementedError

    def _compute_what_is_right(self, arguments: Mapping[str, Any]) -> None:
        """What Helion's provider does as it is made."""
        super().__init__(**arguments)

    def _collect(self, deadline: float | None) -> None:
        """Take in what is finished."""
        if not self._done and self._engine is not None:
            for config, outcome in self._engine.wait(deadline):
                self._done.append((config, self._result(config, outcome)))

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
        self._engine = None
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
