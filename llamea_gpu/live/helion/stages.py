"""The engine's two stages for a kernel that is being tuned in the user's process.

Compiling runs in forks of that process: they have the bound kernel in memory, and as CUDA does not
survive a fork they answer questions about the GPU from notes. Timing runs in processes of its own,
which are given copies of the arguments and what is right in a file: whatever a configuration does
to its process or to its CUDA context, the user's process is not touched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llamea_gpu.engine.worker import Channel
from llamea_gpu.frameworks.helion.stages import COMPILING_NICE, Compiler
from llamea_gpu.frameworks.helion.static import GpuFacts, pretend_gpu
from llamea_gpu.frameworks.helion.timing import Bench, tensors


@dataclass(frozen=True)
class BoundCompileStage:
    """Compile configurations of a kernel that is bound already; not picklable.

    Attributes:
        bound: the ``BoundKernel``.
        arguments: what it is to be launched with.
        folder: for generated code.
        gpu: facts about the arguments' GPU.
    """

    bound: Any
    arguments: Sequence[Any]
    folder: Path
    gpu: GpuFacts

    def run(self, channel: Channel) -> None:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        os.nice(COMPILING_NICE)
        with pretend_gpu(self.gpu) as gpu:
            fakes = gpu.like(tuple(self.arguments))
            name = self.bound.kernel.name
            channel.serve({}, Compiler(gpu, self.bound, name, fakes, self.folder))


@dataclass(frozen=True, slots=True)
class CorrectResult:
    """What Helion holds to be right, and how far from it a result may be.

    Attributes:
        absolute, relative: tolerances.
        scaled: whether the absolute one grows with the expected tensor (Helion 1.5).
        changed: places of the arguments' tensors that the kernel changes, among all leaves.
        checked: whether results are compared at all.
        arguments_checked: whether changed arguments are compared, too.
    """

    absolute: float
    relative: float
    scaled: bool
    changed: tuple[int, ...] = ()
    checked: bool = True
    arguments_checked: bool = True


@dataclass(frozen=True, slots=True)
class ArgumentsTimingStage:
    """Check and time compiled configurations on copies of the user's arguments.

    Attributes:
        name: of the function that generated code defines.
        data: a file of :func:`save_arguments`.
        right: how results are compared.
        device: index of the GPU, as CUDA counts them.
        modules: names and files of modules that generated code imports and a fresh process may not
            find.
        environment: variables of the user's process that compilers read.
    """

    name: str
    data: Path
    right: CorrectResult
    device: int
    modules: tuple[tuple[str, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, channel: Channel) -> None:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        os.environ.update(self.environment)
        import torch
        from helion.autotuner.precompile_future import _register_source_module

        for name, file in self.modules:
            _register_source_module(name, file)
        torch.cuda.set_device(self.device)
        # Written by the owner of this process into a folder that is its own.
        data = torch.load(self.data, map_location=f"cuda:{self.device}", weights_only=False)
        bench = Bench(
            self.name,
            lambda: _copied(data["arguments"], self.right.changed),
            tensors(data["expected"]),
            lambda result, arguments: self._difference(result, arguments, data),
        )
        torch.cuda.synchronize()
        channel.serve({}, bench.timed)

    def _difference(self, result: Any, arguments: Sequence[Any], data: Mapping[str, Any]) -> str:
        from helion.autotuner.accuracy import assert_close

        right = self.right
        pairs = [(result, data["expected"])] if right.checked else []
        if right.checked and right.changed and right.arguments_checked:
            pairs.append((arguments, data["changed"]))
        options = {"scale_atol_by_expected_rms": True} if right.scaled else {}
        try:
            for found, expected in pairs:
                assert_close(found, expected, atol=right.absolute, rtol=right.relative, **options)
        except AssertionError as error:
            return " ".join(str(error).split())[:300] or "differs from the baseline"
        return ""


def save_arguments(file: Path, arguments: Any, expected: Any, changed: Any) -> None:
    """Write what :class:`ArgumentsTimingStage` reads.

    Args:
        file: where.
        arguments: of the kernel.
        expected: its right result.
        changed: the arguments after a right call; None where it changes none.

    Raises:
        Exception: what pickling raises for an argument that it cannot take.
    """
    import torch

    torch.save({"arguments": arguments, "expected": expected, "changed": changed}, file)


def _copied(arguments: Any, places: Sequence[int]) -> Any:
    """The arguments, with copies of the tensors at these places among their leaves."""
    if not places:
        return arguments
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, shape = tree_flatten(arguments)
    for place in places:
        leaves[place] = leaves[place].clone()
    return tree_unflatten(leaves, shape)
