"""Chunk scan of a state-space model, as in Mamba-2: outputs of a chunk from the state before it and
from the chunk's own inputs (Dao and Gu 2024, section 6).

For position i of a chunk, with a the running sum of dt * A (its decay in logarithms):
``out[i] = exp(a[i]) * C[i] @ state + sum_{j <= i} CB[i, j] * exp(a[i] - a[j]) * dt[j] * x[j]``.
"""

import helion
import helion.language as hl
import torch

# batch, chunks, positions of a chunk, heads, groups of heads, head dimension, state dimension
SHAPES = {
    "small": (1, 8, 256, 32, 1, 64, 64),
    "medium": (4, 16, 256, 64, 1, 64, 128),
    "large": (8, 32, 256, 80, 1, 64, 128),
}


@helion.kernel(static_shapes=True)
def chunk_scan(
    cb: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    decay: torch.Tensor,
    c: torch.Tensor,
    states: torch.Tensor,
) -> torch.Tensor:
    """Outputs (batch, chunks, positions, heads, d); shapes as in :func:`helion_kernel`."""
    batch, chunks, groups, length, _ = cb.size()
    heads = x.size(3)
    d = x.size(4)
    out = torch.empty_like(x)
    block_m = hl.register_block_size(length)
    for tile_b, tile_c, tile_h, tile_m, tile_d in hl.tile(
        [batch, chunks, heads, length, d], block_size=[1, 1, 1, block_m, None]
    ):
        b = tile_b.begin
        z = tile_c.begin
        h = tile_h.begin
        g = h // (heads // groups)
        decay_m = decay[b, h, z, tile_m].to(torch.float32)
        before = hl.dot(c[b, z, tile_m, g, :], states[b, z, h, :, tile_d])
        acc = before * torch.exp2(decay_m * 1.4426950408889634)[:, None]
        for tile_k in hl.tile(tile_m.end):
            decay_k = decay[b, h, z, tile_k].to(torch.float32)
            grown = torch.exp2((decay_m[:, None] - decay_k[None, :]) * 1.4426950408889634)
            weight = cb[b, z, g, tile_m, tile_k].to(torch.float32) * grown
            weight = weight * dt[b, h, z, tile_k].to(torch.float32)[None, :]
            past = tile_m.index[:, None] >= tile_k.index[None, :]
            weight = torch.where(past, weight, torch.zeros_like(weight))
            acc = hl.dot(weight.to(x.dtype), x[b, z, tile_k, h, tile_d], acc=acc)
        out[b, z, tile_m, h, tile_d] = acc.to(out.dtype)
    return out


def reference(cb, x, dt, decay, c, states):
    """The formula with PyTorch's own operators."""
    heads = x.size(3)
    per_group = heads // cb.size(2)
    length = cb.size(3)
    a = decay.float().permute(0, 2, 1, 3)  # (batch, chunks, heads, positions)
    steps = dt.float().permute(0, 2, 1, 3)
    past = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
    difference = (a[..., :, None] - a[..., None, :]).masked_fill(~past, float("-inf"))
    weight = cb.float().repeat_interleave(per_group, 2) * difference.exp() * steps[..., None, :]
    own = torch.einsum("bzhij,bzjhd->bzihd", weight.to(x.dtype), x)
    spread = c.repeat_interleave(per_group, 3)
    read = torch.einsum("bzihs,bzhsd->bzihd", spread, states)
    return (read.float() * a.exp().permute(0, 1, 3, 2)[..., None] + own.float()).to(x.dtype)


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    batch, chunks, length, heads, groups, d, state = SHAPES[shape]
    half = torch.bfloat16
    cb = torch.randn(batch, chunks, groups, length, length, dtype=half)
    x = torch.randn(batch, chunks, length, heads, d, dtype=half)
    dt = torch.rand(batch, heads, chunks, length) * 0.1
    decay = -torch.cumsum(dt, -1)  # A = -1
    c = torch.randn(batch, chunks, length, groups, state, dtype=half)
    states = torch.randn(batch, chunks, heads, state, d, dtype=half)
    return chunk_scan, (cb, x, dt, decay, c, states), reference
