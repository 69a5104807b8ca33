"""The kernels that ship compute what they say: their generated code, run by Triton's interpreter.

The interpreter is chosen when Triton is imported, so that it has a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llamea_gpu.integrations.helion.kernels import shipped_kernels

pytest.importorskip("helion")

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
SCRIPT = r"""
import json, sys
from pathlib import Path
import torch
from llamea_gpu.integrations.helion import kernels
from llamea_gpu.integrations.helion.compiling import generate, generated_module

folder, tiny = Path(sys.argv[1]), json.loads(sys.argv[2])
load = kernels._load

def load_tiny(script):
    module = load(script)
    module.SHAPES = {"medium": tiny[script.stem]}
    return module

def wide(value):
    # The interpreter keeps bfloat16 as integers, which its matrix product takes for numbers.
    bfloat16 = getattr(value, "dtype", None) == torch.bfloat16
    return value.float() if bfloat16 else value

def grouped(a, b, starts, ends, longest):  # PyTorch's is for bfloat16 on a GPU alone
    pieces = zip(starts.tolist(), ends.tolist(), b)
    return torch.cat([a[start:end] @ weights for start, end, weights in pieces])

kernels._load = load_tiny
for name in tiny:
    case = kernels.load_case(kernels.shipped_kernels()[name])
    arguments = tuple(wide(a) for a in case.arguments)
    bound = case.kernel.bind(arguments)
    source = generate(bound, bound.config_spec.default_config())
    # What the interpreter lacks: CUDA's mathematical library, and (with numpy 2.4) bounds of loops
    # that are arrays of one element.
    source = source.replace("libdevice.", "tl.")
    source = source.replace("tl.cast(tile_end, tl.int32)", "tile_end.handle.data.item()")
    path = folder / f"{name}.py"
    path.write_text(source)
    with generated_module(path) as module:
        found = getattr(module, case.name)(*arguments)
    reference = grouped if name == "grouped_matmul" else case.reference
    right = reference(*arguments)
    error = ((found.float() - right.float()).norm() / right.float().norm()).item()
    print(json.dumps([name, list(found.shape) == list(right.shape), error]), flush=True)
"""


def test_every_shipped_kernel_computes_what_its_reference_does(tmp_path: Path) -> None:
    assert sorted(TINY) == sorted(shipped_kernels())
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), json.dumps(TINY)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = {name: (same, error) for name, same, error in map(json.loads, done.stdout.splitlines())}
    assert sorted(found) == sorted(TINY)
    for name, (same_shape, error) in found.items():
        assert same_shape, name
        # float8's and float16's results are rounded, the others are float32 throughout.
        limit = 1e-2 if name in ("fp8_matmul", "attention") else 1e-5
        assert error < limit, (name, error)
