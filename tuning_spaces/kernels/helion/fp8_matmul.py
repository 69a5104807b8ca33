"""Matrix product of float8 (e4m3) matrices with a scale for each, to bfloat16."""

import helion
import helion.language as hl
import torch

# rows of a, columns of a, columns of b
SHAPES = {
    "small": (512, 4096, 8192),
    "medium": (4096, 4096, 4096),
    "large": (8192, 8192, 8192),
}


@helion.kernel(static_shapes=True)
def fp8_matmul(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> torch.Tensor:
    """``(a @ b) * scale_a * scale_b``."""
    m, k = a.size()
    _, n = b.size()
    out = torch.empty([m, n], dtype=torch.bfloat16, device=a.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = hl.dot(a[tile_m, tile_k], b[tile_k, tile_n], acc=acc)
        out[tile_m, tile_n] = (acc * scale_a[0] * scale_b[0]).to(torch.bfloat16)
    return out


def reference(a, b, scale_a, scale_b):
    """PyTorch's own scaled product."""
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    m, k, n = SHAPES[shape]
    a = torch.randn(m, k).to(torch.float8_e4m3fn)
    b = torch.randn(n, k).to(torch.float8_e4m3fn).t()  # column-major, as the hardware wants it
    scale_a = torch.tensor([0.25])
    scale_b = torch.tensor([0.5])
    return fp8_matmul, (a, b, scale_a, scale_b), reference
