"""Measure a cloud of a whole Helion ConfigSpec, which is too large to list.

Compiling processes and one timing process a GPU work side by side, as when a grid is recorded; what
they measure is chosen by :mod:`llamea_gpu.recording.clouds`. With a cluster, those processes are on
its nodes.

Needs a CUDA GPU and Helion 1.5 or newer.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from llamea_gpu.cluster.connection import connected
from llamea_gpu.cluster.engine import DEVICE, EngineSpec, Script
from llamea_gpu.cluster.facts import installed
from llamea_gpu.cluster.pipeline import ClusterPipeline, find_gpus, run_on
from llamea_gpu.contract import Configuration
from llamea_gpu.engine.device_lock import devices_held
from llamea_gpu.engine.pipeline import Outcome, Pipeline
from llamea_gpu.engine.template import Template
from llamea_gpu.frameworks.helion.kernel_script import recording_name
from llamea_gpu.frameworks.helion.stages import PRELOAD, CompileStage, TimingStage
from llamea_gpu.frameworks.helion.static import facts_of_device, pretend_gpu
from llamea_gpu.recording._base import HelionSettings, RecordProgress
from llamea_gpu.recording.clouds import (
    CloudOutcome,
    CloudPlan,
    MixtureSettings,
    cloud_provenance,
    measure_cloud,
    short_device,
)
from llamea_gpu.recording.helion.record import (
    VERSIONS,
    bound_kernel,
    check_installed,
    chosen_devices,
    common_facts,
    limits_of,
    stages_on_node,
)

_AHEAD = 2  # configurations on their way, for each compiling process
# Searchers meet more that is hopeless than a grid has: in place of a recording's limits.
TIMEOUTS_S = {"compile_timeout_s": 12.0, "timing_timeout_s": 10.0}
_HOPELESS = 10.0  # times the best: one launch of it is enough


def record_cloud(
    script: Path,
    output: Path,
    settings: MixtureSettings,
    record_settings: HelionSettings,
    progress: Callable[[RecordProgress], None] = lambda _: None,
    template: Template | None = None,
) -> CloudOutcome:
    """Measure a cloud of a kernel's whole ConfigSpec and write ``output`` (native format).

    Ended by time or by Ctrl-C, it writes what there is and keeps the journal.

    Args:
        script: the kernel script, which is executed.
        output: the file to write; an earlier one of the same journal is replaced.
        settings: what is mixed.
        record_settings: shape, compilers, devices or cluster, time limits (see `TIMEOUTS_S`), and
            what is set of every recorder; the grid plays no part.
        progress: told of each result.
        template: one that has imported PRELOAD, for several clouds one after another.

    Raises:
        RecordingError: no GPU or one at which another recorder is, a script or journal that does
            not fit, a default configuration that is wrong, or measuring that does not start or
            breaks down. What was measured by then is written.
        SearcherError: a searcher is not there.
    """
    start = monotonic()
    if record_settings.cluster:
        return _record_on_cluster(script, output, settings, record_settings, progress, start)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llamea-gpu-record-")))
        if template is None:  # it imports what the stages need while this process does the same
            template = stack.enter_context(Template(PRELOAD, folder / "template.log"))
        devices = chosen_devices(record_settings.devices)
        compilers = record_settings.compilers or max(1, len(os.sched_getaffinity(0)) - len(devices))
        stack.enter_context(devices_held(devices))
        compiling = [CompileStage(script, record_settings.shape, folder)] * compilers
        timing = [TimingStage(script, record_settings.shape, folder, device) for device in devices]
        # Its processes open the kernel while this one does the same.
        pipeline = stack.enter_context(
            Pipeline(
                compiling, timing, folder, limits_of(record_settings), template, hopeless=_HOPELESS
            )
        )
        resolved_settings = replace(record_settings, compilers=compilers, devices=devices)
        plan = plan_cloud(script, settings, resolved_settings, len(devices))
        return measure_cloud(
            plan,
            pipeline,
            _AHEAD * compilers + len(devices),
            output,
            settings,
            record_settings,
            progress,
            start,
        )


def _record_on_cluster(
    script: Path,
    output: Path,
    settings: MixtureSettings,
    record_settings: HelionSettings,
    progress: Callable[[RecordProgress], None],
    start: float,
) -> CloudOutcome:
    """As :func:`record_cloud`; this machine needs no GPU, since it only chooses."""
    check_installed()
    with ExitStack() as stack:
        stack.enter_context(connected(record_settings.cluster))
        gpus = find_gpus(record_settings.gpu)
        compilers = record_settings.compilers or max(1, gpus.cores - 1)
        # What a space is depends on the GPU, which one of the nodes describes.
        stack.enter_context(pretend_gpu(run_on(gpus, facts_of_device, DEVICE)))
        plan = plan_cloud(
            script, settings, replace(record_settings, compilers=compilers), gpus.count
        )
        spec = EngineSpec(
            partial(stages_on_node, Script.of(script), record_settings.shape, compilers),
            limits_of(record_settings),
            PRELOAD,
            exclusive=True,
            versions=installed(VERSIONS),
            options={"hopeless": _HOPELESS},
        )
        pipeline = stack.enter_context(ClusterPipeline(spec, gpus, compilers))
        ahead = (_AHEAD * compilers + 1) * gpus.count
        return measure_cloud(
            plan, pipeline, ahead, output, settings, record_settings, progress, start
        )


def plan_cloud(
    script: Path, settings: MixtureSettings, record_settings: HelionSettings, gpus: int = 1
) -> CloudPlan:
    """Bind the kernel, without storage, and take its whole ConfigSpec; ``gpus`` will time.

    Raises:
        RecordingError: no GPU, or a script that does not fit.
    """
    case, bound, device, gpu = bound_kernel(script, record_settings)
    from llamea_gpu.frameworks.helion.space import HelionSpace

    generation = bound.config_spec.create_config_generation()
    seeds = [flat for flat, _ in generation.seed_flat_config_pairs()]

    def make_space(rng: np.random.Generator) -> HelionSpace:
        new_space = HelionSpace(generation, rng, seeds)
        new_space.starts = [*dict.fromkeys([*new_space.starts, *known])]
        return new_space

    known: list[Configuration] = []
    space = make_space(np.random.default_rng(record_settings.seed))
    default = space.place(bound.config_spec.default_config())
    known += [] if default is None else [default]
    versions = installed(VERSIONS)
    header = {
        "journal": 1,
        "name": record_settings.name or f"{recording_name(case)}-{short_device(device)}",
        "kernel": case.name,
        "kernel_source": case.source,
        "script": script.stem,
        "shape": case.shape or "",
        "arguments": case.described_arguments(),
        "device": device,
        "framework": f"helion {versions['helion']}",
        "compilers": record_settings.compilers or 1,
        "names": space.names,
        "values": space.values,
        "ordinal": space.ordinal,
        "default": default,
        "starts": make_space(np.random.default_rng(0)).starts,
        "provenance": {**versions, **_provenance(settings, record_settings, gpus)},
    }
    return CloudPlan(
        header,
        make_space,
        lambda rng: _drawn(space, generation, rng),
        lambda config: dict(space.config(config).config),
        measured,
        lambda pipeline: common_facts(pipeline.facts()),
        gpu,
    )


def measured(outcome: Outcome) -> dict[str, Any]:
    """Entries of a journal's line."""
    details, ok = outcome.details, outcome.status == "ok"
    return {
        "lo": details.get("low_ms") if ok else None,
        "hi": details.get("high_ms") if ok else None,
        "source": details.get("source"),
        "control": details.get("control_ms"),
    }


def _drawn(space: Any, generation: Any, rng: np.random.Generator) -> Configuration | None:
    """A configuration from throughout the space, half of them drawn as Helion's backend advises."""
    from helion.exc import InvalidConfig

    state = random.getstate()  # Helion draws from it
    random.seed(int(rng.integers(1 << 62)))
    draw = generation.random_flat if rng.random() < 0.5 else generation.biased_random_flat
    try:
        config: Configuration | None = space.place(generation.unflatten(draw()))
    except InvalidConfig:
        return None
    finally:
        random.setstate(state)
    return config


def _provenance(
    settings: MixtureSettings, record_settings: HelionSettings, gpus: int
) -> dict[str, str]:
    return {
        **cloud_provenance(settings),
        "accuracy": "every result compared element by element with the default configuration's, "
        "that one with the reference",
        "time_ms": "median of single launches between CUDA events, level-2 cache overwritten before"
        f" each; of what takes {_HOPELESS:g} times the best, a single launch",
        "compile_s": f"cold cache, {record_settings.compilers} processes side by side",
        "benchmark_s": "load, check and time; the machine code comes from the compiling process",
        "devices": str(gpus),
        "compile_timeout_s": f"{record_settings.compile_timeout_s:g}",
        "timing_timeout_s": f"{record_settings.timing_timeout_s:g}",
    }
