"""Helion kernels for a GPU that is not there: their configuration spaces, and what compiles.

Inside :func:`pretend_gpu` torch, inductor and Triton answer questions about the device with the
properties of the named GPU, and tensors "on" it are fake: shapes without storage. That is enough
for Helion to bind a kernel (its configuration space, its default and seed configurations), to
generate Triton code and to compile it to that GPU's machine code, which says how many registers
and how much shared memory a configuration needs and whether it can be launched at all.

Nothing is launched and nothing is timed: what comes out is STATIC, never a measurement. Only
NVIDIA GPUs, and only Helion's Triton backend. One pretended GPU at a time in a process, and not
beside work on a real one: the patches hold for the whole process.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from llamea_gpu.errors import SpaceError
from llamea_gpu.frameworks.helion.compiling import (
    ConfigurationRefusedError,
    Resources,
    compile_configuration,
)
from llamea_gpu.frameworks.helion.kernel_script import KernelCase, load_case

KIB = 1024
GIB = 1024**3
MAX_THREADS_A_BLOCK = 1024
_TMA_ALIGNMENT = 16  # bytes, of the address in a tensor descriptor
TENSOR_MEMORY_COLUMNS = 512  # of one multiprocessor, compute capability 10.0


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What software asks a GPU about itself (CUDA C++ Programming Guide and data sheets).

    Attributes:
        name: as the driver reports it.
        capability: compute capability, (major, minor).
        multiprocessors: streaming multiprocessors.
        shared_bytes_a_block: the most shared memory that one block can opt in to.
        shared_bytes_a_multiprocessor: shared memory of one multiprocessor.
        l2_bytes: level-2 cache.
        memory_bytes: device memory.
        registers: 32-bit registers of one multiprocessor, also the most for one block.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes_a_block: int
    shared_bytes_a_multiprocessor: int
    l2_bytes: int
    memory_bytes: int
    registers: int = 65_536

    @property
    def short_name(self) -> str:
        """Its key in `GPUS`, or its name where it is not there."""
        return next((key for key, facts in GPUS.items() if facts == self), self.name)

    @property
    def arch(self) -> int:
        """Compute capability as one number: 90 for 9.0."""
        return 10 * self.capability[0] + self.capability[1]


def facts_of_device(device: Any) -> GpuFacts:
    """What a GPU in this machine says of itself."""
    import torch

    properties: Any = torch.cuda.get_device_properties(device)
    return GpuFacts(
        properties.name,
        (properties.major, properties.minor),
        properties.multi_processor_count,
        properties.shared_memory_per_block_optin,
        properties.shared_memory_per_multiprocessor,
        properties.L2_cache_size,
        properties.total_memory,
        properties.regs_per_multiprocessor,
    )


GPUS: Mapping[str, GpuFacts] = {
    "B200": GpuFacts("NVIDIA B200", (10, 0), 148, 227 * KIB, 228 * KIB, 126 << 20, 180 * GIB),
    "H200": GpuFacts("NVIDIA H200", (9, 0), 132, 227 * KIB, 228 * KIB, 50 << 20, 141 * GIB),
    "H100": GpuFacts(
        "NVIDIA H100 80GB HBM3", (9, 0), 132, 227 * KIB, 228 * KIB, 50 << 20, 80 * GIB
    ),
    "A100": GpuFacts(
        "NVIDIA A100-SXM4-80GB", (8, 0), 108, 163 * KIB, 164 * KIB, 40 << 20, 80 * GIB
    ),
}


@dataclass(frozen=True, slots=True)
class StaticReport(Resources):
    """What compiling one configuration for a GPU tells without one. Not a measurement.

    Attributes:
        gpu: the GPU compiled for.
        fits: whether a block of it can be launched there.
        reason: why not; empty when it fits.
    """

    gpu: str
    fits: bool
    reason: str


class FakeArguments:
    """Kernels bound to tensors without storage, on the GPU that torch reports.

    That is the one of :func:`pretend_gpu` inside its ``with`` block, else a real one.
    """

    def __init__(self) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        self._fake_mode = FakeTensorMode(allow_non_fake_inputs=True)

    @contextlib.contextmanager
    def fake_tensors(self) -> Iterator[None]:
        """Tensors made inside are fake and, unless told otherwise, on the GPU."""
        import torch

        with self._fake_mode, torch.device("cuda", 0):
            yield

    def load_case(self, script: Path, shape: str | None = None) -> KernelCase:
        """A kernel script's case with fake arguments on the GPU.

        Raises:
            RecordingError: as `llamea_gpu.frameworks.helion.kernel_script.load_case`; also when the
                script needs the values of its tensors, because fake ones have none.
        """
        # Made on the CPU and moved: a CPU build of torch cannot make every tensor on a GPU.
        with self._fake_mode:
            case = load_case(script, shape)
            return replace(case, arguments=tuple(_on_gpu(a) for a in case.arguments))

    def like(self, arguments: Any) -> Any:
        """Arguments with fake tensors in the place of theirs, which are not read."""
        from torch.utils._pytree import tree_map

        with self._fake_mode:
            return tree_map(_fake, arguments)

    def bind(self, kernel: Any, arguments: Sequence[object]) -> Any:
        """The kernel bound to fake arguments: a ``helion.runtime.kernel.BoundKernel``.

        Its ``config_spec`` is the configuration space that Helion would search on the GPU, and its
        code that which it generates for arguments with storage.
        """
        kernel.reset()  # what it was bound to before was bound for another GPU
        with _aligned_as_allocated():
            return kernel.bind(tuple(arguments))


class PretendedGpu(FakeArguments):
    """The GPU that :func:`pretend_gpu` stands in for; valid inside its ``with`` block only."""

    def __init__(self, facts: GpuFacts) -> None:
        super().__init__()
        self.facts = facts

    def compile(
        self, bound: Any, arguments: Sequence[object], config: Mapping[str, Any]
    ) -> StaticReport:
        """Compile one configuration to machine code and read off what it needs.

        A configuration that does not compile gives a report that says why, not an exception. Some
        make the compiler hang or abort: ``static_filter.static_reports`` survives those.
        """
        try:
            with self.fake_tensors():
                kernels = compile_configuration(bound, tuple(arguments), config)
        except ConfigurationRefusedError as failure:
            return StaticReport(self.facts.short_name, False, str(failure))
        needs = Resources.of(kernels)
        reason = _why_not(self.facts, needs)
        return StaticReport(self.facts.short_name, not reason, reason, **asdict(needs))


@contextlib.contextmanager
def pretend_gpu(gpu: str | GpuFacts) -> Iterator[PretendedGpu]:
    """Answer as if ``gpu`` ("B200", "H200", "H100", "A100", or its facts) were in this machine.

    Everything is put back at the end, also after an exception.

    Raises:
        SpaceError: an unknown GPU, or a GPU is pretended already.
    """
    if isinstance(gpu, str):
        if gpu not in GPUS:
            raise SpaceError(f"the GPU must be one of {sorted(GPUS)}, but got {gpu!r}")
        gpu = GPUS[gpu]
    if _active:
        raise SpaceError(f"one GPU can be pretended at a time, but {_active[0]} already is")
    _active.append(gpu.short_name)
    try:
        with _patched(gpu):
            _forget_devices()
            yield PretendedGpu(gpu)
    finally:
        _active.clear()
        _forget_devices()


_active: list[str] = []


@contextlib.contextmanager
def _patched(facts: GpuFacts) -> Iterator[None]:
    import torch
    import triton
    from torch._inductor.runtime.hints import DeviceProperties
    from torch._subclasses import fake_tensor

    properties = _device_properties(facts)
    major, minor = facts.capability
    seen_by_inductor = DeviceProperties(
        type="cuda",
        index=0,
        multi_processor_count=facts.multiprocessors,
        cc=facts.arch,
        major=major,
        regs_per_multiprocessor=facts.registers,
        max_threads_per_multi_processor=2048,
        warp_size=32,
    )
    answers = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda _device=None: (major, minor),
        "get_device_properties": lambda _device=None: properties,
        "get_device_name": lambda _device=None: facts.name,
        "synchronize": lambda *_arguments, **_options: None,
    }
    previous = triton.runtime.driver._active
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        version = torch.version.cuda or "13.0"  # a CPU build of torch names none
        stack.enter_context(mock.patch.object(torch.version, "cuda", version))
        # It makes a real tensor, which a fork of a process that uses the GPU cannot.
        stack.enter_context(mock.patch.object(fake_tensor, "init_gpu_context"))
        create = classmethod(lambda _class, _device: seen_by_inductor)
        stack.enter_context(mock.patch.object(DeviceProperties, "create", create))
        triton.runtime.driver.set_active(_PretendedDriver(facts))
        try:
            yield
        finally:
            triton.runtime.driver._active = previous


@contextlib.contextmanager
def _aligned_as_allocated() -> Iterator[None]:
    """Have Helion take a fake tensor for one that the allocator made, at a multiple of 512 bytes.

    A tensor descriptor needs an aligned address. Helion (from 1.5 on) asks the tensors that a
    kernel is bound to, takes fake ones for unaligned, and loads through pointers in their place.
    """
    from helion._compiler import compile_environment
    from torch._subclasses.fake_tensor import FakeTensor

    name = "tensor_descriptor_runtime_alignment_signature"
    original = getattr(compile_environment, name, None)
    if original is None:
        yield
        return

    def answer(value: object) -> tuple[bool, bool]:
        if not isinstance(value, FakeTensor):
            signature: tuple[bool, bool] = original(value)
            return signature
        offset = int(value.storage_offset())
        return offset * value.element_size() % _TMA_ALIGNMENT == 0, offset == 0

    with mock.patch.object(compile_environment, name, answer):
        yield


def _device_properties(facts: GpuFacts) -> types.SimpleNamespace:
    """What ``torch.cuda.get_device_properties`` returns."""
    return types.SimpleNamespace(
        name=facts.name,
        major=facts.capability[0],
        minor=facts.capability[1],
        multi_processor_count=facts.multiprocessors,
        total_memory=facts.memory_bytes,
        shared_memory_per_block=48 * KIB,
        shared_memory_per_block_optin=facts.shared_bytes_a_block,
        shared_memory_per_multiprocessor=facts.shared_bytes_a_multiprocessor,
        regs_per_multiprocessor=facts.registers,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=MAX_THREADS_A_BLOCK,
        L2_cache_size=facts.l2_bytes,
        gcnArchName="",
        is_integrated=0,
        is_multi_gpu_board=0,
    )


class _PretendedDriver:
    """As much of a Triton driver as compiling asks for."""

    def __init__(self, facts: GpuFacts) -> None:
        properties = {
            "max_shared_mem": facts.shared_bytes_a_block,
            "multiprocessor_count": facts.multiprocessors,
            "max_num_regs": facts.registers,
            "warpSize": 32,
        }
        self._arch = facts.arch
        self.utils = types.SimpleNamespace(get_device_properties=lambda _device: properties)

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._arch, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: object = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)


def _on_gpu(value: Any) -> Any:
    """A fake tensor with the same shape and strides on the GPU; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cuda:0")


def _fake(value: Any) -> Any:
    """A fake tensor with a tensor's place in its storage, on the GPU; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    count = value.untyped_storage().nbytes() // value.element_size()
    storage = torch.empty(count, dtype=value.dtype, device="cuda:0")
    return storage.as_strided(value.size(), value.stride(), value.storage_offset())


def _forget_devices() -> None:
    """Empty Helion's caches of facts about the device."""
    import helion._compat
    import helion._hardware

    for module in (helion._compat, helion._hardware):
        for value in vars(module).values():
            clear = getattr(value, "cache_clear", None)
            if clear is not None:
                clear()


def _why_not(facts: GpuFacts, needs: Resources) -> str:
    """Why a block cannot be launched; empty when it can."""
    threads = 32 * needs.num_warps
    # Registers are handed out a warp at a time, in units of 8 a thread.
    registers = -(-needs.registers // 8) * 8 * threads
    for needed, most, resource in (
        (needs.shared_bytes, facts.shared_bytes_a_block, "bytes of shared memory a block"),
        (threads, MAX_THREADS_A_BLOCK, "threads a block"),
        (registers, facts.registers, "registers a block"),
        (needs.tensor_memory_columns, TENSOR_MEMORY_COLUMNS, "columns of tensor memory"),
    ):
        if needed > most:
            return f"needs {needed} {resource}, but there are {most}"
    return ""
