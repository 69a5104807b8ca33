"""Which configurations of a kernel could be launched on a named GPU: a filter without that GPU.

Configurations are compiled in processes of their own, since some make Triton abort or hang for
minutes. What comes out is STATIC: it says what a configuration needs, not how fast it is.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llamea_gpu.engine.limits import Limits
from llamea_gpu.engine.pipeline import Outcome, Pipeline, Task
from llamea_gpu.engine.template import Template
from llamea_gpu.engine.worker import Channel
from llamea_gpu.frameworks.helion.stages import PRELOAD, set_caches
from llamea_gpu.frameworks.helion.static import StaticReport, pretend_gpu
from llamea_gpu.recording.helion.grid import Slot, slots_of


@dataclass(frozen=True, slots=True)
class KernelDescription:
    """A kernel's configuration space on a named GPU, found without one.

    Attributes:
        kernel: its name; shape: of the script; gpu: the GPU's key.
        slots: entries of a configuration, with what Helion's search would try.
        default: Helion's default configuration; seeds: those its search would start from.
        drawn: random configurations that Helion's search would draw.
    """

    kernel: str
    shape: str
    gpu: str
    slots: tuple[Slot, ...]
    default: Mapping[str, Any]
    seeds: tuple[Mapping[str, Any], ...]
    drawn: tuple[Mapping[str, Any], ...]


def describe_kernel(
    script: Path, gpu: str, shape: str | None = None, *, draw: int = 0, seed: int = 0
) -> KernelDescription:
    """Bind a kernel script's kernel for a GPU that is not there.

    Args:
        script: see :mod:`llamea_gpu.frameworks.helion.kernel_script`.
        gpu: "B200", "H200", "H100" or "A100".
        shape: one of the script's shapes.
        draw: how many random configurations to draw; fewer when Helion's draws repeat.
        seed: of those.

    Raises:
        RecordingError: the script does not fit. SpaceError: an unknown GPU.
    """
    with pretend_gpu(gpu) as pretended:
        case = pretended.load_case(script, shape)
        bound = pretended.bind(case.kernel, case.arguments)
        spec = bound.config_spec
        default = dict(spec.default_config().config)
        # Distinct once the default has filled in what a seed leaves open.
        seeds = {repr(whole): whole for c in _seeds(spec) if (whole := {**default, **c.config})}
        return KernelDescription(
            case.name,
            case.shape,
            gpu,
            slots_of(bound),
            default,
            tuple(seeds.values()),
            tuple(_drawn(spec, draw, seed)),
        )


def static_reports(
    script: Path,
    gpu: str,
    configs: Sequence[Mapping[str, Any]],
    shape: str | None = None,
    *,
    workers: int = 1,
    timeout_s: float = 60.0,
) -> list[StaticReport]:
    """Compile configurations for a GPU that is not there; one report each, in order.

    A configuration that hangs (``timeout_s``), crashes the compiler or is refused has a report
    that does not fit and says why.

    Raises:
        RecordingError: the script does not fit, or compiling does not start.
    """
    reports: dict[int, StaticReport] = {}
    with tempfile.TemporaryDirectory(prefix="llamea-gpu-static-") as folder:
        stage = StaticStage(script, shape, gpu, Path(folder))
        limits = Limits(timing_s=timeout_s)
        tasks = [Task(i, dict(config)) for i, config in enumerate(configs)]
        with (
            Template(PRELOAD, Path(folder) / "template.log") as template,
            Pipeline([stage] * workers, [], Path(folder), limits, template) as pipeline,
        ):
            for outcome in pipeline.run(tasks):
                reports[outcome.point] = _report(gpu, outcome)
    return [reports[i] for i in range(len(configs))]


@dataclass(frozen=True, slots=True)
class StaticStage:
    """Compile for a GPU that is not there; a task is a configuration."""

    script: Path
    shape: str | None
    gpu: str
    folder: Path

    def run(self, channel: Channel) -> None:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        set_caches(self.folder)
        with pretend_gpu(self.gpu) as gpu:
            case = gpu.load_case(self.script, self.shape)
            bound = gpu.bind(case.kernel, case.arguments)

            def handle(config: Mapping[str, Any]) -> Mapping[str, Any]:
                return {
                    "status": "ok",
                    "report": asdict(gpu.compile(bound, case.arguments, config)),
                }

            channel.serve({}, handle)


def _report(gpu: str, outcome: Outcome) -> StaticReport:
    if "report" in outcome.details:
        return StaticReport(**outcome.details["report"])
    return StaticReport(gpu, False, f"{outcome.status}: {outcome.details.get('message', '')}")


def _seeds(spec: Any) -> list[Any]:
    """The configurations that Helion's compiler proposes; none before 1.5."""
    return list(getattr(spec, "compiler_seed_configs", None) or ())


def _drawn(spec: Any, count: int, seed: int) -> list[dict[str, Any]]:
    generation = spec.create_config_generation()
    state = random.getstate()  # Helion draws from the global generator
    random.seed(seed)
    try:
        configs: dict[str, dict[str, Any]] = {}
        for _ in range(20 * count):
            config = generation.unflatten(generation.random_flat())
            configs.setdefault(repr(config), dict(config.config))
            if len(configs) == count:
                break
        return list(configs.values())
    finally:
        random.setstate(state)
