"""Matrix product in bfloat16 with bias and exact GELU in its epilogue."""

import helion
import helion.language as hl
import torch

# rows of a, columns of a, columns of b
SHAPES = {
    "small": (512, 2048, 8192),
    "medium": (2048, 2048, 8192),
    "large": (8192, 4096, 16384),
}


@helion.kernel(static_shapes=True)
def matmul_gelu(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """``gelu(a @ b + bias)``."""
    m, k = a.size()
    _, n = b.size()
    out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, a[tile_m, tile_k], b[tile_k, tile_n])
        x = acc + bias[tile_n].to(torch.float32)[None, :]
        y = 0.5 * x * (1.0 + torch.erf(x * 0.7071067811865476))
        out[tile_m, tile_n] = y.to(out.dtype)
    return out


def reference(a, b, bias):
    """The same with PyTorch's own operators."""
    return torch.nn.functional.gelu((a @ b + bias).float()).to(a.dtype)


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    m, k, n = SHAPES[shape]
    a = torch.randn(m, k, dtype=torch.bfloat16) / k**0.5
    b = torch.randn(k, n, dtype=torch.bfloat16)
    bias = torch.randn(n, dtype=torch.bfloat16)
    return matmul_gelu, (a, b, bias), reference
