"""Bilateral filter of a 2048 x 2048 float32 image, a window of 11 x 11 pixels.

Tuning parameters:

- ``block_size_x``, ``block_size_y``: threads of a block along x and y.
- ``pixels_x``, ``pixels_y``: pixels that a thread filters in each direction.
- ``spacing``: a thread's pixels are ``adjacent``, which lets them share the values of their windows
  in registers, or lie ``block_apart``, which lets threads side by side read values side by side.
- ``vector``: floats that one load takes: on the way to shared memory, and (at most ``pixels_x``) of
  adjacent pixels' windows on the way to registers.
- ``window_memory``: windows are read ``through_cache``, that is, by the read-only path from global
  memory, or from a tile of the image that comes ``through_shared`` memory.
- ``range_weight``: the weight of a difference in value is a ``natural_exponential``, a
  ``power_of_two`` (what the hardware approximates), a ``polynomial`` times a power of two from
  integer arithmetic, or comes by linear interpolation from a ``table`` in shared memory.
- ``spatial_weight``: that of a distance is read ``from_array`` for each pixel of the window, is
  ``factored`` into one for each column, in registers, and one for the sum of each row, or goes with
  the range weight, ``in_exponent``.
- ``unroll_rows``: rows of the window that are unrolled; 11 unrolls all that a thread reads.

Constraints: 128 to 512 threads; at most 1024 pixels a block, and 2 a thread where all rows are
unrolled; a single pixel is ``block_apart``; vectors only where windows of adjacent pixels side by
side are read by them; no exponent with a table. Shared memory then stays below 20 KiB.
"""

from pathlib import Path

import numpy as np

RADIUS = 5  # this and the next also said in the kernel
INTERVALS = 512
SPACE_SIGMA = 3.0
RANGE_SIGMA = 0.1

INFO = {
    "name": "bilateral_filter-2048x2048",
    "note": "float32 bilateral filter, bound by arithmetic and exponentials",
    "default_configuration": {
        "block_size_x": 32,
        "block_size_y": 8,
        "pixels_x": 1,
        "pixels_y": 1,
        "spacing": "block_apart",
        "vector": 1,
        "window_memory": "through_shared",
        "range_weight": "natural_exponential",
        "spatial_weight": "from_array",
        "unroll_rows": 1,
    },
}

TUNE_PARAMS = {
    "block_size_x": [16, 32, 64],
    "block_size_y": [4, 8, 16],
    "pixels_x": [1, 2, 4],
    "pixels_y": [1, 2],
    "spacing": ["adjacent", "block_apart"],
    "vector": [1, 4],
    "window_memory": ["through_cache", "through_shared"],
    "range_weight": ["natural_exponential", "power_of_two", "polynomial", "table"],
    "spatial_weight": ["from_array", "factored", "in_exponent"],
    "unroll_rows": [1, 11],
}

RESTRICTIONS = [
    "128 <= block_size_x * block_size_y <= 512",
    "block_size_x * block_size_y * pixels_x * pixels_y <= 1024",
    "pixels_x * pixels_y <= 2 or unroll_rows == 1",
    "pixels_x * pixels_y > 1 or spacing == 'block_apart'",
    "vector == 1 or (spacing == 'adjacent' and pixels_x > 1)",
    "spatial_weight != 'in_exponent' or range_weight != 'table'",
]


def tune_kernel_arguments(width: int = 2048, height: int = 2048) -> dict:
    """Keyword arguments of ``tune_kernel`` for an image of this size."""
    rng = np.random.default_rng(0)
    y, x = np.ogrid[:height, :width]
    # Slopes and noise, with edges between squares that alternate.
    image = 0.25 + 0.25 * np.sin(x / 50) * np.cos(y / 70) + 0.4 * ((x // 24 + y // 24) % 2)
    image += 0.05 * rng.standard_normal((height, width))
    padded = np.pad(image.clip(0, 1).astype(np.float32), RADIUS, mode="edge")
    axis_weights = np.exp(-np.square(np.arange(-RADIUS, RADIUS + 1)) / (2 * SPACE_SIGMA**2))
    arrays = (
        np.pad(padded, ((0, 0), (0, 2))),
        range_lines(),
        np.outer(axis_weights, axis_weights),
        axis_weights,
    )
    return {
        "kernel_name": "bilateral_filter",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": (width, height),
        "grid_div_x": ["block_size_x", "pixels_x"],
        "grid_div_y": ["block_size_y", "pixels_y"],
        "arguments": [
            np.zeros((height, width), dtype=np.float32),
            *(array.astype(np.float32) for array in arrays),
            np.float32(-1 / (2 * RANGE_SIGMA**2)),
            np.float32(-1 / (2 * SPACE_SIGMA**2)),
            np.int32(width),
        ],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [reference(padded), *(None for _ in range(7))],
        "verify": close_enough,
        "lang": "CUDA",
    }


def range_lines() -> np.ndarray:
    """Lines (value at 0, slope) that approximate range weights around each of the differences."""
    centres = np.arange(INTERVALS + 1) / INTERVALS
    ends = centres + np.array([[-0.5], [0.5]]) / INTERVALS
    low, high = np.exp(-np.square(ends) / (2 * RANGE_SIGMA**2))
    slopes = (high - low) * INTERVALS
    return np.stack([low - slopes * ends[0], slopes], axis=1)


def reference(padded: np.ndarray) -> np.ndarray:
    """The filtered image without its padding, in double precision."""
    image = padded.astype(np.float64)
    sums, weights = image.copy(), np.ones_like(image)  # what pixels give to themselves
    height, width = image.shape
    strip = 16  # rows at a time, so that they stay in the cache
    for top in range(0, height, strip):
        # Each pair of pixels once: its weight is that of both.
        for dy in range(RADIUS + 1):
            for dx in range(-RADIUS if dy else 1, RADIUS + 1):
                bottom = min(top + strip, height - dy)
                here = slice(top, bottom), slice(max(0, -dx), width - max(0, dx))
                there = slice(top + dy, bottom + dy), slice(max(0, dx), width - max(0, -dx))
                exponent = image[here] - image[there]
                exponent *= exponent
                exponent /= -2 * RANGE_SIGMA**2
                exponent -= (dx * dx + dy * dy) / (2 * SPACE_SIGMA**2)
                weight = np.exp(exponent, out=exponent)
                sums[here] += weight * image[there]
                sums[there] += weight * image[here]
                weights[here] += weight
                weights[there] += weight
    inner = slice(RADIUS, -RADIUS), slice(RADIUS, -RADIUS)
    return (sums[inner] / weights[inner]).astype(np.float32)


def close_enough(answer: list, result: list) -> bool:
    """The largest error of a pixel; fast."""
    return bool(np.abs(answer[0] - result[0]).max() < 1e-4)
