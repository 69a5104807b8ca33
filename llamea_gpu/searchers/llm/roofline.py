"""Lower bounds on a kernel's time, where its arguments say honestly what it computes.

- matmul (the name says so, and the first two tensors can be multiplied): 2·M·N·K operations, both
  operands read and the product written once, further tensors read once.
- attention (the name says so, and the first three tensors are (batch, heads, length, width) alike):
  4·batch·heads·length²·width operations unless name or source speak of a mask, a window or another
  way to do less; four tensors.
- everything else: every tensor argument read once; what is written is not known, nor whether all
  of it is needed, which the text says.

Products of fp32 are bounded by the rate of TF32 where a GPU has it, because compilers may use it.

Figures are of device memory; what fits into the L2 cache and was left there by the last call can be
faster. Not here: kernels with operands of unknown number format, and GPUs without published rates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from llamea_gpu.contract import DeviceFacts
from llamea_gpu.prompting.proposer import Argument, Roofline

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


def roofline(
    kernel: str, source: str, arguments: Sequence[Argument], facts: DeviceFacts | None
) -> Roofline | None:
    """The bounds; None where the GPU, a tensor's format or its shape is not known."""
    tensors = [argument for argument in arguments if argument.shape is not None]
    if facts is None or not facts.bandwidth_gb_s or not tensors:
        return None
    if any(_format(tensor) is None for tensor in tensors):
        return None
    sizes = [_bytes(tensor) for tensor in tensors]
    words = re.split(r"[^a-z0-9]+", kernel.lower())
    found: tuple[float, float, str] | None = None
    if any(word.startswith(("matmul", "gemm")) for word in words):
        found = _matmul(tensors, sizes)
    elif any(word.startswith(("attention", "attn")) for word in words):
        found = _attention(tensors, sizes, f"{kernel}\n{source}".lower())
    if found is None:
        total, flops = float(sum(sizes)), 0.0
        says = "every argument read once, if all of it is needed,"
    else:
        total, flops, says = found
    name = _name(tensors[0])
    if name == "fp32" and "tf32" in facts.peak_tflops:
        name = "tf32"
    rate = facts.peak_tflops.get(name)
    return Roofline(
        gb=total / 1e9,
        memory_ms=total / facts.bandwidth_gb_s / 1e6,
        says=says,
        flops=flops if rate else 0.0,
        compute_ms=flops / rate / 1e9 if rate and flops else None,
        format=name,
    )


def _matmul(tensors: list[Argument], sizes: list[int]) -> tuple[float, float, str] | None:
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
    product = batch * rows * columns * _width(tensors[0])
    return sum(sizes) + product, flops, "operands read and product written once"


def _attention(
    tensors: list[Argument], sizes: list[int], text: str
) -> tuple[float, float, str] | None:
    shapes = [tensor.shape or () for tensor in tensors[:3]]
    if len(shapes) < 3 or len(set(shapes)) > 1 or len(shapes[0]) != 4:
        return None
    batch, heads, length, width = shapes[0]
    flops = 4.0 * batch * heads * length**2 * width
    if _LESS_WORK.search(text):
        flops = 0.0  # how much that saves is not known
    return 4.0 * sizes[0], flops, "queries, keys and values read and the result written once"


def _format(tensor: Argument) -> tuple[str, int] | None:
    return _FORMATS.get(tensor.dtype.rpartition(".")[2])


def _name(tensor: Argument) -> str:
    found = _format(tensor)
    return found[0] if found else ""


def _width(tensor: Argument) -> int:
    found = _format(tensor)
    return found[1] if found else 0


def _bytes(tensor: Argument) -> int:
    """What the tensor occupies: an expanded dimension, of stride 0, is there once."""
    shape = tensor.shape or ()
    strides = tensor.strides if tensor.strides and len(tensor.strides) == len(shape) else None
    there = [n for i, n in enumerate(shape) if strides is None or strides[i] or not n]
    return math.prod(there) * _width(tensor)
