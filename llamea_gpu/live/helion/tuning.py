"""Tuning a live Helion kernel with any searcher, on this machine's GPU or on those of a cluster.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from helion import Config
from helion.exc import NoConfigFound

from llamea_gpu.contract import trouble_of
from llamea_gpu.engine.device_lock import devices_held
from llamea_gpu.errors import SearcherError
from llamea_gpu.frameworks.helion.kernel_script import load_case, shapes_of
from llamea_gpu.live.helion.cluster import ClusterProvider, opened_on_cluster
from llamea_gpu.live.helion.facts import HelionFramework, kernel_info, untuned
from llamea_gpu.live.helion.journal import JournalRequest
from llamea_gpu.live.helion.pipelined import PipelinedSearch, make_evaluate
from llamea_gpu.live.helion.registration import search_base
from llamea_gpu.live.helion.runtime import HelionEvaluate, HelionSearch, helion_search
from llamea_gpu.live.result import (
    Measured,
    TuneProgress,
    TuneSettings,
    TuningResult,
    Watch,
)
from llamea_gpu.live.searcher import load_searcher
from llamea_gpu.live.shapes import ShapesResult, chosen_shapes, tune_shapes


def tune_helion_script(
    path: Path,
    searcher: str,
    settings: TuneSettings,
    progress: Callable[[TuneProgress], None] = lambda _: None,
) -> TuningResult:
    """Tune the kernel of a script with the searcher of that spec.

    Raises:
        SearcherError: there is no such GPU or searcher, or nothing works.
        RecordingError: the script does not load, a recorder measures on the GPU, or the journal
            is of something else, is damaged, or is in use.
    """
    if settings.cluster:
        return _tune_on_cluster(path, searcher, settings, progress)
    # It prepares this process before anything asks for a GPU.
    search_base(settings.engine, settings.journal)
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
        settings = replace(settings, shape=case.shape or None)
        return tune_bound(bound, case.arguments, searcher, settings, progress)


def _tune_on_cluster(
    path: Path,
    searcher: str,
    settings: TuneSettings,
    progress: Callable[[TuneProgress], None],
) -> TuningResult:
    """As `tune_helion_script`; this machine needs no GPU."""
    load_searcher(searcher, HelionFramework(), {})  # engines need not start for one that is none
    with opened_on_cluster(path, settings) as (bound, case, provider):
        settings = replace(settings, shape=case.shape or None)
        return tune_bound(bound, case.arguments, searcher, settings, progress, provider)


def tune_helion_shapes(
    path: Path,
    searcher: str,
    settings: TuneSettings,
    shapes: str,
    progress: Callable[[str, TuneProgress], None] = lambda *_: None,
) -> ShapesResult:
    """Tune the kernel of a script at several of its shapes; see `llamea_gpu.live.shapes`.

    ``shapes`` are names with commas, or ``all``; ``progress`` is told the shape too.

    Raises:
        SearcherError, RecordingError: as for `tune_helion_script`, or the script has no such shape.
    """
    if not settings.cluster:  # before the script, which may ask for a GPU, is loaded
        search_base(settings.engine, settings.journal)
    names = chosen_shapes(shapes, shapes_of(path))

    def tune(shape: str, known: Sequence[Mapping[str, Any]], alone: bool) -> TuningResult:
        own = replace(settings, shape=shape, starts=tuple(known), journal=None)
        if alone:  # Helion's default goes first
            own = replace(own, evaluations=1 + len(known), seconds=None)
        elif settings.journal is not None:
            file = settings.journal
            own = replace(own, journal=file.with_name(f"{file.stem}-{shape}{file.suffix}"))
        return tune_helion_script(path, searcher, own, partial(progress, shape))

    return tune_shapes(names, tune)


def tune_bound(
    bound: Any,
    arguments: tuple[Any, ...],
    searcher: str,
    settings: TuneSettings,
    progress: Callable[[TuneProgress], None] = lambda _: None,
    provider: Callable[..., ClusterProvider] | None = None,
) -> TuningResult:
    """Tune a kernel that is bound to its arguments; ``provider`` makes what measures elsewhere.

    Raises:
        SearcherError: no such searcher, or nothing works.
        RecordingError: the journal is of something else, is damaged, or is in use.
    """
    watch = Watch(progress)

    def note(evaluate: HelionEvaluate) -> None:
        watch.before_s = evaluate.used_s
        watch.note(list(evaluate.costs.values()))

    live_searcher = load_searcher(searcher, HelionFramework(), {})
    base: type[HelionSearch] = PipelinedSearch
    if provider is None:
        base = search_base(settings.engine, settings.journal)
    journal = None
    if settings.journal is not None:
        journal = JournalRequest(settings.journal, live_searcher.name, settings.shape or "")
    with _settings(bound.settings, settings):
        search = helion_search(
            live_searcher.class_name,
            live_searcher.make,
            dict(live_searcher.hyperparameters),
            live_searcher.fingerprint,
            partial(make_evaluate, on_batch=note, journal=journal),
            base,
        )(bound, arguments, evaluations=settings.evaluations, seconds=settings.seconds)
        if provider is not None:
            search.measure_by(provider)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                chosen = search.autotune(skip_cache=True)
        except NoConfigFound as error:
            raise SearcherError(f"{bound.kernel.name}: no configuration works") from error
        return _result(search, chosen, watch, searcher, settings)


def _result(
    search: HelionSearch, chosen: Any, watch: Watch, searcher: str, settings: TuneSettings
) -> TuningResult:
    evaluate, space = search.evaluate, search.evaluate.space
    info = kernel_info(search)
    # The last readings, side by side, of those that were read again.
    last_ms = {space.place(member.config): float(member.perf) for member in search.population}
    final, default = space.place(chosen), untuned(search, space)
    measured, best = [], None
    for number, (config, cost_ms) in enumerate(evaluate.costs.items()):
        each = Measured(
            configuration=dict(space.config(config).config),
            time_ms=last_ms.get(config, cost_ms),
            elapsed_s=evaluate.known_before.get(config, watch.known_at(number)),
        )
        measured.append(each)
        best = each if config == final else best
    default_ms = evaluate.costs.get(default, math.inf) if default is not None else math.inf
    return TuningResult(
        searcher=searcher,
        framework=info.framework,
        kernel=info.kernel,
        device=info.device,
        seed=settings.seed,
        clock="wall",
        measured=tuple(measured),
        # A Helion of another version may return what the search itself did not ask for.
        best=best or Measured(dict(chosen.config), search.best.perf, watch.elapsed_s),
        default_ms=default_ms if math.isfinite(default_ms) else None,
        elapsed_s=watch.elapsed_s,
        code=search.kernel.format_kernel_decorator(chosen, search.settings),
        trouble="\n".join(filter(None, map(trouble_of, [search.optimizer, evaluate]))),
        start_s=getattr(search.benchmark_provider, "start_s", {}),
    )


@contextlib.contextmanager
def _settings(of_kernel: Any, settings: TuneSettings) -> Iterator[None]:
    """The run's seed and effort, and no log but of what goes wrong."""
    overrides: dict[str, Any] = {
        "autotune_random_seed": settings.seed,
        "autotune_effort": settings.effort,
        "autotune_log_level": logging.ERROR,
        "autotune_progress_bar": False,
    }
    if settings.starts:
        starts = [Config(**configuration) for configuration in settings.starts]
        overrides["autotune_seed_configs"] = starts
    before = {name: getattr(of_kernel, name) for name in overrides}
    try:
        for name, value in overrides.items():
            setattr(of_kernel, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(of_kernel, name, value)
