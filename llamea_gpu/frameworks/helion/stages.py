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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from llamea_gpu.engine.worker import Handler, Result
from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion.compiling import (
    ConfigurationRefusedError,
    compile_file,
    generate,
    generated_module,
    source_key,
)
from llamea_gpu.frameworks.helion.kernel_script import KernelCase, load_case
from llamea_gpu.frameworks.helion.static import FakeArguments, pretend_gpu

PRELOAD = ("torch", "triton", "helion")  # what takes long to import, and may be before a fork

# Of the difference to what is expected, relative to the element plus the root mean square of all.
TOLERANCE = {"float32": 1e-2, "float16": 1e-2, "bfloat16": 2e-2}
_DEFAULT_TOLERANCE = 2e-2
# Of the default configuration's result to the reference's: relative error of the whole.
REFERENCE_TOLERANCE = 3e-2
CONTROL_EVERY = 200  # timings between two of the default configuration

POISON = 3.0e4  # finite in every floating-point type from float16 up
_BUDGET_MS = 20.0
_FEWEST, _MOST = 5, 300
_ESTIMATES = 3
_CYCLES_PER_MS = 1.9e6  # of a GPU, more or less
_NICE = 5  # compiling gives way to the process that launches what is timed


@dataclass(frozen=True, slots=True)
class CompileStage:
    """Compile configurations; a task is a configuration (a mapping).

    Attributes:
        script, shape: the kernel.
        folder: where generated code and Triton's cache go; the timing process reads it there.
        pretended: compile for this GPU without one (see ``static``); None for the one present.
    """

    script: Path
    shape: str | None
    folder: Path
    pretended: str | None = None

    @contextmanager
    def opened(self) -> Iterator[tuple[Mapping[str, Any], Handler]]:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        os.nice(_NICE)
        set_caches(self.folder)
        with _gpu(self.pretended) as gpu:
            case = gpu.load_case(self.script, self.shape)
            bound = gpu.bind(case.kernel, case.arguments)
            yield {}, lambda config: self._compiled(gpu, bound, case, config)

    def _compiled(
        self, gpu: FakeArguments, bound: Any, case: KernelCase, config: Mapping[str, Any]
    ) -> Result:
        start = perf_counter()
        try:
            source = generate(bound, config)
            key = source_key(source)
            path = self.folder / f"{key}.py"
            _write(path, source)
            with gpu.fake_tensors():
                kernels = compile_file(path, case.name, case.arguments)
        except ConfigurationRefusedError as refused:
            seconds = perf_counter() - start
            return {"status": "compile_error", "message": str(refused), "compile_s": seconds}
        for kernel in kernels:
            _build_launcher(kernel)
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

    @contextmanager
    def opened(self) -> Iterator[tuple[Mapping[str, Any], Handler]]:
        """See :class:`llamea_gpu.engine.worker.Stage`."""
        # The default configuration, compiled here, may be on the grid: it has a cache of its own,
        # so that the grid's is cold.
        set_caches(self.folder / f"default-{self.device}")
        import torch

        torch.cuda.set_device(self.device)
        with torch.device("cuda", self.device):
            case = load_case(self.script, self.shape)
        bench = _Bench(case)
        facts = bench.facts()
        set_caches(self.folder)
        yield facts, bench.timed


class _Bench:
    """A kernel's real arguments, what is right, and the clock."""

    def __init__(self, case: KernelCase) -> None:
        import torch

        self._case = case
        self._since_control = 0
        bound = case.kernel.bind(case.arguments)
        self._default = bound.compile_config(bound.config_spec.default_config())
        given = [_bits(t).clone() for t in _tensors(case.arguments)]
        self._expected = [t.clone() for t in _tensors(self._default(*case.arguments))]
        if not all(map(torch.equal, map(_bits, _tensors(case.arguments)), given)):
            raise RecordingError(
                f"a kernel to record must leave its arguments as they are, but {case.name} "
                f"changes them"
            )
        self.error = self._compared_with_reference()

    def facts(self) -> dict[str, Any]:
        """What the recording says about kernel, machine and what it is compared with."""
        import torch

        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        case = self._case
        return {
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda or "",
            "default_ms": time_call(lambda: self._default(*case.arguments))["time_ms"],
            "reference_ms": time_call(lambda: case.reference(*case.arguments))["time_ms"],
            "relative_error": self.error,
        }

    def timed(self, compiled: Mapping[str, Any]) -> Result:
        """Check and time one compiled configuration."""
        start = perf_counter()
        try:
            found = self._checked_and_timed(Path(compiled["path"]))
        except Exception as error:  # whatever a launch raises; what CUDA is left in shows below
            message = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            found = {"status": "runtime_error", "message": message, "broken": _is_broken()}
        return {**found, **self._control(found), "benchmark_s": perf_counter() - start}

    def _checked_and_timed(self, path: Path) -> dict[str, Any]:
        import torch

        arguments = self._case.arguments
        with generated_module(path) as module:
            function = getattr(module, self._case.name)
            # What the allocator hands out next held the right result a moment ago.
            poison = [torch.full_like(t, _poison(t.dtype)) for t in self._expected]
            del poison
            start = perf_counter()
            found = function(*arguments)
            torch.cuda.synchronize()
            first_s = perf_counter() - start
            wrong = _difference(_tensors(found), self._expected)
            if wrong:
                return {"status": "incorrect", "message": wrong}
            return {"status": "ok", "first_s": first_s, **time_call(lambda: function(*arguments))}

    def _control(self, found: Mapping[str, Any]) -> dict[str, float]:
        """Now and then the default configuration's time, which shows a drift of the machine."""
        self._since_control += 1
        if self._since_control < CONTROL_EVERY or found.get("broken"):
            return {}
        self._since_control = 0
        return {"control_ms": time_call(lambda: self._default(*self._case.arguments))["time_ms"]}

    def _compared_with_reference(self) -> float:
        right = _tensors(self._case.reference(*self._case.arguments))
        error = _relative_error(self._expected, right)
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


def time_call(call: Callable[[], object], head_start_ms: float = 0.0) -> dict[str, float]:
    """Median and quartiles of a call's time on the GPU, by Triton's protocol.

    Args:
        call: launches the kernel.
        head_start_ms: time for which the GPU is kept busy first, while the launches queue up. On a
            busy or slow processor a kernel of some 0.03 ms is otherwise over before the next can be
            launched, and the launch is what is timed.

    Returns:
        ``time_ms`` (median), ``low_ms`` and ``high_ms`` (quartiles), ``launches``.
    """
    import torch
    import triton

    driver = triton.runtime.driver.active
    cache = driver.get_empty_cache_for_benchmark()

    def once(start: Any, end: Any) -> None:
        driver.clear_cache(cache)
        start.record()
        call()
        end.record()

    call()  # what the first call sets up is not timed
    begin, finish = _events()
    torch.cuda.synchronize()
    begin.record()
    for _ in range(_ESTIMATES):
        driver.clear_cache(cache)
        call()
    finish.record()
    torch.cuda.synchronize()
    estimate_ms = begin.elapsed_time(finish) / _ESTIMATES
    count = max(_FEWEST, min(_MOST, round(_BUDGET_MS / max(estimate_ms, 1e-3))))
    events = [_events() for _ in range(count)]
    if head_start_ms:
        spin: Any = torch.cuda._sleep
        spin(round(head_start_ms * _CYCLES_PER_MS))
    for start, end in events:
        once(start, end)
    torch.cuda.synchronize()
    times = sorted(start.elapsed_time(end) for start, end in events)
    return {
        "time_ms": times[count // 2],
        "low_ms": times[count // 4],
        "high_ms": times[(3 * count) // 4],
        "launches": count,
    }


def _events() -> tuple[Any, Any]:
    import torch

    event: Any = torch.cuda.Event  # not annotated
    return event(enable_timing=True), event(enable_timing=True)


@contextmanager
def _gpu(pretended: str | None) -> Iterator[FakeArguments]:
    if pretended is None:
        yield FakeArguments()
    else:
        with pretend_gpu(pretended) as gpu:
            yield gpu


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


def _tensors(value: object) -> list[Any]:
    """The tensors of a result or of arguments, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in _tensors(part)]
    return []


def _bits(tensor: Any) -> Any:
    """The same memory as integers: NaN equals itself, and every type can be compared."""
    import torch

    tensor = _real(tensor)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(integers[tensor.element_size()])


def _real(tensor: Any) -> Any:
    """A tensor of complex numbers as one of real ones, with one more dimension."""
    import torch

    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _poison(dtype: Any) -> float:
    """A value of this type that no result should have."""
    import torch

    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return POISON
    return int(torch.iinfo(dtype).max)


def _difference(found: list[Any], expected: list[Any]) -> str:
    """Where a result is wrong; empty when it is right."""
    if [(t.shape, t.dtype) for t in found] != [(t.shape, t.dtype) for t in expected]:
        return "the result has other shapes or types than the default configuration's"
    for tensor, right in zip(map(_real, found), map(_real, expected), strict=True):
        wide = right.float()
        tolerance = TOLERANCE.get(str(right.dtype).removeprefix("torch."), _DEFAULT_TOLERANCE)
        if not right.dtype.is_floating_point:
            tolerance = 0.0  # an index is right or wrong
        scale = wide.square().mean().sqrt().clamp(min=1e-30)
        excess = (tensor.float() - wide).abs() / (wide.abs() + scale)
        worst = float(excess.max()) if excess.numel() else 0.0
        if not worst <= tolerance:  # NaN is wrong, too
            return f"an element differs by {worst:.3g}, more than {tolerance} of its scale"
    return ""


def _relative_error(found: list[Any], right: list[Any]) -> float:
    """The largest relative error of a result's tensors; inf when they cannot be compared."""
    if [t.shape for t in found] != [t.shape for t in right] or not found:
        return float("inf")
    return max(
        float((a.float() - b.float()).norm() / b.float().norm().clamp(min=1e-30))
        for a, b in zip(map(_real, found), map(_real, right), strict=True)
    )


def _is_broken() -> bool:
    """Whether CUDA is of no more use in this process (after an illegal memory access)."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:  # the sticky error
        return True
    return False
