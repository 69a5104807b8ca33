"""Helion kernels on the CPU: Triton's interpreter is the GPU, and only the clock is replaced.

The interpreter is chosen when Triton is imported, so that it has a process of its own. One does all
that needs it, because importing Helion takes most of its time: ``python FILE FOLDER``, with
TRITON_INTERPRET=1, prints one JSON object.
"""

from __future__ import annotations

# ruff: noqa: E402
import gc
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

gc.disable()  # a third of importing Helion is to look for garbage

import torch
import triton
from recorder_stages import served

from llamea_gpu.errors import RecordingError
from llamea_gpu.frameworks.helion import kernel_script, stages, timing
from llamea_gpu.frameworks.helion.compiling import generate, generated_module
from llamea_gpu.live.helion import nodes

# Small, and none a multiple of a block, so that edges are there.
TINY = {
    "attention": (1, 2, 40, 16),
    "batched_matmul": (2, 20, 40, 24),
    "chunk_scan": (1, 2, 32, 4, 2, 16, 16),
    "cross_entropy": (6, 70),
    "fp8_matmul": (32, 48, 16),
    "grouped_matmul": (3, 96, 40, 24),
    "kl_divergence": (6, 70),
    "layer_norm": (6, 70),
    "matmul": (40, 24, 72),
    "matmul_gelu": (40, 24, 72),
    "rms_norm": (6, 70),
    "rope": (1, 2, 20, 16),
    "row_sum": (6, 70),
    "softmax": (6, 70),
    "swiglu": (6, 70),
}
SCRIPT = """
import helion, helion.language as hl, torch

@helion.kernel(static_shapes=True)
def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out

@helion.kernel(static_shapes=True)
def double_in_place(x: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        x[tile] = x[tile] * 2
    return x

SHAPES = {"right": 0, "wrong": 1, "in place": 2}

def helion_kernel(shape):
    x = torch.rand(100) + 1
    if shape == "in place":
        return double_in_place, (x,), lambda x: x * 2
    factor = 2.0 if shape == "right" else 2.2
    return double, (x,), lambda x: x * factor
"""


def shipped_kernels(folder: Path) -> list[tuple[str, bool, float]]:
    """Name, whether the shape is the reference's, and relative error, of each kernel in TINY."""
    load = kernel_script._load

    def load_tiny(script: Path) -> types.ModuleType:
        module = load(script)
        module.SHAPES = {"medium": TINY[script.stem]}  # type: ignore[attr-defined]
        return module

    kernel_script._load = load_tiny
    try:
        return [(name, *_compared(name, folder / f"{name}.py")) for name in TINY]
    finally:
        kernel_script._load = load


def _compared(name: str, path: Path) -> tuple[bool, float]:
    case = kernel_script.load_case(kernel_script.shipped_kernels()[name])
    arguments = tuple(map(_wide, case.arguments))
    bound = case.kernel.bind(arguments)
    source = generate(bound, bound.config_spec.default_config())
    # What the interpreter lacks: CUDA's mathematical library, and (with numpy 2.4) bounds of loops
    # that are arrays of one element.
    source = source.replace("libdevice.", "tl.")
    source = source.replace("tl.cast(tile_end, tl.int32)", "tile_end.handle.data.item()")
    path.write_text(source)
    with generated_module(path) as module:
        found = getattr(module, case.name)(*arguments)
    right = (_grouped if name == "grouped_matmul" else case.reference)(*arguments)
    error = ((found.float() - right.float()).norm() / right.float().norm()).item()
    return list(found.shape) == list(right.shape), error


def _wide(value: Any) -> Any:
    # The interpreter keeps bfloat16 as integers, which its matrix product takes for numbers.
    return value.float() if getattr(value, "dtype", None) == torch.bfloat16 else value


def _grouped(a: Any, b: Any, starts: Any, ends: Any, _longest: int) -> Any:
    # PyTorch's is for bfloat16 on a GPU alone.
    pieces = zip(starts.tolist(), ends.tolist(), b, strict=True)
    return torch.cat([a[start:end] @ weights for start, end, weights in pieces])


class _Event:
    """A CUDA event of a GPU whose launches take 1, 2, 3, ... ms."""

    ticks = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        _Event.ticks += 1

    def elapsed_time(self, _end: object) -> float:
        _Event.ticks += 1
        return float(_Event.ticks)


def clock() -> dict[str, Any]:
    """What Triton's protocol makes of such a GPU; times of launches differ by 1 ms."""
    cleared: list[object] = []
    calls: list[None] = []
    previous = triton.runtime.driver._active
    triton.runtime.driver.set_active(
        types.SimpleNamespace(
            get_empty_cache_for_benchmark=lambda: "cache", clear_cache=cleared.append
        )
    )
    torch.cuda.Event = _Event  # type: ignore[misc, assignment]
    found = timing.time_call(lambda: calls.append(None))
    first = {**found, "calls": len(calls), "cleared": len(cleared)}
    spins: list[int] = []
    torch.cuda._sleep = spins.append  # type: ignore[assignment]
    timing.time_call(lambda: spins.append(0), head_start_ms=2.0)
    _Event.ticks = 0  # to estimate 1 ms a launch
    slow_spins: list[int] = []
    torch.cuda._sleep = slow_spins.append  # type: ignore[assignment]
    timing.time_call(lambda: time.sleep(0.003))
    triton.runtime.driver._active = previous
    return {**first, "spins": spins, "spins_of_a_slow_launch": slow_spins}


def timing_stage(folder: Path) -> dict[str, Any]:
    """Facts and results of the timing stage, opened as in its process; by what was tried."""
    timed: list[object] = []

    def time_call(call: Any, **_: Any) -> dict[str, float]:
        timed.append(call())
        return {"time_ms": 0.5 * len(timed)}

    stages.time_call = timing.time_call = time_call  # type: ignore[assignment]
    stages.CONTROL_EVERY = 3
    script = folder / "kernels.py"
    script.write_text(SCRIPT)
    found: dict[str, Any] = {}
    for shape in ("wrong", "in place"):
        try:
            served(stages.TimingStage(script, shape, folder))
        except RecordingError as error:
            found[shape] = str(error)
    timed.clear()
    case = kernel_script.load_case(script, "right")
    bound = case.kernel.bind(case.arguments)
    source = generate(bound, bound.config_spec.default_config())
    assert source.count("[], 2.0,") == 1, source
    codes = {
        "fine": source,
        "slightly off": source.replace("[], 2.0,", "[], 2.001,"),
        "off": source.replace("[], 2.0,", "[], 2.2,"),
        "not a number": source.replace("[], 2.0,", "[], float('nan'),"),
        "another type": source.replace("torch.empty_like(x)", "torch.empty_like(x).double()"),
        "raises": source.replace("out = torch", "out = torsch"),
        "does not load": "1 / 0",
    }
    tasks = []
    for i, code in enumerate(codes.values()):
        path = folder / f"code-{i}.py"
        path.write_text(code)
        tasks.append({"path": str(path)})
    facts, results = served(stages.TimingStage(script, "right", folder), tasks)
    found["facts"] = dict(facts)
    found.update(zip(codes, results, strict=True))
    return found


def what_helion_holds_to_be_right(folder: Path) -> dict[str, list[Any]]:
    """By shape: places of arguments that a kernel changes, and whether all is as it should be."""
    script = folder / "right.py"
    script.write_text(SCRIPT)
    found: dict[str, list[Any]] = {}
    for shape in ("right", "in place"):
        case = _load_on_cpu(script, shape)
        (given,) = (argument.clone() for argument in case.arguments)
        data = nodes.what_is_right(case.kernel.bind(case.arguments), case.arguments)
        changed = data.changed[0] if shape == "in place" else given * 2
        seen = [data.expected, given, changed]
        wanted = [given * 2, case.arguments[0], given * 2]
        right = all(map(torch.equal, seen, wanted)) and data.right.checked
        found[shape] = [list(data.right.changed), right]
    return found


def _load_on_cpu(script: Path, shape: str | None) -> kernel_script.KernelCase:
    with torch.device("cpu"):  # rather than on the GPU that the stage asks for
        return kernel_script.load_case(script, shape)


def main(folder: Path) -> None:
    found: dict[str, Any] = {"kernels": shipped_kernels(folder)}
    stages.load_case = _load_on_cpu
    torch.cuda.set_device = lambda _: None
    torch.cuda.synchronize = lambda: None  # type: ignore[assignment]
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_properties = lambda _: types.SimpleNamespace(
        major=9, minor=0, multi_processor_count=132
    )
    found["what is right"] = what_helion_holds_to_be_right(folder)
    print(json.dumps({**found, "clock": clock(), "timing": timing_stage(folder)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
