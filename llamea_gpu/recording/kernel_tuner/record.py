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
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

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
from llamea_gpu.recording.kernel_tuner.assembly import (
    LEFT_OUT,
    assemble,
    kernel_tuner_version,
)
from llamea_gpu.recording.kernel_tuner.settings import RecordSettings
from llamea_gpu.recording.progress import RecordProgress
from llamea_gpu.recording.sampling import stratified_rows
from llamea_gpu.spaces.formats import export_recording
from llamea_gpu.spaces.recording import Recording
from llamea_gpu.spaces.space import SearchSpace

_HOPELESS = 100  # failures without one success: a compiler, a reference or a device is wrong


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """How a call of :func:`record_kernel` ended.

    ``recording`` is None when the time was up first; then ``journal`` holds what there is.
    """

    recording: Recording | None
    journal: Path
    done: int
    total: int


def record_kernel(
    script: Path,
    output: Path,
    settings: RecordSettings,
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
    where = journal_path(output)
    with ExitStack() as stack:
        pipeline: Pipeline | ClusterPipeline
        if settings.cluster:
            pipeline, settings = stack.enter_context(opened_on_cluster(script, settings))
        else:
            temporary = tempfile.TemporaryDirectory(prefix="llamea-gpu-record-")
            folder = Path(stack.enter_context(temporary))
            template = stack.enter_context(Template(PRELOAD, folder / "template.log"))
            pipeline = stack.enter_context(opened(script, settings, folder, template))
        facts = agreed(pipeline.facts())
        space, rows = _chosen(facts, settings)
        identity = _identity(facts, space, rows, settings)
        journal = stack.enter_context(open_journal(where, identity))
        journal.append({"clocks": nvidia_facts(facts, settings)})
        left = _left(space, rows, journal, settings.seed)
        tracker = _Tracker(progress, start, total=len(rows))
        tracker.resume(journal.entries)
        deadline = None if settings.max_seconds is None else start + settings.max_seconds
        tasks = [Task(point, configuration) for point, configuration in enumerate(left)]
        for outcome in pipeline.run(tasks, deadline):
            result = {"configuration": left[outcome.point], **measurement(outcome)}
            journal.append(result)
            tracker.add(result)
            if tracker.hopeless:
                where.unlink()  # or the next call would go on from these failures
                raise RecordingError(
                    f"a kernel must work for some configurations, but all {tracker.failed} so far "
                    f"failed, the last with {result['status']}: {result['message']}"
                )
        journal.append({"clocks": nvidia_facts(facts, settings)})
        measured = _measured(journal)
        recording = None
        if len(measured) == len(rows):
            sample = None if len(rows) == space.size else (space.size, settings.seed)
            recording = assemble(facts, journal.entries, settings, sample)
            export_recording(recording, output, "native")
            where.unlink()
    return RecordOutcome(recording, where, len(measured), len(rows))


def opened(
    script: Path,
    settings: RecordSettings,
    folder: Path,
    template: Template,
    *,
    listed: bool = True,
) -> Pipeline:
    """Processes that measure on all devices; ``listed`` as of `ScriptStage`."""
    stages = _stages(script.absolute(), settings, settings.devices, folder, listed=listed)
    return Pipeline(stages, (), folder, Limits(timing_s=settings.timeout_s), template)


@contextmanager
def opened_on_cluster(
    script: Path, settings: RecordSettings, *, listed: bool = True
) -> Iterator[tuple[ClusterPipeline, RecordSettings]]:
    """As :func:`opened`, on all GPUs of the cluster; with settings whose devices are these."""
    with connected(settings.cluster):
        gpus = find_gpus(settings.gpu)
        settings = replace(settings, devices=tuple(range(gpus.count)))
        spec = _spec(script, settings, listed=listed)
        with ClusterPipeline(spec, gpus, settings.compilers) as pipeline:
            yield pipeline, settings


def _spec(script: Path, settings: RecordSettings, *, listed: bool) -> EngineSpec:
    """The engine of one GPU of a cluster."""
    return EngineSpec(
        partial(_on_node, Script.of(script), settings, listed),
        Limits(timing_s=settings.timeout_s),
        PRELOAD,
        versions={"kernel_tuner": kernel_tuner_version()},
    )


def _on_node(script: Script, settings: RecordSettings, listed: bool, folder: Path) -> Stages:
    return _stages(script.here(), settings, (DEVICE,), folder, listed=listed), ()


def _stages(
    script: Path, settings: RecordSettings, devices: Sequence[int], folder: Path, *, listed: bool
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
    facts: Mapping[str, Any], settings: RecordSettings
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
    settings: RecordSettings,
) -> dict[str, Any]:
    """What must be the same for a recording to continue."""
    chosen = hashlib.sha256(space.configurations[rows].tobytes()).hexdigest()
    return {
        "journal": 1,
        "space": space.fingerprint,
        "configurations": chosen,
        "kernel": facts["kernel"],
        "kernel_source": hashlib.sha256(facts["kernel_source"].encode()).hexdigest(),
        "arguments": facts["arguments"],
        "problem_size": facts["problem_size"],
        "verified": facts["verified"],
        "launch": facts["launch"],
        "device": facts["device"],
        "driver": nvidia_facts(facts, settings).get("driver", ""),
        "language": facts["language"],
        "iterations": settings.iterations,
        "timeout_s": settings.timeout_s,
        "compilers": settings.compilers,
        "kernel_tuner": kernel_tuner_version(),
    }


def nvidia_facts(facts: Mapping[str, Any], settings: RecordSettings) -> dict[str, str]:
    """nvidia-smi's facts about the first device; empty for what is no NVIDIA GPU, or not here."""
    if settings.cluster:
        return {}
    environment = facts["environment"]
    if "compute_capability" not in environment:  # compiled for the host
        return {}
    return gpu_facts(environment.get("pci_bus_id") or settings.devices[0])


def _measured(journal: Journal) -> set[tuple[int, ...]]:
    return {tuple(e["configuration"]) for e in journal.entries if "configuration" in e}


def _left(
    space: SearchSpace,
    rows: npt.NDArray[np.int64],
    journal: Journal,
    seed: int,
) -> list[tuple[int, ...]]:
    """Configurations still to be measured, in the recording's random order."""
    done = _measured(journal)
    ordered = np.random.default_rng(seed).permutation(rows)
    return [c for c in (space.configuration(int(row)) for row in ordered) if c not in done]


class _Tracker:
    """Progress of this call, with an estimate of the time left from its own pace."""

    def __init__(
        self, progress: Callable[[RecordProgress], None], start: float, total: int
    ) -> None:
        self._progress = progress
        self._start = start
        self._pace_from = monotonic()
        self._total = total
        self._done = self._fresh = self._ok = self.failed = 0

    @property
    def hopeless(self) -> bool:
        """Whether so many have failed, and none worked, that the fault is not theirs."""
        return self._ok == 0 and self.failed >= min(_HOPELESS, self._total)

    def resume(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Count what earlier calls measured."""
        for entry in entries:
            self._count(entry)
        self._report()

    def add(self, result: Mapping[str, Any]) -> None:
        """Count one more result of this call."""
        self._fresh += 1
        self._count(result)
        self._report()

    def _count(self, entry: Mapping[str, Any]) -> None:
        if "configuration" in entry:
            self._done += 1
            self._ok += entry["status"] == "ok"
            self.failed += entry["status"] not in ("ok", LEFT_OUT)

    def _report(self) -> None:
        now, left = monotonic(), self._total - self._done
        self._progress(
            RecordProgress(
                done=self._done,
                total=self._total,
                failed=self.failed,
                elapsed_s=now - self._start,
                left_s=(now - self._pace_from) / self._fresh * left if self._fresh else None,
            )
        )
