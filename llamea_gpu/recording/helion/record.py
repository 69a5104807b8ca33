"""Record a search space from a live Helion kernel: every point of a grid, on this machine's GPUs.

Compiling processes and one timing process a GPU work side by side
(:mod:`llamea_gpu.engine.pipeline`). Results go to a journal as they come, so that the
same call continues after a kill; when all are there, they become a native recording. Points are
taken in random order: a drift of the machine is not mistaken for the effect of a slot, and what is
there before the end is a random sample.

Needs a CUDA GPU and Helion 1.5 or newer.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from llamea_gpu.cluster.connection import connected
from llamea_gpu.cluster.engine import DEVICE, EngineSpec, Script, Stages
from llamea_gpu.cluster.facts import installed
from llamea_gpu.cluster.pipeline import ClusterPipeline, find_gpus, run_on
from llamea_gpu.engine.device_lock import devices_held
from llamea_gpu.engine.journal import Journal, journal_path, open_journal
from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.nvidia import gpu_facts
from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.engine.template import Template
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.kernel_script import KernelCase, recording_name
from llamea_gpu.frameworks.helion.stages import PRELOAD, CompileStage, TimingStage
from llamea_gpu.frameworks.helion.static import FakeArguments
from llamea_gpu.recording._base import HelionSettings, RecordOutcome, RecordProgress, Tracker
from llamea_gpu.recording.helion.assembly import assemble
from llamea_gpu.recording.helion.grid import (
    Grid,
    Slot,
    propose_grid,
    read_grid,
    slots_of,
)
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.spaces.quoting import quoted

VERSIONS = ("helion", "torch", "triton")  # of packages, that a recording names


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """What a recording measures, and where it comes from; JSON values throughout.

    ``default_config`` is the kernel's whole default configuration, on top of which a grid point is
    one; ``arguments`` has one mapping an argument; ``versions`` those of the libraries; ``device``
    is the GPU's name, ``gpu`` identifies the first one to nvidia-smi (empty: not known).
    """

    name: str
    kernel: str
    kernel_source: str
    arguments: tuple[Mapping[str, object], ...]
    default_config: Mapping[str, Any]
    grid: Grid
    versions: Mapping[str, str]
    device: str
    gpu: str = ""


def record_kernel(
    script: Path,
    output: Path,
    settings: HelionSettings,
    progress: Callable[[RecordProgress], None] = lambda _: None,
) -> RecordOutcome:
    """Measure a grid of a kernel's configurations and write ``output`` (native format).

    Raises:
        RecordingError: no GPU or one at which another recorder is, a script, grid or journal that
            does not fit, a default configuration that is wrong, or measuring that does not start.
    """
    if settings.cluster:
        return _record_on_cluster(script, output, settings, progress)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llamea-gpu-record-")))
        # It imports what the stages need while this process does the same.
        template = stack.enter_context(Template(PRELOAD, folder / "template.log"))
        devices = chosen_devices(settings.devices)
        compilers = settings.compilers or max(1, len(os.sched_getaffinity(0)) - len(devices))
        plan = plan_recording(script, settings)
        stack.enter_context(devices_held(devices))
        compiling = [CompileStage(script, settings.shape, folder)] * compilers
        timing = [TimingStage(script, settings.shape, folder, device) for device in devices]
        return measure(
            plan,
            lambda logs: Pipeline(compiling, timing, logs, limits_of(settings), template),
            (compilers, len(devices)),
            output,
            settings,
            progress,
        )


def _record_on_cluster(
    script: Path,
    output: Path,
    settings: HelionSettings,
    progress: Callable[[RecordProgress], None],
) -> RecordOutcome:
    """As :func:`record_kernel`; this machine needs no GPU."""
    grid = read_grid(settings.grid) if settings.grid is not None else None
    with connected(settings.cluster):
        gpus = find_gpus(settings.gpu)
        compilers = settings.compilers or max(1, gpus.cores - 1)
        elsewhere = replace(settings, grid=None, cluster="", gpu="")
        plan = run_on(gpus, plan_recording, script.absolute(), elsewhere, grid)
        spec = EngineSpec(
            partial(stages_on_node, Script.of(script), settings.shape, compilers),
            limits_of(settings),
            PRELOAD,
            exclusive=True,
            versions=plan.versions,
        )
        return measure(
            plan,
            lambda _: ClusterPipeline(spec, gpus, compilers),
            (compilers, gpus.count),
            output,
            settings,
            progress,
        )


def stages_on_node(script: Script, shape: str | None, compilers: int, folder: Path) -> Stages:
    """Of the engine of one GPU of a cluster; called on its node."""
    path = script.here()
    return (
        [CompileStage(path, shape, folder)] * compilers,
        [TimingStage(path, shape, folder, DEVICE)],
    )


def plan_recording(
    script: Path, settings: HelionSettings, grid: Grid | None = None
) -> RecordingPlan:
    """Bind the kernel, without storage, and take or propose the grid, unless it is given.

    Raises:
        RecordingError: no GPU, or a script or grid that does not fit.
    """
    case, bound, device, gpu = bound_kernel(script, settings)
    default = dict(bound.config_spec.default_config().config)
    slots = slots_of(bound)
    if grid is None and settings.grid is not None:
        grid = read_grid(settings.grid)
    grid = grid or propose_grid(slots, settings.auto)
    _check_slots(grid, default, slots)
    return RecordingPlan(
        name=settings.name or recording_name(case),
        kernel=case.name,
        kernel_source=case.source,
        arguments=case.described_arguments(),
        default_config=default,
        grid=grid,
        versions=installed(VERSIONS),
        device=device,
        gpu=gpu,
    )


def bound_kernel(script: Path, settings: HelionSettings) -> tuple[KernelCase, Any, str, str]:
    """A script's kernel, bound without storage; the first GPU's name, and what nvidia-smi calls it.

    Raises:
        RecordingError: no GPU, or a script that does not fit.
    """
    devices = chosen_devices(settings.devices)
    import torch

    properties = torch.cuda.get_device_properties(devices[0])
    fake = FakeArguments()
    case = fake.load_case(script, settings.shape)
    bound = fake.bind(case.kernel, case.arguments)
    uuid = f"GPU-{properties.uuid}" if hasattr(properties, "uuid") else ""
    return case, bound, properties.name, uuid


def measure(
    plan: RecordingPlan,
    engine: Callable[[Path], AbstractContextManager[Pipeline | ClusterPipeline]],
    processes: tuple[int, int],
    output: Path,
    settings: HelionSettings,
    progress: Callable[[RecordProgress], None] = lambda _: None,
) -> RecordOutcome:
    """Put the plan's points through what ``engine`` makes, given a folder for its logs.

    ``processes`` are how many compile (for each GPU of a cluster) and how many GPUs time. The
    journal is removed once every point is recorded. Killed at any moment, the same call continues
    from it.

    Raises:
        RecordingError: see :class:`Pipeline` and :func:`open_journal`.
    """
    start = monotonic()
    deadline = None if settings.seconds is None else start + settings.seconds
    journal_file = journal_path(output)
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llamea-gpu-logs-")))
        journal = stack.enter_context(
            open_journal(journal_file, _identity(plan, settings, processes[0]))
        )
        pipeline = stack.enter_context(engine(logs))
        tracker = Tracker(progress, start, plan.grid.size)
        tracker.resume(entry["status"] for entry in journal.entries if "point" in entry)
        before, timed = tracker.done, False
        journal.append({"clocks": _clocks(plan)})
        try:
            for outcome in pipeline.run(_tasks(plan, journal, settings.seed), deadline):
                journal.append(_entry(outcome))
                timed |= outcome.benchmark_s > 0
                tracker.add(outcome.status)
                tracker.report()
        except RecordingError:
            if not (before or timed):
                # Nothing to go on with, and the mended kernel will be another.
                journal_file.unlink()
            raise
        complete = tracker.done == plan.grid.size
        if complete or timed:  # else the timing processes may not have started yet
            journal.append({"facts": common_facts(pipeline.facts()), "clocks": _clocks(plan)})
        recording = None
        if complete or (settings.partial and any("facts" in entry for entry in journal.entries)):
            recording = assemble(plan, journal.entries, settings, *processes)
            export_recording(recording, output, "native")
        if complete:
            journal_file.unlink()
    return tracker.outcome(recording, journal_file)


def limits_of(settings: HelionSettings) -> Limits:
    """Of a configuration."""
    return Limits(compile_s=settings.compile_timeout_s, timing_s=settings.timing_timeout_s)


def check_installed() -> None:
    """Whether Helion is.

    Raises:
        RecordingError: it, or what it needs, is not.
    """
    try:
        import helion  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise RecordingError(
            f"recording a Helion kernel needs helion, torch and triton, but {error.name} is not "
            f"installed: pip install 'llamea-gpu[helion]'"
        ) from error


def chosen_devices(requested_devices: Sequence[int] | None) -> tuple[int, ...]:
    """Indices of the GPUs to use: those wanted, else all there are.

    Raises:
        RecordingError: no Helion, no GPU, one that is not there, or GPUs of several kinds.
    """
    check_installed()
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise RecordingError(
            "recording needs a CUDA GPU, but torch finds none: run it where one is; "
            "'llamea-gpu spaces describe-helion' works without"
        )
    devices = tuple(requested_devices or range(count))
    if not all(0 <= device < count for device in devices):
        raise RecordingError(f"GPUs are numbered 0 to {count - 1} here, but got {devices}")
    if len(set(devices)) < len(devices):
        raise RecordingError(f"a GPU times one configuration at a time, but got {devices}")
    kinds = {torch.cuda.get_device_name(device) for device in devices}
    if len(kinds) > 1:
        raise RecordingError(
            f"GPUs that share a recording must be of one kind, but there are "
            f"{', '.join(sorted(kinds))}: choose some"
        )
    return devices


def _check_slots(grid: Grid, default: Mapping[str, Any], slots: Sequence[Slot]) -> None:
    """Refuse a grid with slots that the kernel lacks: all of its points would fail to compile."""
    known = sorted({*default, *(slot.name.partition("[")[0] for slot in slots)})
    for name in grid.names:
        if name.partition("[")[0] not in known:
            raise RecordingError(
                f"a grid's slots must be of the kernel's configuration, but {quoted(name)} is not; "
                f"it has {', '.join(known)}"
            )
    grid.config(0, default)  # elements of lists are there, too


def common_facts(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first GPU's; times of default and reference as medians over all GPUs."""
    times = ("default_ms", "reference_ms")
    return {**facts[0], **{key: float(np.median([f[key] for f in facts])) for key in times}}


def _identity(plan: RecordingPlan, settings: HelionSettings, compilers: int) -> dict[str, Any]:
    """What must be the same for a recording to continue."""
    return {
        "journal": 1,
        "kernel": plan.kernel,
        "kernel_source": hashlib.sha256(plan.kernel_source.encode()).hexdigest(),
        "arguments": plan.arguments,
        "default_config": plan.default_config,
        "grid": hashlib.sha256(plan.grid.to_toml().encode()).hexdigest(),
        "versions": plan.versions,
        "device": plan.device,
        "compilers": compilers,
        "compile_timeout_s": settings.compile_timeout_s,
        "timing_timeout_s": settings.timing_timeout_s,
    }


def _clocks(plan: RecordingPlan) -> dict[str, str]:
    return gpu_facts(plan.gpu) if plan.gpu else {}


def _tasks(plan: RecordingPlan, journal: Journal, seed: int) -> Iterable[Task]:
    """The points that the journal lacks, in random order."""
    measured_points = {entry["point"] for entry in journal.entries if "point" in entry}
    order = np.random.default_rng(seed).permutation(plan.grid.size).tolist()
    return [
        Task(point, plan.grid.config(point, plan.default_config))
        for point in order
        if point not in measured_points
    ]


def _entry(outcome: Outcome) -> dict[str, Any]:
    """A journal's line."""
    numbers = ("time_ms", "low_ms", "high_ms", "launches", "first_s", "control_ms")
    texts = ("source", "message")
    return {
        "point": outcome.point,
        "status": outcome.status,
        "compile_s": round(outcome.compile_s, 6),
        "benchmark_s": round(outcome.benchmark_s, 6),
        **{key: outcome.details[key] for key in (*numbers, *texts) if key in outcome.details},
    }
