"""The kernels that ship compute what they say: their code, run by Triton's interpreter."""

from __future__ import annotations

from typing import Any

from llamea_gpu.frameworks.helion.kernel_script import shipped_kernels


def test_every_shipped_kernel_computes_what_its_reference_does(interpreted: dict[str, Any]) -> None:
    found = {name: (same, error) for name, same, error in interpreted["kernels"]}
    assert sorted(found) == sorted(shipped_kernels())
    for name, (same_shape, error) in found.items():
        assert same_shape, name
        # float8's and float16's results are rounded, the others are float32 throughout.
        limit = 1e-2 if name in ("fp8_matmul", "attention") else 1e-5
        assert error < limit, (name, error)
