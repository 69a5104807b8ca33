"""Cross entropy of rows of bfloat16 logits and a label each, in float32."""

import helion
import helion.language as hl
import torch

# rows, classes
SHAPES = {"small": (4096, 32000), "medium": (8192, 50257), "large": (16384, 128256)}


@helion.kernel(static_shapes=True)
def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``logsumexp(row) - row[label]`` for each row."""
    n, classes = logits.size()
    out = torch.empty([n], dtype=torch.float32, device=logits.device)
    flat = logits.view(-1)
    for tile_n in hl.tile(n):
        picked = hl.load(flat, [tile_n.index * classes + labels[tile_n]]).to(torch.float32)
        row = logits[tile_n, :].to(torch.float32)
        top = torch.amax(row, dim=-1, keepdim=True)
        total = torch.sum(torch.exp(row - top), dim=-1)
        out[tile_n] = torch.log(total) + top.squeeze(-1) - picked
    return out


def reference(logits, labels):
    """The same with PyTorch's own operator."""
    return torch.nn.functional.cross_entropy(logits.float(), labels, reduction="none")


def helion_kernel(shape="medium"):
    """Kernel, arguments, reference."""
    n, classes = SHAPES[shape]
    logits = torch.randn(n, classes, dtype=torch.bfloat16)
    return cross_entropy, (logits, torch.randint(0, classes, (n,))), reference
