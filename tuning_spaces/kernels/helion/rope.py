"""Rotary position embedding in bfloat16: each pair (i, i + d/2) of a head turned by its angle."""

import helion
import helion.language as hl
import torch

# batch, heads, length, head dimension
SHAPES = {
    "small": (2, 32, 1024, 64),
    "medium": (4, 32, 4096, 128),
    "large": (8, 32, 8192, 128),
}


@helion.kernel(static_shapes=True)
def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """``x`` (batch, heads, length, d) turned by ``cos`` and ``sin`` (length, d/2)."""
    length = x.size(-2)
    half = hl.specialize(x.size(-1) // 2)
    halves = x.view([-1, length, 2, half])
    out = torch.empty_like(halves)
    for tile_h, tile_s in hl.tile([halves.size(0), length]):
        c = cos[tile_s, :].to(torch.float32)[None, :, :]
        s = sin[tile_s, :].to(torch.float32)[None, :, :]
        first = halves[tile_h, tile_s, 0, :].to(torch.float32)
        second = halves[tile_h, tile_s, 1, :].to(torch.float32)
        out[tile_h, tile_s, 0, :] = (first * c - second * s).to(out.dtype)
        out[tile_h, tile_s, 1, :] = (second * c + first * s).to(out.dtype)
    return out.view(x.size())


def reference(x, cos, sin):
    """The same with PyTorch's own operators, as models write it."""
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat([-second, first], dim=-1)
    return (x * torch.cat([cos, cos], -1) + rotated * torch.cat([sin, sin], -1)).to(x.dtype)


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    _, _, length, d = SHAPES[shape]
    frequency = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float32) / d)
    angle = torch.arange(length, dtype=torch.float32)[:, None] * frequency[None, :]
    x = torch.randn(SHAPES[shape], dtype=torch.bfloat16)
    return rope, (x, angle.cos(), angle.sin()), reference
