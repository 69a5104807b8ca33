"""One time step of a D2Q9 lattice-Boltzmann fluid, 2048 x 1728 float32 cells, periodic borders.

Tuning parameters:

- ``block_size_x``, ``block_size_y``: threads of a block along x and y.
- ``cells_x``: cells of a row that a thread takes at once.
- ``cells_y``: rows that it takes one after another, unrolled; they lie ``block_size_y`` apart.
- ``arrangement``: a thread's cells of a row lie a block's width ``apart``, ``side_by_side``, or
  so and are loaded and stored ``in_vectors`` where they can be.
- ``exchange``: how populations come to the next cell: each cell stores them ``direct`` where they
  go, which is not aligned; they move along x ``through_shared`` memory, so that all but the ends of
  the block's rows is aligned; or the block also collides the cells around its own (``with_halo``),
  keeps all in shared memory and stores what its own cells receive, always aligned.
- ``wrap``: coordinates pass the border ``by_remainder`` or ``by_comparison``.
- ``velocity``: momentum becomes velocity ``by_division`` of both components or ``by_reciprocal``,
  one division and two products.
- ``streaming_stores``: stores ask the caches not to keep the result.
- ``min_blocks``: blocks that must fit a multiprocessor, which limits the registers.

Constraints: 128 to 512 threads; at most 8 cells a thread; an arrangement only of several cells a
row; with the cells around, at least 4 rows of a block's own and 48 KiB of shared memory; more than
one block required only where the threads fit a multiprocessor and 21 registers are left for each of
a thread's cells in a row.

The input comes before the collision, the result after the move, so that a step is the same for all
configurations; a kernel that reads from the next cells and collides then would be another step.
"""

from pathlib import Path

import numpy as np

OMEGA = 1.2
DIRECTIONS = [(q % 3 - 1, q // 3 - 1) for q in range(9)]  # along x and y
WEIGHTS = [(4 / 9, 1 / 9, 1 / 36)[x * x + y * y] for x, y in DIRECTIONS]

INFO = {
    "name": "lattice_boltzmann-2048x1728",
    "note": "float32 fluid, D2Q9 collision and streaming, bound by memory traffic",
    "default_configuration": {
        "block_size_x": 128,
        "block_size_y": 2,
        "cells_x": 1,
        "cells_y": 1,
        "arrangement": "apart",
        "exchange": "direct",
        "wrap": "by_remainder",
        "velocity": "by_division",
        "streaming_stores": 0,
        "min_blocks": 1,
    },
}

TUNE_PARAMS = {
    "block_size_x": [32, 64, 128, 256],
    "block_size_y": [1, 2, 4],
    "cells_x": [1, 2, 4],
    "cells_y": [1, 4],
    "arrangement": ["apart", "side_by_side", "in_vectors"],
    "exchange": ["direct", "through_shared", "with_halo"],
    "wrap": ["by_remainder", "by_comparison"],
    "velocity": ["by_division", "by_reciprocal"],
    "streaming_stores": [0, 1],
    "min_blocks": [1, 6],
}

RESTRICTIONS = [
    "128 <= block_size_x * block_size_y <= 512",
    "cells_x * cells_y <= 8",
    "cells_x > 1 or arrangement == 'apart'",
    "exchange != 'with_halo' or block_size_y * cells_y >= 4",
    "exchange != 'with_halo' or (block_size_x * cells_x + 2) * (block_size_y * cells_y + 2) * 36"
    " <= 48 * 1024",
    "min_blocks == 1 or min_blocks * block_size_x * block_size_y <= 2048",
    "min_blocks == 1 or min_blocks * block_size_x * block_size_y * cells_x <= 3072",
]

COMPARED_ROWS = 16  # at a time, so that they stay in the cache


def tune_kernel_arguments(width: int = 2048, height: int = 1728) -> dict:
    """Keyword arguments of ``tune_kernel`` for so many cells."""
    now = np.random.default_rng(0).random((9, height, width), dtype=np.float32)
    for populations, weight in zip(now, WEIGHTS, strict=True):  # around a fluid at rest
        populations += 0.5
        populations *= weight
    return {
        "kernel_name": "lattice_boltzmann",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": (width, height),
        "grid_div_x": ["block_size_x", "cells_x"],
        "grid_div_y": ["block_size_y", "cells_y"],
        "arguments": [
            np.zeros_like(now),
            now,
            np.float32(OMEGA),
            np.int32(width),
            np.int32(height),
        ],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [reference(now), None, None, None, None],
        "verify": close_enough,
        "lang": "CUDA",
    }


def reference(now: np.ndarray) -> np.ndarray:
    """The populations after a collision, in double precision, and a move to the next cells."""
    following = np.empty_like(now)
    for i in range(0, now.shape[1], COMPARED_ROWS):
        f = now[:, i : i + COMPARED_ROWS].astype(np.float64)
        density = f.sum(axis=0)
        ux, uy = (
            sum(d[axis] * part for d, part in zip(DIRECTIONS, f, strict=True) if d[axis]) / density
            for axis in (0, 1)
        )
        still = 1 - 1.5 * (ux * ux + uy * uy)
        for q, (x, y) in enumerate(DIRECTIONS):
            u = x * ux + y * uy
            equilibrium = WEIGHTS[q] * density * (still + u * (3 + 4.5 * u))
            following[q, i : i + COMPARED_ROWS] = f[q] + OMEGA * (equilibrium - f[q])
    for q, (x, y) in enumerate(DIRECTIONS):
        following[q] = np.roll(following[q], (y, x), axis=(0, 1))
    return following


def close_enough(answer: list, result: list) -> bool:
    """The largest error of a population; fast."""
    rows = [slice(i, i + COMPARED_ROWS) for i in range(0, answer[0].shape[1], COMPARED_ROWS)]
    errors = [np.abs(answer[0][:, part] - result[0][:, part]).max() for part in rows]
    return bool(np.max(errors) < 1e-5)
