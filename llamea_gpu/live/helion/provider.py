"""Helion's measurements on this machine's engine: compiling and timing side by side.

What it does: `PipelinedProvider` stands in for Helion's own benchmark provider, for our searches
and for Helion's alike; see `llamea_gpu.live.helion.streamed`.

What it does not do: measure where the engine cannot (another device than an NVIDIA GPU, several
processes, a benchmark or check of the user's, arguments that cannot be copied): there it says why
and leaves everything to Helion's own provider.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, ClassVar

from helion.autotuner.benchmark_provider import BenchmarkResult, _clone_args

from llamea_gpu.engine.pipeline import Outcome
from llamea_gpu.engine.side_by_side import Standing
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.compiling import generate, source_key
from llamea_gpu.frameworks.helion.timing import time_call
from llamea_gpu.live.helion.engine import KernelEngine, why_not
from llamea_gpu.live.helion.stages import correct_result
from llamea_gpu.live.helion.streamed import StreamedProvider


class PipelinedProvider(StreamedProvider):
    """Helion's provider on the engine of this machine; see the module's docstring.

    What is expected compiles while Helion computes what is right, and is timed as soon as that is
    known. ``compilers`` are by default one a core but one.
    """

    make_engine: ClassVar[Callable[..., KernelEngine]] = KernelEngine
    _engine: KernelEngine | None

    def __init__(self, *, compilers: int | None = None, **arguments: Any) -> None:
        self._left: list[Any] = []  # for Helion's own way, where the engine has given up
        self._compiled_here: Any = None  # by Helion, and not measured yet
        self._here: Any = None  # to be measured in this process by the next wait
        self._why_not = ""
        super().__init__(
            compilers=compilers or max(1, len(os.sched_getaffinity(0)) - 1), **arguments
        )

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

    def read_again(self, configs: Sequence[Any], deadline: float) -> list[Standing] | None:
        """See `StreamedProvider.read_again`."""
        self._here = None
        try:
            return super().read_again(configs, deadline)
        except RecordingError as error:
            self._give_up(error)
            return None

    def end_measuring(self) -> None:
        """See `StreamedProvider.end_measuring`."""
        self._here = None
        super().end_measuring()

    def _collect(self, deadline: float | None) -> None:
        """Where the engine gives up, what was pending is measured in Helion's own way."""
        if self._here is not None:
            config, self._here = self._here, None
            self._done.append((config, self._measured_here(config)))
        try:
            super()._collect(deadline)
        except RecordingError as error:
            self._give_up(error)
        if not self._done and self._left:
            rest, self._left = self._left, []
            results = super().benchmark(rest, raise_if_no_viable_config=False)
            self._done += zip(rest, results, strict=True)

    def _started(self, arguments: Mapping[str, Any]) -> KernelEngine | None:
        kernel, settings, args = (arguments[name] for name in ("kernel", "settings", "args"))
        self._why_not = why_not(kernel, settings, args)
        if self._why_not:
            return None
        try:
            return self.make_engine(kernel, args, settings, self.compilers)
        except OSError as error:  # no room on the disk, no process more
            self._why_not = f"{type(error).__name__}: {error}"
            return None

    def _compute_what_is_right(self, arguments: Mapping[str, Any]) -> None:
        """What Helion's provider does first, while the engine makes ready."""
        if self._engine is None:
            super()._compute_what_is_right(arguments)
            return
        with self._engine.meanwhile(self._engine.give_arguments) as faults:
            super()._compute_what_is_right(arguments)
            self._engine.mark("baseline")
        if not faults:
            self._jobs = self.compilers
        self._refuse(faults)

    def _give_what_is_right(self, engine: KernelEngine) -> None:
        criterion = correct_result(self)
        engine.give_what_is_right(self._baseline_output, self._baseline_post_args, criterion)
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
        is_accurate = not self.settings.autotune_accuracy_check or self._validate_against_baseline(
            config, result, arguments
        )
        times = time_call(lambda: function(*arguments)) if is_accurate else {}
        time_ms = times.get("time_ms", math.inf)
        status = "ok" if is_accurate else "accuracy_error"
        has_listener = self.on_measured is not None  # code is generated for that alone
        source = source_key(generate(self.kernel, config.config)) if has_listener else None
        seconds = perf_counter() - start - compile_s
        outcome = Outcome(-1, "ok" if is_accurate else "incorrect", compile_s, seconds, times, {})
        self._tell(config, replace(outcome, details={**times, "source": source}))
        self._note(config, status, time_ms, compile_s, source)
        return BenchmarkResult(config, function, time_ms, status, compile_s)

    def _close(self) -> None:
        self._here = None
        super()._close()
