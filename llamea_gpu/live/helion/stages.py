"""The engine's two stages for a kernel that is being tuned in the user's process.

Compiling runs in forks of that process: they have the bound kernel in memory, and as CUDA does not
survive a fork they answer questions about the GPU from notes. Timing runs in processes of its own,
which are given copies of the arguments and what is right in a file: whatever a configuration does
to its process or to its CUDA context, the user's process is not touched.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import IO, Any

from llamea_gpu.engine.worker import Channel, Result
from llamea_gpu.frameworks.helion.stages import COMPILING_NICE, Compiler
from llamea_gpu.frameworks.helion.static import GpuFacts, pretend_gpu
from llamea_gpu.frameworks.helion.timing import Bench, tensors, time_call

_POLL_S = 0.005
# As Helion sets them in its own process while it tunes.
_WHILE_TUNING = {"TRITON_LOCAL_BUILD": "1", "TRITON_STORE_BINARY_ONLY": "1"}


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
        os.environ.update(_WHILE_TUNING)
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


def correct_result(provider: Any) -> CorrectResult:
    """What a provider of Helion's has found to be right."""
    return CorrectResult(
        absolute=provider._effective_atol,
        relative=provider._effective_rtol,
        scaled=getattr(provider, "_scale_atol", False),
        changed=tuple(provider.mutated_arg_indices),
        checked=provider.settings.autotune_accuracy_check,
        arguments_checked=os.getenv("CHECK_INPUT_ACCURACY", "1") == "1",
    )


@dataclass(frozen=True, slots=True)
class TimingData:
    """What a timing process is given of the user's process beside the arguments, as one file.

    Attributes:
        expected: the right result.
        changed: the arguments after a right call; None where it changes none.
        right: how results are compared.
        modules: names and files of modules that generated code imports and a fresh process may not
            find.
        environment: variables of the user's process that compilers read.
    """

    expected: Any
    changed: Any
    right: CorrectResult
    modules: tuple[tuple[str, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def save(payload: Any, path: Path) -> None:
    """Write arguments or `TimingData` for :class:`ArgumentsTimingStage`, whole or not at all.

    Raises:
        Exception: what pickling raises for an argument that it cannot take.
    """
    import torch

    draft = path.with_suffix(".draft")
    torch.save(payload, draft)
    draft.replace(path)


@dataclass(frozen=True, slots=True)
class ArgumentsTimingStage:
    """Check and time compiled configurations on copies of the user's arguments.

    It may be started before these are there: it makes CUDA ready meanwhile, and loads each as it
    comes. Its facts have ``opened_s``: seconds by step.

    Attributes:
        name: of the function that generated code defines.
        arguments: a file of them, or one to come; data: the same of :class:`TimingData`.
        device: as PyTorch calls it, "cuda:0".
        environment: variables of the user's process that CUDA and compilers read.
    """

    name: str
    arguments: Path
    data: Path
    device: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, channel: Channel) -> None:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        steps = Steps()
        os.environ.update(self.environment)
        import torch
        from helion.autotuner.precompile_future import _register_source_module

        steps.end("imports")
        keys = Thread(target=work_out_keys)  # the processor does this, CUDA's start waits
        keys.start()
        torch.cuda.set_device(self.device)
        warm_up_timing(self.device)
        steps.end("cuda")
        arguments = self._loaded(self.arguments)
        steps.end("arguments")
        data: TimingData = self._loaded(self.data)
        os.environ.update(data.environment)
        for name, file in data.modules:
            _register_source_module(name, file)
        torch.cuda.synchronize()
        steps.end("what is right")
        keys.join()
        serve_timing(channel, self.name, arguments, data, steps, self.data.parent)

    def _loaded(self, path: Path) -> Any:
        """What a file holds, once it is there; this process ends with its owner."""
        import torch

        while not path.exists():
            sleep(_POLL_S)
        # Written by the owner of this process into a folder that is its own.
        return torch.load(path, map_location=self.device, weights_only=False)


def serve_timing(
    channel: Channel,
    name: str,
    arguments: Any,
    data: TimingData,
    steps: Steps,
    folder: Path,
) -> None:
    """Check and time what is compiled, and read the best again, until the owner has gone.

    The first code that works is named in ``folder``: a process that stands by goes through it
    before it says that it is open, so that what it is given first takes as long as the rest. The
    processes of one device share a lock, so that this disturbs no reading.

    Raises:
        RuntimeError: CUDA does not survive code that works, so this process is of no use.
    """
    bench = Bench(
        name,
        lambda: _copied(arguments, data.right.changed),
        tensors(data.expected),
        lambda result, call_arguments: _difference(result, call_arguments, data),
    )
    known, lock = folder / "works", (folder / "device").open("a")
    if known.exists():
        path = Path(known.read_text(encoding="utf-8"))
        bench.load(path)
        with _held(lock):
            if bench.timed({"path": path, "give_up_ms": 0.0}).get("broken"):
                raise RuntimeError(f"{path}: it worked before")
        steps.end("rehearsal")

    def handle(task: Mapping[str, Any]) -> Result:
        with _held(lock):
            report = bench.compared(task) if "paths" in task else bench.timed(task)
        if report["status"] == "ok" and "path" in task and not known.exists():
            draft = known.with_suffix(f".{os.getpid()}")
            draft.write_text(str(task["path"]), encoding="utf-8")
            draft.replace(known)
        return report

    with lock:
        channel.serve({"opened_s": dict(steps.seconds), "pid": os.getpid()}, handle)


@contextmanager
def _held(lock: IO[str]) -> Iterator[None]:
    """Alone among the processes of one device; one that dies lets go of it."""
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


class Steps:
    """Seconds between one call of `end` and the next, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = monotonic()

    def end(self, name: str) -> None:
        """Note the seconds of a step that is done."""
        now = monotonic()
        self.seconds[name] = round(now - self._since, 3)
        self._since = now


def work_out_keys() -> None:
    """Have Triton work out what the keys of its cache begin with: a hash of all of its own code.

    That takes it most of a second, and would be part of the first launch.
    """
    from triton.compiler import compiler
    from triton.runtime import cache

    for module in (cache, compiler):  # where it is depends on the version
        if hasattr(module, "triton_key"):
            module.triton_key()
            return


def warm_up_timing(device: str) -> None:
    """Have CUDA load what checking and timing use, which takes it most of a second."""
    import torch
    from helion.autotuner.accuracy import assert_close

    for kind in (torch.float32, torch.float16, torch.bfloat16):
        ones = torch.ones(1 << 10, dtype=kind, device=device)
        assert_close(ones, torch.full_like(ones, 1.0), atol=1e-2, rtol=1e-2)
    time_call(lambda: ones.add_(0))


def _difference(result: Any, arguments: Sequence[Any], data: TimingData) -> str:
    from helion.autotuner.accuracy import assert_close

    criterion = data.right
    pairs = [(result, data.expected)] if criterion.checked else []
    if criterion.checked and criterion.changed and criterion.arguments_checked:
        pairs.append((arguments, data.changed))
    options = {"scale_atol_by_expected_rms": True} if criterion.scaled else {}
    try:
        for actual, expected in pairs:
            assert_close(
                actual, expected, atol=criterion.absolute, rtol=criterion.relative, **options
            )
    except AssertionError as error:
        return " ".join(str(error).split())[:300] or "differs from the baseline"
    return ""


def _copied(arguments: Any, places: Sequence[int]) -> Any:
    """The arguments, with copies of the tensors at these places among their leaves."""
    if not places:
        return arguments
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, shape = tree_flatten(arguments)
    for place in places:
        leaves[place] = leaves[place].clone()
    return tree_unflatten(leaves, shape)
