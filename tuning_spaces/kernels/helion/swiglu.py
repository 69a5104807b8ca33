"""SwiGLU's elementwise half in bfloat16: a gate's SiLU times the other branch."""

import helion
import helion.language as hl
import torch

# rows, columns
SHAPES = {"small": (2048, 4096), "medium": (8192, 8192), "large": (16384, 28672)}


@helion.kernel(static_shapes=True)
def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up``."""
    out = torch.empty_like(gate)
    m, n = gate.size()
    for tile_m, tile_n in hl.tile([m, n]):
        g = gate[tile_m, tile_n].to(torch.float32)
        y = g * torch.sigmoid(g) * up[tile_m, tile_n].to(torch.float32)
        out[tile_m, tile_n] = y.to(out.dtype)
    return out


def reference(gate, up):
    """The same with PyTorch's own operators."""
    return torch.nn.functional.silu(gate) * up


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    gate, up = (torch.randn(SHAPES[shape], dtype=torch.bfloat16) for _ in range(2))
    return swiglu, (gate, up), reference
