"""The sum of squares of each row of a 16384 x 4096 float32 matrix.

Tuning parameters:

- ``block_size_x``: threads that share a row (or the part of it that ``split`` leaves them).
- ``block_size_y``: such groups of threads in a block, each on rows of its own.
- ``rows_per_thread``: rows that a group works on at once.
- ``vector``: floats that one load takes.
- ``loads_in_flight``: vectors of a row that a thread loads before it adds, to as many sums.
- ``split``: parts of a row that go to different blocks, which add up atomically.
- ``combine``: a group's sums are combined ``by_shuffle`` within warps, then across, or in a tree
  ``by_shared`` memory.
- ``load``: ``plain``, through the ``read_only`` path, or ``streaming`` past the caches.

Constraints: 128 to 512 threads; a part of a row is a multiple of what a group loads at once; 8 to
32 floats a thread under way; more than one part only with long rows of work (at least two rounds).
"""

from pathlib import Path

import numpy as np

INFO = {
    "name": "reduction-16384x4096",
    "note": "float32 sum of squares by row, bound by memory traffic",
    "default_configuration": {
        "block_size_x": 256,
        "block_size_y": 1,
        "rows_per_thread": 1,
        "vector": 4,
        "loads_in_flight": 2,
        "split": 1,
        "combine": "by_shuffle",
        "load": "plain",
    },
}

TUNE_PARAMS = {
    "block_size_x": [16, 32, 64, 128, 256],
    "block_size_y": [1, 2, 4, 8, 16],
    "rows_per_thread": [1, 2],
    "vector": [1, 2, 4],
    "loads_in_flight": [1, 2, 4, 8],
    "split": [1, 2, 4],
    "combine": ["by_shuffle", "by_shared"],
    "load": ["plain", "read_only", "streaming"],
}

RESTRICTIONS = [
    "128 <= block_size_x * block_size_y <= 512",
    "8 <= rows_per_thread * vector * loads_in_flight <= 32",
    "split == 1 or split * block_size_x * vector * loads_in_flight <= 2048",
]


def tune_kernel_arguments(rows: int = 16384, columns: int = 4096) -> dict:
    """Keyword arguments of ``tune_kernel`` for a matrix of this size."""
    matrix = np.random.default_rng(0).random((rows, columns), dtype=np.float32)
    # Added up in chunks: exact enough, and the matrix is not copied to double precision.
    exact = np.einsum("ij,ij->i", matrix, matrix)
    return {
        "kernel_name": "reduction",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": ("split", rows),
        "grid_div_x": [],
        "grid_div_y": ["block_size_y", "rows_per_thread"],
        "arguments": [np.zeros(rows, dtype=np.float32), matrix, np.int32(columns)],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [exact, None, None],
        "verify": close_enough,
        "lang": "CUDA",
    }


def close_enough(answer: list, result: list) -> bool:
    """The largest relative error of a row."""
    return bool(np.abs(result[0] / answer[0] - 1).max() < 1e-4)
