"""One time step of the acoustic wave equation, eighth order in space, on 256 x 256 x 192 points.

Tuning parameters:

- ``block_size_x``, ``block_size_y``: threads of a block along x and y.
- ``tile_x``, ``tile_y``: columns of points that a thread owns in each direction, a block apart.
- ``planes``: points along z that a block walks over: long walks reuse, short ones make more blocks.
- ``plane_memory``: neighbours along x and y are read ``from_global`` memory (the caches), or the
  plane comes ``through_shared`` memory.
- ``shared_planes``: two planes in turn save a barrier and cost twice the shared memory.
- ``column_memory``: neighbours along z are ``reloaded`` on each plane, or pass through nine
  registers a column (``in_registers``).
- ``read_only``: fields are read through the read-only path.
- ``unroll_z``: planes that are unrolled.

Constraints: 128 to 512 threads; the block's rectangle divides the plane; at most 8 columns a
thread, and 4 when they pass through registers; 48 KiB of shared memory; two planes only in shared
memory; unrolling only with registers, which it spares the moving.
"""

from pathlib import Path

import numpy as np

RADIUS = 4
WEIGHTS = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)

INFO = {
    "name": "stencil-256x256x192",
    "note": "float32 wave equation, a star of 25 points, bound by memory traffic",
    "default_configuration": {
        "block_size_x": 32,
        "block_size_y": 8,
        "tile_x": 1,
        "tile_y": 1,
        "planes": 64,
        "plane_memory": "through_shared",
        "shared_planes": 1,
        "column_memory": "in_registers",
        "read_only": 0,
        "unroll_z": 1,
    },
}

TUNE_PARAMS = {
    "block_size_x": [32, 64, 128],
    "block_size_y": [1, 2, 4, 8, 16],
    "tile_x": [1, 2],
    "tile_y": [1, 2, 4],
    "planes": [16, 64, 192],
    "plane_memory": ["from_global", "through_shared"],
    "shared_planes": [1, 2],
    "column_memory": ["reloaded", "in_registers"],
    "read_only": [0, 1],
    "unroll_z": [1, 2],
}

RESTRICTIONS = [
    "128 <= block_size_x * block_size_y <= 512",
    "block_size_x * tile_x <= 256",
    "tile_x * tile_y <= 8",
    "tile_x * tile_y <= 4 or column_memory == 'reloaded'",
    "shared_planes == 1 or plane_memory == 'through_shared'",
    "unroll_z == 1 or column_memory == 'in_registers'",
    "plane_memory == 'from_global' or shared_planes * (block_size_x * tile_x + 8)"
    " * (block_size_y * tile_y + 8) * 4 <= 48 * 1024",
]


def tune_kernel_arguments(width: int = 256, height: int = 256, depth: int = 192) -> dict:
    """Keyword arguments of ``tune_kernel`` for a field of this size (without its border)."""
    rng = np.random.default_rng(0)
    shape = tuple(size + 2 * RADIUS for size in (depth, height, width))
    u, previous, velocity = (rng.random(shape, dtype=np.float32) for _ in range(3))
    velocity *= 0.1
    sizes = [np.int32(size) for size in (width, height, depth)]
    return {
        "kernel_name": "stencil",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": (width, height, depth),
        "grid_div_x": ["block_size_x", "tile_x"],
        "grid_div_y": ["block_size_y", "tile_y"],
        "grid_div_z": ["planes"],
        "arguments": [np.zeros(shape, dtype=np.float32), u, previous, velocity, *sizes],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [reference(u, previous, velocity), *(None for _ in range(6))],
        "verify": close_enough,
        "lang": "CUDA",
    }


def reference(u: np.ndarray, previous: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """The next time step; 0 on the border, which the kernel does not write."""
    inner = (slice(RADIUS, -RADIUS),) * 3
    laplacian = 3 * WEIGHTS[0] * u[inner]
    for axis in range(3):
        for distance in range(1, RADIUS + 1):
            for shift in (-distance, distance):
                beside = list(inner)
                beside[axis] = slice(RADIUS + shift, u.shape[axis] - RADIUS + shift)
                laplacian += WEIGHTS[distance] * u[tuple(beside)]
    following = np.zeros_like(u)
    following[inner] = 2 * u[inner] - previous[inner] + velocity[inner] * laplacian
    return following


def close_enough(answer: list, result: list) -> bool:
    """The largest error at any point; fast."""
    return bool(np.abs(answer[0] - result[0]).max() < 1e-4)
