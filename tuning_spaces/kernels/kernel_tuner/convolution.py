"""2-D convolution of a 2048 x 2048 float32 image with a 21 x 21 filter.

Tuning parameters:

- ``block_size_x``, ``block_size_y``: threads of a block along the width and the height.
- ``tile_x``, ``tile_y``: pixels that a thread computes in each direction, a block apart.
- ``input_memory``: ``through_shared`` copies the block's pixels and their border to shared memory
  first; ``from_global`` relies on the caches.
- ``padding``: floats between the rows in shared memory, against bank conflicts.
- ``read_only``: image and filter in global memory are read through the read-only path.
- ``filter_memory``: where the filter is read from: ``in_constant``, ``in_shared``, ``in_global``.
- ``unroll_filter``: how many of a filter row's 21 columns are unrolled.

Constraints: 64 to 512 threads, whole warps; at most 16 pixels a thread; 48 KiB of shared memory;
padding only where blocks are narrower than a warp, and with shared memory; the read-only path only
where the inner loop reads global memory.
"""

from pathlib import Path

import numpy as np
from scipy.signal import fftconvolve

FILTER = 21

INFO = {
    "name": "convolution-2048x2048x21",
    "note": "float32 convolution with a dense 21 x 21 filter",
    "default_configuration": {
        "block_size_x": 32,
        "block_size_y": 8,
        "tile_x": 1,
        "tile_y": 1,
        "input_memory": "through_shared",
        "padding": 0,
        "read_only": 0,
        "filter_memory": "in_constant",
        "unroll_filter": 21,
    },
}

TUNE_PARAMS = {
    "block_size_x": [16, 32, 64, 128],
    "block_size_y": [1, 2, 4, 8, 16],
    "tile_x": [1, 2, 4],
    "tile_y": [1, 2, 4],
    "input_memory": ["from_global", "through_shared"],
    "padding": [0, 1],
    "read_only": [0, 1],
    "filter_memory": ["in_constant", "in_shared", "in_global"],
    "unroll_filter": [3, 21],
}

RESTRICTIONS = [
    "64 <= block_size_x * block_size_y <= 512",
    "(block_size_x * block_size_y) % 32 == 0",
    "tile_x * tile_y <= 16",
    "read_only == 0 or input_memory == 'from_global' or filter_memory == 'in_global'",
    "padding == 0 or (input_memory == 'through_shared' and block_size_x < 32)",
    "input_memory == 'from_global' or (block_size_x * tile_x + 20 + padding)"
    " * (block_size_y * tile_y + 20) * 4 + (filter_memory == 'in_shared') * 1764 <= 48 * 1024",
]


def tune_kernel_arguments(width: int = 2048, height: int = 2048) -> dict:
    """Keyword arguments of ``tune_kernel`` for an image of this size (without its border)."""
    rng = np.random.default_rng(0)
    image = rng.standard_normal((height + FILTER - 1, width + FILTER - 1), dtype=np.float32)
    weights = rng.standard_normal((FILTER, FILTER), dtype=np.float32)
    exact = fftconvolve(image.astype(np.float64), weights[::-1, ::-1], mode="valid")
    return {
        "kernel_name": "convolution",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": (width, height),
        "grid_div_x": ["block_size_x", "tile_x"],
        "grid_div_y": ["block_size_y", "tile_y"],
        "arguments": [
            np.zeros((height, width), dtype=np.float32),
            image,
            weights,
            np.int32(width),
            np.int32(height),
        ],
        "cmem_args": {"constant_filter": weights.ravel()},
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [exact.astype(np.float32), None, None, None, None],
        "verify": close_enough,
        "lang": "CUDA",
    }


def close_enough(answer: list, result: list) -> bool:
    """The largest error of sums of 441 products of normal numbers; fast."""
    return bool(np.abs(answer[0] - result[0]).max() < 1e-3)
