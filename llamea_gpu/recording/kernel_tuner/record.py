"""Record a search space from a live Kernel Tuner kernel.

Every valid configuration, or a stratified sample, is compiled, checked and timed by
``kernel_tuner.tune_kernel`` in processes of their own (see
:mod:`llamea_gpu.frameworks.kernel_tuner.stage`). Results go to a journal as they come, so that
the same call continues after a kill; when all are there, they become a native recording.

Configurations are taken in random order, so that a drift of the machine is not mistaken for the
effect of a parameter. With several compilers the times to compile are those on a busy processor;
checking and timing have the device for themselves. A recording's clock is sequential in any case:
it says what each configuration costs on its own.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from llamea_gpu import __version__
from llamea_gpu.cluster.connection import connected
from llamea_gpu.cluster.engine import DEVICE, EngineSpec, Script, Stages
from llamea_gpu.cluster.pipeline import ClusterPipeline, find_gpus
from llamea_gpu.engine.device_lock import device_lock
from llamea_gpu.engine.journal import Journal, journal_path, open_journal
from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.nvidia import gpu_facts
from llamea_gpu.engine.pipeline import Pipeline, Task
from llamea_gpu.engine.template import Template
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.kernel_tuner.stage import PRELOAD, ScriptStage, measurement
from llamea_gpu.recording._base import (
    HOPELESS,
    LEFT_OUT,
    KernelTunerSettings,
    RecordOutcome,
    RecordProgress,
    Tracker,
)
from llamea_gpu.recording.sampling import stratified_rows
from llamea_gpu.searchers.library import require
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.spaces.recording import STATUSES, Recording, RecordingInfo
from llamea_gpu.spaces.space import SearchSpace

# Of what the measuring processes say: what must be the same for a recording to continue.
_IDENTITY = ("kernel", "arguments", "problem_size", "verified", "launch", "device", "language")


def kernel_tuner_version() -> str:
    """Of the Kernel Tuner that is installed.

    Raises:
        SearcherError: none is.
    """
    return require("kernel_tuner", "kernel-tuner", "recording a Kernel Tuner kernel")


def record_kernel(
    script: Path,
    output: Path,
    settings: KernelTunerSettings,
    progress: Callable[[RecordProgress], None] = lambda _: None,
) -> RecordOutcome:
    """Measure what the settings ask for and write ``output`` (native format).

    The journal lies beside the output, named like it with ``.journal`` at the end. It is removed
    once the recording is written. Killed at any moment, the same call continues from it.

    Raises:
        RecordingError: the script does not load, no device answers, the first 100 configurations
            (of a smaller space, all) fail, twenty in a row crash, or the journal is of another
            kernel, space, device or setting.
        SearcherError: Kernel Tuner is not installed.
    """
    start = monotonic()
    kernel_tuner_version()
    journal_file = journal_path(output)
    with ExitStack() as stack:
        pipeline, settings = stack.enter_context(opened(script, settings))
        facts = agreed(pipeline.facts())
        space, rows = _chosen(facts, settings)
        identity = _identity(facts, space, rows, settings)
        journal = stack.enter_context(open_journal(journal_file, identity))
        journal.append({"clocks": nvidia_facts(facts, settings)})
        left = _left(space, rows, journal, settings.seed)
        tracker = Tracker(progress, start, total=len(rows))
        tracker.resume(e["status"] for e in journal.entries if "configuration" in e)
        tracker.report()
        deadline = None if settings.seconds is None else start + settings.seconds
        tasks = [Task(point, configuration) for point, configuration in enumerate(left)]
        for outcome in pipeline.run(tasks, deadline):
            result = {"configuration": left[outcome.point], **measurement(outcome)}
            journal.append(result)
            tracker.add(result["status"])
            tracker.report()
            try:
                tracker.require_hope(min(HOPELESS, len(rows)), result["status"], result["message"])
            except RecordingError:
                journal_file.unlink()  # or the next call would go on from these failures
                raise
        journal.append({"clocks": nvidia_facts(facts, settings)})
        recording = None
        if tracker.done == len(rows):
            sample = None if len(rows) == space.size else (space.size, settings.seed)
            recording = assemble(facts, journal.entries, settings, sample)
            export_recording(recording, output, "native")
            journal_file.unlink()
    return tracker.outcome(recording, journal_file)


@contextmanager
def opened(
    script: Path, settings: KernelTunerSettings, *, listed: bool = True
) -> Iterator[tuple[Pipeline | ClusterPipeline, KernelTunerSettings]]:
    """Processes that measure on all devices, and settings that have these.

    The devices are those of the settings, or all GPUs of the cluster. ``listed`` as of
    `ScriptStage`.
    """
    limits = Limits(timing_s=settings.timeout_s)
    if settings.cluster:
        with connected(settings.cluster):
            gpus = find_gpus(settings.gpu)
            settings = replace(settings, devices=tuple(range(gpus.count)))
            make = partial(_on_node, Script.of(script), settings, listed)
            versions = {"kernel_tuner": kernel_tuner_version()}
            spec = EngineSpec(make, limits, PRELOAD, versions=versions)
            with ClusterPipeline(spec, gpus, settings.compilers) as pipeline:
                yield pipeline, settings
        return
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="llamea-gpu-record-")
        folder = Path(stack.enter_context(temporary))
        template = stack.enter_context(Template(PRELOAD, folder / "template.log"))
        stages = _stages(script.absolute(), settings, settings.devices, folder, listed)
        yield stack.enter_context(Pipeline(stages, (), folder, limits, template)), settings


def _on_node(script: Script, settings: KernelTunerSettings, listed: bool, folder: Path) -> Stages:
    """Stages in the engine of one GPU of a cluster."""
    return _stages(script.here(), settings, (DEVICE,), folder, listed), ()


def _stages(
    script: Path,
    settings: KernelTunerSettings,
    devices: Sequence[int],
    folder: Path,
    listed: bool,
) -> list[ScriptStage]:
    return [
        ScriptStage(
            script=script,
            lock=device_lock(device),
            scratch=folder / f"{device}-{i}",
            device=device,
            backend=settings.backend,
            iterations=settings.iterations,
            sizes=settings.sizes,
            listed=listed,
        )
        for device in devices
        for i in range(settings.compilers)
    ]


def agreed(facts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What all processes say about space, kernel and device."""
    for key in ("device", "names", "values", "configurations"):
        if any(other[key] != facts[0][key] for other in facts):
            raise RecordingError(
                f"devices that share a recording must be of one kind, but they differ in "
                f"{key}: name devices that are alike"
            )
    return facts[0]


def _chosen(
    facts: Mapping[str, Any], settings: KernelTunerSettings
) -> tuple[SearchSpace, npt.NDArray[np.int64]]:
    """The whole space, and the rows of it to measure."""
    space = SearchSpace(facts["names"], facts["values"], facts["configurations"])
    if settings.sample is None:
        return space, np.arange(space.size)
    return space, stratified_rows(space, settings.sample, np.random.default_rng(settings.seed))


def _identity(
    facts: Mapping[str, Any],
    space: SearchSpace,
    rows: npt.NDArray[np.int64],
    settings: KernelTunerSettings,
) -> dict[str, Any]:
    """What must be the same for a recording to continue."""
    chosen = hashlib.sha256(space.configurations[rows].tobytes()).hexdigest()
    return {
        "journal": 1,
        "space": space.fingerprint,
        "configurations": chosen,
        **{name: facts[name] for name in _IDENTITY},
        "kernel_source": hashlib.sha256(facts["kernel_source"].encode()).hexdigest(),
        "driver": nvidia_facts(facts, settings).get("driver", ""),
        "iterations": settings.iterations,
        "timeout_s": settings.timeout_s,
        "compilers": settings.compilers,
        "kernel_tuner": kernel_tuner_version(),
    }


def nvidia_facts(facts: Mapping[str, Any], settings: KernelTunerSettings) -> dict[str, str]:
    """nvidia-smi's facts about the first device; empty for what is no NVIDIA GPU, or not here."""
    if settings.cluster:
        return {}
    environment = facts["environment"]
    if "compute_capability" not in environment:  # compiled for the host
        return {}
    return gpu_facts(environment.get("pci_bus_id") or settings.devices[0])


def _left(
    space: SearchSpace,
    rows: npt.NDArray[np.int64],
    journal: Journal,
    seed: int,
) -> list[tuple[int, ...]]:
    """Configurations still to be measured, in the recording's random order."""
    measured = {tuple(e["configuration"]) for e in journal.entries if "configuration" in e}
    ordered = np.random.default_rng(seed).permutation(rows)
    return [c for c in (space.configuration(int(row)) for row in ordered) if c not in measured]


def assemble(
    facts: Mapping[str, Any],
    entries: Sequence[Mapping[str, Any]],
    settings: KernelTunerSettings,
    sample: tuple[int, int] | None,
) -> Recording:
    """Build the recording of a complete journal.

    Args:
        facts: what the measuring process said about space, kernel and device.
        entries: the journal's measurements (in any order) and notes of clocks.
        settings: as recorded with.
        sample: (number of valid configurations, seed) when not all were to be measured.

    Raises:
        RecordingError: nothing but configurations that the device cannot launch.
    """
    rows = [e for e in entries if "configuration" in e and e["status"] != LEFT_OUT]
    if not rows:
        raise RecordingError(
            "a recording must have configurations that the device can launch, but none can be: "
            "restrict block_size_x * block_size_y * block_size_z to what it allows"
        )
    return Recording.from_rows(
        facts["names"],
        facts["values"],
        np.array([e["configuration"] for e in rows]),
        [np.inf if e["time_ms"] is None else e["time_ms"] for e in rows],
        [e["compile_s"] for e in rows],
        [e["benchmark_s"] for e in rows],
        [STATUSES.index(e["status"]) for e in rows],
        RecordingInfo(
            name=settings.name or facts["name"],
            kernel=facts["kernel"],
            device=facts["device"],
            framework=f"kernel_tuner ({facts['language']})",
            kernel_source=facts["kernel_source"],
            arguments=tuple(facts["arguments"]),
            default_configuration=facts["default_configuration"],
            provenance=_provenance(facts, entries, settings, sample),
            exhaustive=sample is None,
        ),
    )


def _provenance(
    facts: Mapping[str, Any],
    entries: Sequence[Mapping[str, Any]],
    settings: KernelTunerSettings,
    sample: tuple[int, int] | None,
) -> dict[str, str]:
    measured = [e for e in entries if "configuration" in e]
    counts = Counter(e["status"] for e in measured)
    environment = facts["environment"]
    clocks = [e["clocks"] for e in entries if e.get("clocks")]
    left_out = counts[LEFT_OUT]
    provenance = {
        "source": f"recorded by llamea_gpu {__version__}, Kernel Tuner {kernel_tuner_version()}",
        "command": settings.command,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        **how_measured(facts, settings),
        "compiler_options": facts["compiler_options"],
        "spread": _spread(measured),
        "order": f"random, seed {settings.seed}",
        "sample": "" if sample is None else _sample_text(len(measured), *sample),
        "left_out": f"{left_out} configurations that the device cannot launch" if left_out else "",
        "devices": str(len(settings.devices)) if len(settings.devices) > 1 else "",
        "compute_capability": environment.get("compute_capability", ""),
        "cuda": environment.get("cuda_version", ""),
        "compiler": environment.get("CC Version", ""),
        "gpu_at_start": json.dumps(clocks[0]) if clocks else "",
        "gpu_at_end": json.dumps(clocks[-1]) if clocks else "",
    }
    return {key: value for key, value in provenance.items() if value}


def how_measured(facts: Mapping[str, Any], settings: KernelTunerSettings) -> dict[str, str]:
    """What the provenance of recordings and clouds says alike of kernel and measurements."""
    return {
        "note": facts["note"],
        "constraints": "\n".join(facts["constraints"]),
        "problem_size": facts["problem_size"],
        "iterations": f"{settings.iterations}; time_ms is their mean",
        "compile_s": f"compile_time, no compiler cache, {settings.compilers} side by side",
        "benchmark_s": "to check the result and to benchmark, without waiting for the device",
        "verified": "every result compared with a reference" if facts["verified"] else "no",
        "timeout_s": f"{settings.timeout_s:g}",
    }


def _sample_text(measured: int, valid: int, seed: int) -> str:
    return (
        f"stratified sample of {measured} of {valid} valid configurations, seed {seed}; the "
        f"space holds the sampled ones only"
    )


def _spread(measured: Sequence[Mapping[str, Any]]) -> str:
    spreads = [e["spread"] for e in measured if e["spread"] is not None]
    if not spreads:
        return ""
    half, most = np.percentile(spreads, (50, 95))
    return (
        f"standard deviation of one reading relative to the mean: median {half:.2%}, "
        f"95th percentile {most:.2%}"
    )
