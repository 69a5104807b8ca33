"""Squared Euclidean distances of all pairs of 3072 and 3072 float32 points of 256 dimensions.

Tuning parameters:

- ``block_size_x``, ``block_size_y``: threads along the columns (points of the second set) and the
  rows (points of the first) of a block's tile.
- ``tile_x``, ``tile_y``: columns and rows for which a thread computes all distances, in registers.
- ``slab``: axes of the block's points that shared memory holds at a time.
- ``staging``: slabs are ``turned`` on their way to shared memory, so that one axis follows another
  and a thread reads neighbouring points at once; or turned with four floats between axes, against
  bank conflicts on the way (``turned_padded``); or stay ``as_is``, one point after another and
  always padded, so that a thread reads four axes of a point at once.
- ``row_memory``: rows come ``through_shared`` memory as the columns always do, or each thread reads
  its own ``from_global`` memory (the caches), four axes at once.
- ``form``: distances add up ``by_differences``, or come ``by_products`` as squares of the row plus
  squares of the column minus twice the products: half the arithmetic, and the squares as well.
- ``store``: a thread's columns lie a block's width apart and leave as ``floats``, or four lie side
  by side and leave as ``vectors``, or as ``streaming_vectors`` that the caches need not keep. Side
  by side, turned columns are also read four at once, and those as they are meet bank conflicts.
- ``unroll_axes``: axes that are unrolled.

Constraints: 64 to 256 threads; a block's tile has 32 to 128 rows and columns; at least 16 sums a
thread; each thread stages the same number of vectors; at most 512 terms unrolled; 48 KiB of shared
memory.
"""

from pathlib import Path

import numpy as np

INFO = {
    "name": "distance_matrix-3072x3072x256",
    "note": "float32 squared distances of all pairs, bound by arithmetic and shared memory",
    "default_configuration": {
        "block_size_x": 16,
        "block_size_y": 16,
        "tile_x": 4,
        "tile_y": 4,
        "slab": 16,
        "staging": "turned_padded",
        "row_memory": "through_shared",
        "form": "by_differences",
        "store": "floats",
        "unroll_axes": 4,
    },
}

TUNE_PARAMS = {
    "block_size_x": [8, 16, 32],
    "block_size_y": [4, 8, 16],
    "tile_x": [4, 8],
    "tile_y": [2, 4, 8],
    "slab": [16, 64],
    "staging": ["turned", "turned_padded", "as_is"],
    "row_memory": ["from_global", "through_shared"],
    "form": ["by_differences", "by_products"],
    "store": ["floats", "vectors", "streaming_vectors"],
    "unroll_axes": [4, 16],
}

RESTRICTIONS = [
    "64 <= block_size_x * block_size_y <= 256",
    "32 <= block_size_x * tile_x <= 128",
    "32 <= block_size_y * tile_y <= 128",
    "16 <= tile_x * tile_y",
    "row_memory == 'from_global' or (tile_y * slab) % (block_size_x * 4) == 0",
    "(tile_x * slab) % (block_size_y * 4) == 0",
    "tile_x * tile_y * unroll_axes <= 512",
    "4 * ((slab + 4 * (staging == 'as_is')) * (block_size_x * tile_x"
    " + (row_memory == 'through_shared') * block_size_y * tile_y)"
    " + (staging == 'turned_padded') * slab * 4 * (1 + (row_memory == 'through_shared')))"
    " <= 48 * 1024",
]

COMPARED_ROWS = 64  # at a time, so that they stay in the cache


def tune_kernel_arguments(rows: int = 3072, columns: int = 3072, dimensions: int = 256) -> dict:
    """Keyword arguments of ``tune_kernel`` for sets of so many points in a cube of side 1."""
    rng = np.random.default_rng(0)
    row_points = rng.random((rows, dimensions), dtype=np.float32)
    column_points = rng.random((columns, dimensions), dtype=np.float32)
    return {
        "kernel_name": "distance_matrix",
        "kernel_source": Path(__file__).with_suffix(".cu"),
        "problem_size": (columns, rows),
        "grid_div_x": ["block_size_x", "tile_x"],
        "grid_div_y": ["block_size_y", "tile_y"],
        "arguments": [
            np.zeros((rows, columns), dtype=np.float32),
            row_points,
            column_points,
            np.int32(columns),
            np.int32(dimensions),
        ],
        "tune_params": TUNE_PARAMS,
        "restrictions": RESTRICTIONS,
        "answer": [reference(row_points, column_points), None, None, None, None],
        "verify": close_enough,
        "lang": "CUDA",
    }


def reference(row_points: np.ndarray, column_points: np.ndarray) -> np.ndarray:
    """The squared distances, in double precision, where products do no harm."""
    distances = np.empty((len(row_points), len(column_points)), dtype=np.float32)
    others = column_points.astype(np.float64)
    other_squares = np.einsum("ij,ij->i", others, others)
    for i in range(0, len(row_points), COMPARED_ROWS):
        points = row_points[i : i + COMPARED_ROWS].astype(np.float64)
        squares = np.einsum("ij,ij->i", points, points)[:, np.newaxis]
        distances[i : i + COMPARED_ROWS] = squares + other_squares - 2 * (points @ others.T)
    return distances


def close_enough(answer: list, result: list) -> bool:
    """The largest error of a distance, which is about 43 for 256 dimensions; fast."""
    parts = [slice(i, i + COMPARED_ROWS) for i in range(0, len(answer[0]), COMPARED_ROWS)]
    errors = [np.abs(answer[0][part] - result[0][part]).max() for part in parts]
    return bool(np.max(errors) < 1e-3)
