"""Grouped matrix product, as in a mixture of experts: each group of rows has its own weights.

The groups lie one after another in ``a``; their sizes differ, and the kernel learns them only when
it runs. A block belongs to one group, and blocks past the end of theirs have nothing to do.
"""

import helion
import helion.language as hl
import torch

# groups, rows of all groups, columns of a, columns of b
SHAPES = {
    "small": (8, 2048, 1024, 1024),
    "medium": (16, 8192, 2048, 2048),
    "large": (32, 32768, 2048, 4096),
}


@helion.kernel(static_shapes=True)
def grouped_matmul(
    a: torch.Tensor, b: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, longest: int
) -> torch.Tensor:
    """``a[starts[g] : ends[g]] @ b[g]`` for each group; no group is longer than ``longest``."""
    groups, k, n = b.size()
    out = torch.empty([a.size(0), n], dtype=a.dtype, device=a.device)
    longest = hl.specialize(longest)
    for tile_g, tile_m, tile_n in hl.tile([groups, longest, n], block_size=[1, None, None]):
        start = starts[tile_g.begin]
        end = ends[tile_g.begin]
        if start + tile_m.begin < end:
            rows = start + tile_m.index
            inside = (rows < end)[:, None]
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(k):
                left = hl.load(a, [rows, tile_k], extra_mask=inside)
                acc = torch.addmm(acc, left, b[tile_g.begin, tile_k, tile_n])
            hl.store(out, [rows, tile_n], acc.to(out.dtype), extra_mask=inside)
    return out


def reference(a, b, _starts, ends, _longest):
    """PyTorch's own grouped product."""
    return torch._grouped_mm(a, b, offs=ends)


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    groups, rows, k, n = SHAPES[shape]
    # Sizes from half to one and a half times the mean, multiples of 16, the same in every run.
    mean = rows // groups
    sizes = [16 * round(mean * (0.5 + g / (groups - 1)) / 16) for g in range(groups)]
    sizes[-1] += rows - sum(sizes)
    ends = torch.tensor(sizes, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    starts = torch.cat([torch.zeros(1, dtype=torch.int32), ends[:-1]])
    a = torch.randn(rows, k, dtype=torch.bfloat16)
    b = torch.randn(groups, k, n, dtype=torch.bfloat16)
    return grouped_matmul, (a, b, starts, ends, max(sizes)), reference
