"""Layer normalisation of rows in bfloat16, with weight and bias."""

import helion
import helion.language as hl
import torch

# rows, columns
SHAPES = {"small": (4096, 8192), "medium": (32768, 2048), "large": (32768, 16384)}


@helion.kernel(static_shapes=True)
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Rows with mean 0 and variance 1, scaled and shifted."""
    m, _ = x.size()
    out = torch.empty_like(x)
    for tile_m in hl.tile(m):
        row = x[tile_m, :].to(torch.float32)
        mean = torch.mean(row, dim=-1, keepdim=True)
        centred = row - mean
        var = torch.mean(centred * centred, dim=-1, keepdim=True)
        y = centred * torch.rsqrt(var + 1e-5)
        y = y * weight[:].to(torch.float32) + bias[:].to(torch.float32)
        out[tile_m, :] = y.to(out.dtype)
    return out


def reference(x, weight, bias):
    """The same with PyTorch's own operator."""
    return torch.nn.functional.layer_norm(x, (x.size(1),), weight, bias)


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    m, n = SHAPES[shape]
    x = torch.randn(m, n, dtype=torch.bfloat16)
    weight, bias = (torch.randn(n, dtype=torch.bfloat16) for _ in range(2))
    return layer_norm, (x, weight, bias), reference
