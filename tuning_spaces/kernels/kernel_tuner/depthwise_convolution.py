"""Depthwise 7 x 7 convolution of 32 float32 images of 56 x 56 x 256, the channels coming last.

Tuning parameters:

- ``block_size_x``: threads of a block along the channels.
- ``block_size_y``, ``block_size_z``: threads of a block along the width and the height.
- ``vector``: neighbouring channels of a thread, which one load or store takes.
- ``pixels_x``, ``pixels_y``: neighbouring pixels that a thread computes in each direction.
- ``input_memory``: ``through_shared`` copies the block's pixels and their border to shared memory
  first; ``from_global`` relies on the caches.
- ``filter_memory``: weights are read where they lie ``in_global`` memory (the caches), or a block
  first puts those of its channels ``in_shared`` memory.
- ``order``: ``by_tap`` takes one weight after another for all pixels of the thread;
  ``by_filter_row`` keeps a row of weights in registers and passes over all rows of pixels;
  ``by_input_row`` keeps a row of pixels and passes over all rows of weights that meet it.
- ``unroll_rows``: the outermost loop (over rows of the filter or, ``by_input_row``, of the input)
  is unrolled as well.

Constraints: 64 to 512 threads; a block's pixels divide those of the image along both axes; at most
56 sums a thread and 16384 a block; orders other than ``by_tap`` only with several pixels along a
row, where registers spare loads, and ``by_input_row`` only with several rows; 48 KiB of shared
memory.
"""

from pathlib import Path

import numpy as np

FILTER = 7  # also said in the kernel

INFO = {
    "name": "depthwise_convolution-32x56x56x256",
    "note": "float32 depthwise 7 x 7 convolution, channels last, bound by loads and arithmetic",
    "default_configuration": {
        "block_size_x": 32,
        "block_size_y": 4,
        "block_size_z": 1,
        "vector": 1,
        "pixels_x": 1,
        "pixels_y": 1,
        "input_memory": "from_global",
        "filter_memory": "in_global",
        "order": "by_tap",
        "unroll_rows": 1,
    },
}

TUNE_PARAMS = {
    "block_size_x": [8, 16, 32],
    "block_size_y": [2, 4],
    "block_size_z": [1, 4],
    "vector": [1, 2, 4],
    "pixels_x": [1, 2, 4, 7],
    "pixels_y": [1, 4, 7],
    "input_memory": ["from_global", "through_shared"],
    "filter_memory": ["in_global", "in_shared"],
    "order": ["by_tap", "by_filter_row", "by_input_row"],
    "unroll_rows": [0, 1],
}

RESTRICTIONS = [
    "64 <= block_size_x * block_size_y * block_size_z <= 512",
    "56 % (block_size_y * pixels_x) == 0",
    "56 % (block_size_z * pixels_y) == 0",
    "pixels_x * pixels_y * vector <= 56",
    "pixels_x * pixels_y * vector * block_size_x * block_size_y * block_size_z <= 16384",
    "order == 'by_tap' or pixels_x > 1",
    "order != 'by_input_row' or pixels_y > 1",
    "((input_memory == 'through_shared') * (block_size_y * pixels_x + 6)"
    " * (block_size_z * pixels_y + 6) + (filter_memory == 'in_shared') * 49)"
    " * block_size_x * vector * 4 <= 48 * 1024",
]


def tune_kernel_arguments(
    images: int = 32, height: int = 56, width: int = 56, channels: int = 256
) -> dict:
    """Keyword arguments of ``tune_kernel`` for a batch of this size (without its border)."""
    rng = np.random.default_rng(0)
    padded = (images, height + FILTER - 1, width + FILTER - 1, channels)
    batch = rng.random(padded, dtype=np.float32)
    weights = rng.standard_normal((FILTER, FILTER, channels), dtype=np.float32) / FILTER
    sizes = [np.int32(size) for size in (channels, width, height)]
    return {
        "kernel_name": "depthwise_convolution",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": (channels, width, images * height),
        "grid_div_x": ["block_size_x", "vector"],
        "grid_div_y": ["block_size_y", "pixels_x"],
        "grid_div_z": ["block_size_z", "pixels_y"],
        "arguments": [
            np.zeros((images, height, width, channels), dtype=np.float32),
            batch,
            weights,
            *sizes,
        ],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [reference(batch, weights), *(None for _ in range(5))],
        "verify": close_enough,
        "lang": "CUDA",
    }


def reference(batch: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The convolution in double precision; a few rows at a time, which stay in the cache."""
    images, height, width, channels = (
        size - less for size, less in zip(batch.shape, (0, FILTER - 1, FILTER - 1, 0), strict=True)
    )
    convolved = np.empty((images, height, width, channels), dtype=np.float32)
    exact_weights = weights.astype(np.float64)
    for image, result in zip(batch, convolved, strict=True):
        for y in range(height):
            rows = image[y : y + FILTER].astype(np.float64)
            sums = np.zeros((width, channels))
            for v in range(FILTER):
                for u in range(FILTER):
                    sums += rows[v, u : u + width] * exact_weights[v, u]
            result[y] = sums
    return convolved


def close_enough(answer: list, result: list) -> bool:
    """The largest error of a pixel; an image at a time, which is fast."""
    errors = [np.abs(a - r).max() for a, r in zip(answer[0], result[0], strict=True)]
    return bool(np.max(errors) < 1e-4)
