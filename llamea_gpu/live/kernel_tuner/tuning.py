"""Tuning a live Kernel Tuner kernel with any searcher, on the engine where it can.

What it does: calls ``tune_kernel`` with the script's arguments and the searcher as its strategy,
and keeps whatever was measured when the run is interrupted or the device fails.

What it does not do: protect this process from a kernel that crashes it where Kernel Tuner's own
runner measures.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from llamea_gpu.contract import trouble_of
from llamea_gpu.engine.device_lock import devices_held
from llamea_gpu.errors import RecordingError, SearcherError
from llamea_gpu.frameworks.kernel_tuner.kernel_script import (
    KernelScript,
    load_kernel_script,
    plain,
)
from llamea_gpu.live.kernel_tuner.facts import ExplainingEvaluate, KernelTunerFramework
from llamea_gpu.live.kernel_tuner.journal import TuningJournal
from llamea_gpu.live.kernel_tuner.pipelined import PipelinedStrategy, prepare
from llamea_gpu.live.result import (
    Measured,
    TuneProgress,
    TuneSettings,
    TuningResult,
    Watch,
    params_code,
)
from llamea_gpu.live.searcher import load_searcher
from llamea_gpu.searchers.library import require

EVALUATIONS = 200  # without a budget of one's own
_Result = Mapping[str, Any]


def tune_kernel_tuner_script(
    path: Path,
    searcher: str,
    settings: TuneSettings,
    progress: Callable[[TuneProgress], None] = lambda _: None,
) -> TuningResult:
    """Tune the kernel of a script with the searcher of that spec.

    Raises:
        SearcherError: Kernel Tuner or the searcher is missing, or nothing works.
        RecordingError: the script does not load, a recorder measures on the GPU, or the journal is
            of something else, damaged or in use.
    """
    version = require("kernel_tuner", "kernel-tuner", "tuning a Kernel Tuner kernel")
    if settings.engine == "pipelined":
        prepare()  # before the script may use the GPU
    script = load_kernel_script(path, settings.sizes)
    watch = Watch(progress)
    fault = ""
    with ExitStack() as closing:
        run = _Run(script, searcher, settings, watch, closing)
        closing.enter_context(_aside())
        closing.enter_context(_device(settings.backend or script.language, settings.device))
        try:
            run.tune()
        except KeyboardInterrupt:
            fault = "interrupted"
        except Exception as error:
            if isinstance(error, RecordingError) and not run.results:  # of the journal
                raise
            if not run.results:
                raise SearcherError(f"tuning {script.name} failed: {error}") from error
            fault = f"{type(error).__name__}: {error}"
    measured = tuple(
        Measured(run.configuration(result), _time_ms(result), run.known_at(place))
        for place, result in enumerate(run.results)
    )
    best = min(measured, key=lambda each: each.time_ms, default=None)
    if best is None or not math.isfinite(best.time_ms):
        raise SearcherError(
            f"{script.name}: none of {len(measured)} configurations works"
            f"{': ' + fault if fault else ''}"
        )
    default = script.default_configuration
    times = [e.time_ms for e in measured if default and e.configuration == dict(default)]
    return TuningResult(
        searcher=searcher,
        framework=f"kernel_tuner {version}",
        kernel=str(script.arguments["kernel_name"]),
        device=run.strategy.device,
        seed=settings.seed,
        clock="wall",
        measured=measured,
        best=best,
        default_ms=times[0] if times and math.isfinite(times[0]) else None,
        elapsed_s=watch.elapsed_s,
        code=params_code(best.configuration),
        trouble="\n".join(dict.fromkeys(filter(None, [trouble_of(run.strategy.optimizer), fault]))),
    )


class _Run:
    """One call of ``tune_kernel``; ``results`` are Kernel Tuner's own, in their order."""

    def __init__(
        self,
        script: KernelScript,
        searcher: str,
        settings: TuneSettings,
        watch: Watch,
        closing: ExitStack,
    ) -> None:
        self._script = script
        self._settings = settings
        self._watch = watch
        self._names = list(script.arguments["tune_params"])
        live_searcher = load_searcher(searcher, KernelTunerFramework(script), {})
        self.strategy = PipelinedStrategy(
            *(live_searcher.name, live_searcher.make, live_searcher.hyperparameters, settings.seed),
            engine=settings.engine,
            cluster=settings.cluster,
            gpu=settings.gpu,
            tolerant=True,
        )
        self.strategy.on_batch = self._note
        self.strategy.on_begin = self._begin
        self.results: Sequence[_Result] = ()
        self._known_before_s: Sequence[float] = ()  # of the journal
        self._journal = None
        if settings.journal is not None:
            self._journal = TuningJournal(settings.journal.absolute(), searcher, closing)

    def tune(self) -> None:
        """Run until the searcher or the budget ends."""
        from kernel_tuner import tune_kernel

        settings = self._settings
        budget: dict[str, Any] = {"max_fevals": settings.evaluations}
        if settings.seconds is not None:
            budget["time_limit"] = settings.seconds
        elif settings.evaluations is None:
            budget["max_fevals"] = EVALUATIONS
        results, _ = tune_kernel(
            **{
                **self._script.arguments,
                "device": settings.device,
                "iterations": settings.iterations,
                "lang": settings.backend or self._script.language,
                "quiet": True,
                "strategy": self.strategy,
                "strategy_options": {k: v for k, v in budget.items() if v is not None},
            }
        )
        self.results = results

    def configuration(self, result: _Result) -> dict[str, Any]:
        """The values of a result's parameters, as Python's own."""
        return {name: plain(result[name]) for name in self._names}

    def known_at(self, place: int) -> float:
        """When the result at that place was known, in seconds of the run."""
        before = self._known_before_s
        return before[place] if place < len(before) else self._watch.known_at(place)

    def _begin(self, evaluate: ExplainingEvaluate) -> None:
        if self._journal is not None:
            self._journal.begin(evaluate, self._script)
            self._known_before_s = self._journal.at_s
            self._watch.before_s = max(self._known_before_s, default=0.0)
            if self._known_before_s:
                self._note(evaluate.func.results)

    def _note(self, results: Sequence[_Result]) -> None:
        self.results = list(results)
        if self._journal is not None:
            try:
                self._journal.note(results, self._watch.elapsed_s)
            except OSError as error:
                print(f"The journal cannot be written, going on without: {error}")
                self._journal = None
        self._watch.note([_time_ms(result) for result in results])


def _time_ms(result: _Result) -> float:
    return math.inf if "__error__" in result else float(result["time"])


def _device(language: str | None, device: int) -> contextlib.AbstractContextManager[None]:
    """Keeps recorders away from a GPU; the host's processor is everybody's."""
    on_host = (language or "").upper() in ("C", "FORTRAN")
    return contextlib.nullcontext() if on_host else devices_held([device])


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """What libraries print goes to standard error, what compilers leave to a folder that goes."""
    before = Path.cwd()
    with (
        tempfile.TemporaryDirectory(prefix="llamea-gpu-tune-") as folder,
        contextlib.redirect_stdout(sys.stderr),
    ):
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
