"""The two stages of recording a Helion kernel: compile without the GPU, time on it.

A compiling process binds the kernel to fake tensors, generates a configuration's code, compiles it
into Triton's cache on disk and builds the launcher. The timing process of a GPU holds the real
tensors; it loads the code, finds the machine code in the cache, compares the result and times it.

A result is right when it agrees with that of the default configuration, element by element; that
one is compared with the script's reference when the timing process starts. Triton's protocol times:
medians of single launches between events, with the level-2 cache overwritten before each.

Not supported: kernels that change their arguments, or that depend on values of tensors before
they are launched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from llamea_gpu.engine.worker import Channel, Result
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.compiling import (
    ConfigurationRefusedError,
    compile_file,
    generate,
    refuse_full_disk,
    refuse_unlaunchable,
    source_key,
)
from llamea_gpu.frameworks.helion.kernel_script import KernelCase, load_case
from llamea_gpu.frameworks.helion.static import FakeArguments
from llamea_gpu.frameworks.helion.timing import (
    Bench,
    bits,
    difference,
    relative_error,
    tensors,
    time_call,
)

PRELOAD = ("torch", "triton", "helion")  # what takes long to import, and may be before a fork

# Of the default configuration's result to the reference's: relative error of the whole.
REFERENCE_TOLERANCE = 3e-2
CONTROL_EVERY = 200  # timings between two of the default configuration

COMPILING_NICE = 5  # compiling gives way to the process that launches what is timed


@dataclass(frozen=True, slots=True)
class CompileStage:
    """Compile configurations; a task is a configuration (a mapping).

    Attributes:
        script, shape: the kernel.
        folder: where generated code and Triton's cache go; the timing process reads it there.
    """

    script: Path
    shape: str | None
    folder: Path

    def run(self, channel: Channel) -> None:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        os.nice(COMPILING_NICE)
        set_caches(self.folder)
        gpu = FakeArguments()
        case = gpu.load_case(self.script, self.shape)
        bound = gpu.bind(case.kernel, case.arguments)
        channel.serve({}, Compiler(gpu, bound, case.name, case.arguments, self.folder))


@dataclass(frozen=True, slots=True)
class Compiler:
    """Compiles configurations of a bound kernel; call it with one.

    Generated code goes to ``folder``, under a name that equal code shares; machine code and
    launchers go to Triton's cache.
    """

    gpu: FakeArguments
    bound: Any
    name: str
    arguments: Sequence[Any]
    folder: Path

    def __call__(self, config: Mapping[str, Any]) -> Result:
        """``source`` and ``path`` of the code and ``compile_s``, or why it does not compile.

        Raises:
            LlameaGpuError: the disk is full.
        """
        start = perf_counter()
        try:
            source = generate(self.bound, config)
            key = source_key(source)
            path = self.folder / f"{key}.py"
            _write(path, source)
            with self.gpu.fake_tensors():
                kernels = compile_file(path, self.name, self.arguments)
            for kernel in kernels:
                refuse_unlaunchable(kernel)
                _build_launcher(kernel)
        except ConfigurationRefusedError as refused:
            seconds = perf_counter() - start
            return {"status": "compile_error", "message": str(refused), "compile_s": seconds}
        except OSError as error:
            refuse_full_disk(error)
            raise
        seconds = perf_counter() - start
        return {"status": "ok", "compile_s": seconds, "source": key, "path": str(path)}


@dataclass(frozen=True, slots=True)
class TimingStage:
    """Check and time what the other stage compiled, on one GPU; a task is one of its results.

    Attributes:
        script, shape: the kernel.
        folder: as of :class:`CompileStage`.
        device: index of the GPU, as CUDA counts them.
    """

    script: Path
    shape: str | None
    folder: Path
    device: int = 0

    def run(self, channel: Channel) -> None:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        # The default configuration, compiled here, may be on the grid: it has a cache of its own,
        # so that the grid's is cold.
        set_caches(self.folder / f"default-{self.device}")
        import torch

        torch.cuda.set_device(self.device)
        with torch.device("cuda", self.device):
            case = load_case(self.script, self.shape)
        bench = _ScriptBench(case)
        facts = bench.facts()
        set_caches(self.folder)
        channel.serve(facts, bench.timed)


class _ScriptBench:
    """A script's kernel on its real arguments; its default configuration says what is right."""

    def __init__(self, case: KernelCase) -> None:
        import torch

        self._case = case
        self._since_control = 0
        bound = case.kernel.bind(case.arguments)
        self._default = bound.compile_config(bound.config_spec.default_config())
        original_bits = [bits(t).clone() for t in tensors(case.arguments)]
        self._expected = [t.clone() for t in tensors(self._default(*case.arguments))]
        if not all(map(torch.equal, map(bits, tensors(case.arguments)), original_bits)):
            raise RecordingError(
                f"a kernel to record must leave its arguments as they are, but {case.name} "
                f"changes them"
            )
        self.error = self._compared_with_reference()
        self._bench = Bench(
            case.name,
            lambda: case.arguments,
            self._expected,
            lambda result, _: difference(tensors(result), self._expected),
        )

    def facts(self) -> dict[str, Any]:
        """What the recording says about kernel, machine and what it is compared with."""
        import torch

        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        case = self._case
        return {
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda or "",
            "default_ms": self._default_ms(),
            "reference_ms": time_call(lambda: case.reference(*case.arguments))["time_ms"],
            "relative_error": self.error,
        }

    def timed(self, compiled: Mapping[str, Any]) -> Result:
        """Check and time a compiled configuration, and now and then the default one."""
        measurement = self._bench.timed(compiled)
        self._since_control += 1
        if self._since_control < CONTROL_EVERY or measurement.get("broken"):
            return measurement
        self._since_control = 0
        start = perf_counter()
        control_ms = self._default_ms()  # shows a drift of the machine
        seconds = measurement["benchmark_s"] + perf_counter() - start
        return {**measurement, "control_ms": control_ms, "benchmark_s": seconds}

    def _default_ms(self) -> float:
        return time_call(lambda: self._default(*self._case.arguments))["time_ms"]

    def _compared_with_reference(self) -> float:
        reference = tensors(self._case.reference(*self._case.arguments))
        error = relative_error(self._expected, reference)
        if not error <= REFERENCE_TOLERANCE:
            raise RecordingError(
                f"the default configuration must agree with the reference to "
                f"{REFERENCE_TOLERANCE}, but the relative error of {self._case.name} is "
                f"{error:.3g}: mend the kernel or the reference"
            )
        return error


def set_caches(folder: Path) -> None:
    """Have compilers keep what they make below ``folder``, in this process from now on.

    A fresh folder is a cold cache, so that seconds of compiling are true.
    """
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    os.environ["TRITON_STORE_BINARY_ONLY"] = "1"
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(temporary)


def _write(path: Path, source: str) -> None:
    """Write a file that another process may write at the same time, with the same content."""
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(source, encoding="utf-8")
        draft.replace(path)


def _build_launcher(kernel: Any) -> None:
    """Compile the C code that launches it, into the cache, so that the timing process need not."""
    import triton

    driver = triton.runtime.driver.active
    launcher = getattr(driver, "launcher_cls", None)
    if launcher is not None:
        launcher(kernel.src, kernel.metadata)
