"""Matrix products of a batch, in bfloat16, accumulated in float32."""

import helion
import helion.language as hl
import torch

# products, rows of a, columns of a, columns of b
SHAPES = {
    "small": (64, 128, 512, 128),
    "medium": (16, 1024, 1024, 1024),
    "large": (32, 2048, 2048, 2048),
}


@helion.kernel(static_shapes=True)
def batched_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b``, batch first."""
    batch, m, k = a.size()
    _, _, n = b.size()
    out = torch.empty([batch, m, n], dtype=a.dtype, device=a.device)
    for tile_b, tile_m, tile_n in hl.tile([batch, m, n]):
        acc = hl.zeros([tile_b, tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.baddbmm(acc, a[tile_b, tile_m, tile_k], b[tile_b, tile_k, tile_n])
        out[tile_b, tile_m, tile_n] = acc.to(out.dtype)
    return out


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    batch, m, k, n = SHAPES[shape]
    a = torch.randn(batch, m, k, dtype=torch.bfloat16)
    b = torch.randn(batch, k, n, dtype=torch.bfloat16)
    return batched_matmul, (a, b), torch.matmul
