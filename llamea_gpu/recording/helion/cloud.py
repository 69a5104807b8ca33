"""Measure a cloud of a whole Helion ConfigSpec, which is too large to list.

Compiling processes and one timing process a GPU work side by side, as when a grid is recorded; here
the next configurations are chosen while others are measured (:mod:`llamea_gpu.recording.mixture`),
so that nothing waits for a batch. Results go to a journal as they come: JSON lines, which are a
cloud by themselves (:mod:`llamea_gpu.spaces.formats.cloud_lines`). Killed at any moment, the same
call continues from it.

Needs a CUDA GPU and Helion 1.5 or newer.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from llamea_gpu import __version__
from llamea_gpu.contract import Configuration
from llamea_gpu.engine.device_lock import devices_held
from llamea_gpu.engine.journal import Journal, open_journal
from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.nvidia import gpu_facts
from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.engine.template import Template
from llamea_gpu.engine.worker import Stage
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.kernel_script import recording_name
from llamea_gpu.frameworks.helion.stages import PRELOAD, CompileStage, TimingStage
from llamea_gpu.frameworks.helion.static import FakeArguments
from llamea_gpu.recording.helion.record import chosen_devices, common_facts, journal_path
from llamea_gpu.recording.mixture import Mixture
from llamea_gpu.recording.progress import RecordProgress
from llamea_gpu.recording.trajectory import MakeSpace, Trajectories
from llamea_gpu.spaces.cloud import Cloud
from llamea_gpu.spaces.formats import export_cloud, import_cloud

SEARCHERS = ("steady_state_genetic_algorithm", "conditioned_local_search", "growing_foresight")
_AHEAD = 2  # configurations on their way, for each compiling process
_HOPELESS = 10.0  # times the best: one launch of it is enough
_MESSAGE = 160  # letters of what a failure said


@dataclass(frozen=True, slots=True)
class CloudSettings:
    """What to measure and how.

    Attributes:
        measurements: how many, those of earlier calls included.
        seconds: end in order after this time, starting included; None: no limit.
        searchers: specs of those whose trajectories are part of the cloud.
        evaluations: of each run of a searcher; then it begins anew.
        shape: one of the script's shapes; None for its usual one.
        compilers: compiling processes; None for one a core that no timing process needs.
        devices: indices of GPUs, all of one kind; None for all there are.
        compile_timeout_s, timing_timeout_s: after which a configuration counts as timed out.
        seed: of all that is drawn.
        name: of the cloud; None for kernel, shape and GPU.
        command: how it was called, for the cloud's provenance.
    """

    measurements: int
    seconds: float | None = None
    searchers: tuple[str, ...] = SEARCHERS
    evaluations: int = 200
    shape: str | None = None
    compilers: int | None = None
    devices: tuple[int, ...] | None = None
    compile_timeout_s: float = 12.0
    timing_timeout_s: float = 10.0
    seed: int = 0
    name: str | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class CloudPlan:
    """What a cloud is of.

    Attributes:
        header: the journal's first line, JSON values throughout; see
            :mod:`llamea_gpu.spaces.formats.cloud_lines`.
        make_space: the space for one who draws from it.
        draw: a random configuration, None where one is hard to find.
        payload: the task of a configuration for the compiling stage.
        gpu: identifies the first GPU to nvidia-smi; empty: not known.
    """

    header: Mapping[str, Any]
    make_space: MakeSpace
    draw: Callable[[np.random.Generator], Configuration | None]
    payload: Callable[[Configuration], Any]
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class CloudOutcome:
    """How a call ended.

    Attributes:
        cloud: what was written; None when nothing was measured.
        journal: the journal, which is gone once all measurements are there.
        done: measurements, those of earlier calls included; measured: by this call.
        measured_s: seconds from its first result to its last; elapsed_s: of the whole call.
        interrupted: by Ctrl-C.
        troubles: why searchers were given up, by their specs.
    """

    cloud: Cloud | None
    journal: Path
    done: int
    measured: int
    measured_s: float
    elapsed_s: float
    interrupted: bool
    troubles: Mapping[str, str]


def record_cloud(
    script: Path,
    output: Path,
    settings: CloudSettings,
    progress: Callable[[RecordProgress], None] = lambda _: None,
    template: Template | None = None,
) -> CloudOutcome:
    """Measure a cloud of a kernel's whole ConfigSpec and write ``output`` (native format).

    Ended by time or by Ctrl-C, it writes what there is and keeps the journal.

    Args:
        script: the kernel script, which is executed.
        output: the file to write; an earlier one of the same journal is replaced.
        settings: what and how.
        progress: told of each result.
        template: one that has imported PRELOAD, for several clouds one after another.

    Raises:
        RecordingError: no GPU or one at which another recorder is, a script or journal that does
            not fit, a default configuration that is wrong, or measuring that does not start or
            breaks down. What was measured by then is written.
        SearcherError: a searcher is not there.
    """
    start = monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llamea-gpu-record-")))
        if template is None:  # it imports what the stages need while this process does the same
            template = stack.enter_context(Template(PRELOAD, folder / "template.log"))
        devices = chosen_devices(settings.devices)
        compilers = settings.compilers or max(1, len(os.sched_getaffinity(0)) - len(devices))
        stack.enter_context(devices_held(devices))
        plan = plan_cloud(script, replace(settings, compilers=compilers, devices=devices))
        return measure_cloud(
            plan,
            [CompileStage(script, settings.shape, folder)] * compilers,
            [TimingStage(script, settings.shape, folder, device) for device in devices],
            output,
            settings,
            progress,
            template,
            start,
        )


def plan_cloud(script: Path, settings: CloudSettings) -> CloudPlan:
    """Bind the kernel, without storage, and take its whole ConfigSpec.

    Raises:
        RecordingError: no GPU, or a script that does not fit.
    """
    import torch

    from llamea_gpu.frameworks.helion.space import HelionSpace

    devices = chosen_devices(settings.devices)
    properties = torch.cuda.get_device_properties(devices[0])
    gpu = FakeArguments()
    case = gpu.load_case(script, settings.shape)
    bound = gpu.bind(case.kernel, case.arguments)
    generation = bound.config_spec.create_config_generation()
    seeds = [flat for flat, _ in generation.seed_flat_config_pairs()]

    def make_space(rng: np.random.Generator) -> HelionSpace:
        made = HelionSpace(generation, rng, seeds)
        made.starts = [*dict.fromkeys([*made.starts, *known])]
        return made

    known: list[Configuration] = []
    space = make_space(np.random.default_rng(settings.seed))
    default = space.place(bound.config_spec.default_config())
    known += [] if default is None else [default]
    versions = {name: importlib.metadata.version(name) for name in ("helion", "torch", "triton")}
    header = {
        "journal": 1,
        "name": settings.name or f"{recording_name(case)}-{_short(properties.name)}",
        "kernel": case.name,
        "kernel_source": case.source,
        "script": script.stem,
        "shape": case.shape or "",
        "arguments": case.described_arguments(),
        "device": properties.name,
        "framework": f"helion {versions['helion']}",
        "compilers": settings.compilers or 1,
        "names": space.names,
        "values": space.values,
        "ordinal": space.ordinal,
        "default": default,
        "starts": make_space(np.random.default_rng(0)).starts,
        "provenance": {**versions, **_provenance(settings)},
    }
    return CloudPlan(
        header,
        make_space,
        lambda rng: _drawn(space, generation, rng),
        lambda config: dict(space.config(config).config),
        f"GPU-{properties.uuid}" if hasattr(properties, "uuid") else "",
    )


def measure_cloud(
    plan: CloudPlan,
    compiling: Sequence[Stage],
    timing: Sequence[Stage],
    output: Path,
    settings: CloudSettings,
    progress: Callable[[RecordProgress], None] = lambda _: None,
    template: Template | None = None,
    start: float | None = None,
) -> CloudOutcome:
    """Put a mixture of configurations through both stages; see :func:`record_cloud`.

    Raises:
        RecordingError: see :class:`Pipeline` and :func:`open_journal`.
        SearcherError: a searcher is not there.
    """
    start = monotonic() if start is None else start
    limits = Limits(compile_s=settings.compile_timeout_s, timing_s=settings.timing_timeout_s)
    where = journal_path(output)
    ahead = _AHEAD * len(compiling) + len(timing)
    mixture = _mixture(plan, settings, ahead)
    with ExitStack() as stack:
        stack.callback(mixture.stop)
        stack.enter_context(threadpool_limits(1, user_api="blas"))  # kernels are launched beside
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llamea-gpu-logs-")))
        journal = stack.enter_context(open_journal(where, plan.header))
        pipeline = stack.enter_context(
            Pipeline(compiling, timing, logs, limits, template, hopeless=_HOPELESS)
        )
        session = _Session(plan, settings, mixture, journal, progress, start)
        interrupted = whole = False
        try:
            session.run(pipeline, ahead)
            whole = session.done >= settings.measurements
        except KeyboardInterrupt:
            interrupted = True
        except RecordingError:
            if not session.worked:  # nothing to go on with, and the mended kernel will be another
                where.unlink()
            raise
        finally:
            journal.sync()
            cloud = _written(where, output) if session.done and where.exists() else None
        if whole or not session.done:
            where.unlink()
    return CloudOutcome(
        cloud,
        where,
        session.done,
        session.measured,
        session.measured_s,
        monotonic() - start,
        interrupted,
        mixture.troubles(),
    )


class _Session:
    """One call's measuring: proposes, hands out, takes in."""

    def __init__(
        self,
        plan: CloudPlan,
        settings: CloudSettings,
        mixture: Mixture,
        journal: Journal,
        progress: Callable[[RecordProgress], None],
        start: float,
    ) -> None:
        self._plan, self._settings, self._mixture = plan, settings, mixture
        self._journal, self._progress, self._start = journal, progress, start
        self._flying: dict[int, tuple[Configuration, str]] = {}
        self._points = self.measured = self.done = self._failed = 0
        self._first = self._last = 0.0
        self._has_facts = self.worked = False
        self._resume(journal.entries)
        journal.append({"run": self._about()})

    @property
    def measured_s(self) -> float:
        """Seconds from the first result of this call to its last."""
        return self._last - self._first

    def run(self, pipeline: Pipeline, ahead: int) -> None:
        """Until all is measured, time is up, or nothing new is to be found."""
        seconds = self._settings.seconds
        deadline = None if seconds is None else self._start + seconds
        while self.done < self._settings.measurements:
            while len(self._flying) < ahead and self._more():
                found = self._mixture.propose()
                if found is None:
                    break
                pipeline.submit([self._task(*found)])
            outcomes = pipeline.wait(deadline)
            for outcome in outcomes:
                self._take_in(outcome)
            if not outcomes:
                break
            if not self._has_facts and any(outcome.benchmark_s for outcome in outcomes):
                self._note_facts(pipeline)

    def _more(self) -> bool:
        return self.done + len(self._flying) < self._settings.measurements

    def _task(self, config: Configuration, how: str) -> Task:
        self._points += 1
        self._flying[self._points] = config, how
        return Task(self._points, self._plan.payload(config))

    def _take_in(self, outcome: Outcome) -> None:
        config, how = self._flying.pop(outcome.point)
        self._last = monotonic()
        self._first = self._first or self._last
        row = _row(config, how, outcome, self._last - self._start)
        self._journal.append(row)
        self.measured += 1
        self._count(row)
        left_s = None
        if self.measured > 1:
            left = self._settings.measurements - self.done
            left_s = left * self.measured_s / (self.measured - 1)
        self._progress(
            RecordProgress(
                self.done,
                self._settings.measurements,
                self._failed,
                self._last - self._start,
                left_s,
            )
        )

    def _resume(self, entries: Iterable[Mapping[str, Any]]) -> None:
        for entry in entries:
            if "c" in entry:
                self._count(entry)

    def _count(self, row: Mapping[str, Any]) -> None:
        self.done += 1
        self._failed += row["status"] != "ok"
        self.worked |= row["status"] == "ok"
        cost = row["ms"] if row["status"] == "ok" else math.inf
        self._mixture.learn(tuple(row["c"]), cost, row["how"])

    def _note_facts(self, pipeline: Pipeline) -> None:
        self._has_facts = True
        self._journal.append({"facts": common_facts(pipeline.facts())})

    def _about(self) -> dict[str, Any]:
        clocks = gpu_facts(self._plan.gpu) if self._plan.gpu else {}
        return {
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "command": self._settings.command,
            "seed": self._settings.seed,
            **clocks,
        }


def _mixture(plan: CloudPlan, settings: CloudSettings, parallel: int) -> Mixture:
    rng = np.random.default_rng(settings.seed)
    drawing, mixing, *others = rng.spawn(2 + len(settings.searchers))
    searchers = [
        Trajectories(spec, plan.make_space, own, settings.evaluations, parallel)
        for spec, own in zip(settings.searchers, others, strict=True)
    ]
    return Mixture(plan.make_space(rng), lambda: plan.draw(drawing), searchers, mixing)


def _drawn(space: Any, generation: Any, rng: np.random.Generator) -> Configuration | None:
    """A configuration from throughout the space, half of them drawn as Helion's backend advises."""
    from helion.exc import InvalidConfig

    state = random.getstate()  # Helion draws from it
    random.seed(int(rng.integers(1 << 62)))
    draw = generation.random_flat if rng.random() < 0.5 else generation.biased_random_flat
    try:
        found: Configuration | None = space.place(generation.unflatten(draw()))
    except InvalidConfig:
        return None
    finally:
        random.setstate(state)
    return found


def _row(config: Configuration, how: str, outcome: Outcome, at_s: float) -> dict[str, Any]:
    """A journal's line."""
    said = outcome.details
    ok = outcome.status == "ok"
    return {
        "c": config,
        "how": how,
        "status": outcome.status,
        "ms": said["time_ms"] if ok else None,
        "lo": said.get("low_ms") if ok else None,
        "hi": said.get("high_ms") if ok else None,
        "compile_s": round(outcome.compile_s, 4),
        "bench_s": round(outcome.benchmark_s, 4),
        "source": said.get("source"),
        "at": round(at_s, 3),
        "message": None if ok else str(said.get("message", ""))[:_MESSAGE],
        "control": said.get("control_ms"),
    }


def _written(journal: Path, output: Path) -> Cloud:
    """The cloud of a journal, as ``output``."""
    cloud, _ = import_cloud(journal)
    export_cloud(cloud, output)
    return cloud


def _short(device: str) -> str:
    """A GPU's name as part of another: "h200" of NVIDIA H200."""
    return re.sub(r"\W+", "-", device.removeprefix("NVIDIA ")).lower()


def _provenance(settings: CloudSettings) -> dict[str, str]:
    return {
        "source": f"measured by llamea_gpu {__version__}",
        "accuracy": "every result compared element by element with the default configuration's, "
        "that one with the reference",
        "time_ms": "median of single launches between CUDA events, level-2 cache overwritten before"
        f" each; of what takes {_HOPELESS:g} times the best, a single launch",
        "compile_s": f"cold cache, {settings.compilers} processes side by side",
        "benchmark_s": "load, check and time; the machine code comes from the compiling process",
        "devices": str(len(settings.devices or (0,))),
        "compile_timeout_s": f"{settings.compile_timeout_s:g}",
        "timing_timeout_s": f"{settings.timing_timeout_s:g}",
        "searchers": ", ".join(settings.searchers),
    }
