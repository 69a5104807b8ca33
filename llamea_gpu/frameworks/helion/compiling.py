"""One Helion configuration to Triton code, and to machine code without launching it.

The steps that Helion takes for a launch, cut before the launch: generate the code, load it, let the
generated host function work out its launch, and hand that to Triton as a warm-up. What Triton
compiles lands in its cache on disk under the same key as at a real launch, so that another process
that launches the same code finds it there.

Arguments may be fake tensors (run under their ``FakeTensorMode``). It times nothing.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from llamea_gpu.errors import LlameaGpuError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_HEAD, _TAIL = 100, 300  # characters of a long message
_names = itertools.count()


class ConfigurationRefusedError(LlameaGpuError):
    """A configuration that Helion or Triton refuses: data to a recorder, not a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What compiled kernels need, each the most that any of them does.

    Attributes:
        registers: a thread; spill_bytes: local memory a thread uses, spilled registers included.
        shared_bytes: shared memory of one block.
        tensor_memory_columns: tensor memory of one block (compute capability 10.0).
        num_warps: warps of one block, as compiled: warp specialization adds some.
    """

    registers: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0
    tensor_memory_columns: int = 0
    num_warps: int = 0

    @classmethod
    def of(cls, kernels: Sequence[Any]) -> Resources:
        """Of Triton's ``CompiledKernel``s; asks the disassembler that Triton ships."""
        resources = [_resources(kernel) for kernel in kernels]
        return cls(**{name: max(each[name] for each in resources) for name in resources[0]})


def compile_configuration(
    bound: Any, arguments: Sequence[object], config: Mapping[str, object]
) -> tuple[Any, ...]:
    """Triton's ``CompiledKernel``s of a configuration, one for each kernel that it launches.

    Args:
        bound: a ``BoundKernel``.
        arguments: what it was bound to.
        config: a ``helion.Config`` or a mapping that makes one.

    Raises:
        ConfigurationRefusedError: Helion or Triton refuses the configuration.
    """
    source = generate(bound, config)
    with tempfile.TemporaryDirectory(prefix="llamea-helion-") as folder:
        path = Path(folder) / "generated.py"
        path.write_text(source, encoding="utf-8")
        return compile_file(path, bound.kernel.name, arguments)


def compile_file(path: Path, name: str, arguments: Sequence[object]) -> tuple[Any, ...]:
    """Compile generated code in a file: what function ``name`` of it would launch.

    Raises:
        ConfigurationRefusedError: Triton refuses the code.
    """
    with generated_module(path) as module:
        return warm_up(getattr(module, name), arguments)


def generate(bound: Any, config: Mapping[str, object]) -> str:
    """Triton code of a configuration.

    Raises:
        ConfigurationRefusedError: Helion refuses the configuration.
    """
    import helion

    try:
        source: str = bound.to_triton_code(helion.Config(**dict(config)))
    except Exception as error:  # Helion's own errors, and those of torch under it
        refuse_full_disk(error)
        raise ConfigurationRefusedError(_summary(error)) from error
    return source


def source_key(source: str) -> str:
    """A short name for generated code: equal code, equal kernel."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


@contextlib.contextmanager
def generated_module(path: Path) -> Iterator[ModuleType]:
    """Load generated code as a module of its own; forgotten at the end."""
    name = f"_llamea_gpu_generated_{next(_names)}"
    module = load_module(name, path)
    try:
        yield module
    finally:
        sys.modules.pop(name, None)


def load_module(name: str, path: Path) -> ModuleType:
    """Execute a file as module ``name`` and register it; what it raises passes through."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LlameaGpuError(f"a module must be a Python file, but got {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def warm_up(function: Callable[..., object], arguments: Sequence[object]) -> tuple[Any, ...]:
    """Compile what a generated host function would launch: Triton's ``CompiledKernel``s.

    Raises:
        ConfigurationRefusedError: Triton refuses the code.
    """
    from helion.runtime import default_launcher

    compiled: list[Any] = []

    def launch(kernel: Any, grid: tuple[int, ...], *values: object, **options: Any) -> None:
        default_launcher(_WarmUpOnly(kernel, compiled), grid, *values, **options)

    try:
        function(*arguments, _launcher=launch)
    except Exception as error:  # whatever Triton's passes, ptxas or the host function raise
        refuse_full_disk(error)
        raise ConfigurationRefusedError(_summary(error)) from error
    return tuple(compiled)


def refuse_full_disk(error: BaseException) -> None:
    """Tell a full disk from a configuration's fault.

    Raises:
        LlameaGpuError: the error, or one that it came from, is that there is no room.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _NO_ROOM:
            raise LlameaGpuError(
                f"compiling needs room on the disk, but got {cause}: make room in the temporary "
                f"folder, or name another one in TMPDIR"
            ) from error
        cause = cause.__cause__ or cause.__context__


def refuse_unlaunchable(kernel: Any) -> None:
    """What its metadata say of a compiled kernel, before anything is loaded or launched.

    Raises:
        ConfigurationRefusedError: a block needs more shared memory than the device has.
    """
    import triton

    driver = triton.runtime.driver.active
    most = driver.utils.get_device_properties(driver.get_current_device())["max_shared_mem"]
    if kernel.metadata.shared > most:
        raise ConfigurationRefusedError(
            f"needs {kernel.metadata.shared} bytes of shared memory a block, but there are {most}"
        )


class _WarmUpOnly:
    """A Triton kernel that compiles where it would run."""

    def __init__(self, kernel: Any, compiled: list[Any]) -> None:
        self._kernel = kernel
        self._compiled = compiled

    def run(self, *values: object, grid: tuple[int, ...], warmup: bool, **options: Any) -> Any:
        del warmup
        wrapped = [_without_storage(value) for value in values]
        compiled_kernel = self._kernel.run(*wrapped, grid=grid, warmup=True, **options)
        self._compiled.append(compiled_kernel)
        return compiled_kernel


class _Pointer:
    """A tensor as Triton's specialization sees it: a type, an alignment and a range."""

    def __init__(self, tensor: Any) -> None:
        self.dtype = tensor.dtype
        self.shape = tensor.shape
        self.device = tensor.device
        self._offset = tensor.storage_offset() * tensor.element_size()
        self._bytes = tensor.untyped_storage().nbytes()

    def data_ptr(self) -> int:
        # The allocator hands out storage at multiples of 512 bytes.
        return int(self._offset)

    def ptr_range(self) -> int:
        return int(self._bytes)


def _without_storage(value: object) -> object:
    from torch._subclasses.fake_tensor import FakeTensor

    return _Pointer(value) if isinstance(value, FakeTensor) else value


def _summary(error: BaseException) -> str:
    """The error on one line; of a long one its beginning, and its end, which says what is wrong."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if len(text) <= _HEAD + _TAIL:
        return text
    return f"{text[:_HEAD]} ... {text[-_TAIL:]}"


def _resources(kernel: Any) -> dict[str, int]:
    metadata = kernel.metadata
    registers, spill_bytes = _registers_and_spills(kernel.asm["cubin"])
    return {
        "registers": registers,
        "spill_bytes": spill_bytes,
        "shared_bytes": int(metadata.shared),
        "tensor_memory_columns": int(getattr(metadata, "tmem_size", None) or 0),
        "num_warps": int(metadata.num_warps),
    }


def _registers_and_spills(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of local memory a thread, as the disassembler reports them."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        completed = subprocess.run(  # noqa: S603 - Triton's own tool on a file just written
            [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        )
    match = re.search(r"REG:(\d+).*?STACK:(\d+).*?LOCAL:(\d+)", completed.stdout)
    if match is None:
        raise LlameaGpuError(
            f"cuobjdump must report REG, STACK and LOCAL, but printed {completed.stdout[:200]!r}"
        )
    registers, stack, local = map(int, match.groups())
    return registers, stack + local
