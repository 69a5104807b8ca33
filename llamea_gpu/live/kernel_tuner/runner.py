"""A runner of Kernel Tuner's on the engine: configurations are measured in other processes.

What it does: stands in for Kernel Tuner's sequential runner, whose results it gives (parameters,
times, seconds, cache files, metrics), measured several at once: they compile side by side, and
check and time one after another. Beyond that runner, whatever a configuration does is a failure of
that configuration: it may be wrong, crash its process or never return.

What it does not do: decide on budgets, which Kernel Tuner's cost function and this share. Where the
processes do not start, the sequential runner measures, and a warning says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from time import monotonic
from typing import Any

from kernel_tuner import util
from kernel_tuner.runners.runner import Runner

from llamea_gpu.cluster.pipeline import ClusterPipeline
from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.errors import RecordingError
from llamea_gpu.live.kernel_tuner.facts import MESSAGE

Values = tuple[Any, ...]  # of a configuration's parameters
KernelTunerResult = dict[str, Any]

_MOST_SHOWN = 300
_HOPELESS = 20  # failures while running, before anything has worked
_FEED = 2  # configurations beyond the processes that keep them all busy
_ERRORS: Mapping[str, type[util.ErrorConfig]] = {
    "invalid": util.InvalidConfig,
    "compile_error": util.CompilationFailedConfig,
}
_SECONDS = {"compile": "compile_time", "check": "verification_time", "benchmark": "benchmark_time"}


class PipelinedRunner(Runner):  # type: ignore[misc]
    """Measures on the engine; see the module's docstring.

    Args:
        runner: Kernel Tuner's own, for what it says of the device, and in case of need.
        pipeline: whose tasks are values of configurations.
        processes: of the pipeline.

    Attributes:
        why_not: why Kernel Tuner's own runner measures instead; empty while the pipeline does.
    """

    simulation_mode = False
    why_not = ""

    def __init__(self, runner: Any, pipeline: Pipeline | ClusterPipeline, processes: int) -> None:
        super().__init__()
        self.accumulated_strategy_time: float = 0.0
        self.dev, self.units, self.quiet = runner.dev, runner.units, runner.quiet
        self.kernel_source, self.kernel_options = runner.kernel_source, runner.kernel_options
        self._own = runner
        self._pipeline: Pipeline | ClusterPipeline | None = pipeline
        self._processes = processes
        self._configs: list[Values] = []  # by number of the task
        self._under_way: dict[str, Values] = {}  # by Kernel Tuner's key
        self._finished: dict[str, KernelTunerResult] = {}  # but not handed out yet
        self._answered = False
        self._waited_s = 0.0  # since the strategy's time was last taken

    def get_device_info(self) -> Any:
        """The device, as Kernel Tuner's own runner has it."""
        return self._own.get_device_info()

    def get_environment(self, tuning_options: Any) -> Any:
        """What Kernel Tuner's own runner says of it."""
        return self._own.get_environment(tuning_options)

    def add_strategy_time(self, seconds: float) -> None:
        """Take in what the strategy took, in which it may have waited for :meth:`collect`."""
        super().add_strategy_time(max(seconds - self._waited_s, 0.0))
        self._waited_s = 0.0

    def available_parallelism(self) -> int:
        """How many configurations on their way keep the engine busy."""
        return self._processes + _FEED if self._pipeline is not None else 1

    @property
    def on_way(self) -> int:
        """Configurations that were submitted and not handed out by :meth:`run`."""
        return len(self._under_way) + len(self._finished)

    def submit(self, configs: Iterable[Values], options: Any) -> None:
        """Have configurations measured, those that neither are on their way nor in the cache."""
        tasks = []
        for config in configs:
            key = config_key(config)
            if key in self._under_way or key in self._finished:
                continue
            if options.cache and (known := options.cache.get(key)):
                known = {**util.copy_without_benchmark_timings(known), "timestamp": _now()}
                self._finished[key] = _with_metrics(known, options)
                continue
            tasks.append(Task(len(self._configs), config))
            self._configs.append(config)
            self._under_way[key] = config
        if self._pipeline is not None:
            self._pipeline.submit(tasks)

    def collect(self, options: Any) -> list[str]:
        """Wait until something is finished, or the time is up; returns the keys of all that is.

        Raises:
            RecordingError: the device crashes again and again.
        """
        start = monotonic()
        while not self._finished and self._under_way and self._step(options):
            pass
        self._waited_s += monotonic() - start
        return list(self._finished)

    def run(self, parameter_space: Iterable[Sequence[Any]], options: Any) -> list[Any]:
        """Results in the order of the configurations, None for what the budget did not allow.

        What was submitted before is waited for, and not measured again.
        """
        configs = [tuple(config) for config in parameter_space]
        keys = []
        for config in configs:
            if options.budget.is_done():
                break
            options.budget.add_evaluations(1)
            keys.append(config_key(config))
        self.submit(configs[: len(keys)], options)
        while any(key in self._under_way for key in keys) and self._step(options):
            pass
        results = [self._handed_out(key, options) for key in keys]
        self._share_out_time([result for result in results if result])
        return [*results, *[None] * (len(configs) - len(keys))]

    def unclaimed(self) -> list[KernelTunerResult]:
        """Hand out all that is finished, at the end of a run."""
        finished, self._finished = list(self._finished.values()), {}
        return finished

    def _step(self, options: Any) -> bool:
        """Take in what is finished, or wait for something; False when the time is up."""
        if _late(options.budget):
            return False
        if self._pipeline is None:
            self._measure_here(options)
            return True
        try:
            for outcome in self._pipeline.wait(_deadline(options.budget)):
                self._answered = True
                config = self._configs[outcome.point]
                self._finish(config, self._result(config, outcome, options), options)
        except RecordingError as error:
            self._give_up(error)
        return True

    def _handed_out(self, key: str, options: Any) -> KernelTunerResult | None:
        if key in self._finished:
            return self._finished.pop(key)
        known = options.cache.get(key)  # of a configuration that was given twice
        return None if known is None else dict(util.copy_without_benchmark_timings(known))

    def _finish(self, config: Values, result: KernelTunerResult, options: Any) -> None:
        key = config_key(config)
        self._under_way.pop(key, None)
        self._finished[key] = result
        util.print_config_output(
            options.tune_params, result, self.quiet, options.metrics, self.units
        )
        util.store_cache(key, result, options.cachefile, options.cache)

    def _result(self, config: Values, outcome: Outcome, options: Any) -> KernelTunerResult:
        """An outcome as Kernel Tuner's sequential runner would report it."""
        details = outcome.details
        seconds = details.get("seconds", outcome.phase_s)
        times_ms = {name: 1e3 * seconds.get(phase, 0.0) for phase, name in _SECONDS.items()}
        parameters = dict(zip(options.tune_params, config, strict=True))
        if outcome.status == "ok":
            measured = {**details["result"], **parameters, **times_ms}
            return _with_metrics(measured, options)
        failure = _ERRORS.get(outcome.status, util.RuntimeFailedConfig)()
        message = " ".join(str(details.get("message", "")).split())
        message = "" if message == str(failure) else message
        return {
            **parameters,
            "__error__": failure,
            **({MESSAGE: message} if message else {}),
            **times_ms,
            "timestamp": _now(),
        }

    def _share_out_time(self, results: Sequence[KernelTunerResult]) -> None:
        """What strategy and runner took besides, in ms, in equal shares as Kernel Tuner does."""
        if not results:
            return
        strategy_s = self.accumulated_strategy_time
        self.accumulated_strategy_time = 0.0
        worked_s = sum(result[name] for result in results for name in _SECONDS.values()) / 1e3
        rest_s = max(self.timer.get_and_reset() - strategy_s - worked_s, 0)
        for result in results:
            result["strategy_time"] = 1e3 * strategy_s / len(results)
            result["framework_time"] = 1e3 * rest_s / len(results)

    def _give_up(self, error: RecordingError) -> None:
        """Go on with Kernel Tuner's runner, unless something was measured here."""
        if self._answered:
            raise error
        self.why_not = str(error)
        warnings.warn(f"Kernel Tuner's own runner measures: {error}", stacklevel=2)
        self._pipeline = None

    def _measure_here(self, options: Any) -> None:
        key, config = next(iter(self._under_way.items()))
        before = options.budget
        options.budget = util.TuningBudget()  # counted by whoever asks
        try:
            (self._finished[key],) = self._own.run([config], options)
        finally:
            options.budget = before
        del self._under_way[key]


class TolerantRun:
    """A runner's ``run``, one configuration after another; it takes the place of the runner's own.

    Kernel Tuner ends a whole run on a configuration that does not compile or computes wrong
    results, as a mistake of the kernel's author; here it is a failure like any other, and the
    searcher is to hear of it. What failed while it ran is believed once a configuration that worked
    before works again.
    """

    def __init__(self, runner: Any) -> None:
        self._run: Callable[[Any, Any], list[KernelTunerResult | None]] = runner.run
        self._worked: Sequence[Any] | None = None
        self._failed = 0
        self._compiles = False
        runner.run = self
        if hasattr(runner.dev, "compile_kernel"):  # not in simulation mode
            self._compile = runner.dev.compile_kernel
            runner.dev.compile_kernel = self._compiling

    def __call__(self, parameter_space: Sequence[Sequence[Any]], options: Any) -> list[Any]:
        """Results in the order of the configurations, None for what the budget did not allow."""
        return [self._one(config, options) for config in parameter_space]

    def _one(self, config: Sequence[Any], options: Any) -> KernelTunerResult | None:
        self._compiles = False
        try:
            (result,) = self._run([config], options)
        except Exception as error:  # whatever the kernel does to any backend
            return self._failure(config, options, error)
        if result is not None and "__error__" not in result:
            self._worked = config
        return result

    def _failure(self, config: Sequence[Any], options: Any, error: Exception) -> KernelTunerResult:
        message = " ".join(str(error).split())[:_MOST_SHOWN]
        kind: util.ErrorConfig = util.CompilationFailedConfig()
        if not self._compiles:
            kind = util.RuntimeFailedConfig()
            self._failed += 1
            self._believe(options, error)
        return {
            **dict(zip(options.tune_params, config, strict=True)),
            **dict.fromkeys(options.objective, kind),
            "__error__": kind,
            MESSAGE: message,
        }

    def _believe(self, options: Any, error: Exception) -> None:
        """Raises ``error`` where what worked works no more: then the device is at fault."""
        if self._worked is None:
            if self._failed >= _HOPELESS:
                raise error
            return
        before = options.budget, options.cache
        # Not from Kernel Tuner's memory, and out of the budget.
        options.budget, options.cache = util.TuningBudget(None, 2), {}
        try:
            self._run([self._worked], options)
        except Exception:
            raise error from None
        finally:
            options.budget, options.cache = before

    def _compiling(self, *args: Any, **kwargs: Any) -> Any:
        self._compiles = True
        compiled = self._compile(*args, **kwargs)
        self._compiles = False
        return compiled


def _with_metrics(result: KernelTunerResult, options: Any) -> KernelTunerResult:
    if options.metrics and "__error__" not in result:
        return dict(util.process_metrics(result, options.metrics))
    return result


def config_key(config: Sequence[Any]) -> str:
    """Of a configuration in Kernel Tuner's cache, which tells 1 from True."""
    return ",".join(map(str, config))


def _now() -> str:
    return str(datetime.now(timezone.utc))


def _late(budget: Any) -> bool:
    return budget.time_limit is not None and budget.get_time_spent() > budget.time_limit


def _deadline(budget: Any) -> float | None:
    left: timedelta = budget.get_time_remaining()
    return None if left == timedelta.max else monotonic() + left.total_seconds()
