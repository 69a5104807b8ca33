"""What a proposer tells of a kernel, from what a recording or a live framework says of it.

A recording's reference times and whatever else was measured are never part of it.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from llamea_gpu import toml
from llamea_gpu.contract import DeviceFacts
from llamea_gpu.prompting.proposer import Argument, Roofline, Workload
from llamea_gpu.spaces.recording import RecordingInfo

# What provenance may say that describes the task and not its result.
_TASK_FACTS = ("problem_size",)
_MAX_DIMENSIONS = 16


# A slice of a GPU, and chips that share no more than the name with the desktop's.
_OTHER_CHIPS = frozenset(("mig", "laptop", "mobile", "max"))
_LESS_WORK = re.compile(r"causal|mask|window|sparse|linear|local|block_table|jagged|varlen")
_FORMATS = {
    "float64": ("fp64", 8),
    "float32": ("fp32", 4),
    "bfloat16": ("bf16", 2),
    "float16": ("fp16", 2),
    "float8_e4m3fn": ("fp8", 1),
    "float8_e5m2": ("fp8", 1),
    "int64": ("int64", 8),
    "int32": ("int32", 4),
    "int16": ("int16", 2),
    "int8": ("int8", 1),
    "uint8": ("uint8", 1),
    "bool": ("bool", 1),
}


def workload_of(
    info: RecordingInfo | None,
    parallel: int,
    *,
    device: DeviceFacts | None = None,
    notes: tuple[str, ...] = (),
) -> Workload:
    """The workload that ``info`` describes; None stands for a space nobody described.

    ``device`` is what the GPU says of itself, where no vendor's figures are known; ``notes`` are
    further facts.
    """
    if info is None:
        return Workload(
            kernel="a kernel", framework="its framework", device="a GPU", parallel=parallel
        )
    arguments = tuple(argument_of(argument) for argument in info.arguments)
    facts = find_device(info.device) or device
    return Workload(
        kernel=info.kernel,
        framework="its framework" if info.framework == "unknown" else info.framework,
        device=info.device,
        source=info.kernel_source,
        arguments=arguments,
        facts=facts,
        roofline=roofline(info.kernel, info.kernel_source, arguments, facts),
        notes=(
            *(
                f"{name.replace('_', ' ')}: {info.provenance[name]}"
                for name in _TASK_FACTS
                if name in info.provenance
            ),
            *notes,
        ),
        parallel=parallel,
    )


def argument_of(described: Mapping[str, Any]) -> Argument:
    """An argument from a mapping with any of name, shape, dtype, strides and value."""
    shape = _dimensions(described.get("shape"))
    return Argument(
        name=str(described.get("name", "")),
        shape=shape,
        dtype=str(described.get("dtype", "")),
        strides=_dimensions(described.get("strides", described.get("stride"))),
        value="" if shape is not None else str(described.get("value", dict(described))),
    )


def _dimensions(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list | tuple) or len(value) > _MAX_DIMENSIONS:
        return None
    if not all(type(each) is int and 0 <= each < 1 << 40 for each in value):
        return None
    return tuple(value) if math.prod(value) < 1 << 60 else None


_TABLE = Path(__file__).with_name("devices.toml")


def find_device(name: str) -> DeviceFacts | None:
    """The facts of the GPU that ``name`` means, such as "NVIDIA A100-PCIE-40GB"; else None."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    if words & _OTHER_CHIPS:
        return None
    fitting = [entry for entry in _entries() if entry[0] <= words]
    return max(fitting, key=lambda entry: len(entry[0]))[1] if fitting else None


@functools.cache
def _entries() -> tuple[tuple[frozenset[str], DeviceFacts], ...]:
    document = toml.loads(_TABLE.read_text("utf-8"))
    return tuple((frozenset(entry["names"]), _facts(entry)) for entry in document["device"])


def _facts(entry: dict[str, Any]) -> DeviceFacts:
    count, unit, warp = entry["units"]
    per_unit, per_block = entry["shared_kib"]
    return DeviceFacts(
        title=entry["title"],
        compute_units=count,
        unit_name=unit,
        warp_size=warp,
        shared_kib_per_unit=per_unit,
        shared_kib_per_block=per_block,
        registers_per_unit=entry["registers"],
        l2_mib=entry["l2_mib"],
        bandwidth_gb_s=entry.get("bandwidth_gb_s"),
        peak_tflops=entry["peak_tflops"],
    )


class _Work(NamedTuple):
    traffic_bytes: float
    flops: float
    transfers: str


def roofline(
    kernel: str, source: str, arguments: Sequence[Argument], facts: DeviceFacts | None
) -> Roofline | None:
    """The bounds; None where the GPU, a tensor's format or its shape is not known."""
    tensors = [argument for argument in arguments if argument.shape is not None]
    if facts is None or not facts.bandwidth_gb_s or not tensors:
        return None
    formats = [_FORMATS.get(tensor.dtype.rpartition(".")[2], ("", 0)) for tensor in tensors]
    if ("", 0) in formats:
        return None
    name, width = formats[0]
    sizes = [_elements(each) * size for each, (_, size) in zip(tensors, formats, strict=True)]
    words = re.split(r"[^a-z0-9]+", kernel.lower())
    work: _Work | None = None
    if any(word.startswith(("matmul", "gemm")) for word in words):
        work = _matmul(tensors, sizes, width)
    elif any(word.startswith(("attention", "attn")) for word in words):
        work = _attention(tensors, sizes, f"{kernel}\n{source}".lower())
    if work is None:
        work = _Work(float(sum(sizes)), 0.0, "every argument read once, if all of it is needed,")
    if name == "fp32" and "tf32" in facts.peak_tflops:
        name = "tf32"
    rate = facts.peak_tflops.get(name)
    return Roofline(
        gb=work.traffic_bytes / 1e9,
        memory_ms=work.traffic_bytes / facts.bandwidth_gb_s / 1e6,
        says=work.transfers,
        flops=work.flops if rate else 0.0,
        compute_ms=work.flops / rate / 1e9 if rate and work.flops else None,
        format=name,
    )


def _matmul(tensors: list[Argument], sizes: list[int], width: int) -> _Work | None:
    if len(tensors) < 2:
        return None
    left, right = tensors[0].shape or (), tensors[1].shape or ()
    if len(left) != len(right) or len(left) not in (2, 3) or left[:-2] != right[:-2]:
        return None
    if left[-1] != right[-2]:
        return None
    rows, depth, columns = left[-2], left[-1], right[-1]
    batch = math.prod(left[:-2])
    flops = 2.0 * batch * rows * columns * depth
    product = batch * rows * columns * width
    return _Work(sum(sizes) + product, flops, "operands read and product written once")


def _attention(tensors: list[Argument], sizes: list[int], text: str) -> _Work | None:
    shapes = [tensor.shape or () for tensor in tensors[:3]]
    if len(shapes) < 3 or len(set(shapes)) > 1 or len(shapes[0]) != 4:
        return None
    batch, heads, length, width = shapes[0]
    flops = 4.0 * batch * heads * length**2 * width
    if _LESS_WORK.search(text):
        flops = 0.0  # how much that saves is not known
    return _Work(4.0 * sizes[0], flops, "queries, keys and values read and the result written once")


def _elements(tensor: Argument) -> int:
    """What is there of the tensor: an expanded dimension, of stride 0, is there once."""
    shape = tensor.shape or ()
    strides = tensor.strides if tensor.strides and len(tensor.strides) == len(shape) else None
    return math.prod(n for i, n in enumerate(shape) if strides is None or strides[i] or not n)
