"""What goes on on the nodes of a cluster where a Helion kernel is tuned on their GPUs.

What it does: says what the engine of one GPU is made of, and computes there what is right, as
Helion would in the user's process.

What it does not do: import PyTorch or Helion in the process of a node's engine; its children do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamea_gpu.cluster.engine import DEVICE, Script, Stages
from llamea_gpu.engine.worker import Channel
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.kernel_script import load_case
from llamea_gpu.frameworks.helion.stages import CompileStage, set_caches
from llamea_gpu.live.helion.stages import (
    Steps,
    TimingData,
    correct_result,
    serve_timing,
    warm_up_timing,
)


def stages_on_node(script: Script, shape: str | None, compilers: int, folder: Path) -> Stages:
    """Of the engine of one GPU; called on its node.

    Raises:
        RecordingError: the node lacks the script, or has another one.
    """
    path = script.here()
    return (
        [CompileStage(path, shape, folder)] * compilers,
        [ScriptTimingStage(path, shape, folder, DEVICE)],
    )


@dataclass(frozen=True, slots=True)
class ScriptTimingStage:
    """Check and time compiled configurations of a script's kernel on this machine's GPU.

    What is right is what Helion finds to be right: the result of its reference configuration, or of
    the kernel's ``autotune_baseline_fn``, with its tolerances. Arguments that the kernel changes
    are given anew to each. Its facts have ``opened_s``: seconds by step.

    Attributes:
        script, shape: the kernel.
        folder: where the other stage leaves code.
        device: index of the GPU, as CUDA counts them.
    """

    script: Path
    shape: str | None
    folder: Path
    device: int = DEVICE

    def run(self, channel: Channel) -> None:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        steps = Steps()
        # What is compiled here may be asked for later: then it is to be compiled as all others.
        set_caches(self.folder / f"right-{self.device}")
        import torch

        device = f"cuda:{self.device}"
        torch.cuda.set_device(device)
        warm_up_timing(device)
        steps.end("cuda")
        with torch.device(device):
            case = load_case(self.script, self.shape)
        steps.end("arguments")
        data = what_is_right(case.kernel.bind(case.arguments), case.arguments)
        set_caches(self.folder)
        steps.end("what is right")
        serve_timing(channel, case.name, case.arguments, data, steps, self.folder)


def what_is_right(bound: Any, arguments: Sequence[Any]) -> TimingData:
    """What Helion's own provider computes before it measures, in this process.

    Raises:
        RecordingError: the reference configuration does not run.
    """
    from llamea_gpu.live.helion.runtime import helion_search

    search = helion_search("Right", object, {}, "")(bound, arguments)
    try:
        search._prepare()
    except Exception as error:  # whatever a compiler, a launch or a user's function raises
        raise RecordingError(
            f"the configuration that says what is right must run, but {bound.kernel.name}: "
            f"{type(error).__name__}: {error}"
        ) from error
    provider = search.benchmark_provider
    criterion = correct_result(provider)
    return TimingData(provider._baseline_output, provider._baseline_post_args, criterion)
