"""Attention in float16 with a running softmax, so that no score matrix is stored."""

import math

import helion
import helion.language as hl
import torch

# batch, heads, length, head dimension
SHAPES = {
    "small": (2, 32, 1024, 64),
    "medium": (4, 16, 4096, 128),
    "large": (4, 32, 8192, 128),
}


@helion.kernel(static_shapes=True)
def attention(q_in: torch.Tensor, k_in: torch.Tensor, v_in: torch.Tensor) -> torch.Tensor:
    """``softmax(q @ k.T / sqrt(d)) @ v`` for each batch and head."""
    rows = q_in.size(-2)
    columns = k_in.size(-2)
    head_dim = hl.specialize(q_in.size(-1))
    q = q_in.reshape([-1, rows, head_dim])
    k = k_in.reshape([-1, columns, head_dim]).transpose(1, 2)
    v = v_in.reshape([-1, columns, head_dim])
    out = torch.empty_like(q)
    log2_scale = 1.4426950408889634 / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([q.size(0), rows]):
        top = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = torch.full_like(top, 1.0)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=torch.float32)
        q_tile = q[tile_b, tile_m, :]
        for tile_n in hl.tile(columns):
            s = torch.bmm(q_tile, k[tile_b, :, tile_n])
            new_top = torch.maximum(top, torch.amax(s, -1) * log2_scale)
            p = torch.exp2(s * log2_scale - new_top[:, :, None])
            shrink = torch.exp2(top - new_top)
            total = total * shrink + torch.sum(p, -1)
            acc = acc * shrink[:, :, None]
            v_tile = v[tile_b, tile_n, :]
            acc = torch.baddbmm(acc, p.to(v_tile.dtype), v_tile)
            top = new_top
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
    return out.view(q_in.size())


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    q, k, v = (torch.randn(SHAPES[shape], dtype=torch.float16) for _ in range(3))
    return attention, (q, k, v), torch.nn.functional.scaled_dot_product_attention
