"""Tuning a live Helion kernel on the GPUs of a cluster's nodes.

What it does: binds the kernel in this process for a GPU that one of the nodes describes, opens the
engines of their GPUs, and stands in for Helion's benchmark provider: the search runs here, what it
submits is compiled and timed there. This process needs no GPU.

What it does not do: launch anything here. Where no GPU is left, the search ends with what it has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from llamea_gpu.cluster.connection import connected
from llamea_gpu.cluster.engine import DEVICE, EngineSpec, Script
from llamea_gpu.cluster.facts import installed
from llamea_gpu.cluster.pipeline import ClusterPipeline, find_gpus, run_on
from llamea_gpu.engine.finalists import LEAST_READING_S, compiled_and_read
from llamea_gpu.engine.side_by_side import Standing
from llamea_gpu.errors import RecordingError, SearcherError
from llamea_gpu.frameworks.helion.kernel_script import KernelCase
from llamea_gpu.frameworks.helion.stages import PRELOAD
from llamea_gpu.frameworks.helion.static import facts_of_device, pretend_gpu
from llamea_gpu.live.helion.config_engine import ConfigEngine
from llamea_gpu.live.helion.engine import HOPELESS, limits_of, spares_for, why_not
from llamea_gpu.live.helion.nodes import stages_on_node
from llamea_gpu.live.helion.streamed import StreamedProvider
from llamea_gpu.live.result import TuneSettings

_LOADING_S = 3.0  # for compiling, on the node that reads the best, those that others have compiled
_READING_PATIENCE_S = 60.0  # the same, where compiling them takes longer
_ENVIRONMENT = "HELION_"  # variables that say what a kernel's settings are


class ClusterEngine(ConfigEngine):
    """Has configurations measured by an open pipeline of a cluster, which its owner ends."""

    _pipeline: ClusterPipeline

    def __init__(self, pipeline: ClusterPipeline) -> None:
        super().__init__()
        self._pipeline = pipeline

    def read_again(self, configs: Sequence[Any], deadline: float) -> list[Standing] | None:
        """See `ConfigEngine.read_again`: on one GPU, so that times compare."""
        self._forget()
        seconds = max(LEAST_READING_S, deadline - monotonic())
        work = partial(compiled_and_read, [dict(config.config) for config in configs], seconds)
        return self._pipeline.on_one(work, seconds + _READING_PATIENCE_S)

    def end_compiling(self) -> None:
        """See `ConfigEngine.end_compiling`."""
        self._pipeline.forget()
        self._forget()


class ClusterProvider(StreamedProvider):
    """Helion's provider by the engines of a cluster; what is right is known on its nodes alone."""

    measures_here = False
    loading_s = _LOADING_S

    def __init__(self, *, pipeline: ClusterPipeline, gpus: int, **arguments: Any) -> None:
        self._pipeline, self.gpus = pipeline, gpus
        super().__init__(**arguments)

    def setup(self) -> None:
        """Nothing: the engines are ready."""

    def read_again(self, configs: Sequence[Any], deadline: float) -> list[Standing] | None:
        """See `StreamedProvider.read_again`; None where no GPU is left, too."""
        try:
            return super().read_again(configs, deadline)
        except RecordingError as error:
            self.log.warning(f"{error}")
            return None

    def _started(self, arguments: Mapping[str, Any]) -> ClusterEngine:
        del arguments  # the nodes make their own
        return ClusterEngine(self._pipeline)

    def _compute_baseline(self) -> tuple[object, Sequence[int], None]:
        return None, (), None

    def _decide_num_jobs(self) -> int:
        return self.compilers


@contextmanager
def opened_on_cluster(
    script: Path, settings: TuneSettings
) -> Iterator[tuple[Any, KernelCase, Callable[..., ClusterProvider]]]:
    """The kernel of a script, bound here, its case, and what makes a provider that measures there.

    Meanwhile this process answers questions about its GPU as a node's would.

    Raises:
        SearcherError: an option that a cluster has not, or a kernel that cannot be measured there.
        RecordingError: the script does not load, here or there, or no engine starts.
        ClusterError: the cluster cannot be reached, or has no GPU, or several kinds.
    """
    _refuse_options(settings)
    with ExitStack() as stack:
        stack.enter_context(connected(settings.cluster))
        gpus = find_gpus(settings.gpu)
        facts = run_on(gpus, facts_of_device, DEVICE)
        gpu = stack.enter_context(pretend_gpu(facts))
        case = gpu.load_case(script, settings.shape)
        bound = gpu.bind(case.kernel, case.arguments)
        if reason := why_not(bound, bound.settings, case.arguments):
            raise SearcherError(f"{case.name} cannot be measured on a cluster: {reason}")
        compilers = max(1, gpus.cores - 1)
        seconds = [settings.seconds, bound.settings.autotune_budget_seconds]
        spec = EngineSpec(
            partial(stages_on_node, Script.of(script), settings.shape, compilers),
            limits_of(bound.settings, min((s for s in seconds if s is not None), default=None)),
            PRELOAD,
            exclusive=True,
            versions=installed(PRELOAD),
            environment={k: v for k, v in os.environ.items() if k.startswith(_ENVIRONMENT)},
            options={
                "spares": spares_for(case.arguments, facts.memory_bytes),
                "deduplicate": True,
                "hopeless": HOPELESS,
            },
        )
        pipeline = stack.enter_context(ClusterPipeline(spec, gpus, compilers))
        pipeline.facts()  # a budget of seconds begins when all are ready
        everywhere = gpus.count * compilers
        yield (
            bound,
            case,
            partial(ClusterProvider, pipeline=pipeline, gpus=gpus.count, compilers=everywhere),
        )


def _refuse_options(settings: TuneSettings) -> None:
    if settings.engine != "pipelined":
        raise SearcherError(
            f"on a cluster the engine must be 'pipelined', but got {settings.engine!r}: leave it "
            f"out"
        )
    if settings.device:
        raise SearcherError(
            f"on a cluster all GPUs of a kind are used, but got device {settings.device}: leave it "
            f"out"
        )
