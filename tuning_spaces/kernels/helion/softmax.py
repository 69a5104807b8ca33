"""Softmax of rows in bfloat16, in two passes over a row: one for its sum, one for its values."""

import helion
import helion.language as hl
import torch

# rows, columns
SHAPES = {"small": (4096, 4096), "medium": (32768, 1024), "large": (8192, 65536)}


@helion.kernel(static_shapes=True)
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension."""
    m, n = x.size()
    out = torch.empty_like(x)
    block_m = hl.register_block_size(m)
    block_n = hl.register_block_size(n)
    for tile_m in hl.tile(m, block_size=block_m):
        top = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n, block_size=block_n):
            v = x[tile_m, tile_n].to(torch.float32)
            new_top = torch.maximum(top, torch.amax(v, dim=1))
            total = total * torch.exp(top - new_top) + torch.exp(v - new_top[:, None]).sum(dim=1)
            top = new_top
        for tile_n in hl.tile(n, block_size=block_n):
            v = x[tile_m, tile_n].to(torch.float32)
            out[tile_m, tile_n] = (torch.exp(v - top[:, None]) / total[:, None]).to(out.dtype)
    return out


def reference(x):
    """The same with PyTorch's own operator."""
    return x.softmax(-1)


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    return softmax, (torch.randn(SHAPES[shape], dtype=torch.bfloat16),), reference
