"""Matrix product in bfloat16, accumulated in float32."""

import helion
import helion.language as hl
import torch

# rows of a, columns of a, columns of b
SHAPES = {
    "small": (512, 4096, 8192),
    "medium": (2048, 2048, 2048),
    "large": (8192, 8192, 8192),
}


@helion.kernel(static_shapes=True)
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b``."""
    m, k = a.size()
    _, n = b.size()
    out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, a[tile_m, tile_k], b[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    m, k, n = SHAPES[shape]
    a = torch.randn(m, k, dtype=torch.bfloat16)
    b = torch.randn(k, n, dtype=torch.bfloat16)
    return matmul, (a, b), torch.matmul
