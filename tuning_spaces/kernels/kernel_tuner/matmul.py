"""Matrix product of float32 matrices, 2048 x 1024 times 1024 x 2048.

Tuning parameters:

- ``block_size_x``, ``block_size_y``: threads along the columns and the rows of a block's tile.
- ``tile_x``, ``tile_y``: columns and rows of the product that a thread computes, in registers.
- ``tile_k``: how far along k the tiles in shared memory reach.
- ``vector``: floats that one load from global memory takes.
- ``pipeline``: ``direct`` loads a tile and then multiplies it; ``register_prefetch`` loads the next
  tile into registers meanwhile; ``double_buffer`` has two tiles in shared memory, which costs twice
  the shared memory and saves a barrier.
- ``interleaved``: a thread's columns are a block's width apart (1) or side by side (0): reads of
  shared memory without bank conflicts, or wide ones.
- ``padding``: floats between the rows of A's transposed tile, against bank conflicts.
- ``unroll_k``: steps along k that are unrolled.

Constraints: 64 to 256 threads; a block's tile has 32 to 128 rows and columns; each thread loads
the same number of vectors of both tiles; 16 to 64 sums a thread; 48 KiB of shared memory.
"""

from pathlib import Path

import numpy as np

INFO = {
    "name": "matmul-2048x2048x1024",
    "note": "float32 matrix product on CUDA cores, no tensor cores",
    "default_configuration": {
        "block_size_x": 16,
        "block_size_y": 16,
        "tile_x": 4,
        "tile_y": 4,
        "tile_k": 16,
        "vector": 4,
        "pipeline": "direct",
        "interleaved": 0,
        "padding": 4,
        "unroll_k": 8,
    },
}

TUNE_PARAMS = {
    "block_size_x": [8, 16, 32],
    "block_size_y": [4, 8, 16, 32],
    "tile_x": [2, 4, 8],
    "tile_y": [2, 4, 8],
    "tile_k": [8, 16],
    "vector": [1, 4],
    "pipeline": ["direct", "register_prefetch", "double_buffer"],
    "interleaved": [0, 1],
    "padding": [0, 4],
    "unroll_k": [2, 8],
}

RESTRICTIONS = [
    "64 <= block_size_x * block_size_y <= 256",
    "32 <= block_size_x * tile_x <= 128",
    "32 <= block_size_y * tile_y <= 128",
    "16 <= tile_x * tile_y",
    "(tile_y * tile_k) % (block_size_x * vector) == 0",
    "(tile_x * tile_k) % (block_size_y * vector) == 0",
    "((pipeline == 'double_buffer') + 1) * tile_k * (block_size_y * tile_y + padding"
    " + block_size_x * tile_x) * 4 <= 48 * 1024",
]


def tune_kernel_arguments(m: int = 2048, n: int = 2048, k: int = 1024) -> dict:
    """Keyword arguments of ``tune_kernel``: C (m x n) = A (m x k) B (k x n)."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k), dtype=np.float32)
    b = rng.standard_normal((k, n), dtype=np.float32)
    sizes = [np.int32(size) for size in (m, n, k)]
    return {
        "kernel_name": "matmul",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": (n, m),
        "grid_div_x": ["block_size_x", "tile_x"],
        "grid_div_y": ["block_size_y", "tile_y"],
        "arguments": [np.zeros((m, n), dtype=np.float32), a, b, *sizes],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [a @ b, None, None, None, None, None],
        "verify": close_enough,
        "lang": "CUDA",
    }


def close_enough(answer: list, result: list) -> bool:
    """The largest error of sums of about a thousand products of normal numbers; fast."""
    return bool(np.abs(answer[0] - result[0]).max() < 1e-2)
