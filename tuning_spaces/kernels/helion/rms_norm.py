"""Root-mean-square normalisation of rows in bfloat16, with weight."""

import helion
import helion.language as hl
import torch

# rows, columns
SHAPES = {"small": (4096, 2048), "medium": (16384, 4096), "large": (32768, 16384)}


@helion.kernel(static_shapes=True)
def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Rows divided by the root of their mean square, scaled."""
    m, _ = x.size()
    out = torch.empty_like(x)
    for tile_m in hl.tile(m):
        row = x[tile_m, :].to(torch.float32)
        scale = torch.rsqrt(torch.mean(row * row, dim=-1, keepdim=True) + 1e-6)
        out[tile_m, :] = (row * scale * weight[:].to(torch.float32)).to(out.dtype)
    return out


def reference(x, weight):
    """The same with PyTorch's own operator."""
    return torch.nn.functional.rms_norm(x, (x.size(1),), weight, 1e-6)


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    m, n = SHAPES[shape]
    x = torch.randn(m, n, dtype=torch.bfloat16)
    return rms_norm, (x, torch.randn(n, dtype=torch.bfloat16)), reference
