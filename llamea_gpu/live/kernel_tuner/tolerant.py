"""Lets a run of Kernel Tuner outlive configurations that do not compile or compute wrong results.

Kernel Tuner ends the whole run on both, as mistakes of the kernel's author. While tuning with a
model's proposals they are failures like any other, and the model is to hear of them.

What it does not do: survive a device that answers nothing any more, or a crash of this process.
What failed while it ran is believed once a configuration that worked before works again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernel_tuner import util

from llamea_gpu.live.kernel_tuner.facts import MESSAGE, ExplainingEvaluate, device_name
from llamea_gpu.live.kernel_tuner.pipelined import PipelinedStrategy

_MOST_SHOWN = 300
_HOPELESS = 20  # failures while running, before anything has worked

_Result = dict[str, Any]
_Run = Callable[[Sequence[Sequence[Any]], Any], list[_Result | None]]


class TolerantStrategy(PipelinedStrategy):
    """A strategy that makes Kernel Tuner's runner tolerant, where that measures.

    ``on_batch`` is told of all results so far after each ask, ``on_begin`` of the evaluate before
    the first one; ``device`` is the name of the run's.
    """

    on_batch: Callable[[Sequence[Mapping[str, Any]]], None]
    on_begin: Callable[[ExplainingEvaluate], None] | None = None
    device = ""

    def __call__(self, func: Any, searchspace: Any) -> None:
        """Run on a cost function of Kernel Tuner's."""
        measure = func.eval_all

        def measured(configs: Any) -> Any:
            try:
                return measure(configs)
            finally:
                self.on_batch(func.results)

        func.eval_all = measured
        super().__call__(func, searchspace)

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> Any:
        """What ``tune_kernel`` calls; returns its results."""
        self.device = device_name(runner)
        return super().tune(searchspace, runner, tuning_options)

    def begin(self, evaluate: ExplainingEvaluate) -> None:
        """What comes before the optimizer asks for anything."""
        if self.on_begin is not None:
            self.on_begin(evaluate)

    def own_runner(self, runner: Any) -> Any:
        """Kernel Tuner's runner, made tolerant."""
        runner.run = _Tolerant(runner, runner.run)
        return runner

    def say(self, text: str, runner: Any) -> None:
        """Tell the user, who has asked for this run and not for Kernel Tuner's silence."""
        del runner
        print(text)


class _Tolerant:
    """A runner's ``run``, one configuration after another."""

    def __init__(self, runner: Any, run: _Run) -> None:
        self._run = run
        self._device = runner.dev
        self._worked: Sequence[Any] | None = None
        self._failed = 0
        self._compiles = False
        if hasattr(runner.dev, "compile_kernel"):  # not in simulation mode
            self._compile = runner.dev.compile_kernel
            runner.dev.compile_kernel = self._compiling

    def __call__(self, parameter_space: Sequence[Sequence[Any]], options: Any) -> list[Any]:
        return [self._one(config, options) for config in parameter_space]

    def _one(self, config: Sequence[Any], options: Any) -> _Result | None:
        self._compiles = False
        try:
            (result,) = self._run([config], options)
        except Exception as error:  # whatever the kernel does to any backend
            return self._failure(config, options, error)
        if result is not None and "__error__" not in result:
            self._worked = config
        return result

    def _failure(self, config: Sequence[Any], options: Any, error: Exception) -> _Result:
        said = " ".join(str(error).split())[:_MOST_SHOWN]
        kind: util.ErrorConfig = util.CompilationFailedConfig()
        if not self._compiles:
            kind = util.RuntimeFailedConfig()
            self._failed += 1
            self._believe(options, error)
        return {
            **dict(zip(options.tune_params, config, strict=True)),
            **dict.fromkeys(options.objective, kind),
            "__error__": kind,
            MESSAGE: said,
        }

    def _believe(self, options: Any, error: Exception) -> None:
        """Raises ``error`` where the device, not the configuration, is what fails."""
        if self._worked is None:
            if self._failed >= _HOPELESS:
                raise error
            return
        try:
            self._device_answers(options)
        except Exception:
            raise error from None

    def _device_answers(self, options: Any) -> None:
        """Measure again what worked, not from Kernel Tuner's memory and out of the budget.

        Raises:
            Exception: the backend's, when it does not work any more.
        """
        before = options.budget, options.cache
        options.budget, options.cache = util.TuningBudget(None, 2), {}
        try:
            self._run([self._worked or ()], options)
        finally:
            options.budget, options.cache = before

    def _compiling(self, *args: Any, **kwargs: Any) -> Any:
        self._compiles = True
        compiled = self._compile(*args, **kwargs)
        self._compiles = False
        return compiled
