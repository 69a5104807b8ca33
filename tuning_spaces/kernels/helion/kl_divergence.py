"""Kullback-Leibler divergence of rows in float32: log-probabilities against probabilities."""

import helion
import helion.language as hl
import torch

# rows, classes
SHAPES = {"small": (1024, 4096), "medium": (4096, 16384), "large": (8192, 131072)}


@helion.kernel(static_shapes=True)
def kl_divergence(log_q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """``sum(p * (log p - log q))`` for each row."""
    m, n = log_q.size()
    out = torch.empty([m], dtype=torch.float32, device=log_q.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n):
            pt = p[tile_m, tile_n]
            log_p = torch.log(torch.clamp(pt, min=1e-10))
            acc = acc + (pt * (log_p - log_q[tile_m, tile_n])).sum(-1)
        out[tile_m] = acc
    return out


def reference(log_q, p):
    """The same with PyTorch's own operator."""
    return torch.nn.functional.kl_div(log_q, p, reduction="none").sum(-1)


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    log_q = torch.randn(SHAPES[shape]).log_softmax(-1)
    return kl_divergence, (log_q, torch.randn(SHAPES[shape]).softmax(-1)), reference
