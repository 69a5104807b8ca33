"""Tuning a live Helion kernel with any searcher, on this machine's GPU.

What it does: binds the kernel of a script to its arguments on the GPU, runs the searcher as Helion
runs its own, final verification included, and tells what was measured.

What it does not do: fill Helion's result cache, or compare the result with the script's reference:
Helion compares every configuration with the default one.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from helion.exc import NoConfigFound

from llamea_gpu.engine.device_lock import devices_held
from llamea_gpu.errors import SearcherError
from llamea_gpu.frameworks.helion.kernel_script import load_case
from llamea_gpu.frameworks.helion.space import HelionSpace
from llamea_gpu.live.helion.facts import HelionFramework
from llamea_gpu.live.helion.runtime import HelionEvaluate, helion_search
from llamea_gpu.live.result import (
    Measured,
    TuneProgress,
    TuneSettings,
    TuningResult,
)
from llamea_gpu.live.searcher import KernelFacts, load_searcher
from llamea_gpu.live.watch import Watch


def tune_helion_script(
    path: Path,
    searcher: str,
    settings: TuneSettings,
    progress: Callable[[TuneProgress], None] = lambda _: None,
) -> TuningResult:
    """Tune the kernel of a script with the searcher of that spec.

    Raises:
        SearcherError: there is no such GPU or searcher, or nothing works.
        RecordingError: the script does not load, or a recorder measures on the GPU.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not settings.device < count:
        raise SearcherError(
            f"tuning a Helion kernel needs a GPU that torch finds, but there are {count} and "
            f"number {settings.device} was asked for; a recording needs none (--space)"
        )
    torch.cuda.set_device(settings.device)
    with devices_held([settings.device]):
        with torch.device("cuda", settings.device):
            case = load_case(path, settings.shape)
        bound = case.kernel.bind(case.arguments)
        return tune_bound(bound, case.arguments, searcher, settings, progress)


def tune_bound(
    bound: Any,
    arguments: tuple[Any, ...],
    searcher: str,
    settings: TuneSettings,
    progress: Callable[[TuneProgress], None] = lambda _: None,
) -> TuningResult:
    """Tune a kernel that is bound to its arguments.

    Raises:
        SearcherError: no such searcher, or nothing works.
    """
    watch = Watch(progress)
    seen = _Seen(watch)
    found = load_searcher(searcher, seen, {}, watched=True)
    with _settings(bound.settings, settings):
        search = helion_search(
            found.class_name,
            watch.making(found),
            dict(found.hyperparameters),
            found.fingerprint,
        )(bound, arguments, evaluations=settings.evaluations, seconds=settings.seconds)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                chosen = search.autotune(skip_cache=True)
        except NoConfigFound as error:
            raise SearcherError(f"{bound.kernel.name}: no configuration works") from error
        return _result(search, chosen, seen, searcher, settings)


class _Seen(HelionFramework):
    """Follows the run, and keeps what it was about."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(self._note)
        self.watch = watch
        self.told: KernelFacts | None = None
        self.evaluate: HelionEvaluate | None = None
        self.space: HelionSpace | None = None

    def facts(self, evaluate: HelionEvaluate, space: HelionSpace) -> KernelFacts:
        """As told, and kept for the result."""
        self.evaluate, self.space = evaluate, space
        self.told = super().facts(evaluate, space)
        return self.told

    def _note(self, evaluate: HelionEvaluate, space: HelionSpace) -> None:
        del space
        self.watch.note(list(evaluate.costs.values()))


def _result(
    search: Any, chosen: Any, seen: _Seen, searcher: str, settings: TuneSettings
) -> TuningResult:
    evaluate, space, told = seen.evaluate, seen.space, seen.told
    if evaluate is None or space is None or told is None:
        raise SearcherError(f"{told.info.kernel if told else searcher}: there is nothing to tune")
    # The last readings, side by side, of those that were read again.
    last_ms = {space.place(member.config): float(member.perf) for member in search.population}
    final, default = space.place(chosen), told.default
    measured, best = [], None
    for number, (config, cost_ms) in enumerate(evaluate.costs.items()):
        each = Measured(
            configuration=dict(space.config(config).config),
            time_ms=last_ms.get(config, cost_ms),
            elapsed_s=seen.watch.known_at(number),
        )
        measured.append(each)
        best = each if config == final else best
    default_ms = evaluate.costs.get(default, math.inf) if default is not None else math.inf
    return TuningResult(
        searcher=searcher,
        framework=told.info.framework,
        kernel=told.info.kernel,
        device=told.info.device,
        seed=settings.seed,
        clock="wall",
        measured=tuple(measured),
        # A Helion of another version may return what the search itself did not ask for.
        best=best or Measured(dict(chosen.config), search.best.perf, seen.watch.elapsed_s),
        default_ms=default_ms if math.isfinite(default_ms) else None,
        elapsed_s=seen.watch.elapsed_s,
        code=search.kernel.format_kernel_decorator(chosen, search.settings),
        trouble=seen.watch.trouble,
    )


@contextlib.contextmanager
def _settings(of_kernel: Any, settings: TuneSettings) -> Iterator[None]:
    """The run's seed and effort, and no log but of what goes wrong."""
    wanted: Mapping[str, Any] = {
        "autotune_random_seed": settings.seed,
        "autotune_effort": settings.effort,
        "autotune_log_level": logging.ERROR,
        "autotune_progress_bar": False,
    }
    before = {name: getattr(of_kernel, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(of_kernel, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(of_kernel, name, value)
